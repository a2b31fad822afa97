"""A ticket desk in LangGraph: the researcher looks a price up, the analyst works the total out."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph


@tool
def ticket_price(crossing: str) -> str:
    """Look up the price of one ticket."""
    return f"One ticket for {crossing} costs 121 EUR."


def ticket_desk(model: BaseChatModel) -> Any:
    """Return the compiled graph."""
    researcher = create_agent(
        model, [ticket_price], system_prompt="You are the researcher. Report the price.", name="researcher"
    )
    analyst = create_agent(
        model, [], system_prompt="You are the analyst. Work the total out.", name="analyst"
    )
    graph = StateGraph(MessagesState)
    graph.add_node("researcher", researcher)
    graph.add_node("analyst", analyst)
    graph.add_edge(START, "researcher")
    graph.add_edge("researcher", "analyst")
    return graph.compile(name="ticket_desk")
