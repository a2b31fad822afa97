"""CrewAI, instrumented by OpenLIT: a manager delegates to coworkers."""

from __future__ import annotations

import os

import openlit
from crewai import LLM, Agent, Crew, Process, Task
from crewai.tools import tool
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    look_up_vessel,
)


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
        max_iter=12,
        max_retry_limit=0,
        verbose=False,
    )


# Without batches every span is sent as it ends, so there is nothing to flush.
openlit.init(
    otlp_endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], disable_metrics=True, disable_batch=True
)
crew = Crew(
    agents=[agent(REGISTRAR, look_up), agent(PURSER)],
    tasks=[Task(description=QUESTION, expected_output="An answer to the passenger.")],
    process=Process.hierarchical,
    manager_agent=agent(CONCIERGE, manages=True),
    tracing=False,
    verbose=False,
)
print(crew.kickoff())
