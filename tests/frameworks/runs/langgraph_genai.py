"""langgraph, instrumented by OpenTelemetry's official instrumentation of langchain."""

from langgraph_story import answer
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor
from telemetry import traces

with traces() as provider:
    LangChainInstrumentor().instrument(tracer_provider=provider)
    print(answer())
