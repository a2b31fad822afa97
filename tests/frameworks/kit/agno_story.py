"""The story with Agno, as a team whose leader delegates; used by every instrumentation's script."""

from __future__ import annotations

import os

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.team import Team
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


def answer() -> str:
    """Run the variant of the environment and return the leader's answer."""
    team = Team(
        name=CONCIERGE,
        members=[_member(REGISTRAR, look_up_vessel), _member(PURSER)],
        instructions=INSTRUCTIONS[CONCIERGE],
        model=_model(),
        telemetry=False,
    )
    if VARIANT == "streaming":
        return "".join(str(getattr(event, "content", "")) for event in team.run(QUESTION, stream=True))
    return str(team.run(QUESTION).content)


def _model() -> OpenAIChat:
    return OpenAIChat(id=MODEL, base_url=os.environ["OPENAI_BASE_URL"], api_key="dummy", max_retries=0)


def _member(name: str, *tools: object) -> Agent:
    return Agent(
        name=name,
        id=name,
        role=PURPOSE[name],
        instructions=INSTRUCTIONS[name],
        model=_model(),
        tools=list(tools),
        telemetry=False,
    )
