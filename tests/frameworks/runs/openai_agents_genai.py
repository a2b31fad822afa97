"""OpenAI's Agents SDK, instrumented by OpenTelemetry's official packages for it and for its model client."""

from openai_agents_story import answer
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from opentelemetry.instrumentation.genai.openai_agents import OpenAIAgentsInstrumentor
from telemetry import traces

with traces() as provider:
    # The first alone emits no model calls.
    OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    print(answer())
