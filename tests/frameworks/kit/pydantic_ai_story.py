"""The story with Pydantic AI: the concierge calls the other two, each inside a tool."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.usage import UsageLimits
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MAX_TURNS,
    MODEL,
    PURSER,
    QUESTION,
    REGISTRAR,
    VARIANT,
    RegisterUnavailable,
    look_up_vessel,
)


def answer() -> str:
    """Run the variant of the environment and return the concierge's answer."""
    return asyncio.run(_answer())


async def _answer() -> str:
    concierge = _concierge()
    if VARIANT == "streaming":
        async with concierge.run_stream(QUESTION) as streamed:
            return str(await streamed.get_output())
    return str((await concierge.run(QUESTION)).output)


def _agent(name: str) -> Agent:
    return Agent(OpenAIChatModel(MODEL), name=name, instructions=INSTRUCTIONS[name])


def _concierge() -> Agent:
    concierge, registrar, purser = _agent(CONCIERGE), _agent(REGISTRAR), _agent(PURSER)
    turns = UsageLimits(request_limit=MAX_TURNS if VARIANT == "max_turns" else 20)

    @registrar.tool_plain(name="look_up_vessel", retries=20)
    async def look_up(name: str) -> str:
        try:
            return await asyncio.to_thread(look_up_vessel, name)
        except RegisterUnavailable as refusal:
            raise ModelRetry(str(refusal)) from refusal

    @concierge.tool_plain
    async def ask_registrar(question: str) -> str:
        return str((await registrar.run(question, usage_limits=turns)).output)

    @concierge.tool_plain
    async def ask_purser(question: str) -> str:
        return str((await purser.run(question)).output)

    return concierge
