"""The story with langgraph and langchain's agents; used by every instrumentation's script."""

from __future__ import annotations

from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MAX_TURNS,
    MODEL,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOL,
    TOOL_PURPOSE,
    VARIANT,
    look_up_vessel,
)


def answer(**config: Any) -> str:
    """Run the variant of the environment and return the last agent's answer."""
    steps = 2 * MAX_TURNS if VARIANT == "max_turns" else 50
    team = _team()
    ended = team.invoke(
        {"messages": [{"role": "user", "content": QUESTION}]}, {"recursion_limit": steps, **config}
    )
    return str(ended["messages"][-1].content)


@wrap_tool_call
def told(request: Any, handler: Any) -> Any:
    """Send a tool's error to the model, as langchain's guide shows."""
    try:
        return handler(request)
    except Exception as error:  # noqa: BLE001 (whatever the tool raises)
        return ToolMessage(f"Error: {error!r}", tool_call_id=request.tool_call["id"], status="error")


def _handing_over(target: str) -> BaseTool:
    @tool(f"transfer_to_{target}")
    def hand_over(
        state: Annotated[dict[str, Any], InjectedState], call_id: Annotated[str, InjectedToolCallId]
    ) -> Command[str]:
        """Pass the conversation on."""
        done = ToolMessage(f"Transferred to {target}", tool_call_id=call_id, name=f"transfer_to_{target}")
        return Command(goto=target, graph=Command.PARENT, update={"messages": [*state["messages"], done]})

    return hand_over


def _team() -> Any:
    model = ChatOpenAI(model=MODEL, max_retries=0, streaming=VARIANT == "streaming")
    look_up = tool(TOOL, description=TOOL_PURPOSE)(look_up_vessel)

    def agent(name: str, *tools: BaseTool) -> Any:
        return create_agent(
            model, list(tools), system_prompt=INSTRUCTIONS[name], name=name, middleware=[told]
        )

    graph = StateGraph(MessagesState)
    graph.add_node(CONCIERGE, agent(CONCIERGE, _handing_over(REGISTRAR)), destinations=(REGISTRAR,))
    graph.add_node(REGISTRAR, agent(REGISTRAR, look_up, _handing_over(PURSER)), destinations=(PURSER,))
    graph.add_node(PURSER, agent(PURSER))
    graph.add_edge(START, CONCIERGE)
    return graph.compile(name="ferry_office")
