"""Agents read from langgraph's metadata: agents inside tools, tasks of functions, and mere functions."""

from __future__ import annotations

import json

from semconv.model import Span
from semconv.record import replace
from tests.factories import openinference, ordered, span


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


def hook(number: int, name: str, parent: int, namespace: str = "", **own: object) -> Span:
    """The node of a middleware's hook, as ``create_agent`` adds it: OpenInference marks it by its name."""
    return chain(number, name, "AGENT", parent, **node(name, namespace or f"{name}:1", **own))


def test_a_middlewares_hooks_are_no_steps() -> None:
    asked = node("model", "model:2", lc_agent_name="clerk")
    assert outline(
        chain(1, "clerk", "AGENT", None, lc_agent_name="clerk"),
        hook(2, "check_budget.before_agent", 1, lc_agent_name="clerk"),
        hook(3, "AgentMemory.before_model", 1, lc_agent_name="clerk"),
        chain(4, "ChatOpenAI", "LLM", 1, **asked),
        hook(5, "AgentMemory.after_model", 1, lc_agent_name="clerk"),
        hook(6, "check_budget.after_agent", 1, lc_agent_name="clerk"),
    ) == ["clerk llm"]


def test_a_model_that_a_hook_calls_is_the_agents_and_not_the_hooks() -> None:
    inside = node("Summary.before_model", "Summary.before_model:1")
    assert outline(
        chain(1, "clerk", "CHAIN", None),
        hook(2, "Summary.before_model", 1),
        chain(3, "ChatOpenAI", "LLM", 2, **inside),
    ) == ["clerk llm"]


def test_a_node_that_returned_nothing_said_nothing() -> None:
    def returning(got: str) -> list[str]:
        routed = chain(2, "agent_router", "AGENT", 1, **node("agent_router", "agent_router:1"))
        return outline(
            chain(1, "office", "CHAIN", None),
            replace(routed, attributes={**routed.attributes, "output.value": got}),
            chain(3, "ChatOpenAI", "LLM", 1, **node("scout", "scout:1")),
        )

    assert returning("null") == returning("{}") == ["scout llm"]
    assert returning("To the scout.") == ["agent_router llm", "scout llm"]


def test_a_span_that_marks_a_moment_of_an_agent_or_a_tool_is_no_step() -> None:
    """BeeAI's events: children without duration that repeat the kind of the span around them."""
    moments = [
        openinference(4, "AGENT", parent=2, framework="beeai", name="final_answer", start=40, end=40),
        openinference(5, "TOOL", parent=3, framework="beeai", name="error", start=35, end=35),
    ]
    assert outline(
        openinference(1, "CHAIN", parent=None, framework="beeai", name="office", end=90),
        openinference(2, "AGENT", framework="beeai", name="clerk", end=80),
        openinference(3, "TOOL", parent=2, framework="beeai", name="look_up", end=36),
        *moments,
    ) == ["clerk tool"]
