"""AG2 0.14, instrumented by OpenInference: two chained chats, the second told the first's answer."""

from autogen import ConversableAgent, LLMConfig
from openinference.instrumentation.ag2 import AG2Instrumentor
from story import INSTRUCTIONS, MODEL, PURSER, QUESTION, REGISTRAR, look_up_vessel
from telemetry import traces

CONFIG = LLMConfig({"model": MODEL, "max_retries": 0, "cache_seed": None})


def agent(name: str, *tools: object) -> ConversableAgent:
    return ConversableAgent(
        name,
        system_message=INSTRUCTIONS[name],
        llm_config=CONFIG,
        functions=list(tools),
        human_input_mode="NEVER",
    )


with traces() as provider:
    AG2Instrumentor().instrument(tracer_provider=provider)
    user = ConversableAgent("passenger", llm_config=False, human_input_mode="NEVER")
    registrar, purser = agent(REGISTRAR, look_up_vessel), agent(PURSER)
    user.register_for_execution(name="look_up_vessel")(look_up_vessel)
    shared = {"summary_method": "last_msg"}
    chats = user.initiate_chats(
        [
            {"recipient": registrar, "message": QUESTION, "max_turns": 3, **shared},
            {"recipient": purser, "message": QUESTION, "max_turns": 1, **shared},
        ]
    )
    print(chats[-1].summary)
