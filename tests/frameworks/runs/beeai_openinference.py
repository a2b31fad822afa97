"""BeeAI, instrumented by OpenInference: the concierge asks the other two through tools."""

from __future__ import annotations

import asyncio

from beeai_framework.adapters.openai import OpenAIChatModel
from beeai_framework.agents.requirement import RequirementAgent
from beeai_framework.memory import UnconstrainedMemory
from beeai_framework.tools import StringToolOutput, Tool, tool
from beeai_framework.tools.handoff import HandoffTool
from openinference.instrumentation.beeai import BeeAIInstrumentor
from story import (
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
from telemetry import traces


@tool(name=TOOL, description=TOOL_PURPOSE)
async def look_up(name: str) -> StringToolOutput:
    return StringToolOutput(await asyncio.to_thread(look_up_vessel, name))


def agent(name: str, *tools: Tool) -> RequirementAgent:
    return RequirementAgent(
        tool_call_checker=False,  # it refuses a call that is made again after an error
        name=name,
        description=PURPOSE[name],
        llm=OpenAIChatModel(MODEL),
        instructions=INSTRUCTIONS[name],
        memory=UnconstrainedMemory(),
        tools=list(tools),
    )


async def answer() -> str:
    asked = [agent(REGISTRAR, look_up), agent(PURSER)]
    tools = [HandoffTool(each, name=f"ask_{each.meta.name}") for each in asked]
    return (await agent(CONCIERGE, *tools).run(QUESTION)).last_message.text


with traces() as provider:
    BeeAIInstrumentor().instrument(tracer_provider=provider)
    print(asyncio.run(answer()))
