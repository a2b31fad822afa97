"""The story as a pydantic-graph whose steps each run an agent, without a span around them."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_graph import GraphBuilder, StepContext
from story import INSTRUCTIONS, MODEL, PURSER, QUESTION, REGISTRAR, RegisterUnavailable, look_up_vessel


def agent(name: str) -> Agent:
    return Agent(OpenAIChatModel(MODEL), name=name, instructions=INSTRUCTIONS[name])


registrar, purser = agent(REGISTRAR), agent(PURSER)


@registrar.tool_plain(name="look_up_vessel", retries=20)
async def look_up(name: str) -> str:
    """Look a vessel up in the ship register."""
    try:
        return await asyncio.to_thread(look_up_vessel, name)
    except RegisterUnavailable as refusal:
        raise ModelRetry(str(refusal)) from refusal


graph = GraphBuilder(input_type=str, output_type=str)


@graph.step
async def register(ctx: StepContext[None, None, str]) -> str:
    return str((await registrar.run(ctx.inputs)).output)


@graph.step
async def amount(ctx: StepContext[None, None, str]) -> str:
    return str((await purser.run(f"{QUESTION} {ctx.inputs}")).output)


graph.add(
    graph.edge_from(graph.start_node).to(register),
    graph.edge_from(register).to(amount),
    graph.edge_from(amount).to(graph.end_node),
)


def answer() -> str:
    """Run the graph and return the purser's answer."""
    return asyncio.run(graph.build().run(inputs=QUESTION))
