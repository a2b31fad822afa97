"""Accounts of each segment: where its rows are, bytes in use, which segments to delete or thin. Pure.

A segment without open or retained rows can be deleted; a segment with few is thinned: its log is replaced by
one with only these rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from collector_processor.journal.chunks import Queue, State, first_seq, segment_of
from collector_processor.otlp import Signal, TraceKey
from semconv.model import TraceId

_WORTH_THINNING: Final = 4 << 20
"""Bytes; smaller segments are left alone."""
_POSITIONS: Final = 0xFFFF_FFFF
_ANALYSED: Final = (Signal.TRACES, Signal.LOGS)
"""The signals in which rows have agent traces."""


class Place(NamedTuple):
    """Where a row is stored; valid for reads that are requested before the log is replaced."""

    seq: int
    version: int
    """Version of the log."""
    offset: int
    rewritten_at: int | None
    """Offset of its new body in the marks."""


class Keep(NamedTuple):
    """A row to keep in a thinned log."""

    place: Place
    queue: Queue
    traces: frozenset[TraceId] | None
    """The traces of which spans are kept; ``None`` if the row stays whole."""


class RowFacts(NamedTuple):
    """What is known of a row without reading it."""

    seq: int
    size: int
    """Bytes counted against the limits."""
    items: int


class QueueRows:
    """The rows of one queue in one segment, in order; 17 bytes each."""

    def __init__(self) -> None:
        """Create it without rows."""
        self._positions: Final = array("I")
        self._facts: Final = array("I")
        """Of each row: offset, counted size, items."""
        self._states: Final = bytearray()

    def add(self, position: int, offset: int, size: int, items: int, state: State) -> None:
        """Add a row; mostly the last one, but requests that share no trace may pass each other."""
        at = len(self._positions)
        facts = array("I", (offset, min(size, _POSITIONS), min(items, _POSITIONS)))
        if at and position < self._positions[-1]:
            at = bisect_left(self._positions, position)
        self._positions.insert(at, position)
        self._facts[3 * at : 3 * at] = facts
        self._states.insert(at, state.value)

    def _at(self, position: int) -> int | None:
        at = bisect_left(self._positions, position)
        return at if at < len(self._positions) and self._positions[at] == position else None

    def state(self, position: int) -> State | None:
        """Return a row's state; ``None`` if it is not here."""
        at = self._at(position)
        return None if at is None else State(self._states[at])

    def raise_to(self, position: int, state: State) -> None:
        """Raise a row to a state, unless it is there already."""
        at = self._at(position)
        if at is not None:
            self._states[at] = max(self._states[at], state.value)

    def offset(self, position: int) -> int | None:
        """Return a row's offset in the log; ``None`` if it is not here."""
        at = self._at(position)
        return None if at is None else self._facts[3 * at]

    def pending(self, after: int) -> Iterator[tuple[int, int, int]]:
        """Yield position, counted size and items of the pending rows behind a position."""
        at = bisect_left(self._positions, after + 1)
        while (at := self._states.find(State.PENDING.value, at)) >= 0:
            yield self._positions[at], self._facts[3 * at + 1], self._facts[3 * at + 2]
            at += 1

    def take_over(self, position: int, offset: int, before: QueueRows) -> None:
        """Add a row of another log of the same segment, with its new offset."""
        at = before._at(position)
        if at is not None:
            _, size, items = before._facts[3 * at : 3 * at + 3]
            self.add(position, offset, size, items, State(before._states[at]))

    def open_rows(self) -> Iterator[tuple[int, int]]:
        """Yield position and offset of the rows that are not done, by state."""
        for state in (State.HELD.value, State.PENDING.value):
            at = -1
            while (at := self._states.find(state, at + 1)) >= 0:
                yield self._positions[at], self._facts[3 * at]


class RowIndex:
    """Agent traces by row, in the order in which rows were added; rows without traces are absent.

    Held for as long as a trace may be analysed, so it is compact: a row's only trace, the usual case, is
    stored without a set.
    """

    def __init__(self) -> None:
        """Create an empty index."""
        self._keys: Final[dict[int, TraceKey | set[TraceKey]]] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._keys)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the rows."""
        return iter(self._keys)

    def at(self, seq: int) -> Collection[TraceKey]:
        """Return a row's traces, in no order."""
        found = self._keys.get(seq, ())
        return (found,) if isinstance(found, TraceKey) else found

    def add(self, seq: int, key: TraceKey) -> None:
        """Record that a trace is in a row."""
        found = self._keys.get(seq)
        if found is None:
            self._keys[seq] = key
        elif isinstance(found, TraceKey):
            self._keys[seq] = {found, key}
        else:
            found.add(key)

    def discard(self, seq: int, key: TraceKey) -> None:
        """Remove a trace from a row, if it is there."""
        found = self._keys.get(seq)
        if isinstance(found, set):
            found.discard(key)
        if not found or found == key:
            self._keys.pop(seq, None)


@dataclass(slots=True)
class SegmentAccount:
    """Rows and usage of one segment."""

    number: int
    version: int = 0
    """Version of its log: how often it was thinned."""
    rows: defaultdict[Queue, QueueRows] = field(default_factory=lambda: defaultdict(QueueRows))
    rewritten: dict[int, int] = field(default_factory=dict)
    """Offsets of new bodies in the marks, by seq."""
    stored_bytes: int = 0
    open_rows: int = 0
    open_bytes: int = 0
    retained_bytes: int = 0
    index: RowIndex = field(default_factory=RowIndex)
    is_active: bool = True
    retired_at: float = float("-inf")
    """Time of its last row, in seconds of the event loop's clock; later if its thinning was postponed."""
    is_busy: bool = False
    """Whether it is being thinned or deleted."""

    @property
    def is_needed(self) -> bool:
        """Whether its rows are needed, so that it cannot be deleted."""
        return self.is_active or self.open_rows > 0 or bool(self.index)

    @property
    def is_mostly_dead(self) -> bool:
        """Whether it is worth thinning: less than half of its bytes are in use.

        Rows that are both open and retained count twice.
        """
        live_bytes = self.open_bytes + self.retained_bytes
        return (
            not self.is_active and self.stored_bytes > _WORTH_THINNING and live_bytes < self.stored_bytes // 2
        )

    def place(self, queue: Queue, seq: int) -> Place | None:
        """Return where a row is; ``None`` if it is not here."""
        rows = self.rows.get(queue)
        offset = rows.offset(seq & _POSITIONS) if rows else None
        return None if offset is None else Place(seq, self.version, offset, self.rewritten.get(seq))

    def to_keep(self) -> list[Keep]:
        """Return the rows that a thinned log has, in order."""
        first, kept = first_seq(self.number), dict[int, Keep]()
        for seq in self.index:
            traces = frozenset(key.trace_id for key in self.index.at(seq))
            for queue in {Queue(signal, key.tenant) for key in self.index.at(seq) for signal in _ANALYSED}:
                if place := self.place(queue, seq):
                    kept[seq] = Keep(place, queue, traces)
        for queue, rows in self.rows.items():
            for position, offset in rows.open_rows():
                seq = first + position
                kept[seq] = Keep(Place(seq, self.version, offset, None), queue, None)
        return [kept[seq] for seq in sorted(kept)]


class SegmentAccounts:
    """Accounts of all segments, in order."""

    def __init__(self, rest_s: float) -> None:
        """Create empty accounts.

        Args:
            rest_s: seconds after its last row before a segment is thinned.
        """
        self._rest_s: Final = rest_s
        self._segments: dict[int, SegmentAccount] = {}

    def at(self, number: int) -> SegmentAccount:
        """Return a segment's account, creating it if needed."""
        account = self._segments.get(number)
        if account is None:
            is_late = bool(self._segments) and number < next(reversed(self._segments))
            account = self._segments[number] = SegmentAccount(number)
            if is_late:  # a small request of a later segment passed a large one
                self._segments = dict(sorted(self._segments.items()))
        return account

    def place(self, queue: Queue, seq: int) -> Place | None:
        """Return where a row is stored; ``None`` if it is gone."""
        segment = self._segments.get(segment_of(seq))
        return segment.place(queue, seq) if segment else None

    def find(self, signal: Signal, seq: int) -> Place | None:
        """Return where a row of any tenant is stored; ``None`` if it is gone."""
        segment = self._segments.get(segment_of(seq))
        queues = [queue for queue in segment.rows if queue.signal is signal] if segment else []
        return next((place for queue in queues if (place := self.place(queue, seq))), None)

    def state(self, queue: Queue, seq: int) -> State | None:
        """Return a row's state; ``None`` if it is gone."""
        segment = self._segments.get(segment_of(seq))
        rows = segment.rows.get(queue) if segment else None
        return rows.state(seq & _POSITIONS) if rows else None

    def raise_to(self, queue: Queue, seq: int, state: State) -> None:
        """Raise a row to a state."""
        segment = self._segments.get(segment_of(seq))
        rows = segment.rows.get(queue) if segment else None
        if rows is not None:
            rows.raise_to(seq & _POSITIONS, state)

    def pending(self, queue: Queue, after_seq: int) -> Iterator[RowFacts]:
        """Yield a queue's pending rows behind a seq, in order."""
        for segment in self._segments.values():
            rows = segment.rows.get(queue)
            first = first_seq(segment.number)
            if rows is not None and first + _POSITIONS > after_seq:
                for position, size, items in rows.pending(max(0, after_seq - first)):
                    yield RowFacts(first + position, size, items)

    def traces_in(self, seq: int) -> Collection[TraceKey]:
        """Return the agent traces in a row."""
        segment = self._segments.get(segment_of(seq))
        return segment.index.at(seq) if segment else ()

    def retired(self, number: int, now: float) -> None:
        """Record that a segment takes no more rows.

        Args:
            number: the segment's number.
            now: seconds, by the same clock as for ``take_thinnable``.
        """
        segment = self.at(number)
        segment.is_active = False
        segment.retired_at = now

    def blocking_traces(self) -> list[TraceKey]:
        """Return the traces that keep the oldest fully forwarded segment from being deleted."""
        for segment in self._segments.values():
            if segment.is_needed and not (segment.is_active or segment.open_rows or segment.is_busy):
                return list(dict.fromkeys(key for seq in segment.index for key in segment.index.at(seq)))
        return []

    def take_deletable(self) -> list[int]:
        """Return the unneeded segments, and mark them as in progress."""
        found = [
            number
            for number, segment in self._segments.items()
            if not segment.is_needed and not segment.is_busy
        ]
        for number in found:
            self._segments[number].is_busy = True
        return found

    def deleted(self, number: int) -> None:
        """Record that a segment was deleted."""
        del self._segments[number]

    def take_thinnable(self, now: float) -> SegmentAccount | None:
        """Return a segment worth thinning, and mark it as in progress; ``None`` if there is none.

        A segment is left alone for ``rest_s`` after its last row, since it may soon be deleted as a whole.
        """
        for segment in self._segments.values():
            if segment.is_mostly_dead and not segment.is_busy and segment.retired_at <= now - self._rest_s:
                segment.is_busy = True
                return segment
        return None

    @property
    def may_tidy_later(self) -> bool:
        """Return whether a segment will be worth thinning after its idle time."""
        return any(segment.is_mostly_dead and not segment.is_busy for segment in self._segments.values())

    def thinned(self, number: int, kept: Iterable[Keep], offsets: Mapping[int, int]) -> None:
        """Record that a segment's log was replaced; ``offsets`` are those of its rows, by seq."""
        segment = self._segments[number]
        before, segment.rows = segment.rows, defaultdict(QueueRows)
        for place, queue, _ in kept:
            if place.seq in offsets:
                segment.rows[queue].take_over(place.seq & _POSITIONS, offsets[place.seq], before[queue])
        segment.version += 1
        segment.stored_bytes = segment.open_bytes + segment.retained_bytes
        segment.is_busy = False

    def give_back(self, number: int, retry_at: float) -> None:
        """Record that a segment could be neither thinned nor deleted; either may be tried again."""
        segment = self._segments[number]
        segment.retired_at = retry_at
        segment.is_busy = False
