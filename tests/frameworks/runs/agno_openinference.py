"""Agno, instrumented by OpenInference: a team whose leader delegates to its members."""

from agno_story import answer
from openinference.instrumentation.agno import AgnoInstrumentor
from telemetry import traces

with traces() as provider:
    AgnoInstrumentor().instrument(tracer_provider=provider)
    print(answer())
