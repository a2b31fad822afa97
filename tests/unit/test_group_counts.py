"""Counts of a disturbed group: each way in which spans or verdicts can go wrong is found."""

from __future__ import annotations

from typing import Any, Final

import pytest

from benchmarks.group.counted import Counts, Cut, InKafka, SpanName, Where, add_trace, read_trace
from collector_processor.kafka.progress import Mark, Range
from semconv.attributes import CARRIER, FAILURE_FALLBACK, FAILURE_ID, FAILURE_METHOD, FAILURE_VERSION

RUN: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "00000000000000a1"


def document(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def plain(span_id: str = SPAN) -> dict[str, Any]:
    return {"spanId": span_id}


def carrier(span_id: str = "c1", failure: str = "f1", version: str = "1") -> dict[str, Any]:
    told: dict[str, Any] = {
        CARRIER: {"boolValue": True},
        FAILURE_ID: {"stringValue": failure},
        FAILURE_VERSION: {"intValue": version},
        FAILURE_METHOD: {"stringValue": "judge"},
        FAILURE_FALLBACK: {"stringValue": "none"},
    }
    return {"spanId": span_id, "attributes": [{"key": key, "value": value} for key, value in told.items()]}


def in_kafka(*offsets: int, cuts: tuple[Cut, ...] = ()) -> InKafka:
    return InKafka(places={SpanName(RUN, SPAN): [Where(0, one) for one in offsets]}, cuts=cuts)


def counted(kept: InKafka, *spans: dict[str, Any]) -> Counts:
    counts = Counts()
    add_trace(counts, RUN, [SPAN], read_trace(document(*spans)), kept)
    return counts


def test_a_run_that_is_whole_and_judged_once_has_no_fault() -> None:
    counts = counted(in_kafka(7), plain(), carrier("c1"), carrier("c2"), carrier("c2"))
    assert counts.faults() == []
    assert (counts.spans, counts.carriers, counts.carrier_copies) == (1, 2, 1)
    assert counts.methods == {"judge": 1}


def test_a_span_that_jaeger_lacks_and_a_run_without_a_verdict_are_faults() -> None:
    counts = counted(in_kafka(7))
    assert (counts.missing, counts.unjudged) == (1, 1)
    assert len(counts.faults()) == 2
    lost = Counts()
    add_trace(lost, RUN, [SPAN], read_trace(None), in_kafka(7))
    assert lost.missing == 1


@pytest.mark.parametrize(
    ("mark", "behind", "in_flight"),
    [
        pytest.param(Mark(offset=7, upto=7), 8, 1, id="sent on and not committed"),
        pytest.param(Mark(offset=5, upto=8), 8, 0, id="committed"),
        pytest.param(Mark(offset=5, upto=8, missing=(Range(7, 7),)), 8, 1, id="committed around it"),
        pytest.param(Mark(offset=7, upto=7), 7, 0, id="written after the kill"),
    ],
)
def test_a_copy_is_explained_only_by_a_kill_before_its_commit(
    mark: Mark, behind: int, in_flight: int
) -> None:
    cut = Cut(marks={0: mark}, behind={0: behind})
    counts = counted(in_kafka(7, cuts=(cut,)), plain(), plain(), carrier())
    assert (counts.in_flight, counts.unexplained) == (in_flight, 1 - in_flight)
    assert bool(counts.faults()) is (in_flight == 0)


def test_one_kill_explains_one_copy() -> None:
    cut = Cut(marks={}, behind={0: 8})
    counts = counted(in_kafka(7, cuts=(cut,)), plain(), plain(), plain(), carrier())
    assert (counts.in_flight, counts.unexplained) == (1, 1)


def test_a_copy_that_kafka_has_too_is_the_producers() -> None:
    counts = counted(in_kafka(7, 9), plain(), plain(), carrier())
    assert (counts.written_twice, counts.in_flight, counts.unexplained) == (1, 0, 0)


def test_two_ids_of_one_version_are_a_fault_and_a_second_version_is_not() -> None:
    assert counted(in_kafka(7), plain(), carrier("c1"), carrier("c2", "f2")).odd_verdicts == 1
    assert counted(in_kafka(7), plain(), carrier("c1"), carrier("c2"), carrier("c3")).odd_verdicts == 1
    later = counted(in_kafka(7), plain(), carrier("c1"), carrier("c2", "f2", "2"))
    assert (later.odd_verdicts, later.later_versions) == (0, 1)
