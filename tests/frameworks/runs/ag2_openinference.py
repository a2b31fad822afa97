"""AG2 0.14, instrumented by OpenInference."""

from ag2_story import answer, pattern
from openinference.instrumentation.ag2 import AG2Instrumentor
from telemetry import traces

with traces() as provider:
    AG2Instrumentor().instrument(tracer_provider=provider)
    print(answer(pattern()))
