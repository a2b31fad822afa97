"""The story with AG2 1.x: the concierge calls the other two as tools."""

from __future__ import annotations

import asyncio

from ag2 import Agent, tool
from ag2.config import OpenAIConfig
from ag2.middleware.builtin.telemetry import TelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    VARIANT,
    look_up_vessel,
)


def answer(provider: TracerProvider) -> str:
    """Run the variant of the environment and return the concierge's answer."""
    return asyncio.run(_answer(provider))


async def _answer(provider: TracerProvider) -> str:
    @tool(name="look_up_vessel", description="Look a vessel up in the ship register.")
    async def look_up(name: str) -> str:
        return await asyncio.to_thread(look_up_vessel, name)

    def agent(name: str, tools: list[object]) -> Agent:
        return Agent(
            name,
            INSTRUCTIONS[name],
            config=OpenAIConfig(MODEL, streaming=VARIANT == "streaming", max_retries=0),
            tools=tools,
            middleware=[TelemetryMiddleware(tracer_provider=provider, agent_name=name, model_name=MODEL)],
        )

    asked = [agent(REGISTRAR, [look_up]), agent(PURSER, [])]
    tools = [each.as_tool(description=PURPOSE[each.name], name=f"ask_{each.name}") for each in asked]
    reply = await agent(CONCIERGE, tools).ask(QUESTION)
    return str(reply.body)
