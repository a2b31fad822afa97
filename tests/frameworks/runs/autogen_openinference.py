"""AutoGen, instrumented by OpenInference beside its own spans: everything is recorded twice."""

from autogen_story import answer
from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor
from telemetry import traces

with traces() as provider:
    AutogenAgentChatInstrumentor().instrument(tracer_provider=provider)
    print(answer())
