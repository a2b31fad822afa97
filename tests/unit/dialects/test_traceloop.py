"""Traceloop's older and newer formats, and the contrib instrumentation that shares its scope."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from analyzer.signals.triage import triage
from semconv.dialects import USUAL, Action, ActionKind, Surroundings
from semconv.dialects.reading.tools import tools_in
from semconv.model import AttributeValue, Completion, Scope, Span, SpanStatus
from tests.factories import messages, ordered, outline, said, span

LANGCHAIN = "opentelemetry.instrumentation.langchain"
OPENAI_AGENTS = "opentelemetry.instrumentation.openai_agents"


def read(*spans: Span) -> Action:
    """Read the last of ``spans``, with the others as its surroundings."""
    action = USUAL.action(spans[-1], Surroundings(spans))
    assert action is not None
    return action


def traceloop(number: int, kind: str = "", *, parent: int | None = 1, **more: Any) -> Span:
    attributes = {"traceloop.workflow.name": "team", **more.pop("attributes", {})}
    if kind:
        attributes["traceloop.span.kind"] = kind
    return span(number, parent=parent, attributes=attributes, scope=LANGCHAIN, **more)


FLAT = {
    "llm.request.type": "chat",
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "Be brief.",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": "How many?",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": '""',
    "gen_ai.completion.0.tool_calls.0.name": "look_up",
    "gen_ai.completion.0.tool_calls.0.arguments": '{"name": "Falcon"}',
    "gen_ai.completion.0.tool_calls.0.id": "c1",
}


def test_flattened_messages_are_read() -> None:
    action = read(traceloop(1, attributes=FLAT))
    assert [(each.role, each.text) for each in action.input_messages] == [
        ("system", "Be brief."),
        ("user", "How many?"),
    ]
    (call,) = action.requested
    assert (call.name, call.arguments, call.call_id) == ("look_up", '{"name": "Falcon"}', "c1")
    assert action.output_messages[0].text == ""
    assert action.instructions == "Be brief."


def test_a_tool_of_langchains_is_unwrapped() -> None:
    message = {"content": "timed out", "type": "tool", "status": "error", "tool_call_id": "c1"}
    called = {
        "name": "look_up",
        "input": json.dumps({"input_str": "{'name': 'Falcon'}", "tags": ["seq:step:1"]}),
        "output": json.dumps({"output": {"lc": 1, "kwargs": message}, "kwargs": {"tags": []}}),
    }
    attributes = {f"traceloop.entity.{field}": value for field, value in called.items()}
    action = read(traceloop(1, "tool", attributes=attributes))
    assert (action.kind, action.tool, action.call_id) == (ActionKind.TOOL, "look_up", "c1")
    assert (action.input, action.output) == ('{"name": "Falcon"}', "timed out")
    assert (action.failed, action.error) == (True, "timed out")


def properties(**named: str) -> dict[str, str]:
    return {f"traceloop.association.properties.{name}": value for name, value in named.items()}


@pytest.mark.parametrize(
    "attributes",
    [
        properties(langgraph_node="writer"),
        properties(lc_agent_name="writer", langgraph_node="model"),
        {"traceloop.entity.input": json.dumps({"inputs": {}, "metadata": {"langgraph_node": "writer"}})},
        {"traceloop.entity.path": "writer.agent.RunnableSequence"},
    ],
    ids=["node", "agent", "in the input", "path only, content off"],
)
def test_a_graphs_agent_is_named(attributes: dict[str, str]) -> None:
    assert read(traceloop(1, "task", attributes=attributes)).agent == "writer"


def test_the_mark_of_a_graph_beside_its_tasks_is_no_step() -> None:
    graph = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "writer"}
    goto = {"gen_ai.operation.name": "goto", "langgraph.command.source_node": "writer"}
    trajectory = ordered(
        traceloop(1, "workflow", parent=None, end=200),
        span(2, parent=1, end=190, attributes=graph | {"gen_ai.workflow.nodes": ("model", "tools")}),
        traceloop(3, "task", attributes=properties(langgraph_node="writer"), end=190),
        traceloop(4, parent=3, attributes=FLAT),
        span(5, parent=3, name="goto other", attributes=goto),
    )
    assert outline(trajectory) == [("writer", "llm")]


def test_decorated_functions_name_agents_and_tools() -> None:
    trajectory = ordered(
        traceloop(1, "workflow", parent=None, attributes={"traceloop.entity.name": "team"}, end=100),
        traceloop(2, "agent", attributes={"traceloop.entity.name": "writer"}, end=90),
        traceloop(3, parent=2, attributes=FLAT),
        traceloop(4, "tool", parent=2, attributes={"traceloop.entity.name": "look_up"}),
    )
    assert outline(trajectory) == [("writer", "llm"), ("writer", "tool")]


def test_anothers_span_inside_a_workflow_stays_anothers() -> None:
    made = span(1, attributes={"traceloop.workflow.name": "team", "db.system": "mysql"})
    assert USUAL.action(made, Surroundings([made])) is None


def contrib(
    number: int, operation: str, *, parent: int | None = 1, agent: str | None = "OpenAI Agent", **more: Any
) -> Span:
    attributes = {"gen_ai.operation.name": operation, **more.pop("attributes", {})}
    if agent is not None:
        attributes["gen_ai.agent.name"] = agent
    return span(
        number, parent=parent, attributes=attributes, scope=OPENAI_AGENTS, end=number * 10 + 300, **more
    )


CALL = (
    "ResponseFunctionToolCall(arguments='{}', call_id='c1', name='transfer_to_writer', type='function_call')"
)


def answering(text: str) -> dict[str, str]:
    return {"gen_ai.output.messages": messages(said("assistant", text))}


def test_the_placeholder_is_no_name() -> None:
    passed = {"gen_ai.handoff.from_agent": "clerk", "gen_ai.handoff.to_agent": "writer"}
    trajectory = ordered(
        contrib(1, "invoke_agent", parent=None, agent=None),
        contrib(2, "unknown"),
        contrib(3, "invoke_agent", parent=2, agent="clerk"),
        contrib(4, "chat", parent=3, attributes=answering(CALL)),
        contrib(5, "agent_handoff", parent=3, attributes=passed),
    )
    assert outline(trajectory) == [("clerk", "llm"), ("clerk", "handoff")]
    assert trajectory.steps[0].output == "call transfer_to_writer({})"
    assert trajectory.steps[1].target == "writer"


def test_hidden_content_is_hidden_and_what_only_looks_like_an_object_is_kept() -> None:
    assert read(contrib(1, "chat", attributes=answering("readacted"))).redacted
    shown = read(contrib(1, "chat", attributes=answering("Ship(name='Falcon')")))
    assert shown.output_messages[0].text == "Ship(name='Falcon')"


def test_the_version_of_the_scope_tells_traceloop_apart() -> None:
    made = contrib(1, "chat", agent="OpenAI Agent")
    theirs = replace(made, scope=Scope(name=OPENAI_AGENTS, version="0.62.4"))
    assert read(made).agent is None
    assert read(theirs).agent == "OpenAI Agent"


def test_an_agents_span_that_is_one_model_call_has_its_messages() -> None:
    call = json.dumps({"type": "function_call", "name": "look_up", "arguments": "{}", "call_id": "c1"})
    attributes = {
        "gen_ai.agent.name": "clerk",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "How many?",
        "traceloop.entity.input": json.dumps({"args": [{"name": "clerk"}]}),
        "traceloop.entity.output": json.dumps({"output": [call]}),
    }
    action = read(traceloop(1, "agent", attributes=attributes))
    assert (action.kind, action.agent, action.task) == (ActionKind.AGENT, "clerk", "How many?")
    assert [each.name for each in action.requested] == ["look_up"]


OFFERED = {"name": "look_up", "description": "Look a ship up.", "parameters": {"properties": {"name": {}}}}


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "llm.request.functions.0.name": "look_up",
            "llm.request.functions.0.description": "Look a ship up.",
            "llm.request.functions.0.parameters": '{"properties": {"name": {}}}',
        },
        {"mlflow.chat.tools": json.dumps([{"type": "function", "function": OFFERED}])},
    ],
    ids=["traceloop", "mlflow"],
)
def test_the_tools_on_offer_are_listed(attributes: dict[str, str]) -> None:
    assert tools_in(tuple(attributes.items())) == "look_up(name): Look a ship up."


CREWAI = "opentelemetry.instrumentation.crewai"


def crewai(number: int, name: str, *, parent: int | None = 1, **more: Any) -> Span:
    attributes = {"gen_ai.operation.name": "invoke_agent", **more.pop("attributes", {})}
    return span(number, parent=parent, name=name, scope=CREWAI, attributes=attributes, **more)


def crew() -> Span:
    tasks = [{"description": "Count the seats."}, {"description": "Work out the sum."}]
    plan = {"crewai.crew.tasks": json.dumps(tasks), "crewai.crew.result": "7,140 euros"}
    return crewai(1, "crewai.workflow", parent=None, end=900, attributes=plan)


def crew_task(number: int, description: str, output: str) -> Span:
    told = {"traceloop.span.kind": "task", "crewai.task.description": description}
    done = {**told, "traceloop.entity.output": output}
    return crewai(number, "x.task", end=number * 10 + 9, attributes=done)


def crew_agent(number: int, role: str) -> Span:
    told = {"traceloop.span.kind": "agent", "gen_ai.agent.name": role}
    return crewai(number, f"{role}.agent", parent=number - 1, attributes=told)


def test_a_crews_agents_have_the_words_of_their_tasks() -> None:
    run = ordered(
        crew(),
        crew_task(2, "Count the seats.", "85"),
        crew_agent(3, "registrar"),
        crew_task(4, "Work out the sum.", "7,140 euros"),
        crew_agent(5, "purser"),
    )
    assert outline(run) == [("registrar", "llm"), ("purser", "llm")]
    assert [(step.input, step.output) for step in run.steps] == [
        ("Count the seats.", "85"),
        ("Work out the sum.", "7,140 euros"),
    ]
    assert run.task == "Count the seats.\nWork out the sum."
    assert run.output == "7,140 euros"


@pytest.mark.parametrize("tasks", ["[", "7", '[7, null, {"description": ["x"]}]', ""])
def test_a_crews_plan_that_cannot_be_read_gives_less(tasks: str) -> None:
    made = crewai(1, "crewai.workflow", parent=None, attributes={"crewai.crew.tasks": tasks})
    assert read(made).kind is ActionKind.WORKFLOW


# Agno ------------------------------------------------------------------------------------


def test_a_tool_of_agnos_is_read_out_of_its_report() -> None:
    report = "status='{}' result={} error={} updated_session_state=None images=None"
    named = {"traceloop.span.kind": "tool", "gen_ai.tool.name": "look_up"}
    outputs = [report.format("success", "'85 seats'", None), report.format("failure", None, "'away'")]
    spans = [
        span(number, parent=1, attributes={**named, "traceloop.entity.output": output})
        for number, output in enumerate(outputs, start=2)
    ]
    top = span(1, attributes={"traceloop.span.kind": "workflow", "agno.team.name": "desk"})
    found, failed = ordered(top, *spans).steps[:2]
    assert (found.agent, found.output, found.error) == ("desk", "85 seats", "")
    assert (failed.output, failed.error) == ("", "away")


LLAMA_INDEX = "opentelemetry.instrumentation.llamaindex"


def set_up(number: int, agent: str) -> Span:
    """Build the span of a LlamaIndex method that returns an agent's set-up: its model call comes next."""
    returned = {"input": [{"role": "user", "content": "How many?"}], "current_agent_name": agent}
    attributes = {"traceloop.span.kind": "task", "traceloop.entity.output": json.dumps(returned)}
    return span(number, parent=9, start=number, end=number + 0.5, attributes=attributes, scope=LLAMA_INDEX)


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        pytest.param(Completion.MAX_AGE, SpanStatus.ERROR, id="given up"),
        pytest.param(Completion.RECORDED, SpanStatus.ERROR, id="recorded"),
        pytest.param(Completion.IDLE_OPEN, SpanStatus.UNSET, id="still going on"),
    ],
)
def test_llama_indexs_call_without_an_end_failed_if_the_run_is_over(
    completion: Completion, status: SpanStatus
) -> None:
    run = ordered(set_up(1, "purser"), set_up(2, "purser"), completion=completion)
    (step,) = run.steps
    assert (step.agent, step.status, bool(run.root_error)) == ("purser", status, status is SpanStatus.ERROR)
    assert triage(run).failed is (status is SpanStatus.ERROR)


def test_a_kind_that_is_an_object_is_read_without_an_error() -> None:
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "planner",
        "traceloop.span.kind": {"role": "task"},
    }
    made = span(1, attributes=attributes, scope=LANGCHAIN)
    assert ordered(made).agents == ("planner",)
