"""CrewAI and OpenAI's client, both instrumented by OpenInference: a manager delegates to coworkers."""

from __future__ import annotations

import os

from crewai import LLM, Agent, Crew, Process, Task
from crewai.tools import tool
from openinference.instrumentation.crewai import CrewAIInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MAX_TURNS,
    MODEL,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    VARIANT,
    look_up_vessel,
)
from telemetry import traces


@tool("look_up_vessel")
def look_up(name: str) -> str:
    """Look a vessel up in the ship register: how many seats it has."""
    return look_up_vessel(name)


def agent(role: str, *tools: object, manages: bool = False) -> Agent:
    model = LLM(
        model=f"openai/{MODEL}", base_url=os.environ["OPENAI_BASE_URL"], api_key="dummy", max_retries=0
    )
    return Agent(
        role=role,
        goal=PURPOSE[role],
        backstory=INSTRUCTIONS[role],
        llm=model,
        tools=list(tools),
        allow_delegation=manages,
        max_iter=MAX_TURNS if VARIANT == "max_turns" else 12,
        max_retry_limit=0,
        verbose=False,
    )


with traces() as provider:
    CrewAIInstrumentor().instrument(tracer_provider=provider)
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    crew = Crew(
        agents=[agent(REGISTRAR, look_up), agent(PURSER)],
        tasks=[Task(description=QUESTION, expected_output="An answer to the passenger.")],
        process=Process.hierarchical,
        manager_agent=agent(CONCIERGE, manages=True),
        tracing=False,
        verbose=False,
    )
    print(crew.kickoff())
