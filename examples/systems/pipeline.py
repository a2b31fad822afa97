"""A pipeline of six agents with the OpenAI Agents SDK: each adds one value to the others' results.

    OPENAI_BASE_URL=http://127.0.0.1:8900/v1 python examples/systems/pipeline.py 7

Prints the answer to order 7. OpenInference sends its spans to ``OTEL_EXPORTER_OTLP_ENDPOINT``.
"""

from __future__ import annotations

import asyncio

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    set_trace_processors,
    trace,
)
from openai import AsyncOpenAI
from program import run_as_program, telemetry

ROLES = {
    "reader": "Read the quantities and the prices.",
    "clerk": "Work out the subtotal.",
    "discounter": "Work out the discount.",
    "teller": "Take the discount off the subtotal.",
    "auditor": "Check the total, and correct it.",
    "writer": "Answer the customer.",
}


async def answer(task: str, base_url: str) -> str:
    """Run the agents in order, streamed; return the writer's answer."""
    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    with trace("pipeline"):
        said = await _in_turn(client, task)
    await client.close()
    return said


async def _in_turn(client: AsyncOpenAI, task: str) -> str:
    said = [task]
    for role, job in ROLES.items():
        agent = Agent(
            name=role,
            instructions=f"You are the {role}. {job}",
            model=OpenAIChatCompletionsModel(model="gpt-4o-mini", openai_client=client),
        )
        result = Runner.run_streamed(agent, "\n".join(said))
        async for _ in result.stream_events():
            pass
        said.append(str(result.final_output))
    return said[-1]


def instrument() -> None:
    """Turn on OpenInference's spans."""
    from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

    OpenAIAgentsInstrumentor().instrument(tracer_provider=telemetry("pipeline"))


set_trace_processors([])  # otherwise the SDK also sends every run to OpenAI

if __name__ == "__main__":
    run_as_program(answer, instrument, asyncio.run)
