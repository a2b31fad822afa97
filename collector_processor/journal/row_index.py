"""Which agent traces have spans or log records in which rows of a segment. Pure.

Kept for each row for as long as the trace may be analysed, so it is lean: most rows have one trace, which
then stands there by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from collector_processor.assembler import TraceKey


class RowIndex:
    """Traces by row; a row without any is not there. Rows come in the order in which they were added."""

    def __init__(self) -> None:
        """Begin with none."""
        self._keys: Final[dict[int, TraceKey | set[TraceKey]]] = {}

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._keys)

    def __iter__(self) -> Iterator[int]:
        """Go through the rows."""
        return iter(self._keys)

    def at(self, seq: int) -> Collection[TraceKey]:
        """Return a row's traces, in no order."""
        found = self._keys.get(seq, ())
        return (found,) if isinstance(found, TraceKey) else found

    def add(self, seq: int, key: TraceKey) -> None:
        """Note that a trace is in a row."""
        found = self._keys.get(seq)
        if found is None:
            self._keys[seq] = key
        elif isinstance(found, TraceKey):
            self._keys[seq] = {found, key}
        else:
            found.add(key)

    def discard(self, seq: int, key: TraceKey) -> None:
        """Strike a trace out of a row, if it is there."""
        found = self._keys.get(seq)
        if isinstance(found, set):
            found.discard(key)
        if not found or found == key:
            self._keys.pop(seq, None)
