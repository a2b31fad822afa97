"""A pydantic-graph whose steps each run an agent: without Logfire, each agent's run is a trace of its own."""

from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_graph_story import answer
from telemetry import traces

with traces() as provider:
    Agent.instrument_all(InstrumentationSettings(version=6, tracer_provider=provider))
    print(answer())
