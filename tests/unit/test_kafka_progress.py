"""What is committed for a partition: never past what is still needed, never sent twice."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector_processor.kafka.progress import Mark, Part, Progress, Range, Span
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
        progress.opened(key(trace), span, seq=offset, now_s=0)
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


def test_the_next_owner_sends_exactly_what_the_first_left() -> None:
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


def test_records_that_are_not_on_disk_yet_are_not_committed() -> None:
    progress = Progress(before=Mark(offset=3))
    assert progress.mark(nothing_open, 0).offset == 3


@pytest.mark.parametrize("metadata", ["", None, "b1", "b1 x 3", "b1 1 2 3", "b2 9 9", "b1 1 2 3-", "other"])
def test_commit_metadata_of_other_programs_is_ignored(metadata: str | None) -> None:
    assert Mark.read(5, metadata) == Mark(offset=5)


TRACES = 4
steps: st.SearchStrategy[tuple[str, list[int]]] = st.one_of(
    st.tuples(st.just("take"), st.lists(st.integers(0, TRACES - 1), min_size=1, max_size=4)),
    st.tuples(st.sampled_from(("spill", "write", "forget", "commit", "crash")), st.just([])),
    st.tuples(st.just("close"), st.lists(st.integers(0, TRACES - 1), min_size=1, max_size=1)),
)


class Spilled:
    """One partition, its commit, the shared store, and the traces that one owner after the other has."""

    def __init__(self) -> None:
        self.log: list[int] = []
        """The trace of each record."""
        self.store: dict[tuple[int, int], Range] = {}
        """Parts, by first record and trace."""
        self.closed: set[int] = set()
        self.committed = Mark(offset=0)
        self.progress = Progress(before=self.committed)
        self.known: dict[int, list[int]] = {}
        """What the owner has of each trace: numbers of records, those of the store included."""

    def is_open(self, one: TraceKey) -> bool:
        return int(one.trace_id, 16) not in self.closed

    def take(self, traces: list[int]) -> None:
        first = len(self.log)
        self.log += traces
        self._read(Range(first, len(self.log) - 1))

    def spill(self) -> None:
        self.progress.release(self.write([]))

    def write(self, _traces: list[int]) -> list[Part]:
        parts = self.progress.due(0, self.is_open, most=2)
        self.store |= {(part.range.first, int(part.key.trace_id, 16)): part.range for part in parts}
        return parts

    def forget(self) -> None:
        self.store = {key: range_ for key, range_ in self.store.items() if key[1] not in self.closed}

    def commit(self) -> None:
        self.committed = self.progress.mark(self.is_open, segment=0)

    def close(self, traces: list[int]) -> None:
        self.closed.update(traces)

    def crash(self) -> None:
        offset = self.committed.offset
        self.store = {key: range_ for key, range_ in self.store.items() if key[0] < offset}
        self.known = {}
        for (_, trace), range_ in self.store.items():
            numbers = range(range_.first, range_.last + 1)
            self.known.setdefault(trace, []).extend(one for one in numbers if self.log[one] == trace)
        self.progress = Progress(before=self.committed)
        if offset < len(self.log):
            self._read(Range(offset, len(self.log) - 1))

    def _read(self, range_: Range) -> None:
        span = Span(range_)
        numbers = range(range_.first, range_.last + 1)
        for trace in sorted({self.log[one] for one in numbers}):
            self.progress.opened(key(trace), span, seq=range_.first, now_s=0)
            self.known.setdefault(trace, []).extend(one for one in numbers if self.log[one] == trace)
        self.progress.taken(range_)


@given(st.lists(steps, max_size=40))
def test_an_owner_has_each_record_of_an_open_trace_once_despite_spills_and_crashes(
    history: list[tuple[str, list[int]]],
) -> None:
    world = Spilled()
    for what, traces in (*history, ("crash", [])):
        getattr(world, what)(*([traces] if what in {"take", "write", "close"} else []))
    for trace in set(world.log) - world.closed:
        whole = [number for number, one in enumerate(world.log) if one == trace]
        assert sorted(world.known[trace]) == whole


def test_a_spilled_trace_no_longer_holds_the_commit_but_its_next_part_does() -> None:
    progress = Progress(before=Mark(offset=10))
    for offset, trace in ((10, 1), (11, 2), (12, 1)):
        progress.done(taken(progress, offset, trace=trace))
    parts = progress.due(0, lambda one: one == key(1), most=9)
    assert [(part.key, part.range.first) for part in parts] == [(key(1), 10), (key(1), 12)]
    progress.release(parts)
    assert progress.mark(lambda one: one == key(1), 0).offset == 13
    progress.done(taken(progress, 13, trace=1))
    assert progress.mark(lambda one: one == key(1), 0).offset == 13


def test_parts_that_are_not_due_and_those_that_the_journal_cannot_read_hold_the_commit() -> None:
    progress = Progress(before=Mark(offset=0))
    for offset in range(3):
        span = Span(Range(offset, offset))
        progress.opened(key(offset), span, seq=offset, now_s=float(offset))
        progress.taken(span.range)
    first, second = progress.due(1.0, lambda _: True, most=9)
    progress.keep([first])
    progress.release([second])
    assert progress.due(1.0, lambda _: True, most=9) == []
    assert progress.mark(lambda _: True, 0).offset == 0
    assert progress.mark(lambda one: one != key(0), 0).offset == 2


def test_all_rows_of_a_record_are_due_together() -> None:
    progress, span = Progress(before=Mark(offset=0)), Span(Range(0, 5))
    for seq in range(4):
        progress.opened(key(1), span, seq=seq, now_s=float(seq))
    assert progress.due(9.0, lambda _: True, most=1) == [], "its last row may still come"
    progress.taken(span.range)
    assert len(progress.due(0.0, lambda _: True, most=1)) == 4


def test_a_trace_that_is_being_handed_on_does_not_count_as_closed() -> None:
    """Between its row in the journal and its note in the slow lane, nobody knows it."""
    progress, span = Progress(before=Mark(offset=0)), Span(Range(0, 0))
    progress.opened(key(1), span, seq=1, now_s=0)
    assert progress.mark(nothing_open, 0).offset == 0
    progress.taken(span.range)
    assert progress.mark(lambda _: True, 0).offset == 0


def test_parts_of_closed_traces_behind_an_open_one_are_forgotten_in_small_steps() -> None:
    progress = Progress(before=Mark(offset=0))
    for offset in range(10):
        progress.done(taken(progress, offset, trace=offset))
    is_open = {key(0), key(4)}.__contains__
    progress.forget_closed(is_open, 6)
    assert progress.parts == 5, "of the last six parts, one is open"
    progress.forget_closed(is_open, 6)
    assert progress.parts == 2
    assert progress.mark(is_open, 0).offset == 0


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
