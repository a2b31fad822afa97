"""Google's Agent Development Kit, which emits OpenTelemetry by itself: content in log events only."""

from __future__ import annotations

import asyncio
import os

from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOL,
    RegisterUnavailable,
    look_up_vessel,
)
from telemetry import logs, traces


def look_up(name: str) -> dict[str, str]:
    """Look a vessel up in the ship register: how many seats it has."""
    try:
        return {"result": look_up_vessel(name)}
    except RegisterUnavailable as error:  # ADK ends the run where a tool raises
        return {"error": str(error)}


look_up.__name__ = TOOL


def agent(name: str, *, tools: tuple[object, ...] = (), team: tuple[Agent, ...] = ()) -> Agent:
    model = LiteLlm(
        model=f"openai/{MODEL}", api_base=os.environ["OPENAI_BASE_URL"], api_key="dummy", num_retries=0
    )
    return Agent(
        name=name,
        model=model,
        description=PURPOSE[name],
        instruction=INSTRUCTIONS[name],
        tools=list(tools),
        sub_agents=list(team),
    )


async def main() -> None:
    team = (agent(REGISTRAR, tools=(look_up,)), agent(PURSER))
    runner = InMemoryRunner(agent=agent(CONCIERGE, team=team), app_name="ferry_office")
    session = await runner.session_service.create_session(app_name="ferry_office", user_id="passenger")
    question = types.Content(role="user", parts=[types.Part(text=QUESTION)])
    async for event in runner.run_async(user_id="passenger", session_id=session.id, new_message=question):
        print(event.author, event.content)


with traces(), logs():
    asyncio.run(main())
