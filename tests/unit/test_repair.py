"""Damage is repaired and reported, and never costs a sound span."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from collector_processor.rebuild.repair import repair
from semconv.model import SpanStatus, Trace
from tests.factories import agent, at, chat, ordered, span, span_id, trace, workflow


def ids(repaired: Trace) -> list[str]:
    return sorted(each.span_id for each in repaired.spans)


def test_a_sound_trace_stays_as_it_is() -> None:
    sound = trace(span(1, end=100), span(2, parent=1), span(3, parent=2))
    assert repair(sound) is sound


def test_the_same_span_twice_is_dropped_in_silence() -> None:
    repaired = repair(trace(span(1), span(2, parent=1), span(2, parent=1)))
    assert ids(repaired) == [span_id(1), span_id(2)]
    assert repaired.warnings == ()


@pytest.mark.parametrize("seed", range(3))
def test_of_different_spans_under_one_id_the_most_complete_is_kept(seed: int) -> None:
    full = span(2, parent=1, attributes={"a": 1, "b": 2})
    spans = [span(1), span(2, parent=1), full, span(2, parent=1, attributes={"a": 1})]
    random.Random(seed).shuffle(spans)
    repaired = repair(trace(*spans))
    assert full in repaired.spans
    assert len(repaired.spans) == 2
    assert repaired.warnings == ("span id used for different spans; the most complete kept (1)",)


def test_of_equally_complete_spans_the_same_is_kept_whatever_came_first() -> None:
    one, other = span(2, attributes={"a": 1}), span(2, attributes={"a": 2})
    assert repair(trace(one, other)).spans == repair(trace(other, one)).spans


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_cycle_of_parents_is_broken_at_its_earliest_span(size: int) -> None:
    ring = [span(number, parent=number % size + 1) for number in range(1, size + 1)]
    repaired = repair(trace(*reversed(ring), span(10, parent=1)))
    assert [each.span_id for each in repaired.spans if each.parent_id is None] == [span_id(1)]
    assert repaired.warnings == ("cycle of parents broken (1)",)


def test_two_cycles_are_two() -> None:
    repaired = repair(trace(span(1, parent=2), span(2, parent=1), span(3, parent=4), span(4, parent=3)))
    assert repaired.warnings == ("cycle of parents broken (2)",)


def test_orphans_become_roots_and_the_trace_is_not_whole() -> None:
    repaired = repair(trace(span(1), span(2, parent=77)))
    assert all(each.parent_id is None for each in repaired.spans)
    assert repaired.warnings == ("parent missing (1)",)
    assert not repaired.complete


def test_the_entry_of_a_remote_trace_is_no_orphan() -> None:
    """A web front end may report elsewhere; the flags say that the parent is remote."""
    repaired = repair(trace(span(1, parent=77, flags=0x301), span(2, parent=1)))
    assert repaired.complete
    assert repaired.warnings == ()
    assert repaired.spans[0].parent_id is None


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(0, 0, (50, 50), id="no times: those of the parent"),
        pytest.param(0, 70, (70, 70), id="no start"),
        pytest.param(70, 0, (70, 70), id="no end"),
        pytest.param(70, 60, (70, 70), id="ends before it starts"),
    ],
)
def test_times_are_put_in_order(start: int, end: int, expected: tuple[int, int]) -> None:
    odd = replace(span(2, parent=1), start_ns=start and at(start), end_ns=end and at(end))
    repaired = repair(trace(span(1, start=50, end=100), odd))
    mended = next(each for each in repaired.spans if each.span_id == span_id(2))
    assert (mended.start_ns, mended.end_ns) == (at(expected[0]), at(expected[1]))
    assert repaired.warnings == ("zero or negative time put in order (1)",)


def test_a_trace_without_any_time_is_still_ordered() -> None:
    blank = [
        replace(chat(number, parent=None, answer=str(number)), start_ns=0, end_ns=0) for number in (1, 2)
    ]
    assert len(ordered(*blank).steps) == 2


def test_our_own_spans_are_dropped_and_our_emitters_stay() -> None:
    kept = chat(2, scope="blamespan.instrument")
    repaired = repair(
        trace(
            workflow(),
            kept,
            span(3, parent=2, scope="blamespan"),
            span(4, parent=2, attributes={"blamespan.carrier": True, "openinference.span.kind": "EVALUATOR"}),
        )
    )
    assert ids(repaired) == [span_id(1), span_id(2)]
    assert repaired.warnings == ()


def test_a_clock_that_is_behind_is_corrected_for_the_whole_service() -> None:
    repaired = repair(
        trace(
            span(1, start=1000, end=1100),
            span(2, parent=1, start=400, end=480, service="other"),
            span(3, parent=2, start=410, end=420, service="other"),
        )
    )
    shifted = {each.span_id: each for each in repaired.spans}
    assert shifted[span_id(2)].start_ns == at(1010)
    assert shifted[span_id(3)].start_ns == at(1020)
    assert repaired.warnings == ("clock skew of other corrected by up to 610 ms (2)",)


def test_a_server_that_ends_after_its_call_has_a_clock_that_is_ahead() -> None:
    repaired = repair(
        trace(
            span(1, start=1000, end=1100, kind=3),
            span(2, parent=1, start=1500, end=1580, service="other", kind=2),
        )
    )
    assert repaired.spans[1].start_ns == at(1010)


def test_work_that_outlives_its_parent_is_no_skew() -> None:
    later = trace(span(1, start=1000, end=1100), span(2, parent=1, start=1050, end=5000, service="worker"))
    assert repair(later) is later


def test_skew_does_not_change_the_order_of_steps() -> None:
    """The answering agent's clock is an hour behind."""
    hour = 3_600_000
    trajectory = ordered(
        workflow(end=1000),
        agent(2, "first", start=10, end=100),
        chat(3, parent=2, start=20, end=90, answer="one"),
        agent(4, "second", start=200 - hour, end=300 - hour, service="remote"),
        chat(5, parent=4, start=210 - hour, end=290 - hour, answer="two", service="remote"),
    )
    assert [step.agent for step in trajectory.steps] == ["first", "second"]
    assert any("clock skew of remote" in warning for warning in trajectory.warnings)


def test_ten_thousand_levels_are_walked() -> None:
    deep = [span(1, end=100_000)] + [
        span(number, parent=number - 1, start=number, end=200_000 - number) for number in range(2, 10_001)
    ]
    random.Random(1).shuffle(deep)
    assert len(repair(trace(*deep)).spans) == 10_000


def test_status_and_texts_are_never_changed() -> None:
    failed = span(2, parent=99, error="boom", attributes={"k": "v"})
    (mended,) = repair(trace(failed)).spans
    assert (mended.status, mended.status_message, mended.attributes) == (SpanStatus.ERROR, "boom", {"k": "v"})
