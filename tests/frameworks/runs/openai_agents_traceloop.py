"""OpenAI's Agents SDK, instrumented by Traceloop's OpenLLMetry."""

from openai_agents_story import answer
from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from telemetry import traces

with traces() as provider:
    OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
    print(answer())
