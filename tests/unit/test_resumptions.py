"""A LangGraph run that is resumed in another trace is one run; other turns of its thread are not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from analyzer.analyses.analyst import RunAnalyst
from analyzer.methods.attribution import Attributor
from collector_processor.rebuild.runs import group_runs
from semconv.model import Event, Span, Status, Trace, TraceId
from tests.factories import openinference, ordered, span, trace

Writes = Callable[[dict[str, Any]], dict[str, Any]]
FAILS = {
    "error": "printer jam",
    "events": [Event(name="exception", attributes={"exception.type": "OSError"})],
}


def as_openinference(told: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": json.dumps({"thread_id": "T", **told})}


def as_traceloop(told: dict[str, Any]) -> dict[str, Any]:
    return {f"traceloop.association.properties.{name}": value for name, value in told.items()}


def as_langfuse(told: dict[str, Any]) -> dict[str, Any]:
    return {f"langfuse.observation.metadata.{name}": json.dumps(value) for name, value in told.items()}


def command(resume: object) -> dict[str, Any]:
    return {"graph": None, "update": None, "resume": resume, "goto": []}


def turn(
    letter: str,
    given: dict[str, Any],
    *tasks: tuple[str, int],
    writes: Writes = as_openinference,
    waits: bool = False,
    fails: bool = False,
    hours: int = 0,
) -> Trace:
    """One call of the graph: a span of the graph, and one for each task; the last may wait or fail."""
    at, top_id = hours * 3_600_000 + ord(letter), 100 * ord(letter)
    own: dict[str, Any] = {"trace_id": TraceId(letter * 32)}
    paused = Event(name="exception", attributes={"exception.type": "langgraph.errors.GraphInterrupt"})
    ends: dict[str, Any] = {"events": [paused]} if waits else FAILS if fails else {}
    graph = {"input.value": json.dumps(given)} | ({} if waits else {"output.value": "The letter is sent."})
    top = {"start": at, "end": at + 100, **own} | ({} if waits else ends)
    return trace(
        openinference(top_id, "CHAIN", name="LangGraph", parent=None, attributes=graph, **top),
        openinference(
            top_id + 90, "LLM", parent=top_id, attributes={"output.value": "Done."}, start=at + 3, **own
        ),
        *(
            openinference(
                top_id + number,
                "CHAIN",
                parent=top_id,
                name=task.partition(":")[0],
                attributes=writes({"langgraph_checkpoint_ns": task, "langgraph_step": step}),
                start=at + number,
                end=at + 90,
                **own,
                **(ends if number == len(tasks) + 1 else {}),
            )
            for number, (task, step) in enumerate(tasks, start=2)
        ),
    )


def runs(*traces: Trace) -> list[set[str]]:
    return [{each.trace_id[0] for each in run.spans} for run in group_runs(traces)]


def status(run: Sequence[Span]) -> Status:
    analysis = RunAnalyst(attributor=Attributor()).unasked(ordered(*run))
    assert analysis is not None
    return analysis.attribution.status


ASKS = {"x": "send the letter"}
WRITES, APPROVE, SEND = ("write:11", 1), ("approve:22", 2), ("send:33", 3)


@pytest.mark.parametrize("writes", [as_openinference, as_traceloop, as_langfuse])
@pytest.mark.parametrize("resume", ["yes", True, {"decisions": [{"type": "approve"}]}, "好的"])
def test_a_wait_and_its_resumption_are_one_run(writes: Writes, resume: object) -> None:
    first = turn("a", ASKS, WRITES, APPROVE, writes=writes, waits=True)
    second = turn("b", command(resume), APPROVE, SEND, writes=writes, hours=5)
    assert runs(second, first) == [{"a", "b"}]


def test_a_run_that_was_resumed_is_judged_by_how_it_ended() -> None:
    first = turn("a", ASKS, WRITES, APPROVE, waits=True)
    done = turn("b", command("yes"), APPROVE, SEND, hours=5)
    broken = turn("b", command("yes"), APPROVE, SEND, fails=True, hours=5)
    assert status(first.spans) is Status.WAITING
    assert [status(run.spans) for run in group_runs([first, done])] == [Status.NO_FAILURE]
    assert [status(run.spans) for run in group_runs([first, broken])] == [Status.ATTRIBUTED]


def test_a_wait_in_a_graph_within_a_graph_is_resumed_by_its_outermost_task() -> None:
    first = turn("a", ASKS, ("mail:1", 4), ("mail:1|write:2", 1), ("mail:1|approve:3", 2), waits=True)
    second = turn("b", command("yes"), ("mail:1", 4), ("mail:1|approve:3", 2), ("mail:1|send:4", 3))
    assert runs(first, second) == [{"a", "b"}]


def test_two_approvals_one_after_the_other_are_of_one_run() -> None:
    first = turn("a", ASKS, WRITES, APPROVE, waits=True)
    second = turn("b", command("yes"), APPROVE, ("pay:44", 3), waits=True)
    third = turn("c", command(True), ("pay:44", 3), SEND)
    assert runs(first, second, third) == [{"a", "b", "c"}]


def test_later_turns_of_a_thread_are_runs_of_their_own() -> None:
    approved = [
        part
        for number, (waits, resumes) in enumerate((("a", "b"), ("c", "d"), ("e", "f")))
        for part in (
            turn(
                waits, ASKS, (f"write:{number}", 5 * number + 1), (f"ok:{number}", 5 * number + 2), waits=True
            ),
            turn(resumes, command("yes"), (f"ok:{number}", 5 * number + 2)),
        )
    ]
    chat = [turn(letter, ASKS, (f"write:{letter}", 20 + at)) for at, letter in enumerate("123")]
    assert runs(*approved, *chat) == [{"1"}, {"2"}, {"3"}, {"a", "b"}, {"c", "d"}, {"e", "f"}]


@pytest.mark.parametrize(
    "said",
    ["And what does the ferry to Oslo cost?", "那么从上海到北京的火车票现在要多少钱请再帮我查一下好吗"],
)
def test_a_chat_that_waits_for_each_message_is_not_one_run(said: str) -> None:
    turns = [turn("1", ASKS, ("ask:0", 1), waits=True)]
    turns += [
        turn(letter, command(said), (f"ask:{at}", 2 * at + 1), (f"ask:{at + 1}", 2 * at + 3), waits=True)
        for at, letter in enumerate("23456789")
    ]
    assert [len(each) for each in runs(*turns)] == [1] * 9


def test_the_same_task_without_a_wait_or_a_resumption_joins_nothing() -> None:
    crashed, again = turn("a", ASKS, WRITES, fails=True), turn("b", {"resume": "my CV"}, WRITES)
    assert runs(crashed, again) == [{"a"}, {"b"}]


def test_what_somebody_writes_about_tasks_is_no_task() -> None:
    told = {"input.value": json.dumps(command("yes")), "metadata": '"langgraph_checkpoint_ns"'}
    odd = trace(
        span(1, attributes=told), span(2, parent=1, attributes={"metadata": "langgraph_checkpoint_ns: ["})
    )
    assert len(runs(odd, turn("a", ASKS, WRITES, waits=True))) == 2
