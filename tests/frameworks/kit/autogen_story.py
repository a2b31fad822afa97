"""The story with AutoGen's agentchat, as a swarm; its own spans always go to the global provider."""

from __future__ import annotations

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination, SourceMatchTermination
from autogen_agentchat.teams import Swarm
from autogen_ext.models.openai import OpenAIChatCompletionClient
from story import CONCIERGE, INSTRUCTIONS, MODEL, PURSER, QUESTION, REGISTRAR, VARIANT, look_up_vessel

MAX_MESSAGES = 14
"""In place of ``max_turns``: a look-up takes two messages besides its model call."""


def answer() -> str:
    """Run the variant of the environment and return the team's last message."""
    return asyncio.run(_answer())


async def _answer() -> str:
    limit = MAX_MESSAGES if VARIANT == "max_turns" else 60
    ends = SourceMatchTermination([PURSER]) | MaxMessageTermination(limit, include_agent_event=True)
    result: TaskResult | None = None
    async for event in Swarm(_agents(), termination_condition=ends).run_stream(task=QUESTION):
        if isinstance(event, TaskResult):
            result = event
    return result.messages[-1].to_text() if result else ""


def _agents() -> list[AssistantAgent]:
    async def look_up(name: str) -> str:
        """Look a vessel up in the ship register."""
        return await asyncio.to_thread(look_up_vessel, name)

    look_up.__name__ = "look_up_vessel"
    client = OpenAIChatCompletionClient(model=MODEL, max_retries=0)
    others = {CONCIERGE: {"handoffs": [REGISTRAR]}, REGISTRAR: {"handoffs": [PURSER], "tools": [look_up]}}
    return [
        AssistantAgent(
            name,
            model_client=client,
            system_message=INSTRUCTIONS[name],
            model_client_stream=VARIANT == "streaming",
            **others.get(name, {}),
        )
        for name in (CONCIERGE, REGISTRAR, PURSER)
    ]
