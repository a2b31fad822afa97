"""Strands, whose agents emit OpenTelemetry by themselves: a swarm that hands over."""

from __future__ import annotations

import sys

from story import (
    AGENTS,
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURPOSE,
    QUESTION,
    REGISTRAR,
    TOOL,
    TOOL_PURPOSE,
    VARIANT,
    look_up_vessel,
)
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.multiagent import Swarm
from telemetry import traces

look_up = tool(name=TOOL, description=TOOL_PURPOSE)(look_up_vessel)


def agent(name: str) -> Agent:
    model = OpenAIModel(client_args={"max_retries": 0}, model_id=MODEL)
    return Agent(
        name=name,
        description=PURPOSE[name],
        system_prompt=INSTRUCTIONS[name],
        model=model,
        tools=[look_up] if name == REGISTRAR else [],
        callback_handler=None,
    )


with traces():
    agents = {name: agent(name) for name in AGENTS}
    swarm = Swarm(list(agents.values()), entry_point=agents[CONCIERGE])
    result = swarm(QUESTION)
print(VARIANT, result.status)
if result.status.value != "completed":
    sys.exit(1)
