"""AG2 0.14, instrumented by OpenInference: a group chat in which a user's proxy runs the tools."""

from __future__ import annotations

from autogen import ConversableAgent, GroupChat, GroupChatManager, LLMConfig, UserProxyAgent
from openinference.instrumentation.ag2 import AG2Instrumentor
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
from telemetry import traces

PROXY = "passenger"


def agent(name: str) -> ConversableAgent:
    config = LLMConfig({"model": MODEL, "max_retries": 0, "cache_seed": None})
    return ConversableAgent(
        name,
        system_message=INSTRUCTIONS[name],
        description=PURPOSE[name],
        llm_config=config,
        human_input_mode="NEVER",
    )


def answer() -> str:
    proxy = UserProxyAgent(PROXY, human_input_mode="NEVER", code_execution_config=False)
    agents = {name: agent(name) for name in AGENTS}
    proxy.register_for_execution(name=TOOL)(look_up_vessel)
    agents[REGISTRAR].register_for_llm(name=TOOL, description=TOOL_PURPOSE)(look_up_vessel)

    def following(last: ConversableAgent, chat: GroupChat) -> ConversableAgent | None:
        if last.name == REGISTRAR:
            return proxy if chat.messages[-1].get("tool_calls") else agents[PURSER]
        begins = last.name == PROXY and len(chat.messages) == 1
        after = {PROXY: CONCIERGE if begins else REGISTRAR, CONCIERGE: REGISTRAR}
        return agents[after[last.name]] if last.name in after else None

    chat = GroupChat(
        agents=[proxy, *agents.values()], messages=[], max_round=16, speaker_selection_method=following
    )
    said = proxy.initiate_chat(GroupChatManager(groupchat=chat), message=QUESTION)
    return str(said.chat_history[-1]["content"])


with traces() as provider:
    AG2Instrumentor().instrument(tracer_provider=provider)
    print(answer())
