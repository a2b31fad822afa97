"""The official conventions and our own, with content in every form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.dialects import USUAL, Action, ActionKind, Surroundings
from semconv.model import AgentSource, Event, Outcome, OutcomeSource, Span, SpanStatus
from semconv.record import replace
from tests.factories import agent, chat, messages, ordered, outline, said, span, tool, workflow


def read(made: Span) -> Action:
    action = USUAL.action(made, Surroundings([made]))
    assert action is not None
    return action


def operation(name: str, **attributes: Any) -> Span:
    return span(1, attributes={"gen_ai.operation.name": name, **attributes})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("chat", ActionKind.LLM),
        ("generate_content", ActionKind.LLM),
        ("text_completion", ActionKind.LLM),
        ("execute_tool", ActionKind.TOOL),
        ("invoke_agent", ActionKind.AGENT),
        ("invoke_workflow", ActionKind.WORKFLOW),
        ("handle_conversation_turn", ActionKind.WORKFLOW),
        ("search_memory", ActionKind.TOOL),
        ("upsert_memory", ActionKind.TOOL),
        ("create_agent", ActionKind.SETUP),
        ("embeddings", ActionKind.CONTAINER),
        ("something_new", ActionKind.CONTAINER),
    ],
)
def test_the_operation_says_the_kind(name: str, kind: ActionKind) -> None:
    assert read(operation(name)).kind is kind


def test_an_operation_on_memory_is_a_tool_of_its_name() -> None:
    assert read(operation("search_memory")).tool == "search_memory"
    assert read(operation("search_memory", **{"gen_ai.tool.name": "recall"})).tool == "recall"


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("pass_control", ActionKind.HANDOFF),
        (None, ActionKind.HANDOFF),
        ("return_to_caller", ActionKind.TOOL),
    ],
)
def test_a_transfer_names_its_target_and_says_whether_control_comes_back(
    mode: str | None, kind: ActionKind
) -> None:
    stated = {"gen_ai.tool.name": "ask", "gen_ai.transfer.target.name": "writer"}
    action = read(operation("execute_tool", **stated, **({"gen_ai.transfer.mode": mode} if mode else {})))
    assert (action.kind, action.target) == (kind, "writer")


@pytest.mark.parametrize(
    ("name", "agent_name"),
    [("Registrar\n", "Registrar"), ("  Registrar", "Registrar"), ("Registrar", "Registrar"), (" \n", None)],
)
def test_space_around_a_name_is_no_part_of_it(name: str, agent_name: str | None) -> None:
    assert read(operation("invoke_agent", **{"gen_ai.agent.name": name})).agent == agent_name


SPOKEN = [said("user", "hello")]


DETAILS = Event(
    name="gen_ai.client.inference.operation.details", attributes={"gen_ai.input.messages": json.dumps(SPOKEN)}
)


def heard(**content: Any) -> Event:
    return Event(name="gen_ai.user.message", **content)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(operation("chat", **{"gen_ai.input.messages": json.dumps(SPOKEN)}), id="json"),
        pytest.param(operation("chat", **{"gen_ai.input.messages": tuple(SPOKEN)}), id="structured"),
        pytest.param(chat(1, events=[heard(attributes={"content": "hello"})]), id="event"),
        pytest.param(chat(1, events=[heard(attributes={"content": '[{"text": "hello"}]'})]), id="strands"),
        pytest.param(chat(1, logs=[heard(body={"content": "hello"})]), id="log event with a body"),
        pytest.param(chat(1, logs=[DETAILS]), id="details event"),
    ],
)
def test_messages_are_found_wherever_they_are(made: Span) -> None:
    assert [(each.role, each.text) for each in read(made).input_messages] == [("user", "hello")]


def test_a_choice_event_is_what_was_said() -> None:
    asked = '[{"toolUse": {"name": "t", "input": {"a": 1}}}]'
    choice = Event(name="gen_ai.choice", attributes={"message": asked})
    assert [call.name for call in read(chat(1, events=[choice])).requested] == ["t"]


@pytest.mark.parametrize(
    ("result", "output", "error"),
    [
        pytest.param("16 GPUs", "16 GPUs", "", id="text"),
        pytest.param('{"result": "16 GPUs"}', "16 GPUs", "", id="adk"),
        pytest.param('{"result": null}', "", "", id="adk, nothing"),
        pytest.param('{"error": "late"}', "late", "late", id="adk error"),
        pytest.param('[{"text": "16 GPUs"}]', "16 GPUs", "", id="bedrock"),
        pytest.param('{"rows": 3}', '{"rows": 3}', "", id="json"),
    ],
)
def test_a_tools_result_is_unwrapped(result: str, output: str, error: str) -> None:
    action = read(tool(1, "search", result=result, arguments="{}", call_id="c1"))
    assert (action.output, action.error, action.tool, action.call_id) == (output, error, "search", "c1")


@pytest.mark.parametrize(
    ("attributes", "error"),
    [({"error.type": "ExecutionError"}, "ExecutionError"), ({"gen_ai.tool.status": "error"}, "")],
)
def test_a_failure_is_seen_without_an_error_status(attributes: dict[str, str], error: str) -> None:
    action = read(operation("execute_tool", **attributes))
    assert action.failed
    assert action.error == error


def test_an_agents_answer_may_be_filed_as_the_users() -> None:
    """AG2's root: the whole history, with the last message under the wrong role."""
    history = messages(said("assistant", "question"), said("tool", "16"), said("user", "final answer"))
    assert read(workflow()).answer == ""
    assert read(operation("conversation", **{"gen_ai.output.messages": history})).answer == "final answer"


def test_our_own_task_attributes_win() -> None:
    made = workflow(task="as heard", answer="as said")
    task = {
        "input": "the task",
        "output": "the output",
        "reference": "42",
        "outcome": "failure",
        "outcome.source": "user",
    }
    ours = {f"blamespan.task.{name}": value for name, value in task.items()}
    action = read(span(1, attributes={**made.attributes, **ours}))
    assert (action.dialect, action.kind) == ("blamespan", ActionKind.WORKFLOW)
    assert (action.task, action.answer, action.reference) == ("the task", "the output", "42")
    assert (action.outcome, action.outcome_source) == (Outcome.FAILURE, OutcomeSource.USER)


@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        *((word, Outcome.FAILURE) for word in ("failure", "failed", "fail", "FAILED", " Failure ", "error")),
        *((word, Outcome.SUCCESS) for word in ("success", "succeeded", "Successful", "PASS", "passed", "ok")),
    ],
)
def test_an_outcome_is_understood_in_plain_words(word: str, outcome: Outcome) -> None:
    assert read(span(1, attributes={"blamespan.task.outcome": word})).outcome is outcome


def test_an_unknown_outcome_is_none() -> None:
    action = read(span(1, attributes={"blamespan.task.outcome": "so so", "blamespan.task.outcome.source": 3}))
    assert (action.outcome, action.outcome_source) == (None, None)


@pytest.mark.parametrize(
    ("attributes", "agent_name", "source"),
    [
        ({"blamespan.handoff.source": "a", "gen_ai.agent.name": "a"}, "a", AgentSource.SPAN),
        ({"blamespan.handoff.source": "a"}, "a", AgentSource.HANDOFF),
        ({}, None, AgentSource.SPAN),
    ],
)
def test_our_own_handoff(attributes: dict[str, str], agent_name: str | None, source: AgentSource) -> None:
    told = {"gen_ai.input.messages": messages(said("user", "please write"))}
    passed = {"blamespan.handoff.target": "b", **told, **attributes}
    action = read(span(1, scope="blamespan.instrument", attributes=passed))
    assert (action.kind, action.target, action.input) == (ActionKind.HANDOFF, "b", "please write")
    assert (action.agent, action.agent_source) == (agent_name, source)


def test_a_model_call_that_hands_over_is_a_model_call() -> None:
    assert read(operation("chat", **{"blamespan.handoff.target": "b"})).kind is ActionKind.LLM


@pytest.mark.parametrize("odd", [5, True, b"raw", (), {}, "[", None, ({"role": 1},), ("x", 3)])
def test_odd_values_never_raise(odd: Any) -> None:
    content = ("input.messages", "output.messages", "system_instructions", "agent.name", "tool.name")
    call = ("tool.call.arguments", "tool.call.result")
    names = (*(f"gen_ai.{name}" for name in (*content, *call)), "final_result")
    for name in ("chat", "execute_tool", "invoke_agent", "invoke_workflow", "agent_handoff"):
        assert isinstance(read(operation(name, **dict.fromkeys(names, odd))), Action)


def openlit(number: int, operation_name: str, told: dict[str, str], *, end: float | None = None) -> Span:
    attributes = {"gen_ai.operation.name": operation_name, "gen_ai.provider.name": "langgraph", **told}
    return span(number, parent=1, end=end, attributes=attributes, scope="openlit.instrumentation.langgraph")


def node(number: int) -> Span:
    return openlit(number, "invoke_agent", {"gen_ai.agent.name": "model"}, end=number * 10 + 9)


def test_a_node_of_a_graph_is_no_agent_and_a_handoff_is_the_askers() -> None:
    run = ordered(
        workflow(),
        node(2),
        chat(3, parent=2, calls=[("transfer_to_purser", "{}", "c1")]),
        openlit(5, "execute_tool", {"gen_ai.tool.name": "transfer_to_purser"}),
        node(6),
        chat(7, parent=6, answer="7,140 euros"),
    )
    assert outline(run) == [("unknown", "llm"), ("unknown", "handoff"), ("purser", "llm")]


def test_a_tool_message_event_brings_the_result_of_the_call_it_names() -> None:
    """Handoffs without a span, and results of tools without output, are read from older events."""
    asking = {"tool_calls": [{"id": "a", "function": {"name": "transfer_to_clerk", "arguments": "{}"}}]}
    choice = Event(name="gen_ai.choice", attributes={"message": json.dumps(asking)})
    result = Event(name="gen_ai.tool.message", attributes={"id": "a", "content": "Transferred."})
    named = {"gen_ai.operation.name": "chat", "gen_ai.agent.name": "desk"}
    steps = ordered(
        span(1, attributes=named, start=0, end=1, events=(choice,)),
        span(2, attributes=named | {"gen_ai.agent.name": "clerk"}, start=2, end=3, events=(result,)),
    )
    assert outline(steps) == [("desk", "llm"), ("desk", "handoff"), ("clerk", "llm")]
    assert steps.steps[1].target == "clerk"


def test_semantic_kernel_has_operations_of_its_own_and_messages_as_json_in_events() -> None:
    def told(name: str, **content: Any) -> Event:
        return Event(name=name, attributes={"gen_ai.event.content": json.dumps(content)})

    asked = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    events = [
        told("gen_ai.system.message", role="system", content="Be brief."),
        told("gen_ai.user.message", role="user", content="How many?"),
        told("gen_ai.choice", index=0, message={"role": "assistant", "tool_calls": [asked]}),
    ]
    made = operation("chat.completions")
    action = read(replace(made, events=tuple(events)))
    assert action.kind is ActionKind.LLM
    assert [(each.role, each.text) for each in action.input_messages] == [
        ("system", "Be brief."),
        ("user", "How many?"),
    ]
    assert [call.name for call in action.requested] == ["look_up"]


@pytest.mark.parametrize(
    ("reasons", "answer", "failed"),
    [
        pytest.param(("error",), "", True, id="it ended in an error"),
        pytest.param('["error"]', "", True, id="as JSON"),
        pytest.param(("stop",), "", False, id="it said nothing"),
        pytest.param(("error",), "Half an answer.", False, id="something was said"),
    ],
)
def test_a_finish_reason_may_be_the_only_sign_of_a_failed_call(
    reasons: Any, answer: str, *, failed: bool
) -> None:
    said_so = messages(said("assistant", answer))
    ended = {"gen_ai.response.finish_reasons": reasons, "gen_ai.output.messages": said_so}
    assert read(operation("chat", **ended)).failed is failed


def test_an_agents_error_is_that_of_its_last_call_if_this_said_nothing() -> None:
    """Mastra's spans of a failed call say OK."""
    broken = replace(agent(2, "purser"), status=SpanStatus.ERROR, status_message="out of order")
    (step,) = ordered(workflow(), broken, chat(3, parent=2)).steps
    assert (step.agent, step.kind.value, step.error) == ("purser", "llm", "out of order")
    (spoken,) = ordered(workflow(), broken, chat(3, parent=2, answer="Well,")).steps
    assert spoken.error == ""


def test_a_function_that_returns_its_tools_result_says_nothing_itself() -> None:
    answer = {"gen_ai.output.messages": messages(said("assistant", "120"))}
    relaying = agent(2, "registrar", attributes=answer)
    called, spoke = ("registrar", "tool"), ("registrar", "llm")
    for result, steps in (("120", [called]), ("85", [called, spoke])):
        found = ordered(workflow(), relaying, tool(3, "seats_of", parent=2, result=result))
        assert outline(found) == steps


def test_the_call_of_an_answering_tool_is_the_answer() -> None:
    answer = ("final_answer", '{"answer": "6,840 euros"}', "1")
    assert [step.output for step in ordered(workflow(), chat(2, calls=[answer])).steps] == ["6,840 euros"]
    several = ("final_answer", '{"amount": "6,840", "currency": "euro"}', "1")
    (step,) = ordered(workflow(), chat(2, calls=[several])).steps
    assert step.output.startswith("call final_answer(")


def test_a_failed_tool_without_its_name_ran_the_agent_that_failed_with_its_error() -> None:
    """Traceloop's spans of LangChain.js: agents are beside the tools that run them."""
    lead, purser = agent(2, "concierge", end=900), agent(4, "purser", parent=2, start=12, end=90)
    nameless, call = (
        replace(each, status=SpanStatus.ERROR, status_message="out of order")
        for each in (
            tool(3, "DynamicStructuredTool", parent=2, start=10, end=100),
            chat(5, parent=4, start=14, end=80),
        )
    )
    assert outline(ordered(workflow(), lead, nameless, purser, call)) == [("purser", "llm")]
    other = replace(call, status_message="refused")
    assert ("concierge", "tool") in outline(ordered(workflow(), lead, nameless, purser, other))
