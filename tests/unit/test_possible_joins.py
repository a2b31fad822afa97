"""Runs that may be one are told so, and never joined."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer.analyses.examine import Done
from analyzer.analyses.load import Others
from collector_processor.assembly.assembler import Released
from collector_processor.core.runs import MAY_JOIN, Run
from collector_processor.lint import lint
from collector_processor.otlp import NO_TENANT, Tenant, TraceKey
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.runs import Continuation, RecentRuns, continuation_of
from collector_processor.rebuild.stages import rebuild
from semconv.model import Completion, Span, SpanId, TraceId
from semconv.record import replace as changed
from tests.factories import TRACE, chat, workflow
from tests.slow_lane import ScriptedAnalyst, SlowLane

SECOND_NS = 10**9
ANSWER = "The pump at the weir draws nine kilowatts when it starts."
OTHER = TraceId("b" * 32)


def run_spans(trace: TraceId, *, start_s: int, task: str, answer: str, service: str = "office") -> list[Span]:
    """Return one agent's run in a trace of its own, a second long."""
    root = workflow(1, task=task, answer=answer)
    spans = [root, chat(2, answer=answer, agent_name="planner")]
    return [
        changed(
            each,
            trace_id=trace,
            span_id=SpanId(f"{trace[-1]}{each.span_id[1:]}"),
            parent_id=None if each is root else SpanId(f"{trace[-1]}{root.span_id[1:]}"),
            start_ns=start_s * SECOND_NS,
            end_ns=(start_s + 1) * SECOND_NS,
            resource=changed(each.resource, attributes={"service.name": service}),
        )
        for each in spans
    ]


FIRST = run_spans(TRACE, start_s=100, task="How much power does the pump draw?", answer=ANSWER)


def noted(*spans: list[Span]) -> list[tuple[str, ...]]:
    """Return the notes of each run, in the order of their starts."""
    runs = rebuild([encode(each) for each in spans])
    return [tuple(one for one in run.trajectory.warnings if one.startswith(MAY_JOIN)) for run in runs]


def second(task: str = f"Facts: {ANSWER} Is the fuse large enough?", **other: Any) -> list[Span]:
    given: dict[str, Any] = {
        "start_s": 103,
        "answer": "The fuse of the weir's pump is large enough for that.",
    } | other
    return run_spans(OTHER, task=task, **given)


def test_a_run_whose_task_quotes_the_answer_before_it_may_belong_to_that_run() -> None:
    first, then = noted(FIRST, second())
    assert first == ()
    assert [note.partition(":")[0] for note in then] == [f"{MAY_JOIN}{TRACE}"]


def test_the_order_in_which_they_arrive_does_not_matter() -> None:
    assert noted(second(), FIRST) == noted(FIRST, second())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"task": "Is the fuse of the pump at the weir large enough?"}, id="it quotes nothing"),
        pytest.param({"task": "Is it so that the pump at the weir draws power?"}, id="a few words are alike"),
        pytest.param({"start_s": 500}, id="a person could have pasted it"),
        pytest.param({"start_s": 90}, id="it began before the answer was there"),
        pytest.param({"service": "billing"}, id="of another service"),
    ],
)
def test_two_runs_stay_two_without_a_word(other: dict[str, Any]) -> None:
    assert noted(FIRST, second(**other)) == [(), ()]


def test_an_answer_that_repeats_the_task_is_no_evidence() -> None:
    echo = run_spans(TRACE, start_s=100, task=f"Say this: {ANSWER}", answer=ANSWER)
    assert noted(echo, second()) == [(), ()]


def test_a_chat_that_quotes_its_own_history_is_no_evidence() -> None:
    history = f'[{{"role": "user", "content": "How much?"}}, {{"role": "assistant", "content": "{ANSWER}"}}]'
    (root, call) = second(task="And what does it cost a year, then?")
    heard = changed(call, attributes={**call.attributes, "gen_ai.input.messages": history})
    assert noted(FIRST, [root, heard]) == [(), ()]


def test_lint_says_how_both_become_one_run() -> None:
    _, run = rebuild([encode(FIRST), encode(second())])
    (finding,) = [each for each in lint(run) if each.rule == "may-be-one-run"]
    assert finding.what.startswith(f"{MAY_JOIN}{TRACE}")
    assert any("with run(" in line for line in finding.mend)


def both() -> tuple[Continuation, Continuation]:
    """Return what links the two runs."""
    found: list[Run] = list(rebuild([encode(FIRST), encode(second())]))
    first, then = (continuation_of(run.trace, run.trajectory) for run in found)
    return first, then


def test_runs_of_two_tenants_are_never_one() -> None:
    recent, (first, then) = RecentRuns(), both()
    assert recent.before(first, Tenant("a")) == ""
    assert recent.before(then, Tenant("b")) == ""
    assert recent.before(then, Tenant("a")) == TRACE


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector_processor.rebuild.runs._MOST_REMEMBERED", 2)
    recent, (first, then) = RecentRuns(), both()
    recent.before(first)
    for number in range(2):
        recent.before(replace(first, run_id=f"{number}", said=(number, number)))
    assert recent.before(then) == ""


async def test_the_service_says_so_in_the_verdict(tmp_path: Path) -> None:
    lane = SlowLane(path=tmp_path, analyst=ScriptedAnalyst(0))
    try:
        for trace, spans in ((TRACE, FIRST), (OTHER, second())):
            lane.source.store(encode(spans))
            released = Released(key=TraceKey(NO_TENANT, trace), completion=Completion.ROOT_ENDED)
            done = await lane.examiner.examine(
                released, others=Others(is_open=lambda _: False), claim=lambda _: False
            )
            assert isinstance(done, Done)
        documents = [lane.store.current(NO_TENANT, trace) for trace in (TRACE, OTHER)]
        told = [json.loads(found.document).get("notes") for found in documents if found]
        assert told[0] is None
        assert [note.partition(":")[0] for note in told[1]] == [f"{MAY_JOIN}{TRACE}"]
    finally:
        lane.close()
