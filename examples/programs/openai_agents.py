"""Three agents of the OpenAI Agents SDK, one after the other: a sales report. Any OpenAI-compatible model."""

import json
import os

from agents import Agent, Runner, function_tool

FIGURES = {"north": {"january": 1200, "february": 1450, "march": 980}}


@function_tool
def sales(region: str) -> str:
    """Units sold in a region, by month of the first quarter."""
    return json.dumps(FIGURES.get(region) or {"error": f"no figures for the region {region!r}"})


researcher = Agent(
    name="researcher",
    instructions="You are the researcher. Look the monthly sales up and report them.",
    model="gpt-4o-mini",
    tools=[sales],
)
analyst = Agent(
    name="analyst", instructions="You are the analyst. Add the monthly sales up.", model="gpt-4o-mini"
)
writer = Agent(name="writer", instructions="You are the writer. Answer in one sentence.", model="gpt-4o-mini")

task = f"How many units did we sell in the {os.environ.get('REGION', 'north')} in the first quarter?"
figures = Runner.run_sync(researcher, task).final_output
total = Runner.run_sync(analyst, f"{task}\n{figures}").final_output
print(Runner.run_sync(writer, f"{task}\n{total}").final_output)
