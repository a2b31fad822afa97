"""AG2 0.14 with its own instrumentation, content on."""

from ag2_story import answer, pattern
from autogen.opentelemetry import instrument_llm_wrapper, instrument_pattern
from telemetry import traces

with traces() as provider:
    instrument_llm_wrapper(tracer_provider=provider, capture_messages=True)
    group = pattern()
    instrument_pattern(group, tracer_provider=provider)
    print(answer(group))
