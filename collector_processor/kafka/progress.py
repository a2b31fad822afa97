"""Progress of one partition: which offset may be committed, and what the next owner need not forward. Pure.

The committed offset is the lowest one still needed: of a record that is not forwarded yet, or of the first
record of a trace that is still open and not in the shared store (``spilling``). The next owner reads again
from there. Forwarded records above it are listed in the commit's metadata, so that they are read for the
analysis only and not sent twice.

The metadata also holds the number of the journal segment in use. Rows of the next owner get higher numbers
(Lamport's clock), so that "analysed up to row N" in the shared store means the same in every processor.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, Self

from collector_processor.otlp import TraceKey

VERSION: Final = "b1"
"""First field of the metadata; others are not ours and are ignored."""
_MOST_RANGES: Final = 120
"""Ranges in the metadata: 120 of 20 digits are below the broker's limit of 4,096 bytes."""

_MOST_DUE_BYTES: Final = 8 << 20
"""Bytes of parts that are due together: they are in memory at once."""


class Range(NamedTuple):
    """Offsets from ``first`` to ``last``, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Contents of a partition's commit."""

    offset: int
    """The lowest offset that is still needed."""
    upto: int = 0
    """All records below this offset were forwarded, except those of ``missing``."""
    missing: tuple[Range, ...] = ()
    segment: int = 0
    """The number of the journal segment that its owner writes."""

    def is_forwarded(self, offset: int) -> bool:
        """Return whether a record was forwarded before."""
        return offset < self.upto and not any(one.first <= offset <= one.last for one in self.missing)

    @property
    def metadata(self) -> str:
        """This mark as text, committed as metadata beside the offset."""
        ranges = ",".join(f"{one.first}-{one.last}" for one in self.missing)
        return f"{VERSION} {self.upto} {self.segment} {ranges}".rstrip()

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> Self:
        """Return what was committed; other programs' metadata is ignored."""
        fields = (metadata or "").split(" ")
        if fields[0] != VERSION or len(fields) not in {3, 4}:
            return cls(offset=offset)
        try:
            upto, segment = int(fields[1]), int(fields[2])
            pairs = [one.split("-") for one in fields[3].split(",")] if len(fields) == 4 else []
            missing = tuple(Range(int(first), int(last)) for first, last in pairs)
        except ValueError:
            return cls(offset=offset)
        return cls(offset=offset, upto=upto, missing=missing, segment=segment)


@dataclass(slots=True)
class Span:
    """Neighbouring records taken as one request; done once all of its rows are forwarded."""

    range: Range
    rows: int = 0
    """Rows not forwarded yet."""
    is_spilled: bool = False
    """Whether they came from the shared store, where they still are."""


class Part(NamedTuple):
    """Spans or log records of one trace in one row of the journal."""

    key: TraceKey
    seq: int
    """The row."""
    range: Range
    """The records that the row holds."""
    since_s: float
    """Time at which they were taken."""
    byte_count: int = 0


@dataclass(slots=True, kw_only=True)
class Progress:
    """One partition, since it was assigned to this process."""

    before: Mark
    """Commit of the previous owner."""
    next_offset: int = field(init=False)
    """The offset after the last record taken."""
    _waiting: OrderedDict[int, Span] = field(default_factory=OrderedDict)
    """Records not forwarded yet, by their first offset, ascending."""
    _open: OrderedDict[tuple[int, TraceKey], Part] = field(default_factory=OrderedDict)
    """Parts of traces that may be open, as long as they are not in the shared store; ascending."""
    _unchecked: list[tuple[int, TraceKey]] = field(default_factory=list)
    """Parts that ``forget_closed`` has yet to look at before it starts over."""

    def __post_init__(self) -> None:
        self.next_offset = self.before.offset

    def taken(self, range_: Range) -> None:
        """Record that neighbouring records were handed on, in order; until then they are still needed."""
        self.next_offset = range_.last + 1

    def wait_for(self, span: Span) -> None:
        """Record that a row of these records must be forwarded."""
        span.rows += 1
        self._waiting[span.range.first] = span

    def done(self, span: Span) -> None:
        """Record that a row was forwarded."""
        span.rows -= 1
        if span.rows <= 0:  # a refused request may be stored in part, and again
            self._waiting.pop(span.range.first, None)

    def opened(self, key: TraceKey, span: Span, seq: int, now_s: float, byte_count: int = 0) -> None:
        """Record that a trace's part of these records is in a row of the journal."""
        if not span.is_spilled:
            self._open[seq, key] = Part(key, seq, span.range, now_s, byte_count)

    def due(self, before_s: float, is_open: Callable[[TraceKey], bool], most: int) -> list[Part]:
        """Return the first parts of open traces that were taken at or before a time.

        Forgets parts of traces that are no longer open. Returns about ``most`` parts, fewer if large, and
        always all parts of the last records.
        """
        found: list[Part] = []
        closed: list[Part] = []
        last: Range | None = None
        room = _MOST_DUE_BYTES
        for part in self._open.values():
            if part.range.last >= self.next_offset:
                break
            is_full = len(found) >= most or room <= 0
            if part.range != last and (before_s < part.since_s < inf or is_full):
                break
            last = part.range
            if not is_open(part.key):
                closed.append(part)
            elif part.since_s < inf:
                found.append(part)
                room -= part.byte_count
        self.release(closed)
        return found

    def forget_closed(self, is_open: Callable[[TraceKey], bool], most: int) -> None:
        """Forget parts of closed traces behind one that stays open; goes on where the last call ended.

        Args:
            is_open: whether a trace has no verdict yet.
            most: parts to look at.
        """
        if not self._unchecked:
            self._unchecked = list(self._open)
        for place in self._unchecked[-most:]:
            part = self._open.get(place)
            if part is not None and part.range.last < self.next_offset and not is_open(part.key):
                del self._open[place]
        del self._unchecked[-most:]

    def keep(self, parts: Iterable[Part]) -> None:
        """Hold the commit back for parts that the journal cannot read, until their traces are closed."""
        for part in parts:
            if (part.seq, part.key) in self._open:
                self._open[part.seq, part.key] = part._replace(since_s=inf)

    def release(self, parts: Iterable[Part]) -> None:
        """Hold the commit back for these parts no longer: they are in the shared store, or not needed."""
        for part in parts:
            self._open.pop((part.seq, part.key), None)

    @property
    def parts(self) -> int:
        """Parts of traces that may be open."""
        return len(self._open)

    @property
    def is_forwarded(self) -> bool:
        """Whether nothing waits to be forwarded."""
        return not self._waiting

    def mark(self, is_open: Callable[[TraceKey], bool], segment: int) -> Mark:
        """Return what may be committed now; forget the leading parts of traces that are no longer open."""
        while self._open:
            part = next(iter(self._open.values()))
            if part.range.last >= self.next_offset or is_open(part.key):  # the former is not handed on yet
                break
            self._open.popitem(last=False)
        unsent = next(iter(self._waiting), self.next_offset)
        first = next(iter(self._open.values()), None)
        offset = unsent if first is None else min(unsent, first.range.first)
        missing, upto = tuple(self._missing(offset)), max(self.next_offset, self.before.upto)
        if len(missing) > _MOST_RANGES:
            upto, missing = missing[_MOST_RANGES].first, missing[:_MOST_RANGES]
        return Mark(offset=offset, upto=upto, missing=missing, segment=segment)

    def _missing(self, offset: int) -> Iterator[Range]:
        """Yield the unforwarded records from an offset on: those read here, then the previous owner's."""
        for span in self._waiting.values():
            yield span.range
        for left in self.before.missing:
            if left.last >= self.next_offset >= offset:
                yield Range(max(left.first, self.next_offset), left.last)
