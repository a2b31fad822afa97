"""An orchestrator with workers and a tool, with LangGraph: it plans, workers look up and count, it answers.

    OPENAI_BASE_URL=http://127.0.0.1:8900/v1 python examples/systems/orchestrator.py 7

Prints the answer to order 7. The tool runs in this process and only reads: ``--allow-tool look_up_price``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from program import run_as_program, telemetry

JOBS = {
    "planner": "Say how many of each are ordered.",
    "buyer": "Look the prices up, and say them.",
    "accountant": "Work out the subtotal.",
    "treasurer": "Work out the total after the discount.",
    "reporter": "Answer the customer.",
}


@tool
def look_up_price(item: str) -> str:
    """Look up whether an item is sold at its usual price."""
    return f"{item}: sold at the usual price"


async def answer(task: str, base_url: str) -> str:
    """Run the graph; return the reporter's answer."""
    model = ChatOpenAI(model="gpt-4o-mini", base_url=base_url, api_key="none", max_retries=0, streaming=True)
    ended: dict[str, Any] = await _graph(model).ainvoke({"messages": [{"role": "user", "content": task}]})
    return str(ended["messages"][-1].content)


def _graph(model: ChatOpenAI) -> Any:
    graph = StateGraph(MessagesState)
    before = START
    for role, job in JOBS.items():
        tools = [look_up_price] if role == "buyer" else []
        graph.add_node(
            role, create_agent(model, tools, system_prompt=f"You are the {role}. {job}", name=role)
        )
        graph.add_edge(before, role)
        before = role
    return graph.compile(name="orchestrator")


def instrument() -> None:
    """Turn on OpenInference's spans."""
    from openinference.instrumentation.langchain import LangChainInstrumentor

    LangChainInstrumentor().instrument(tracer_provider=telemetry("orchestrator"))


if __name__ == "__main__":
    run_as_program(answer, instrument, asyncio.run)
