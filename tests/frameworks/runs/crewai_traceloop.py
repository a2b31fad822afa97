"""CrewAI and OpenAI's client, both instrumented by Traceloop: three tasks one after the other."""

from __future__ import annotations

import os

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from opentelemetry.instrumentation.crewai import CrewAIInstrumentor
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
from story import (
    AGENTS,
    INSTRUCTIONS,
    MODEL,
    PURPOSE,
    QUESTION,
    REGISTRAR,
    look_up_vessel,
)
from telemetry import traces


@tool("look_up_vessel")
def look_up(name: str) -> str:
    """Look a vessel up in the ship register: how many seats it has."""
    return look_up_vessel(name)


def agent(role: str) -> Agent:
    model = LLM(
        model=f"openai/{MODEL}", base_url=os.environ["OPENAI_BASE_URL"], api_key="dummy", max_retries=0
    )
    return Agent(
        role=role,
        goal=PURPOSE[role],
        backstory=INSTRUCTIONS[role],
        llm=model,
        tools=[look_up] if role == REGISTRAR else [],
        max_retry_limit=0,
    )


with traces() as provider:
    CrewAIInstrumentor().instrument(tracer_provider=provider)
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    crew = [agent(role) for role in AGENTS]
    tasks = [Task(description=QUESTION, expected_output="What you can tell.", agent=each) for each in crew]
    print(Crew(agents=crew, tasks=tasks, tracing=False).kickoff())
