"""A CrewAI flow of two crews, instrumented by Traceloop."""

from __future__ import annotations

import os

from crewai import LLM, Agent, Crew, Task
from crewai.flow.flow import Flow, listen, start
from crewai.tools import tool
from opentelemetry.instrumentation.crewai import CrewAIInstrumentor
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
from story import INSTRUCTIONS, MODEL, PURPOSE, PURSER, QUESTION, REGISTRAR, look_up_vessel
from telemetry import traces


@tool("look_up_vessel")
def look_up(name: str) -> str:
    """Look a vessel up in the ship register: how many seats it has."""
    return look_up_vessel(name)


def ask(role: str, question: str, *tools: object) -> str:
    model = LLM(
        model=f"openai/{MODEL}", base_url=os.environ["OPENAI_BASE_URL"], api_key="dummy", max_retries=0
    )
    agent = Agent(
        role=role,
        goal=PURPOSE[role],
        backstory=INSTRUCTIONS[role],
        llm=model,
        tools=list(tools),
        max_retry_limit=0,
    )
    task = Task(description=question, expected_output="What you can tell.", agent=agent)
    return str(Crew(agents=[agent], tasks=[task], tracing=False).kickoff())


class Office(Flow):
    @start()
    def register(self) -> str:
        return ask(REGISTRAR, QUESTION, look_up)

    @listen(register)
    def amount(self, found: str) -> str:
        return ask(PURSER, f"{QUESTION} {found}")


with traces() as provider:
    CrewAIInstrumentor().instrument(tracer_provider=provider)
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    print(Office(tracing=False).kickoff())
