"""The completion benches count correctly, and find no fault if nothing is late."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.completion.counting import Said, Seen, Truth, count, percentile
from benchmarks.completion.stories import KINDS, Kind, Shape, tell
from benchmarks.completion.world import Begun, play, requests
from collector_processor.settings import load_settings
from semconv.attributes import (
    CARRIER,
    FAILURE_AGENT_NAME,
    FAILURE_DECISIVE,
    FAILURE_ID,
    FAILURE_STATUS,
    FailureStatus,
)
from semconv.model import Attributes, Span, TraceId
from tests.factories import span

ONE, OTHER = TraceId("1" * 32), TraceId("2" * 32)
FAILED = Truth(culprit="calculator", traces=frozenset({ONE}), end_s=100)
PASSED = Truth(culprit=None, traces=frozenset({ONE}), end_s=100)
RIGHT = Said(at_s=103, run_id=ONE, version=1, status="attributed", agent="calculator")
PASS = Said(at_s=103, run_id=ONE, version=1, status="no_failure", agent=None)
ALONE: dict[str, frozenset[TraceId]] = {ONE: frozenset({ONE})}


def blame(agent: str, name: str = "blame") -> Span:
    attributes: Attributes = {CARRIER: True, FAILURE_DECISIVE: True, FAILURE_AGENT_NAME: agent}
    return span(1, trace_id=ONE, name=name, attributes=attributes)


def test_a_right_verdict_after_the_end_has_no_fault_and_its_wait() -> None:
    found = count([FAILED], Seen(said=[RIGHT], parts=ALONE, carriers=(blame("calculator"),)))
    assert (found.runs, found.blames, found.waits) == (1, 1, [3])
    assert (found.wrong, found.innocent, found.passed, found.changed, found.joined) == (0, 0, 0, 0, 0)


def test_a_verdict_that_was_corrected_counts_what_it_said_first() -> None:
    said = [PASS, replace(RIGHT, at_s=120, version=2)]
    found = count([FAILED], Seen(said=said, parts=ALONE))
    assert (found.wrong, found.passed, found.changed, found.waits) == (0, 1, 1, [20])


def test_an_innocent_whose_blame_only_the_backend_saw_counts() -> None:
    found = count([PASSED], Seen(said=[PASS], parts=ALONE, carriers=(blame("planner"),)))
    assert (found.innocent, found.passing_blamed, found.wrong) == (1, 1, 0)


def test_a_blame_that_is_withdrawn_beside_its_mark_and_on_the_root_counts_once() -> None:
    attributes: Attributes = {CARRIER: True, FAILURE_STATUS: FailureStatus.WITHDRAWN.value, FAILURE_ID: "b2"}
    withdrawals = [span(number, trace_id=ONE, attributes=attributes) for number in (2, 3)]
    found = count([PASSED], Seen(said=[PASS], parts=ALONE, carriers=(blame("planner"), *withdrawals)))
    assert (found.blames, found.withdrawn) == (1, 1)


def test_a_run_without_a_verdict_is_wrong() -> None:
    found = count([PASSED], Seen())
    assert (found.wrong, found.missing) == (1, 1)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({ONE: frozenset({ONE, OTHER})}, id="with another's trace"),
        pytest.param({ONE: frozenset({ONE}), "x": frozenset({ONE})}, id="as two"),
    ],
)
def test_a_run_that_is_not_judged_as_one_is_joined_wrongly(parts: dict[str, frozenset[TraceId]]) -> None:
    assert count([PASSED], Seen(said=[PASS], parts=parts)).joined == 1


def test_percentiles_are_values_that_came() -> None:
    assert [percentile([4, 1, 3, 2], percent) for percent in (50, 99)] == [2, 4]
    assert percentile([], 50) is None


def test_spans_leave_a_service_at_its_first_flush_after_their_end() -> None:
    story = tell(Shape.AGENTS, Kind.CLEAN, services=2, pause_s=20, ids=(ONE,))
    begun = Begun(story=story, begin_s=1_000)
    arrivals = sorted(at for at, _ in requests([begun], 5, random.Random(1)))
    assert begun.begin_s < arrivals[0] < begun.begin_s + 10
    assert begun.end_s < arrivals[-1] < begun.end_s + 5.1
    assert any(later - earlier > 10 for earlier, later in pairwise(arrivals))


@pytest.mark.parametrize(
    "restarts", [pytest.param([], id="undisturbed"), pytest.param([1_002.0], id="killed")]
)
async def test_a_world_in_which_nothing_is_late_has_no_fault(tmp_path: Path, restarts: list[float]) -> None:
    runs = [
        Begun(
            begin_s=1_000,
            story=tell(Shape.FLAT, kind, services=1, pause_s=0, ids=(TraceId(f"{number + 1:032x}"),)),
        )
        for number, kind in enumerate(KINDS)
    ]
    arrivals = list(requests(runs, 0.2, random.Random(1)))
    seen = await play(load_settings({}, data_dir=tmp_path), runs, arrivals, restarts)
    found = count([run.truth for run in runs], seen)
    assert (found.runs, found.wrong, found.innocent, found.passed, found.changed) == (4, 0, 0, 0, 0)
    assert (found.joined, found.blames, len(found.waits)) == (0, 2, 4)
