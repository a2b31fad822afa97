"""Whose step it is by langgraph's metadata: agents inside tools, tasks of functions, and mere functions."""

from __future__ import annotations

import json

from semconv.model import Span
from tests.factories import ordered, span


def outline(*spans: Span) -> list[str]:
    return [f"{step.agent} {step.kind.value}" for step in ordered(*spans).steps]


QUESTION = {"input.value": json.dumps({"messages": [{"role": "user", "content": "How many?"}]})}


def chain(number: int, name: str, kind: str, parent: int | None, **metadata: object) -> Span:
    attributes = {"openinference.span.kind": kind, "metadata": json.dumps(metadata), **QUESTION}
    return span(
        number,
        parent=parent,
        name=name,
        attributes=attributes,
        scope="openinference.instrumentation.langchain",
    )


def node(name: str, namespace: str, **more: object) -> dict[str, object]:
    return {"langgraph_node": name, "langgraph_checkpoint_ns": namespace, **more}


def asked_in_a_tool(graph: str, tool: str, **own: object) -> list[str]:
    outer = node("tools", "tools:1", lc_agent_name="clerk")
    inner = node("agent", "tools:1|agent:2", **own)
    return outline(
        chain(1, "clerk", "CHAIN", None),
        chain(2, "ChatOpenAI", "LLM", 1, **node("agent", "agent:0", lc_agent_name="clerk")),
        chain(3, "tools", "CHAIN", 1, **outer),
        chain(4, tool, "TOOL", 3, **outer),
        chain(5, graph, "CHAIN", 4, **outer),
        chain(6, "agent", "CHAIN", 5, **inner),
        chain(7, "ChatOpenAI", "LLM", 6, **inner),
    )


def test_an_agent_that_a_tool_runs_is_the_graph_that_stands_in_the_tool() -> None:
    assert asked_in_a_tool("scout", "ask_scout") == ["clerk llm", "scout llm"]


def test_an_agent_that_a_tool_runs_keeps_its_own_name_and_not_the_askers() -> None:
    assert asked_in_a_tool("LangGraph", "ask", lc_agent_name="scout")[1] == "scout llm"
    assert asked_in_a_tool("scout", "ask", lc_agent_name="clerk")[1] == "scout llm"


def test_an_agent_without_a_name_goes_by_the_tool_that_runs_it() -> None:
    assert asked_in_a_tool("LangGraph", "research", lc_agent_name="clerk")[1] == "research llm"


def test_a_model_call_of_a_tools_own_stays_with_who_asked() -> None:
    tools = node("tools", "tools:1")
    assert outline(
        chain(1, "clerk", "CHAIN", None),
        chain(2, "tools", "CHAIN", 1, **tools),
        chain(3, "summarise", "TOOL", 2, **tools),
        chain(4, "ChatOpenAI", "LLM", 3, **tools),
    ) == ["clerk llm", "clerk tool"]


def test_a_task_that_a_function_calls_comes_before_the_function() -> None:
    for path in (["__pregel_push", ["__pregel_pull", "office"], 0, True], "('__pregel_push', '0', 'True')"):
        task = node("scout", "office:1|scout:2", langgraph_path=path)
        assert outline(
            chain(1, "LangGraph", "CHAIN", None),
            chain(2, "scout", "CHAIN", 1, **task),
            chain(3, "ChatOpenAI", "LLM", 2, **task),
        ) == ["scout llm"]


def test_a_branch_of_a_map_belongs_to_the_node_around_it() -> None:
    sent = node("look", "scout:1|look:2", langgraph_path=["__pregel_push", 0, False])
    assert outline(
        chain(1, "LangGraph", "CHAIN", None),
        chain(2, "look", "CHAIN", 1, **sent),
        chain(3, "ChatOpenAI", "LLM", 2, **sent),
    ) == ["scout llm"]


def test_langfuse_calls_a_function_an_agent_for_its_name_alone() -> None:
    def observation(number: int, kind: str, name: str, parent: int | None, where: str = "scout") -> Span:
        attributes = {
            "langfuse.observation.type": kind,
            "langfuse.observation.input": "How many?",
            "langfuse.observation.output": "Three",
            "langfuse.observation.metadata.langgraph_node": where,
        }
        return span(number, parent=parent, name=name, attributes=attributes, scope="langfuse-sdk")

    assert outline(
        observation(1, "span", "office", None),
        observation(2, "agent", "route_to_active_agent", 1),
        observation(3, "generation", "ChatOpenAI", 1),
    ) == ["scout llm"]


def test_a_call_in_a_plain_chain_belongs_to_the_function_around_it() -> None:
    assert outline(
        chain(1, "RunnableSequence", "CHAIN", None),
        chain(2, "scout", "CHAIN", 1),
        chain(3, "ChatOpenAI", "LLM", 2),
        chain(4, "LLMChain", "CHAIN", 1),
        chain(5, "ChatOpenAI", "LLM", 4),
    ) == ["scout llm", "unknown llm"]
