"""Langfuse, LangSmith, MLflow and Logfire: where each stores kinds, agents, texts and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from semconv.dialects import USUAL, Action, ActionKind, Surroundings
from semconv.model import AgentSource, AttributeValue, Event, Span
from tests.factories import ordered, outline, span


def read(*spans: Span) -> Action:
    """Read the last of ``spans``, with the others as its surroundings."""
    action = USUAL.action(spans[-1], Surroundings(spans))
    assert action is not None
    return action


def langfuse(number: int, kind: str, *, parent: int | None = 1, **more: Any) -> Span:
    attributes = {"langfuse.observation.type": kind, **more.pop("attributes", {})}
    return span(number, parent=parent, attributes=attributes, scope="langfuse-sdk", **more)


def langsmith(number: int, kind: str, *, parent: int | None = 1, **more: Any) -> Span:
    attributes = {"langsmith.span.kind": kind, **more.pop("attributes", {})}
    return span(number, parent=parent, attributes=attributes, scope="langsmith", **more)


def mlflow(number: int, kind: str, *, parent: int | None = 1, **more: Any) -> Span:
    attributes = {"mlflow.spanType": json.dumps(kind), **more.pop("attributes", {})}
    return span(number, parent=parent, attributes=attributes, scope="mlflow.tracing.provider", **more)


def logfire(number: int, template: str, *, parent: int | None = 1, **attributes: AttributeValue) -> Span:
    given = {"logfire.msg_template": template, "gen_ai.system": "openai", **attributes}
    return span(number, parent=parent, name=template, attributes=given, scope="logfire.openai_agents")


QUESTION = {"role": "user", "content": "How many?"}
ASKED_LIKE_A_FUNCTION = {"args": [[QUESTION], "unused"], "kwargs": {}}
CHAT_ANSWER = {"choices": [{"message": {"role": "assistant", "content": "Three"}}]}
LANGCHAIN_ANSWER = {
    "generations": [[{"text": "Three", "message": {"lc": 1, "kwargs": {"content": "Three", "type": "ai"}}}]]
}
OUTPUT_TEXT = {"type": "output_text", "text": "Three"}
RESPONSES_ANSWER = {"output": [{"type": "message", "role": "assistant", "content": [OUTPUT_TEXT]}]}
PLAIN_ANSWER = {"role": "assistant", "content": "Three"}
GEMINI_QUESTION = {"contents": [{"role": "user", "parts": [{"text": "How many?"}]}]}
GEMINI_ANSWER = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Three"}]}}]}
ANTHROPIC_ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "Three"}]}


def with_texts(given: Any, got: Any) -> tuple[Span, ...]:
    """A model call of each instrumentation, with its input and its output as JSON."""
    asked, answered = json.dumps(given), json.dumps(got)
    observed = {"langfuse.observation.input": asked, "langfuse.observation.output": answered}
    traced: dict[str, AttributeValue] = {"gen_ai.prompt": asked.encode(), "gen_ai.completion": answered}
    return (
        langfuse(1, "generation", attributes=observed),
        langsmith(1, "llm", attributes=traced),
        mlflow(1, "CHAT_MODEL", attributes={"mlflow.spanInputs": asked, "mlflow.spanOutputs": answered}),
    )


@pytest.mark.parametrize(
    ("given", "got"),
    [
        pytest.param([QUESTION], "Three", id="a list and a text"),
        pytest.param(ASKED_LIKE_A_FUNCTION, PLAIN_ANSWER, id="a function's arguments"),
        pytest.param({"kwargs": {"messages": [QUESTION]}, "args": []}, CHAT_ANSWER, id="openai chat"),
        pytest.param({"messages": [[QUESTION]]}, LANGCHAIN_ANSWER, id="langchain"),
        pytest.param({"input": [QUESTION]}, RESPONSES_ANSWER, id="openai responses"),
        pytest.param({"input": "How many?"}, {"message": PLAIN_ANSWER}, id="plain text"),
        pytest.param(GEMINI_QUESTION, GEMINI_ANSWER, id="gemini"),
        pytest.param({"messages": [QUESTION]}, ANTHROPIC_ANSWER, id="anthropic"),
    ],
)
def test_a_model_call_is_read_however_its_sdk_takes_and_gives_it(given: Any, got: Any) -> None:
    for made in with_texts(given, got):
        action = read(made)
        assert action.kind is ActionKind.LLM
        assert [(each.role, each.text) for each in action.input_messages] == [("user", "How many?")]
        assert [(each.role, each.text) for each in action.output_messages] == [("assistant", "Three")]


def test_instructions_stand_before_what_was_asked() -> None:
    given = json.dumps({"instructions": "Be brief.", "input": [QUESTION]})
    action = read(mlflow(1, "LLM", attributes={"mlflow.spanInputs": given}))
    assert [each.role for each in action.input_messages] == ["system", "user"]
    assert action.instructions == "Be brief."


def test_langfuse_tells_an_error_by_its_level() -> None:
    failed = {
        "langfuse.observation.level": "ERROR",
        "langfuse.observation.status_message": "no such ship",
        "langfuse.observation.input": '{"args": ["Falcon"], "kwargs": {}}',
    }
    action = read(langfuse(1, "tool", name="look_up", attributes=failed))
    assert (action.kind, action.tool, action.input) == (ActionKind.TOOL, "look_up", "Falcon")
    assert (action.failed, action.error) == (True, "no such ship")


def test_langfuse_appends_tool_definitions_that_nobody_said() -> None:
    told = [QUESTION, {"role": "tool", "content": {"type": "function", "function": {"name": "look_up"}}}]
    action = read(langfuse(1, "generation", attributes={"langfuse.observation.input": json.dumps(told)}))
    assert [each.text for each in action.input_messages] == ["How many?"]


def test_a_span_of_langchains_tool_is_a_tool_before_langfuse_had_the_type() -> None:
    made = langfuse(1, "span", name="look_up", attributes={"langfuse.observation.metadata.color": "green"})
    assert read(made).kind is ActionKind.TOOL


def test_an_agents_observation_names_what_it_encloses() -> None:
    trajectory = ordered(
        langfuse(1, "span", parent=None, end=100),
        langfuse(2, "agent", name="writer", end=90),
        langfuse(3, "generation", parent=2, name="chat"),
    )
    assert outline(trajectory) == [("writer", "llm")]


NODE = {"langgraph_node": "model", "langgraph_checkpoint_ns": "writer:1|model:2"}


def with_prefix(prefix: str, quote: str = "") -> dict[str, str]:
    return {f"{prefix}{key}": f"{quote}{value}{quote}" for key, value in NODE.items()}


@pytest.mark.parametrize(
    "made",
    [
        langfuse(2, "generation", attributes=with_prefix("langfuse.observation.metadata.", quote='"')),
        langsmith(2, "llm", attributes=with_prefix("langsmith.metadata.")),
        mlflow(2, "CHAT_MODEL", attributes={"metadata": json.dumps(NODE)}),
    ],
    ids=["langfuse", "langsmith", "mlflow"],
)
def test_a_graphs_metadata_names_the_agent(made: Span) -> None:
    action = read(made)
    assert (action.agent, action.agent_source) == ("writer", AgentSource.METADATA)


def test_where_all_nodes_are_plumbing_the_graph_gives_its_name() -> None:
    graph = langsmith(1, "chain", parent=None, name="writer")
    node = langsmith(2, "chain", name="agent", attributes={"langsmith.metadata.langgraph_node": "agent"})
    call = langsmith(3, "llm", parent=2, attributes={"langsmith.metadata.langgraph_node": "agent"})
    assert read(graph, node, call).agent == "writer"


def test_a_graph_without_a_name_names_nobody() -> None:
    graph = langsmith(1, "chain", parent=None, name="LangGraph")
    call = langsmith(2, "llm", attributes={"langsmith.metadata.langgraph_node": "agent"})
    assert read(graph, call).agent is None


def openai_agents(number: int, kind: str, name: str, parent: int | None, prompt: str = "{}") -> Span:
    attributes = {"langsmith.metadata.ls_integration": "openai-agents-sdk", "gen_ai.prompt": prompt}
    return langsmith(number, kind, parent=parent, name=name, attributes=attributes, end=number * 10 + 200)


def test_langsmith_calls_agents_and_handoffs_of_openai_agents_chains() -> None:
    spans = [
        openai_agents(1, "chain", "Agent workflow", None),
        openai_agents(2, "chain", "clerk", 1),
        openai_agents(3, "chain", "Span", 2),
        openai_agents(4, "chain", "Handoff", 3, '{"from_agent": "clerk", "to_agent": null}'),
    ]
    assert [read(*spans[number:], *spans[:number]).kind for number in (1, 2, 3, 4)] == [
        ActionKind.WORKFLOW,
        ActionKind.AGENT,
        ActionKind.CONTAINER,
        ActionKind.HANDOFF,
    ]
    assert (read(*spans).agent, read(*spans).target) == ("clerk", None)


def test_mlflow_names_no_agent_after_a_method() -> None:
    assert read(mlflow(1, "AGENT", name="Agent.run_sync")).agent is None
    assert read(mlflow(1, "AGENT", name="clerk")).agent == "clerk"


def test_mlflow_tells_openai_agents_runner_from_its_agents() -> None:
    root = {"mlflow.openai.agent_run_root": "true"}
    runner = mlflow(1, "AGENT", parent=None, name="AgentRunner.run", attributes=root)
    assert read(runner).kind is ActionKind.WORKFLOW


def test_mlflow_has_handoffs_in_chains() -> None:
    passed = {"mlflow.spanInputs": '{"from_agent": "clerk"}', "mlflow.spanOutputs": '{"to_agent": "writer"}'}
    made = mlflow(1, "CHAIN", name="Handoff", attributes=passed)
    assert (read(made).kind, read(made).agent, read(made).target) == (ActionKind.HANDOFF, "clerk", "writer")


def test_logfire_tells_kinds_by_its_templates() -> None:
    asked = {"event.name": "gen_ai.user.message", "content": "How many?", "role": "user"}
    events = json.dumps([asked, {"event.name": "gen_ai.choice", "message": PLAIN_ANSWER}])
    error = '{"message": "failed", "data": {"a": 1}}'
    trajectory = ordered(
        logfire(1, "OpenAI Agents trace: {name}", parent=None, name="Agent workflow"),
        logfire(2, "Agent run: {name!r}", name="clerk"),
        logfire(3, "Turn {turn} for agent clerk", parent=2, agent_name="clerk"),
        logfire(4, "Responses API with {gen_ai.request.model!r}", parent=3, events=events),
        logfire(5, "Function: {name}", parent=3, name="look_up", error=error),
        logfire(6, "Handoff: {from_agent} → {to_agent}", parent=3, from_agent="clerk", to_agent="writer"),
    )
    assert outline(trajectory) == [("clerk", "llm"), ("clerk", "tool"), ("clerk", "handoff")]
    call, tool, handoff = trajectory.steps
    assert (call.input, call.output) == ("user: How many?", "Three")
    assert (tool.target, tool.error) == ("look_up", 'failed: {"a": 1}')
    assert handoff.target == "writer"


def test_logfires_functions_name_who_calls_a_model() -> None:
    spans = [
        span(1, name="answer", scope="logfire"),
        span(2, name="clerk", parent=1, scope="logfire"),
        span(3, name="Asking {model}", parent=2, scope="logfire"),
        span(4, parent=3, attributes={"request_data": "{}"}, scope="logfire.openai"),
    ]
    assert outline(ordered(*spans)) == [("clerk", "llm")]


def test_logfires_spans_of_a_web_server_are_nobodys() -> None:
    made = span(1, attributes={"logfire.msg_template": "GET /"}, scope="logfire.fastapi")
    assert USUAL.action(made, Surroundings([made])) is None


@pytest.mark.parametrize(
    "odd",
    [
        *("", "[", "nul", "[[[]]]", '"x"', "[1, 2]"),
        *('{"messages": 3}', '{"choices": [1, null, {}]}', '{"generations": [[]]}'),
    ],
)
def test_odd_content_gives_less_and_never_an_exception(odd: str) -> None:
    texts = {"langfuse.observation.input": odd, "langfuse.observation.output": odd}
    for kind in ("generation", "tool", "agent", "span", "guardrail"):
        read(langfuse(1, kind, attributes=texts))
    for template in ("Responses API", "Function", "Handoff", "Agent run"):
        read(logfire(1, template, events=odd, error=odd, input=odd, output=odd, response=odd))


def test_the_run_that_openai_agents_trace_stands_for_is_no_run_of_its_own() -> None:
    shell = openai_agents(1, "chain", "Agent workflow", None)
    assert read(shell).kind is ActionKind.SETUP


def test_a_plain_function_below_the_runs_own_names_who_acted() -> None:
    trajectory = ordered(
        langfuse(1, "span", parent=None, name="answer", end=200),
        langfuse(2, "span", name="clerk", end=90),
        langfuse(3, "span", parent=2, name="call_model", end=80),
        langfuse(4, "generation", parent=3, name="chat"),
        langfuse(5, "tool", name="look_up"),
    )
    assert outline(trajectory) == [("clerk", "llm"), ("unknown", "tool")]
    assert trajectory.steps[0].agent_source is AgentSource.SPAN_NAME


def test_a_function_below_an_agent_is_the_agents() -> None:
    trajectory = ordered(
        mlflow(1, "CHAIN", parent=None, name="answer", end=200),
        mlflow(2, "AGENT", name="clerk", end=90),
        mlflow(3, "CHAIN", parent=2, name="call_model", end=80),
        mlflow(4, "CHAT_MODEL", parent=3, name="chat"),
    )
    assert outline(trajectory) == [("clerk", "llm")]


def test_langsmiths_traceback_is_no_part_of_the_error() -> None:
    text = "TimeoutError('late')Traceback (most recent call last):\n  File"
    raised = {"exception.type": "Exception", "exception.message": text}
    action = read(langsmith(1, "tool", events=[Event(name="exception", attributes=raised)]))
    assert (action.failed, action.error) == (True, "TimeoutError('late')")


def test_a_functions_only_text_is_the_task() -> None:
    made = langsmith(1, "chain", parent=None, attributes={"gen_ai.prompt": '{"q": "How many?"}'})
    assert read(made).task == "How many?"


def test_logfires_own_spans_say_whose_the_calls_below_them_are() -> None:
    turn = replace(logfire(1, "Turn of {name!r}", parent=None, agent_name="clerk"), end_ns=span(99).end_ns)
    assert outline(ordered(turn, logfire(2, "Responses API with {model!r}"))) == [("clerk", "llm")]


def test_a_result_with_the_type_of_a_message_is_kept_whole() -> None:
    got = json.dumps({"type": "tool", "name": "hammer", "price": 12})
    assert read(langfuse(2, "tool", attributes={"langfuse.observation.output": got})).output == got
    message = json.dumps({"type": "tool", "content": "16", "tool_call_id": "c1"})
    assert read(langfuse(2, "tool", attributes={"langfuse.observation.output": message})).output == "16"


ANSWER = {"message": "Booked.", "total": 148.18, "status": "ok"}


def called_and_run(got: Any) -> list[Span]:
    """A model call and an agent of each instrumentation that write their output as JSON."""
    written = json.dumps(got)
    agents = (
        langfuse(1, "agent", attributes={"langfuse.observation.output": written}),
        langsmith(1, "chain", parent=None, attributes={"gen_ai.completion": written}),
        mlflow(1, "AGENT", attributes={"mlflow.spanOutputs": written}),
        span(
            1,
            attributes={"openinference.span.kind": "AGENT", "output.value": written},
            scope="openinference.instrumentation.x",
        ),
    )
    return [*with_texts([QUESTION], got), *agents]


@pytest.mark.parametrize(
    "got",
    [
        pytest.param(ANSWER, id="a message"),
        pytest.param({"content": "Booked.", "total": 148.18}, id="content"),
        pytest.param({"result": 42, "unit": "kg"}, id="a number"),
        pytest.param({"name": "Ana", "role": "welder", "text": "Free.", "years": 5}, id="a role of people"),
        pytest.param({"notes": ["late"], "messages_read": 3, "text": "Late."}, id="a list"),
        pytest.param({"invoice": "R-1", "source": "ERP", "total": 3}, id="no text, a message's key"),
    ],
)
def test_a_structured_answer_keeps_the_fields_beside_its_text(got: Any) -> None:
    for made in called_and_run(got):
        action = read(made)
        assert json.loads(action.output or action.output_messages[-1].text) == got, made.scope.name


@pytest.mark.parametrize(
    "got",
    [
        pytest.param({"content": "Three", "id": "m-1", "type": "output", "name": "clerk"}, id="a message"),
        pytest.param({"output": "Three", "usage": {"total_tokens": 9}, "x": 1}, id="a response"),
        pytest.param({"source": "clerk", "content": "Three", "metadata": {"a": 1}}, id="AutoGen's"),
        pytest.param({"role": "assistant", "content": "Three", "weight": 1}, id="with a role"),
    ],
)
def test_a_message_is_unwrapped_from_its_own_keys(got: Any) -> None:
    for made in called_and_run(got):
        action = read(made)
        assert (action.output or action.output_messages[-1].text) == "Three", made.scope.name


def test_the_state_around_an_answer_is_no_part_of_it() -> None:
    got = json.dumps({"question": "How many?", "plan": ["count"], "answer": "Three"})
    assert read(mlflow(1, "CHAIN", parent=None, attributes={"mlflow.spanOutputs": got})).output == "Three"
