"""Agno, instrumented by OpenInference: a team whose leader delegates to its members."""

from __future__ import annotations

import os

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.team import Team
from openinference.instrumentation.agno import AgnoInstrumentor
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
from telemetry import traces


def model() -> OpenAIChat:
    return OpenAIChat(id=MODEL, base_url=os.environ["OPENAI_BASE_URL"], api_key="dummy", max_retries=0)


def member(name: str, *tools: object) -> Agent:
    return Agent(
        name=name,
        id=name,
        role=PURPOSE[name],
        instructions=INSTRUCTIONS[name],
        model=model(),
        tools=list(tools),
        telemetry=False,
    )


with traces() as provider:
    AgnoInstrumentor().instrument(tracer_provider=provider)
    team = Team(
        name=CONCIERGE,
        members=[member(REGISTRAR, look_up_vessel), member(PURSER)],
        instructions=INSTRUCTIONS[CONCIERGE],
        model=model(),
        telemetry=False,
    )
    if VARIANT == "streaming":
        print("".join(str(getattr(event, "content", "")) for event in team.run(QUESTION, stream=True)))
    else:
        print(team.run(QUESTION).content)
