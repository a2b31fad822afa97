"""Pydantic AI's own instrumentation, in its newest format."""

from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai_story import answer
from telemetry import traces

with traces() as provider:
    Agent.instrument_all(InstrumentationSettings(version=6, tracer_provider=provider))
    print(answer())
