"""The story with OpenAI's Agents SDK; used by every instrumentation's script."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    ModelSettings,
    OutputGuardrail,
    Runner,
    function_tool,
    set_trace_processors,
)
from story import (
    CHECK,
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
    may_pass,
)

set_trace_processors([])  # else the SDK sends every run to OpenAI too


def answer() -> str:
    """Run the variant of the environment and return the last agent's answer."""
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
    purser = Agent(
        name=PURSER,
        instructions=INSTRUCTIONS[PURSER],
        model=MODEL,
        output_guardrails=_checks(OutputGuardrail),
    )
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
    return Agent(
        name=CONCIERGE,
        instructions=INSTRUCTIONS[CONCIERGE],
        model=MODEL,
        handoffs=[registrar],
        input_guardrails=_checks(InputGuardrail),
    )


def _checks(kind: Any) -> list[Any]:
    async def check(_: object, agent: Agent, text: object) -> GuardrailFunctionOutput:
        passes = await asyncio.to_thread(may_pass, agent.name, str(text))
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=not passes)

    # Not beside the model call: a check that is still asking when the call begins may come second.
    more = {"run_in_parallel": False} if kind is InputGuardrail else {}
    return [kind(check, name=CHECK, **more)] if VARIANT == "guarded" else []
