"""What is committed for a partition: never past what is still needed, never sent twice."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector_processor.kafka.progress import Mark, Progress, Range, Span
from collector_processor.otlp import NO_TENANT, TraceKey
from semconv.model import TraceId

MOST_METADATA = 4096
"""Bytes that a broker takes (``offset.metadata.max.bytes``)."""


def key(number: int) -> TraceKey:
    return TraceKey(NO_TENANT, TraceId(f"{number:032x}"))


def nothing_open(_key: TraceKey) -> bool:
    return False


def taken(progress: Progress, offset: int, *, trace: int | None = None, waits: bool = True) -> Span:
    span = Span(Range(offset, offset))
    if waits:
        progress.wait_for(span)
    if trace is not None:
        progress.opened(key(trace), span)
    progress.taken(span.range)
    return span


def test_an_open_trace_keeps_the_offset_where_it_began_and_the_rest_is_not_sent_again() -> None:
    progress = Progress(before=Mark(offset=10))
    for offset, trace in ((10, 1), (11, 2), (12, 1), (13, 3)):
        progress.done(taken(progress, offset, trace=trace))
    mark = progress.mark(lambda one: one == key(2), segment=7)
    assert mark == Mark(offset=11, upto=14, segment=7)
    again = Mark.read(mark.offset, mark.metadata)
    assert again == mark
    assert [again.is_forwarded(offset) for offset in (11, 13, 14)] == [True, True, False]


def test_the_next_owner_sends_what_the_first_left_and_nothing_else() -> None:
    first = Progress(before=Mark(offset=0))
    spans = [taken(first, offset, trace=1) for offset in range(6)]
    for offset in (0, 1, 3, 5):
        first.done(spans[offset])
    mark = first.mark(lambda _: True, segment=0)
    assert [offset for offset in range(8) if not mark.is_forwarded(offset)] == [2, 4, 6, 7]

    second = Progress(before=mark)
    for offset in range(3):
        span = taken(second, offset, trace=1, waits=not mark.is_forwarded(offset))
        if not mark.is_forwarded(offset):
            second.done(span)
    later = second.mark(lambda _: True, segment=0)
    assert [offset for offset in range(8) if not later.is_forwarded(offset)] == [4, 6, 7]


@given(
    rows=st.lists(st.booleans(), max_size=400),
    open_trace=st.none() | st.integers(0, 399),
    start=st.integers(0, 2**40),
)
def test_no_commit_passes_what_is_needed_or_claims_what_was_not_forwarded(
    rows: list[bool], open_trace: int | None, start: int
) -> None:
    progress = Progress(before=Mark(offset=start))
    for number, is_done in enumerate(rows):
        span = taken(progress, start + number, trace=number)
        if is_done:
            progress.done(span)
    mark = progress.mark(lambda one: open_trace is not None and one == key(open_trace), segment=2**31)
    assert len(mark.metadata.encode()) <= MOST_METADATA
    read = Mark.read(mark.offset, mark.metadata)
    assert read == mark
    needed = [start + number for number, is_done in enumerate(rows) if not is_done]
    if open_trace is not None and open_trace < len(rows):
        needed.append(start + open_trace)
    assert mark.offset == min(needed, default=start + len(rows))
    forwarded = {start + number for number, is_done in enumerate(rows) if is_done}
    assert {one for one in range(mark.offset, start + len(rows) + 3) if read.is_forwarded(one)} <= forwarded


def test_a_record_stored_in_several_rows_is_forwarded_with_the_last() -> None:
    progress, span = Progress(before=Mark(offset=0)), Span(Range(0, 4))
    for _ in range(3):
        progress.wait_for(span)
    progress.taken(span.range)
    for _ in range(2):
        progress.done(span)
    assert progress.mark(nothing_open, 0).offset == 0
    progress.done(span)
    assert progress.mark(nothing_open, 0).offset == 5


def test_what_is_read_but_not_on_disk_yet_is_not_committed() -> None:
    progress = Progress(before=Mark(offset=3))
    assert progress.mark(nothing_open, 0).offset == 3


@pytest.mark.parametrize("metadata", ["", None, "b1", "b1 x 3", "b1 1 2 3", "b2 9 9", "b1 1 2 3-", "other"])
def test_metadata_of_others_says_nothing(metadata: str | None) -> None:
    assert Mark.read(5, metadata) == Mark(offset=5)


def time_to_forget(traces: int) -> float:
    """Return the CPU seconds in which the traces, all closed, are forgotten."""
    progress = Progress(before=Mark(offset=0))
    for offset in range(traces):
        taken(progress, offset, trace=offset)
    began = process_time()
    progress.mark(nothing_open, segment=0)
    return process_time() - began


def test_closed_traces_are_forgotten_in_time_in_proportion() -> None:
    few, many = (min(time_to_forget(traces) for _ in range(3)) for traces in (2_000, 40_000))
    assert many < 100 * few  # of 20 times the traces; a ``dict``'s first key would be found in 400 times
