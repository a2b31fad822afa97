"""Smolagents, instrumented by OpenInference: a manager whose agents are its tools."""

from __future__ import annotations

import os

from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import OpenAIServerModel, ToolCallingAgent, tool
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MAX_TURNS,
    MODEL,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    look_up_vessel,
)
from telemetry import traces


def agent(
    name: str, *, tools: tuple[object, ...] = (), asks: tuple[ToolCallingAgent, ...] = ()
) -> ToolCallingAgent:
    model = OpenAIServerModel(
        model_id=MODEL,
        api_base=os.environ["OPENAI_BASE_URL"],
        api_key="dummy",
        client_kwargs={"max_retries": 0},
    )
    return ToolCallingAgent(
        name=name,
        description=PURPOSE[name],
        instructions=INSTRUCTIONS[name],
        model=model,
        tools=list(tools),
        managed_agents=list(asks),
        max_steps=MAX_TURNS,
        verbosity_level=0,
    )


@tool
def look_up(name: str) -> str:
    """Look a vessel up in the ship register: how many seats it has.

    Args:
        name: the vessel's name
    """
    return look_up_vessel(name)


look_up.name = "look_up_vessel"

with traces() as provider:
    SmolagentsInstrumentor().instrument(tracer_provider=provider)
    asked = (agent(REGISTRAR, tools=(look_up,)), agent(PURSER))
    print(agent(CONCIERGE, asks=asked).run(QUESTION))
