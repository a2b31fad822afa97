"""The story with OpenAI's Agents SDK; every instrumentation's script plays this one."""

from __future__ import annotations

import asyncio

from agents import Agent, ModelSettings, Runner, function_tool, set_trace_processors
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MAX_TURNS,
    MODEL,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOL,
    TOOL_PURPOSE,
    VARIANT,
    look_up_vessel,
)

set_trace_processors([])  # else the SDK sends every run to OpenAI too


def answer() -> str:
    """Play the variant of the environment and return the last agent's answer."""
    return asyncio.run(_answer())


async def _answer() -> str:
    turns = MAX_TURNS if VARIANT == "max_turns" else 12
    if VARIANT == "streaming":
        streamed = Runner.run_streamed(_concierge(), QUESTION, max_turns=turns)
        async for _ in streamed.stream_events():
            pass
        return str(streamed.final_output)
    result = await Runner.run(_concierge(), QUESTION, max_turns=turns)
    return str(result.final_output)


def _concierge() -> Agent:
    # As a coroutine, so that two look-ups of one reply run side by side.
    async def look_up(name: str) -> str:
        return await asyncio.to_thread(look_up_vessel, name)

    tool = function_tool(look_up, name_override=TOOL, description_override=TOOL_PURPOSE)
    purser = Agent(name=PURSER, instructions=INSTRUCTIONS[PURSER], model=MODEL)
    if VARIANT == "delegating":
        registrar = Agent(name=REGISTRAR, instructions=INSTRUCTIONS[REGISTRAR], model=MODEL, tools=[tool])
        asked = [each.as_tool(f"ask_{each.name}", PURPOSE[each.name]) for each in (registrar, purser)]
        return Agent(name=CONCIERGE, instructions=INSTRUCTIONS[CONCIERGE], model=MODEL, tools=asked)
    registrar = Agent(
        name=REGISTRAR,
        instructions=INSTRUCTIONS[REGISTRAR],
        model=MODEL,
        tools=[tool],
        handoffs=[purser],
        model_settings=ModelSettings(parallel_tool_calls=True),
    )
    return Agent(name=CONCIERGE, instructions=INSTRUCTIONS[CONCIERGE], model=MODEL, handoffs=[registrar])
