"""langgraph, instrumented by OpenInference."""

from langgraph_story import answer
from openinference.instrumentation.langchain import LangChainInstrumentor
from telemetry import traces

with traces() as provider:
    LangChainInstrumentor().instrument(tracer_provider=provider)
    print(answer())
