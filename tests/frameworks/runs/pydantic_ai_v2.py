"""Pydantic AI 1's own instrumentation, in version 2 of its format."""

from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai_story import answer
from telemetry import traces

with traces() as provider:
    Agent.instrument_all(InstrumentationSettings(version=2, tracer_provider=provider))
    print(answer())
