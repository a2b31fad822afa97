"""Where each OpenInference instrumentation stores agents, texts, errors and handoffs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from semconv.dialects import USUAL, Action, ActionKind, Surroundings
from semconv.model import AgentSource, Span, StepKind
from tests.factories import openinference, ordered, outline, span


def read(made: Span, *others: Span) -> Action:
    action = USUAL.action(made, Surroundings([made, *others]))
    assert action is not None
    return action


def metadata(**fields: Any) -> dict[str, str]:
    return {"metadata": json.dumps(fields)}


SPAN, METADATA, NAME = AgentSource.SPAN, AgentSource.METADATA, AgentSource.SPAN_NAME
AGENTS: dict[str, tuple[str, str, dict[str, Any], str | None, AgentSource]] = {
    "openai-agents": ("AGENT", "triage", {"agent.name": "triage"}, "triage", SPAN),
    "crewai, autogen": ("AGENT", "x", {"graph.node.id": "analyst"}, "analyst", SPAN),
    "agno": ("AGENT", "a.run", {"agent.name": "a", "graph.node.id": "9f" * 8}, "a", SPAN),
    "pydantic-ai, strands": ("LLM", "chat", {"gen_ai.agent.name": "a"}, "a", SPAN),
    "langchain agent": ("LLM", "m", metadata(lc_agent_name="a", langgraph_node="model"), "a", METADATA),
    "langgraph namespace": ("LLM", "m", metadata(langgraph_checkpoint_ns="a:1|model:2"), "a", METADATA),
    "langgraph node": ("LLM", "m", metadata(langgraph_node="writer"), "writer", METADATA),
    "plumbing": ("LLM", "m", metadata(langgraph_checkpoint_ns="tools:1", langgraph_node="tools"), None, SPAN),
    "broken metadata": ("LLM", "m", {"metadata": "not json"}, None, SPAN),
    "smolagents": ("AGENT", "researcher.run", {}, "researcher", NAME),
    "google-adk": ("AGENT", "agent_run [critic]", {}, "critic", NAME),
    "a hash is no name": ("AGENT", "x", {"graph.node.id": "9f8e7d6c5b4a39281706"}, "x", NAME),
    "a chain is nobody's": ("CHAIN", "turn", {}, None, SPAN),
}


@pytest.mark.parametrize(("kind", "name", "attributes", "agent", "source"), AGENTS.values(), ids=AGENTS)
def test_the_agent_is_found(
    kind: str, name: str, attributes: dict[str, Any], agent: str | None, source: AgentSource
) -> None:
    action = read(openinference(2, kind, name=name, attributes=attributes))
    assert action.agent == agent
    if agent is not None:
        assert action.agent_source is source


def test_an_agent_known_only_by_its_class_is_called_what_its_manager_calls_it() -> None:
    managing = {
        f"smolagents.managed_agents.{at}.name": name for at, name in enumerate(("searcher", "writer"))
    }
    manager = openinference(1, "AGENT", parent=None, name="CodeAgent.run", attributes=managing)
    step = openinference(2, "CHAIN", parent=1)
    told = json.dumps({"task": "You're a helpful agent named 'writer'."})
    given = {"input.value": told}
    managed = openinference(3, "AGENT", parent=2, name="ToolCallingAgent.run", attributes=given)
    assert read(managed, manager, step).agent == "writer"


def test_openai_agents_trace_is_the_workflow() -> None:
    root = openinference(1, "AGENT", parent=None, framework="openai_agents", name="Agent workflow")
    assert read(root).kind is ActionKind.WORKFLOW


def test_openai_agents_handoff_says_from_whom_to_whom() -> None:
    passed = {"input.value": "triage", "output.value": "researcher"}
    name = "handoff to researcher"
    action = read(openinference(2, "TOOL", framework="openai_agents", name=name, attributes=passed))
    assert (action.kind, action.target) == (ActionKind.HANDOFF, "researcher")


@pytest.mark.parametrize(
    ("result", "error"),
    [
        pytest.param(
            {"type": "tool", "data": {"content": "timed out", "status": "error"}}, "timed out", id="langgraph"
        ),
        pytest.param({"error": "timed out"}, "timed out", id="adk"),
        pytest.param([False, {"role": "function", "content": "timed out"}], "timed out", id="ag2"),
        pytest.param({"status": "ok", "error": None}, "", id="none"),
        pytest.param({"rows": [{"error": "in a row"}]}, "", id="an error among the data"),
        pytest.param("plain", "", id="text"),
    ],
)
def test_an_error_that_was_handled_is_still_seen(result: Any, error: str) -> None:
    value = result if isinstance(result, str) else json.dumps(result)
    action = read(openinference(2, "TOOL", attributes={"tool.name": "search", "output.value": value}))
    assert (action.failed, action.error) == (bool(error), error)


def test_langchains_tool_message_gives_result_and_call_id() -> None:
    message = {"type": "tool", "data": {"content": "16", "tool_call_id": "c1", "type": "tool"}}
    called = {"tool.name": "t", "output.value": json.dumps(message)}
    action = read(openinference(2, "TOOL", attributes=called))
    assert (action.output, action.call_id) == ("16", "c1")


@pytest.mark.parametrize(
    "result",
    [
        {"data": {"seats": 16}},
        {"data": {"close": None}, "errors": [{"message": "forbidden"}]},
        {"type": "tool", "name": "hammer", "price": 12},
        [True, {"seats": 16}],
    ],
)
def test_a_result_with_the_keys_of_a_message_is_kept_whole(result: Any) -> None:
    got = json.dumps(result)
    action = read(openinference(2, "TOOL", attributes={"tool.name": "t", "output.value": got}))
    assert json.loads(action.output) == result


def test_smolagents_arguments_are_unwrapped() -> None:
    wrapped = json.dumps({"args": [], "sanitize_inputs_outputs": True, "kwargs": {"name": "Falcon"}})
    action = read(openinference(2, "TOOL", attributes={"tool.name": "t", "input.value": wrapped}))
    assert json.loads(action.input) == {"name": "Falcon"}


def test_ag2s_call_and_pair_are_unwrapped() -> None:
    called = {
        "tool.name": "t",
        "agent.name": "_Group_Tool_Executor",
        "tool_call.function.arguments": '{"name": "Falcon"}',
        "input.value": '{"name": "t", "arguments": "{}"}',
        "output.value": json.dumps([True, {"role": "function", "content": "16"}]),
    }
    action = read(openinference(2, "TOOL", attributes=called))
    assert (action.input, action.output, action.pseudo_agent) == ('{"name": "Falcon"}', "16", True)


def test_messages_with_gaps_and_odd_types_are_read() -> None:
    attributes = {
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": "be brief",
        "llm.input_messages.7.message.role": "user",
        "llm.input_messages.7.message.contents.0.message_content.type": "text",
        "llm.input_messages.7.message.contents.0.message_content.text": "hello",
        "llm.input_messages.7.message.contents.1.message_content.type": "image",
        "llm.input_messages.9.function.0": '{"content": "late", "call_id": "c", "is_error": true}',
        "llm.input_messages.x.message.role": "user",
        "llm.input_messages": 5,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": 42,
        "llm.output_messages.0.message.tool_calls.3.tool_call.function.name": "t",
    }
    action = read(openinference(2, "LLM", attributes=attributes))
    assert [(each.role, each.text) for each in action.input_messages] == [
        ("system", "be brief"),
        ("user", "hello\n[image]"),
        ("tool", "late"),
    ]
    assert action.instructions == "be brief"
    assert action.output_messages[0].text == "42"
    assert [call.name for call in action.requested] == ["t"]


def test_strands_history_filed_as_output_is_put_back() -> None:
    attributes = {
        f"llm.output_messages.{index}.message.{key}": value
        for index, words in enumerate(("earlier", "now"))
        for key, value in (("role", "assistant"), ("content", words))
    }
    attributes["openinference.span.kind"] = "LLM"
    action = read(span(2, attributes=attributes, scope="strands.telemetry.tracer"))
    assert [each.text for each in action.output_messages] == ["now"]
    assert [each.text for each in action.input_messages] == ["earlier"]


def test_a_crews_tasks_are_its_task() -> None:
    tasks = json.dumps([{"description": "Find it."}, {"description": "Compute it."}])
    action = read(openinference(1, "CHAIN", parent=None, attributes={"crew_tasks": tasks}))
    assert (action.kind, action.task) == (ActionKind.WORKFLOW, "Find it.\nCompute it.")


def test_an_agent_that_version_skew_calls_a_model_is_an_agent() -> None:
    attributes = {"gen_ai.operation.name": "invoke_agent"}
    action = read(openinference(2, "LLM", name="invoke_agent a", attributes=attributes))
    assert action.kind is ActionKind.AGENT


@pytest.mark.parametrize(
    ("value", "task"),
    [
        pytest.param({"task": "do it", "stream": False}, "do it", id="smolagents, autogen"),
        pytest.param(
            {"messages": [{"type": "human", "data": {"content": "do it"}}]}, "do it", id="langgraph"
        ),
        pytest.param(
            {"new_message": {"role": "user", "parts": [{"text": "do it"}]}}, "do it", id="google-adk"
        ),
        pytest.param([{"role": "user", "content": "do it"}], "do it", id="messages"),
        pytest.param("do it", "do it", id="text"),
        pytest.param({"x": 1}, '{"x": 1}', id="unrecognised"),
    ],
)
def test_the_task_is_found_in_the_input(value: Any, task: str) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    assert read(openinference(1, "AGENT", parent=None, attributes={"input.value": text})).task == task


@pytest.mark.parametrize("kind", ["UNKNOWN", "", 7, None])
def test_an_unknown_kind_is_not_ours(kind: Any) -> None:
    made = span(1, attributes={"openinference.span.kind": kind})
    assert USUAL.action(made, Surroundings([made])) is None


def test_claudes_subagent_is_named_by_the_tool_call_that_spawned_it() -> None:
    """The instrumentation names it after the tool."""
    scope = "openinference.instrumentation.claude_agent_sdk"
    named = {"openinference.span.kind": "TOOL", "tool.name": "Task"}
    spawning = {**named, "input.value": '{"subagent_type": "reviewer"}'}
    inner = {"openinference.span.kind": "AGENT", "agent.name": "Task", "output.value": "looks good"}
    trajectory = ordered(
        span(1, scope=scope, name="Task", attributes=spawning),
        span(2, parent=1, scope=scope, name="ClaudeAgentSDK.Task", attributes=inner),
    )
    assert outline(trajectory) == [("reviewer", "llm")]


def claudes_subagent(number: int, called: dict[str, Any], *, end: float, until: float) -> list[Span]:
    """A call that starts a subagent and ends at ``end``, and the subagent's span, which ends at ``until``."""
    scope = "openinference.instrumentation.claude_agent_sdk"
    spawning = {"openinference.span.kind": "TOOL", "tool.name": "Agent", **called}
    inner = {"openinference.span.kind": "AGENT", "agent.name": "Agent"}
    return [
        span(number, parent=1, scope=scope, name="Agent", end=end, attributes=spawning),
        span(
            number + 1, parent=number, scope=scope, name="ClaudeAgentSDK.Agent", end=until, attributes=inner
        ),
    ]


def claudes_run() -> Span:
    scope = "openinference.instrumentation.claude_agent_sdk"
    named = {"openinference.span.kind": "AGENT", "output.value": "done"}
    return span(1, scope=scope, name="ClaudeAgentSDK.query", end=900, attributes=named)


def test_claudes_subagent_answers_with_the_result_of_the_call_and_before_what_follows() -> None:
    """Its own span contains no texts, and ends with the whole run."""
    note = {"type": "text", "text": "<tools-used-before-summary>Read</tools-used-before-summary>"}
    result = {"status": "completed", "content": [note, {"type": "text", "text": "85 seats"}]}
    given = {"input.value": '{"subagent_type": "clerk", "prompt": "how many?"}'}
    first = claudes_subagent(2, given | {"output.value": json.dumps(result)}, end=80, until=890)
    reading = {"openinference.span.kind": "TOOL", "tool.name": "Read", "output.value": "…"}
    used = span(5, parent=3, name="Read", attributes=reading)
    other = claudes_subagent(20, {"input.value": '{"subagent_type": "purser"}'}, end=300, until=890)

    steps = ordered(claudes_run(), *first, used, *other).steps

    clerks = [("clerk", "tool", "…"), ("clerk", "llm", "85 seats")]
    assert [(one.agent, one.kind, one.output) for one in steps[:3]] == [*clerks, ("purser", "llm", "")]
    assert [step.group for step in steps] == [None] * len(steps)


def test_claudes_subagent_fails_with_the_call_and_one_in_the_background_has_not_answered() -> None:
    scope = "openinference.instrumentation.claude_agent_sdk"
    named = {"openinference.span.kind": "TOOL", "tool.name": "Agent", "input.value": '{"subagent_type": "x"}'}
    failing = span(2, parent=1, scope=scope, end=80, error="API Error: 500", attributes=named)
    inner = {"openinference.span.kind": "AGENT", "agent.name": "Agent"}
    result = {"output.value": '{"status": "async_launched", "content": [{"type": "text", "text": "later"}]}'}
    steps = ordered(
        claudes_run(),
        failing,
        span(3, parent=2, scope=scope, end=890, attributes=inner),
        *claudes_subagent(20, result | {"input.value": '{"subagent_type": "y"}'}, end=300, until=890),
    ).steps
    told = [(step.agent, step.error, step.output) for step in steps[:2]]
    assert told == [("x", "API Error: 500", ""), ("y", "", "")]


def test_a_failed_smolagents_member_is_named_by_its_prompt() -> None:
    """Its own span never ends, so it is never sent."""
    scope = "openinference.instrumentation.smolagents"
    prompt = {"llm.input_messages.0.message.content": "You're a helpful agent named 'clerk'.\nTask: x"}
    call = span(2, parent=9, scope=scope, attributes={"openinference.span.kind": "LLM", **prompt})
    assert outline(ordered(call)) == [("clerk", "llm")]


def test_a_delegation_to_all_members_is_no_step_beside_their_runs() -> None:
    scope = "openinference.instrumentation.agno"
    team = {"openinference.span.kind": "AGENT", "agent.name": "leader"}
    to_all = {"openinference.span.kind": "TOOL", "tool.name": "delegate_task_to_members", "input.value": "{}"}
    member = {"openinference.span.kind": "AGENT", "agent.name": "clerk", "output.value": "200 seats"}
    trajectory = ordered(
        span(1, end=90, scope=scope, attributes=team),
        span(2, parent=1, end=60, scope=scope, attributes=to_all),
        span(3, parent=1, scope=scope, attributes=member),
    )
    assert outline(trajectory) == [("clerk", "llm")]


def test_a_span_that_stands_for_several_model_calls_tells_the_last() -> None:
    """ADK 2 under OpenInference 1.0.5 overwrites the agent's span with each call."""
    call = "llm.output_messages.0.message.tool_calls.0.tool_call"
    last = {f"{call}.id": "b", f"{call}.function.name": "pay"}
    last["llm.output_messages.0.message.role"] = "assistant"
    tool = {"openinference.span.kind": "TOOL"}
    response = '{"id": "a", "name": "look_up", "response": {"error": "timed out"}}'
    looked_up = {**tool, "tool.name": "look_up", "tool.id": "a", "output.value": response}
    trajectory = ordered(
        span(1, end=90, attributes={"openinference.span.kind": "LLM", "agent.name": "clerk", **last}),
        span(2, parent=1, attributes=looked_up),
        span(3, parent=1, attributes={**tool, "tool.name": "pay", "tool.id": "b"}),
    )
    steps = [(step.kind.value, step.target) for step in trajectory.steps]
    assert steps == [("tool", "look_up"), ("llm", None), ("tool", "pay")]
    assert trajectory.steps[0].error == "timed out"


def test_a_function_is_no_agent_for_having_agent_in_its_name() -> None:
    node, writer = metadata(langgraph_node="__start__"), metadata(langgraph_node="writer")
    run = ordered(
        openinference(1, "CHAIN", parent=None, framework="langchain", name="LangGraph", end=900),
        openinference(2, "AGENT", framework="langchain", name="route_to_active_agent", attributes=node),
        openinference(3, "LLM", framework="langchain", name="m", attributes=writer),
    )
    assert outline(run) == [("writer", "llm")]


def test_a_node_that_encloses_nothing_may_have_asked_an_untraced_model() -> None:
    node = {**metadata(langgraph_node="research_agent"), "output.value": "85 seats"}
    run = ordered(
        openinference(1, "CHAIN", parent=None, framework="langchain", name="LangGraph", end=900),
        openinference(2, "AGENT", framework="langchain", name="research_agent", attributes=node),
    )
    assert outline(run) == [("research_agent", "llm")]


def test_a_streamed_call_has_no_words() -> None:
    said = "llm.output_messages.0.message"
    streamed = {
        f"{said}.role": "assistant",
        f"{said}.contents.0.message_content.type": "text",
        f"{said}.contents.0.message_content.text": "",
        f"{said}.tool_calls.0.tool_call.function.name": "look_up",
    }
    action = read(openinference(1, "LLM", parent=None, attributes=streamed))
    assert [message.text for message in action.output_messages] == [""]
    assert [call.name for call in action.requested] == ["look_up"]


def test_haystacks_messages_as_python_shows_them_give_way_to_the_model_calls_own() -> None:
    shown = "ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent(text='How many?')])"
    heard = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "How many?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Three",
    }
    scope = "openinference.instrumentation.haystack"
    wiring = {"input.value": json.dumps({"messages": [shown]}), "output.value": json.dumps([shown])}
    top = span(1, attributes={"openinference.span.kind": "CHAIN", **wiring}, scope=scope)
    call = span(2, parent=1, attributes={"openinference.span.kind": "LLM", **heard}, scope=scope)
    trajectory = ordered(top, call)
    assert (trajectory.task, trajectory.output) == ("How many?", "Three")


@pytest.mark.parametrize(
    ("end", "more", "kinds"),
    [
        pytest.param(3, {}, ["tool"], id="a note of the failure"),
        pytest.param(3, {"tool.name": "query_ledger"}, ["tool", "tool"], id="a tool of that name"),
        pytest.param(4, {}, ["tool", "tool"], id="it took time"),
    ],
)
def test_the_moment_of_a_tools_failure_is_no_second_tool(
    end: int, more: Mapping[str, str], kinds: list[str]
) -> None:
    """BeeAI writes each event of a tool as a span of the tool's kind."""
    failed = {"openinference.span.kind": "TOOL", "output.value": "ToolError: no such ledger"}
    scope = "openinference.instrumentation.beeai"

    def failing(number: int, parent: int, end: int, name: str, attributes: Mapping[str, str]) -> Span:
        told = {**failed, **attributes}
        at: Any = {"parent": parent, "start": number, "end": end}
        return span(number, name=name, scope=scope, attributes=told, error="Tool Error", **at)

    spans = (
        span(1, start=0, end=9, name="clerk", scope=scope, attributes={"openinference.span.kind": "AGENT"}),
        failing(2, 1, 5, "query_books", {"tool.name": "query_books"}),
        failing(3, 2, end, "error", more),
    )
    steps = ordered(*spans).steps
    assert [str(step.kind) for step in steps if step.kind is StepKind.TOOL] == kinds
