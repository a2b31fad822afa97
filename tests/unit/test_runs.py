"""Which traces form one run."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from collector_processor.rebuild.runs import MAX_KEY_CHARS, group_runs, join_logs, run_keys
from semconv.dialects.conventions.langsmith import OPENAI_TRACE
from semconv.model import AttributeValue, Event, Link, LogRecord, Scope, Span, Trace, TraceId
from tests.factories import agent, chat, ordered, span, span_id, trace, workflow

TEAM = "599c723a-8908-4131-9f13-750a9a98bbf1"
RUN = "0b2c723a-8908-4131-9f13-750a9a98bb00"
_PLACES_OF_IDS: Final = (
    "gen_ai.agent.id",
    "metadata.requester_metadata",
    "session.id",
    "tool_name",
    "tool_use_id",
    "user_prompt",
)


def trace_of(letter: str) -> TraceId:
    return TraceId(letter * 32)


def in_trace(letter: str, number: int, **more: object) -> Span:
    return chat(number, parent=None, trace_id=trace_of(letter), **more)  # type: ignore[arg-type]


def sizes(runs: tuple[Trace, ...]) -> list[int]:
    return [len(run.spans) for run in runs]


def test_links_join_traces_in_either_direction() -> None:
    first = trace(in_trace("a", 1))
    linked = trace(in_trace("b", 2, links=[Link(trace_id=trace_of("a"), span_id=span_id(1))]))
    other = trace(in_trace("c", 3))
    runs = group_runs([other, linked, first])
    assert sizes(runs) == [2, 1]
    assert {each.trace_id for each in runs[0].spans} == {trace_of("a"), trace_of("b")}


def test_a_joined_run_is_known_by_its_earliest_trace() -> None:
    late = trace(in_trace("a", 9))
    early = trace(in_trace("b", 2, links=[Link(trace_id=trace_of("a"), span_id=span_id(9))]))
    (run,) = group_runs([late, early])
    assert ordered(*run.spans).run_id == trace_of("b")


def test_autogens_team_id_joins_traces() -> None:
    traces = []
    for number, letter, name in ((1, "a", "triage"), (2, "b", "researcher")):
        named = {"gen_ai.agent.id": f"{name}_{TEAM}/{RUN}"}
        turn = agent(number, name, parent=None, trace_id=trace_of(letter), attributes=named)
        traces.append(trace(turn))
    assert sizes(group_runs(traces)) == [2]
    assert run_keys(traces[0]) & run_keys(traces[1]) == {f"autogen:{TEAM}"}


def test_an_id_of_any_length_is_a_short_key_and_joins_all_the_same() -> None:
    """Senders may use ids of any length, and keys are remembered long after the spans."""
    long = "x" * 1_000_000
    first, second, other = (
        trace(span(1, trace_id=trace_of(letter), attributes={OPENAI_TRACE: f"{long}{end}"}))
        for letter, end in (("a", "1"), ("b", "1"), ("c", "2"))
    )
    assert max(len(key) for key in run_keys(first)) <= MAX_KEY_CHARS
    assert len(run_keys(first) & run_keys(second)) == 1
    assert not run_keys(first) & run_keys(other)
    assert run_keys(trace(span(1, attributes={OPENAI_TRACE: "\ud800" * 1000})))
    halves = run_keys(trace(span(1, attributes={OPENAI_TRACE: "\ud800é"})))
    assert b"openai:?\xc3\xa9" in {key.encode() for key in halves}


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        pytest.param(True, set(), id="truth"),
        pytest.param(7, set(), id="number"),
        pytest.param(b"\xff", set(), id="bytes"),
        pytest.param(("a", "b"), set(), id="list"),
        pytest.param("", set(), id="empty"),
        pytest.param("[" * 100_000, {"openai"}, id="deep"),  # any text is a workflow's id of openai-agents
    ],
)
def test_only_text_is_an_id_of_a_run(value: AttributeValue, kinds: set[str]) -> None:
    """Senders decide what stands where a framework has its ids."""
    attributes = dict.fromkeys((OPENAI_TRACE, *_PLACES_OF_IDS), value)
    resumed = {"input.value": value, "metadata": value, "langfuse.observation.metadata.langgraph_step": value}
    hostile = trace(
        span(1, attributes=attributes | resumed),
        span(2, attributes=attributes, scope="com.anthropic.claude_code"),
    )
    assert {key.partition(":")[0] for key in run_keys(hostile)} == {"trace", *kinds}


def test_one_team_asked_twice_is_two_runs() -> None:
    def asked(first: str, second: str) -> list[Trace]:
        named = {"gen_ai.agent.id": f"triage_{TEAM}/{RUN}"}
        links = [Link(trace_id=trace_of(first), span_id=span_id(1))]
        turn = agent(2, "triage", parent=None, trace_id=trace_of(second), attributes=named, links=links)
        return [trace(span(1, trace_id=trace_of(first), scope="autogen x")), trace(turn)]

    assert sizes(group_runs([*asked("a", "b"), *asked("c", "d")])) == [2, 2]


def test_a_team_that_something_encloses_is_joined_to_nothing() -> None:
    named = {"gen_ai.agent.id": f"triage_{TEAM}/{RUN}"}
    asked = [
        trace(
            workflow(1, task="question", trace_id=trace_of(letter)),
            agent(2, "triage", trace_id=trace_of(letter), attributes=named),
        )
        for letter in "ab"
    ]
    assert sizes(group_runs(asked)) == [2, 2]


def test_a_message_sent_in_a_trace_that_is_not_here_was_lost() -> None:
    links = [Link(trace_id=trace_of("a"), span_id=span_id(1))]
    received = span(2, trace_id=trace_of("b"), scope="autogen SingleThreadedAgentRuntime", links=links)
    sent = span(1, trace_id=trace_of("a"), scope="autogen-core")
    assert [run.complete for run in group_runs([trace(received)])] == [False]
    assert [run.complete for run in group_runs([trace(received), trace(sent)])] == [True]


def test_a_link_that_is_no_message_may_lead_anywhere() -> None:
    links = [Link(trace_id=trace_of("a"), span_id=span_id(1))]
    assert [run.complete for run in group_runs([trace(in_trace("b", 2, links=links))])] == [True]


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param({"gen_ai.conversation.id": "c-1"}, id="conversation"),
        pytest.param({"session.id": "s-1"}, id="session"),
        pytest.param({"gen_ai.agent.id": "agent"}, id="an agent's lasting id"),
        pytest.param({"gen_ai.agent.id": TEAM}, id="a bare uuid"),
    ],
)
def test_what_outlives_a_run_joins_nothing(attributes: dict[str, str]) -> None:
    traces = [
        trace(agent(number, "a", parent=None, trace_id=trace_of(letter), attributes=attributes))
        for number, letter in ((1, "a"), (2, "b"))
    ]
    assert sizes(group_runs(traces)) == [1, 1]


def test_traces_that_only_set_up_are_left_out() -> None:
    building = trace(span(1, trace_id=trace_of("a"), attributes={"gen_ai.operation.name": "create_agent"}))
    wiring = trace(span(2, trace_id=trace_of("b"), name="workflow.build"))
    running = trace(in_trace("c", 3))
    assert group_runs([building, wiring, running]) == (running,)
    assert group_runs([building]) == ()


def test_langsmiths_traces_of_one_openai_workflow_are_one_run() -> None:
    said = {"langsmith.metadata.openai_trace_id": "trace_1"}
    heads = [
        replace(in_trace(letter, number), attributes=said, scope=Scope(name="langsmith"))
        for number, letter in enumerate("ab", start=1)
    ]
    assert sizes(group_runs([Trace(spans=(head,)) for head in heads])) == [2]


def test_a_model_call_that_another_trace_shows_too_is_no_run() -> None:
    said = '{"generations": [{"id": "chatcmpl-58fece0ad9"}]}'
    shown = Trace(spans=(agent(1, "writer", parent=None), chat(2, agent_name="writer", answer=said)))
    twin, other = (
        replace(in_trace("e", number), attributes={"gen_ai.response.id": f"chatcmpl-{end}"})
        for number, end in ((3, "58fece0ad9"), (4, "other"))
    )
    assert len(group_runs([shown, Trace(spans=(twin,))])) == 1
    assert len(group_runs([shown, Trace(spans=(other,))])) == 2


@pytest.mark.parametrize(("kind", "runs"), [("LLM", [2]), ("TOOL", [2, 1])])
def test_a_duplicate_of_openinference_is_known_by_the_id_within_the_response(
    kind: str, runs: list[int]
) -> None:
    """A tool's result may have an id that others quote."""
    response = '{"id": "chatcmpl-abc123", "choices": []}'
    shown = replace(in_trace("a", 2), attributes={"langsmith.x": "run chatcmpl-abc123"})
    single = replace(in_trace("b", 1), attributes={"openinference.span.kind": kind, "output.value": response})
    found = group_runs((trace(in_trace("a", 1), shown), trace(single)))
    assert sizes(found) == runs


def test_a_trace_of_several_workflows_is_several_runs() -> None:
    whole = trace(
        span(1, name="nightly", end=1000),
        workflow(2, parent=1, task="first question", end=100),
        chat(3, parent=2, answer="one"),
        workflow(4, parent=1, task="second question", end=200),
        chat(5, parent=4, answer="two"),
    )
    first, second = group_runs([whole])
    trajectories = [ordered(*run.spans) for run in (first, second)]
    assert [each.task for each in trajectories] == ["first question", "second question"]
    assert first.run_id != second.run_id
    assert all(run.run_id.startswith(whole.spans[0].trace_id) for run in (first, second))


@pytest.mark.parametrize(
    "spans",
    [
        pytest.param((agent(2, "planner"), agent(3, "writer")), id="agents, maybe a program's steps"),
        pytest.param((workflow(2, parent=1), workflow(3, parent=1), agent(4, "stray")), id="a stray agent"),
    ],
)
def test_what_stands_side_by_side_is_one_run(spans: tuple[Span, ...]) -> None:
    whole = trace(span(1), *spans)
    assert group_runs([whole]) == (whole,)


def test_a_cycle_of_parents_does_not_hold_grouping_up() -> None:
    assert sizes(group_runs([trace(span(1, parent=2), span(2, parent=1))])) == [2]


def test_logs_find_their_spans_in_time_order() -> None:
    whole = trace(chat(1, parent=None), chat(2, parent=1))

    def record(number: int | None, time_ns: int) -> LogRecord:
        return LogRecord(
            trace_id=whole.spans[0].trace_id,
            span_id=None if number is None else span_id(number),
            event=Event(name=f"at {time_ns}", time_ns=time_ns),
        )

    joined = join_logs(whole, [record(2, 7), record(2, 3), record(None, 1), record(99, 2)])
    assert [[event.name for event in each.logs] for each in joined.spans] == [[], ["at 3", "at 7"]]


def test_no_traces_are_no_runs() -> None:
    assert group_runs([]) == ()


def test_an_operation_that_is_no_text_is_nobodys_set_up() -> None:
    odd = span(1, attributes={"gen_ai.operation.name": {"create_agent": ({},)}})
    assert len(group_runs([Trace(spans=(odd,))])) == 1
