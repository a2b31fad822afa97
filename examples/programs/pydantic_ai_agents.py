"""Three agents of Pydantic AI, one after the other: a sales report. Any OpenAI-compatible model."""

import json
import os

from pydantic_ai import Agent

FIGURES = {"north": {"january": 1200, "february": 1450, "march": 980}}

researcher = Agent(
    "openai-chat:gpt-4o-mini",
    name="researcher",
    instructions="You are the researcher. Look the monthly sales up and report them.",
)
analyst = Agent(
    "openai-chat:gpt-4o-mini", name="analyst", instructions="You are the analyst. Add the monthly sales up."
)
writer = Agent(
    "openai-chat:gpt-4o-mini", name="writer", instructions="You are the writer. Answer in one sentence."
)


@researcher.tool_plain
def sales(region: str) -> str:
    """Units sold in a region, by month of the first quarter."""
    return json.dumps(FIGURES.get(region) or {"error": f"no figures for the region {region!r}"})


task = f"How many units did we sell in the {os.environ.get('REGION', 'north')} in the first quarter?"
figures = researcher.run_sync(task).output
total = analyst.run_sync(f"{task}\n{figures}").output
print(writer.run_sync(f"{task}\n{total}").output)
