"""langgraph, instrumented by Traceloop's OpenLLMetry."""

from langgraph_story import answer
from opentelemetry.instrumentation.langchain import LangchainInstrumentor
from telemetry import traces

with traces() as provider:
    LangchainInstrumentor().instrument(tracer_provider=provider)
    print(answer())
