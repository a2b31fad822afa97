"""Google ADK's own spans, from ``call_llm`` around everything to ``generate_content`` with log events."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from semconv.dialects import ActionKind, Surroundings
from semconv.dialects.frameworks.google_adk import GOOGLE_ADK
from semconv.model import ContentState, Event, Span
from tests.factories import at, messages, ordered, outline, said, span

SCOPE = "gcp.vertex.agent"


def adk(
    number: int, name: str, parent: int | None = None, logs: tuple[Event, ...] = (), **attributes: Any
) -> Span:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return span(
        number, parent=parent, name=name, scope=SCOPE, attributes=named, logs=logs, end=1000 - number * 10
    )


def leaf(made: Span, start: float) -> Span:
    return replace(made, start_ns=at(start), end_ns=at(start + 5))


def request(*texts: str, instruction: str = "") -> str:
    contents = [{"role": "user", "parts": [{"text": text}]} for text in texts]
    return json.dumps({"model": "m", "config": {"system_instruction": instruction}, "contents": contents})


def response(**part: Any) -> str:
    return json.dumps({"content": {"role": "model", "parts": [part]}, "partial": False})


def called(number: int, name: str, parent: int = 1, **more: Any) -> Span:
    named: dict[str, Any] = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": name, **more}
    return adk(number, f"execute_tool {name}", parent, **named)


def tool(number: int, parent: int, name: str, given: str, got: str) -> Span:
    texts: dict[str, Any] = {
        "gcp__vertex__agent__tool_call_args": given,
        "gcp__vertex__agent__tool_response": got,
    }
    return called(number, name, parent, **texts)


def call_llm(number: int, parent: int, asked: str, **part: Any) -> Span:
    texts: dict[str, Any] = {"llm_request": asked, "llm_response": response(**part)}
    named = {f"gcp__vertex__agent__{key}": text for key, text in texts.items()}
    return adk(number, "call_llm", parent, **named)


def test_old_model_calls_are_steps_of_the_agent_in_the_span_name() -> None:
    """Up to 1.14: ``agent_run [name]``, and ``call_llm`` around tools and the agent handed over to."""
    transfer = {"name": "transfer_to_agent", "args": {"agent_name": "clerk"}, "id": "a"}
    trajectory = ordered(
        adk(1, "invocation"),
        adk(2, "agent_run [triage]", 1),
        call_llm(3, 2, request("How many seats?"), function_call=transfer),
        leaf(tool(4, 3, "transfer_to_agent", '{"agent_name": "clerk"}', '{"result": null}'), 40),
        adk(5, "agent_run [clerk]", 3),
        call_llm(6, 5, request("How many seats?"), text="200 seats"),
    )
    assert outline(trajectory) == [("triage", "llm"), ("triage", "handoff"), ("clerk", "llm")]
    assert trajectory.task == "How many seats?"
    assert trajectory.output == "200 seats"
    assert trajectory.steps[1].target == "clerk"


def test_call_llm_around_generate_content_is_no_second_step_and_lends_its_texts() -> None:
    trajectory = ordered(
        adk(1, "invoke_agent clerk", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="clerk"),
        call_llm(2, 1, request("How many?", instruction="Be brief."), text="200"),
        adk(3, "generate_content m", 2, gen_ai__operation__name="generate_content"),
    )
    (step,) = trajectory.steps
    assert step.name == "generate_content m"
    assert (step.input, step.output, step.instructions) == ("user: How many?", "200", "Be brief.")


def test_a_tools_own_report_of_an_error_counts() -> None:
    made = tool(1, 0, "look_up", '{"id": 1}', '{"error": "not found"}')
    found = GOOGLE_ADK.read(made, around(made))
    assert found is not None
    assert (found.failed, found.error, found.input) == (True, "not found", '{"id": 1}')


def around(*spans: Span) -> Surroundings:
    return Surroundings(spans)


def test_the_span_for_calls_at_once_is_no_call() -> None:
    made = tool(1, 0, "(merged tools)", "N/A", "<not serializable>")
    found = GOOGLE_ADK.read(made, around(made))
    assert found is not None
    assert found.kind is ActionKind.CONTAINER


def test_hidden_content_still_gives_agents_kinds_and_order() -> None:
    """The handoff's target is the next agent."""
    trajectory = ordered(
        adk(1, "invoke_workflow triage", gen_ai__operation__name="invoke_workflow"),
        model(2, "triage"),
        leaf(hidden_transfer(3), 30),
        model(4, "clerk"),
    )
    assert outline(trajectory) == [("triage", "llm"), ("triage", "handoff"), ("clerk", "llm")]
    assert trajectory.steps[1].target == "clerk"
    assert {step.content for step in trajectory.steps} == {ContentState.ABSENT, ContentState.COMPLETE}


def model(number: int, agent: str, *logs: Event, **attributes: Any) -> Span:
    named: dict[str, Any] = {
        "gen_ai__operation__name": "generate_content",
        "gen_ai__agent__name": agent,
        **attributes,
    }
    return leaf(adk(number, "generate_content m", 1, logs, **named), number * 10)


def hidden_transfer(number: int) -> Span:
    hidden: dict[str, Any] = {"gen_ai__agent__name": "triage", "gcp__vertex__agent__tool_call_args": "{}"}
    return called(number, "transfer_to_agent", **hidden)


def test_elided_log_events_are_hidden_not_empty() -> None:
    elided = Event(name="gen_ai.user.message", body={"content": "<elided>"})
    trajectory = ordered(model(2, "clerk", elided, Event(name="gen_ai.choice", body={"content": "<elided>"})))
    assert trajectory.steps[0].content is ContentState.REDACTED


def test_older_log_events_hold_contents_whose_parts_name_all_they_might_be() -> None:
    blank = {"function_call": None, "inline_data": None, "file_data": None}
    question: dict[str, Any] = {"role": "user", "parts": ({"text": "Why?", **blank},)}
    answer: dict[str, Any] = {"role": "model", "parts": ({"text": "So.", **blank},)}
    asked = Event(name="gen_ai.user.message", body={"content": question})
    told = Event(name="gen_ai.choice", body={"content": answer})
    (step,) = ordered(model(2, "clerk", asked, told)).steps
    assert (step.input, step.output) == ("user: Why?", "So.")


def test_a_streamed_reply_is_its_last_and_whole_message() -> None:
    streamed = messages(said("assistant", "20"), said("assistant", "200 seats"))
    (step,) = ordered(model(2, "clerk", gen_ai__output__messages=streamed)).steps
    assert step.output == "200 seats"


def test_tools_without_content_borrow_it_from_the_calls_around_them() -> None:
    """By default ADK 2 writes content into the model calls' log events only."""
    call = {"role": "model", "parts": [{"function_call": {"name": "look_up", "args": {"id": 1}, "id": "a"}}]}
    result = {"function_response": {"name": "look_up", "response": {"error": "no such id"}, "id": "a"}}
    ids: dict[str, Any] = {"gen_ai__tool__call__id": "a", "gen_ai__agent__name": "clerk"}
    trajectory = ordered(
        model(2, "clerk", gen_ai__output__messages=[call]),
        leaf(called(3, "look_up", **ids), 30),
        model(4, "clerk", gen_ai__input__messages=[call, {"role": "user", "parts": [result]}]),
    )
    lookup = trajectory.steps[1]
    assert json.loads(lookup.input) == {"id": 1}
    assert (lookup.output, lookup.error) == ("no such id", "no such id")


def test_a_model_call_that_lost_its_agents_span_is_named_by_its_prompt() -> None:
    prompt = 'Look it up.\n\nYou are an agent. Your internal name is "clerk".'
    made = adk(1, "call_llm", gcp__vertex__agent__llm_request=request("How many?", instruction=prompt))
    assert outline(ordered(made)) == [("clerk", "llm")]


def test_a_reply_that_is_an_error_is_one() -> None:
    refused = json.dumps({"error_code": "429", "error_message": "quota exceeded"})
    made = adk(1, "call_llm", gcp__vertex__agent__llm_response=refused)
    (step,) = ordered(made).steps
    assert (step.status, step.error) == ("error", "quota exceeded")


def test_spans_of_another_scope_are_not_read() -> None:
    made = span(1, name="call_llm", scope="mine")
    assert GOOGLE_ADK.read(made, around(made)) is None
