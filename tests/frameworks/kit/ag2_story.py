"""The story with AG2 0.14, as a group chat with tools for handoffs."""

from __future__ import annotations

from autogen import ConversableAgent, LLMConfig
from autogen.agentchat import initiate_group_chat
from autogen.agentchat.group import AgentTarget, ReplyResult, TerminateTarget
from autogen.agentchat.group.patterns import DefaultPattern
from story import CONCIERGE, INSTRUCTIONS, MODEL, PURSER, QUESTION, REGISTRAR, look_up_vessel


def pattern() -> DefaultPattern:
    """Return the three agents, the concierge first."""
    purser = _agent(PURSER, [])

    def transfer_to_purser() -> ReplyResult:
        """Hand over to the purser."""
        return ReplyResult(message="over to the purser", target=AgentTarget(purser))

    registrar = _agent(REGISTRAR, [look_up_vessel, transfer_to_purser])

    def transfer_to_registrar() -> ReplyResult:
        """Hand over to the registrar."""
        return ReplyResult(message="over to the registrar", target=AgentTarget(registrar))

    concierge = _agent(CONCIERGE, [transfer_to_registrar])
    purser.handoffs.set_after_work(TerminateTarget())
    return DefaultPattern(initial_agent=concierge, agents=[concierge, registrar, purser])


def answer(group: DefaultPattern) -> str:
    """Run the variant of the environment and return the last message."""
    result, _, _ = initiate_group_chat(pattern=group, messages=QUESTION, max_rounds=16)
    return str(result.chat_history[-1]["content"])


def _agent(name: str, tools: list[object]) -> ConversableAgent:
    config = LLMConfig({"model": MODEL, "max_retries": 0, "cache_seed": None})
    return ConversableAgent(
        name, system_message=INSTRUCTIONS[name], llm_config=config, functions=tools, human_input_mode="NEVER"
    )
