"""The story with Microsoft's agent-framework."""

from __future__ import annotations

import asyncio

from agent_framework import Agent, Workflow, tool
from agent_framework.observability import enable_instrumentation
from agent_framework.openai import OpenAIChatCompletionClient
from agent_framework_orchestrations import GroupChatBuilder, HandoffBuilder, SequentialBuilder
from openai import AsyncOpenAI
from story import (
    AGENTS,
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOL_PURPOSE,
    VARIANT,
    look_up_vessel,
)


def answer(workflow: Workflow) -> str:
    """Run the variant of the environment and return the workflow's result."""
    enable_instrumentation(enable_sensitive_data=True)
    return asyncio.run(_answer(workflow))


async def _answer(workflow: Workflow) -> str:
    if VARIANT == "streaming":
        return str([event async for event in workflow.run(QUESTION, stream=True)][-1])
    return str((await workflow.run(QUESTION)).get_outputs())


def hand_over() -> Workflow:
    """Return the story as a handoff that ends with the purser's answer."""
    concierge, registrar, purser = _agents()
    builder = HandoffBuilder(
        name="ferry office",
        participants=[concierge, registrar, purser],
        termination_condition=lambda said: bool(said) and said[-1].author_name == PURSER,
    )
    building = builder.with_start_agent(concierge)
    return building.add_handoff(concierge, [registrar]).add_handoff(registrar, [purser]).build()


def one_after_the_other() -> Workflow:
    """Return the story as a sequence of the registrar and the purser."""
    return SequentialBuilder(participants=_agents()[1:]).build()


def in_a_group_chat() -> Workflow:
    """Return the story as a group chat in which each of the three speaks once."""
    return GroupChatBuilder(
        participants=_agents(),
        selection_func=lambda state: AGENTS[state.current_round],
        max_rounds=len(AGENTS),
    ).build()


def _agents() -> list[Agent]:
    @tool(name="look_up_vessel", description=TOOL_PURPOSE, approval_mode="never_require")
    async def look_up(name: str) -> str:
        return await asyncio.to_thread(look_up_vessel, name)

    client = OpenAIChatCompletionClient(model=MODEL, async_client=AsyncOpenAI(max_retries=0))
    return [
        Agent(
            client,
            INSTRUCTIONS[name],
            name=name,
            description=PURPOSE[name],
            tools=[look_up] if name == REGISTRAR else [],
            require_per_service_call_history_persistence=True,
        )
        for name in (CONCIERGE, REGISTRAR, PURSER)
    ]
