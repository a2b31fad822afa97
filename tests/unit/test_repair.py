"""Damage is repaired and reported, clocks and times are shifted, and no sound span is lost."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from analyzer.cli.commands.replay import _moved
from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import newest_ns, shift_times
from collector_processor.rebuild.repair import repair
from semconv.model import Span, SpanStatus, Trace
from tests.factories import agent, at, chat, ordered, span, span_id, trace, workflow
from tests.otlp_requests import key_value


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


NOW = 1_800_000_000_000_000_000
OLD = 1_700_000_000_000_000_000


def traces(end_ns: int = OLD + 9) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add(schema_url="https://example.org").scope_spans.add()
    span = scope.spans.add(name="chat", start_time_unix_nano=OLD, end_time_unix_nano=end_ns)
    span.events.add(name="retry", time_unix_nano=OLD + 3)
    span.events.add(name="no time")
    span.attributes.append(key_value("start_time_unix_nano", OLD))
    span.links.add(trace_id=bytes(range(16)), span_id=bytes(range(8)), flags=0x100)
    span.dropped_events_count, span.flags, span.trace_state = 2, 0x301, "a=b"
    scope.spans.add(name="still open", start_time_unix_nano=OLD + 5)
    return request.SerializeToString()


def logs() -> bytes:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add(time_unix_nano=OLD + 4, observed_time_unix_nano=OLD + 20, severity_number=9)
    return request.SerializeToString()


def metrics() -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="tokens")
    point = metric.sum.data_points.add(start_time_unix_nano=OLD, time_unix_nano=OLD + 6, as_int=3)
    point.exemplars.add(time_unix_nano=OLD + 2, as_int=1)
    return request.SerializeToString()


def test_spans_events_and_logs_move_by_as_much_and_the_newest_span_ends_now() -> None:
    (_, spans), (_, records), (_, points) = _moved(
        [(Signal.TRACES, traces()), (Signal.LOGS, logs()), (Signal.METRICS, metrics())], NOW
    )
    shift = NOW - (OLD + 9)
    first, second = ExportTraceServiceRequest.FromString(spans).resource_spans[0].scope_spans[0].spans
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (OLD + shift, NOW)
    assert [event.time_unix_nano for event in first.events] == [OLD + 3 + shift, 0]
    assert (second.start_time_unix_nano, second.end_time_unix_nano) == (OLD + 5 + shift, 0)
    record = ExportLogsServiceRequest.FromString(records).resource_logs[0].scope_logs[0].log_records[0]
    assert record.time_unix_nano == OLD + 4 + shift
    assert record.observed_time_unix_nano == OLD + 20 + shift, "newer than any span, and left so"
    metric = ExportMetricsServiceRequest.FromString(points).resource_metrics[0].scope_metrics[0].metrics[0]
    (point,) = metric.sum.data_points
    assert (point.time_unix_nano, point.exemplars[0].time_unix_nano) == (OLD + 6 + shift, OLD + 2 + shift)


def test_there_and_back_again_nothing_else_has_changed() -> None:
    for signal, body in ((Signal.TRACES, traces()), (Signal.LOGS, logs()), (Signal.METRICS, metrics())):
        assert shift_times(signal, shift_times(signal, body, 10**18), -(10**18)) == body


def test_logs_alone_end_now() -> None:
    ((_, body),) = _moved([(Signal.LOGS, logs())], NOW)
    assert newest_ns(Signal.LOGS, body) == NOW


def test_what_has_no_times_or_cannot_be_read_stays_as_it_is() -> None:
    for body in (b"", b"\xff\xff", ExportTraceServiceRequest().SerializeToString()):
        assert _moved([(Signal.TRACES, body)], NOW) == [(Signal.TRACES, body)]


def test_times_stay_in_what_otlp_can_say() -> None:
    early = shift_times(Signal.TRACES, traces(), -(2**63))
    assert newest_ns(Signal.TRACES, early) == 1
    late = shift_times(Signal.TRACES, traces(end_ns=2**64 - 1), 10**18)
    assert newest_ns(Signal.TRACES, late) == 2**64 - 1
