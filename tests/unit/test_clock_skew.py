"""Clock skew between services, estimated from all calls between them."""

from __future__ import annotations

from collector_processor.rebuild.repair import repair
from semconv.model import Span, Trace
from tests.factories import at, span, span_id, trace

SERVER, CLIENT, CONSUMER = 2, 3, 5


def repaired(*spans: Span) -> tuple[Trace, dict[str, Span]]:
    mended = repair(trace(*spans))
    return mended, {each.span_id: each for each in mended.spans}


def test_one_proof_corrects_calls_that_prove_nothing() -> None:
    """The first call shows that B is 2 s behind; the second is long and alone would hide it."""
    mended, found = repaired(
        span(1, start=0, end=100_000, service="a"),
        span(2, parent=1, start=-1_990, end=-1_985, service="b"),
        span(3, parent=1, start=50_000, end=90_000, service="a"),
        span(4, parent=3, start=58_000, end=58_010, service="b"),
    )
    shifts = {found[span_id(2)].start_ns - at(-1_990), found[span_id(4)].start_ns - at(58_000)}
    assert len(shifts) == 1
    assert shifts.pop() >= 1_990_000_000
    assert len(mended.warnings) == 1


def test_what_begins_after_its_caller_ended_is_ahead() -> None:
    mended, found = repaired(
        span(1, start=0, end=100, service="a"), span(2, parent=1, start=5_000, end=5_050, service="b")
    )
    assert at(0) <= found[span_id(2)].start_ns <= found[span_id(2)].end_ns <= at(100)
    assert mended.warnings == ("clock skew of b corrected by up to 4.98e+03 ms (1)",)


def test_a_message_that_waited_in_a_queue_is_no_skew() -> None:
    consumer = span(2, parent=1, start=5_000, end=5_050, service="b", kind=CONSUMER)
    mended, found = repaired(span(1, start=0, end=100, service="a"), consumer)
    assert found[span_id(2)] == consumer
    assert mended.warnings == ()


def test_work_in_the_background_that_takes_longer_than_its_caller_is_no_skew() -> None:
    mended, _ = repaired(
        span(1, start=0, end=100, service="a"), span(2, parent=1, start=5_000, end=9_000, service="b")
    )
    assert mended.warnings == ()


def test_replicas_under_one_name_are_corrected_one_by_one() -> None:
    mended, found = repaired(
        span(1, start=0, end=10_000, service="a", kind=CLIENT),
        span(2, parent=1, start=-5_000, end=-4_900, service="b"),
        span(3, parent=1, start=5_000, end=5_100, service="a", kind=CLIENT),
        span(4, parent=3, start=65_000, end=65_050, service="b", kind=SERVER),
    )
    assert at(0) <= found[span_id(2)].start_ns <= at(10_000)
    assert at(5_000) <= found[span_id(4)].start_ns <= at(5_100)
    assert len(mended.warnings) == 1


def test_a_clock_is_settled_through_the_one_between() -> None:
    _, found = repaired(
        span(1, start=0, end=1_000, service="a"),
        span(2, parent=1, start=-9_000, end=-8_500, service="b"),
        span(3, parent=2, start=70_000, end=70_100, service="c"),
    )
    inner, outer = found[span_id(3)], found[span_id(2)]
    assert at(0) <= outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns <= at(1_000)


def test_a_part_that_lost_its_parent_keeps_its_services_clock() -> None:
    _, found = repaired(
        span(1, start=0, end=1_000, service="a"),
        span(2, parent=1, start=-9_000, end=-8_000, service="b"),
        span(3, parent=99, start=-8_900, end=-8_800, service="b"),
    )
    assert found[span_id(3)].start_ns - found[span_id(2)].start_ns == at(100) - at(0)


def test_services_that_call_each_other_in_a_circle_keep_the_first_ones_clock() -> None:
    _, found = repaired(
        span(1, start=0, end=1_000, service="a"),
        span(2, parent=1, start=-5_000, end=-4_100, service="b"),
        span(3, parent=2, start=300, end=400, service="a"),
    )
    assert found[span_id(1)].start_ns == at(0)
    assert found[span_id(3)].start_ns == at(300)
    assert found[span_id(2)].start_ns >= at(0)
