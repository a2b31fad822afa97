"""OpenAI's Agents SDK, instrumented by OpenInference."""

from openai_agents_story import answer
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from telemetry import traces

with traces() as provider:
    OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
    print(answer())
