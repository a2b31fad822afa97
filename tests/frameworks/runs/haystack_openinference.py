"""Haystack, instrumented by OpenInference: the concierge asks the other two, which are agents as tools."""

from __future__ import annotations

from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import AgentTool, Tool
from openinference.instrumentation.haystack import HaystackInstrumentor
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
    TOOLS,
    look_up_vessel,
)
from telemetry import traces


def agent(name: str, *tools: Any) -> Agent:
    return Agent(
        chat_generator=OpenAIChatGenerator(model=MODEL, max_retries=0),
        system_prompt=INSTRUCTIONS[name],
        tools=list(tools),
    )


def asking(name: str, *tools: Any) -> AgentTool:
    return AgentTool(agent=agent(name, *tools), name=f"ask_{name}", description=PURPOSE[name])


with traces() as provider:
    HaystackInstrumentor().instrument(tracer_provider=provider)
    look_up = Tool(
        name=TOOL,
        description=TOOL_PURPOSE,
        parameters=TOOLS[0]["function"]["parameters"],
        function=look_up_vessel,
    )
    concierge = agent(CONCIERGE, asking(REGISTRAR, look_up), asking(PURSER))
    print(concierge.run(messages=[ChatMessage.from_user(QUESTION)])["last_message"].text)
