"""What of each segment is in use, and so which of them go, shrink or give their WAL back. Pure.

A segment in which no row is open or retained can be deleted, one with little of either is worth compacting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from collector_processor.assembler import TraceKey
from collector_processor.journal.chunks import segment_of
from collector_processor.journal.row_index import RowIndex
from semconv.model import TraceId

_WORTH_COMPACTING: Final = 4 << 20
"""Bytes; smaller segments are left alone."""


@dataclass(slots=True)
class SegmentAccount:
    """What of a segment is in use."""

    stored_bytes: int = 0
    open_rows: int = 0
    open_bytes: int = 0
    retained_bytes: int = 0
    index: RowIndex = field(default_factory=RowIndex)
    is_active: bool = True
    retired_at: float = float("-inf")
    """When it took its last row, in seconds of the event loop's clock; later where it was put off."""
    is_busy: bool = False
    """Being compacted or deleted."""
    compacted_at: int | None = None
    """Bytes in use when it was last compacted."""
    has_wal: bool = True
    """Its rows are in its WAL, in part: read at each start, and space taken twice."""

    @property
    def is_needed(self) -> bool:
        """Whether it cannot be deleted."""
        return self.is_active or self.open_rows > 0 or bool(self.index)

    @property
    def live_bytes(self) -> int:
        """What is in use, or a little more: a row that is open and retained counts twice."""
        return self.open_bytes + self.retained_bytes

    @property
    def is_mostly_dead(self) -> bool:
        """Whether it is worth compacting, and was not compacted to much less before."""
        before = self.stored_bytes if self.compacted_at is None else self.compacted_at
        return not self.is_active and self.stored_bytes > _WORTH_COMPACTING and self.live_bytes < before // 2


class SegmentAccounts:
    """All segments, in order."""

    def __init__(self, rest_s: float) -> None:
        """Begin with none.

        Args:
            rest_s: how long a segment that takes no more rows is left alone.
        """
        self._rest_s: Final = rest_s
        self._segments: Final[defaultdict[int, SegmentAccount]] = defaultdict(SegmentAccount)

    def at(self, number: int) -> SegmentAccount:
        """Return a segment's account; a new one where there is none."""
        return self._segments[number]

    def traces_in(self, seq: int) -> Collection[TraceKey]:
        """Return the agent traces in a row."""
        segment = self._segments.get(segment_of(seq))
        return segment.index.at(seq) if segment else ()

    def retired(self, number: int, now: float) -> None:
        """Note that a segment takes no more rows.

        Args:
            number: the segment's.
            now: seconds of the clock that ``take_compactable`` is told.
        """
        segment = self._segments[number]
        segment.is_active = False
        segment.retired_at = now

    def in_the_way(self) -> list[TraceKey]:
        """Return the traces without which the oldest segment that is all forwarded could be deleted."""
        for segment in self._segments.values():
            if segment.is_needed and not (segment.is_active or segment.open_rows or segment.is_busy):
                return list(dict.fromkeys(key for seq in segment.index for key in segment.index.at(seq)))
        return []

    def take_deletable(self) -> list[int]:
        """Return segments that nobody needs, each once."""
        found = [
            number
            for number, segment in self._segments.items()
            if not segment.is_needed and not segment.is_busy
        ]
        for number in found:
            self._segments[number].is_busy = True
        return found

    def deleted(self, number: int) -> None:
        """Note that a segment is gone."""
        del self._segments[number]

    def undeleted(self, number: int) -> None:
        """Note that a segment could not be deleted: it is to be taken again."""
        self._segments[number].is_busy = False

    def take_compactable(self, now: float) -> tuple[int, Mapping[int, frozenset[TraceId]]] | None:
        """Return a segment worth compacting and the traces to keep in its rows, if there is one.

        One that has only just taken its last row is left alone: a moment later it may be deleted whole.
        """
        for number, segment in self._segments.items():
            if segment.is_mostly_dead and not segment.is_busy and segment.retired_at <= now - self._rest_s:
                segment.is_busy = True
                index = segment.index
                return number, {seq: frozenset(key.trace_id for key in index.at(seq)) for seq in index}
        return None

    def take_unwritten(self, now: float) -> int | None:
        """Return a segment whose WAL is worth copying, if there is one: it was not deleted soon."""
        return self._take_with_wal(now - self._rest_s)

    def take_retired(self, now: float) -> int | None:
        """Return a segment whose WAL can be copied, however lately it took its last row."""
        return self._take_with_wal(now)

    def _take_with_wal(self, retired_until: float) -> int | None:
        for number, segment in self._segments.items():
            may_rest = segment.is_active or segment.is_busy or segment.retired_at > retired_until
            if segment.has_wal and not may_rest:
                segment.is_busy = True
                return number
        return None

    def written_back(self, number: int) -> None:
        """Note that a segment's WAL was copied."""
        segment = self._segments[number]
        segment.has_wal = segment.is_busy = False

    @property
    def may_tidy_later(self) -> bool:
        """Whether there is a segment that is worth compacting or writing back once it has rested."""
        return any(
            (segment.is_mostly_dead or segment.has_wal) and not (segment.is_busy or segment.is_active)
            for segment in self._segments.values()
        )

    def compacted(self, number: int, stored_bytes: int) -> None:
        """Note what a compacted segment still holds."""
        segment = self._segments[number]
        segment.stored_bytes = stored_bytes
        segment.compacted_at = segment.live_bytes
        segment.has_wal = segment.is_busy = False

    def put_off(self, number: int, now: float) -> None:
        """Note that the disk refuses to have a segment compacted or written back: it rests anew, longer."""
        segment = self._segments[number]
        segment.retired_at = now + self._rest_s
        segment.is_busy = False

    def uncompacted(self, number: int) -> None:
        """Note that a segment could not be compacted: not tried again, but its WAL is still to be copied."""
        segment = self._segments[number]
        segment.stored_bytes = 0
        segment.is_busy = False
