"""Accounts of each segment: bytes in use, and which segments to delete, compact or write back. Pure.

A segment without open or retained rows can be deleted; one with few is worth compacting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from collector_processor.journal.chunks import segment_of
from collector_processor.otlp import TraceKey
from semconv.model import TraceId

_WORTH_COMPACTING: Final = 4 << 20
"""Bytes; smaller segments are left alone."""


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
    """Usage of one segment."""

    stored_bytes: int = 0
    open_rows: int = 0
    open_bytes: int = 0
    retained_bytes: int = 0
    index: RowIndex = field(default_factory=RowIndex)
    is_active: bool = True
    retired_at: float = float("-inf")
    """Time of its last row, in seconds of the event loop's clock; later if its cleanup was postponed."""
    is_busy: bool = False
    """Whether it is being compacted or deleted."""
    compacted_at: int | None = None
    """Bytes in use after its last compaction."""
    has_wal: bool = True
    """Whether some of its rows are in its WAL, which takes space twice and is read at each start."""

    @property
    def is_needed(self) -> bool:
        """Whether its rows are needed, so that it cannot be deleted."""
        return self.is_active or self.open_rows > 0 or bool(self.index)

    @property
    def live_bytes(self) -> int:
        """Bytes in use, or slightly more: rows that are both open and retained count twice."""
        return self.open_bytes + self.retained_bytes

    @property
    def is_mostly_dead(self) -> bool:
        """Whether it is worth compacting: less than half of its (last compacted) size is in use."""
        before = self.stored_bytes if self.compacted_at is None else self.compacted_at
        return not self.is_active and self.stored_bytes > _WORTH_COMPACTING and self.live_bytes < before // 2


class SegmentAccounts:
    """Accounts of all segments, in order."""

    def __init__(self, rest_s: float) -> None:
        """Create empty accounts.

        Args:
            rest_s: seconds after its last row before a segment is compacted.
        """
        self._rest_s: Final = rest_s
        self._segments: Final[defaultdict[int, SegmentAccount]] = defaultdict(SegmentAccount)

    def at(self, number: int) -> SegmentAccount:
        """Return a segment's account, creating it if needed."""
        return self._segments[number]

    def traces_in(self, seq: int) -> Collection[TraceKey]:
        """Return the agent traces in a row."""
        segment = self._segments.get(segment_of(seq))
        return segment.index.at(seq) if segment else ()

    def retired(self, number: int, now: float) -> None:
        """Record that a segment takes no more rows.

        Args:
            number: the segment's number.
            now: seconds, by the same clock as for ``take_compactable``.
        """
        segment = self._segments[number]
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

    def deletion_failed(self, number: int) -> None:
        """Record that a segment could not be deleted; ``take_deletable`` returns it again."""
        self._segments[number].is_busy = False

    def take_compactable(self, now: float) -> tuple[int, Mapping[int, frozenset[TraceId]]] | None:
        """Return a segment worth compacting and the traces to keep in its rows; ``None`` if there is none.

        A segment is left alone for ``rest_s`` after its last row, since it may soon be deleted as a whole.
        """
        for number, segment in self._segments.items():
            if segment.is_mostly_dead and not segment.is_busy and segment.retired_at <= now - self._rest_s:
                segment.is_busy = True
                index = segment.index
                return number, {seq: frozenset(key.trace_id for key in index.at(seq)) for seq in index}
        return None

    def take_unwritten(self, now: float) -> int | None:
        """Return an idle segment whose WAL is to be copied to its file; ``None`` if there is none."""
        return self._take_with_wal(now - self._rest_s)

    def take_retired(self, now: float) -> int | None:
        """Return a segment whose WAL can be copied to its file, idle or not."""
        return self._take_with_wal(now)

    def _take_with_wal(self, retired_until: float) -> int | None:
        for number, segment in self._segments.items():
            may_rest = segment.is_active or segment.is_busy or segment.retired_at > retired_until
            if segment.has_wal and not may_rest:
                segment.is_busy = True
                return number
        return None

    def written_back(self, number: int) -> None:
        """Record that a segment's WAL was copied to its file."""
        segment = self._segments[number]
        segment.has_wal = segment.is_busy = False

    @property
    def may_tidy_later(self) -> bool:
        """Return whether a segment will be worth compacting or writing back after its idle time."""
        return any(
            (segment.is_mostly_dead or segment.has_wal) and not (segment.is_busy or segment.is_active)
            for segment in self._segments.values()
        )

    def compacted(self, number: int, stored_bytes: int) -> None:
        """Record the counted bytes of a compacted segment."""
        segment = self._segments[number]
        segment.stored_bytes = stored_bytes
        segment.compacted_at = segment.live_bytes
        segment.has_wal = segment.is_busy = False

    def postpone(self, number: int, now: float) -> None:
        """Postpone a segment's cleanup: the disk refused its compaction or write-back."""
        segment = self._segments[number]
        segment.retired_at = now + self._rest_s
        segment.is_busy = False

    def compaction_failed(self, number: int) -> None:
        """Record that a segment cannot be compacted: not retried, but its WAL is still copied back."""
        segment = self._segments[number]
        segment.stored_bytes = 0
        segment.is_busy = False
