"""Semantic Kernel, which emits OpenTelemetry by itself: agents that hand over."""

from __future__ import annotations

import asyncio
import logging
import os

from openai import AsyncOpenAI
from opentelemetry.sdk._logs import LoggingHandler
from semantic_kernel.agents import ChatCompletionAgent, HandoffOrchestration, OrchestrationHandoffs
from semantic_kernel.agents.runtime import InProcessRuntime
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function
from story import (
    AGENTS,
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOL,
    TOOL_PURPOSE,
    look_up_vessel,
)
from telemetry import logs, traces


class Register:
    @kernel_function(name=TOOL, description=TOOL_PURPOSE)
    async def look_up(self, name: str) -> str:
        return await asyncio.to_thread(look_up_vessel, name)


def agent(name: str) -> ChatCompletionAgent:
    client = AsyncOpenAI(base_url=os.environ["OPENAI_BASE_URL"], max_retries=0)
    return ChatCompletionAgent(
        name=name,
        description=PURPOSE[name],
        instructions=INSTRUCTIONS[name],
        service=OpenAIChatCompletion(ai_model_id=MODEL, async_client=client),
        plugins=[Register()] if name == REGISTRAR else [],
    )


async def answer() -> object:
    handoffs = (
        OrchestrationHandoffs()
        .add(CONCIERGE, REGISTRAR, PURPOSE[REGISTRAR])
        .add(REGISTRAR, PURSER, PURPOSE[PURSER])
    )
    team = HandoffOrchestration(members=[agent(name) for name in AGENTS], handoffs=handoffs)
    runtime = InProcessRuntime()
    runtime.start()
    try:
        asked = await team.invoke(task=QUESTION, runtime=runtime)
        return await asked.get(timeout=60)
    finally:
        await runtime.stop()


with traces(), logs():
    # The texts of model calls are Python's log records.
    logging.getLogger("semantic_kernel").setLevel(logging.INFO)
    logging.getLogger("semantic_kernel").addHandler(LoggingHandler())
    print(asyncio.run(answer()))
