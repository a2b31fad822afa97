"""Which rows a segment must have: kept beside it, so that what is missing is noticed.

SQLite takes a WAL up to the first frame whose checksum is wrong, and says nothing of
those behind it: a flipped bit makes committed rows vanish. So each row that was
committed is noted here too, with its signal and how many items it holds, and struck
out once it is forwarded. A start compares.

Never waited for: after a power cut the register may lack rows that are there, which
does no harm, but has none that were not committed. Synchronous; one thread at a time.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from collector_processor.otlp import Signal

logger = logging.getLogger(__name__)

SUFFIX: Final = "-rows"
"""Of the segment's file name."""
_SIGNALS: Final = tuple(Signal)
_ROW: Final = struct.Struct("<BHI")
"""Signal, counted from 1; check; items."""
_BLOCK: Final = 512
"""Rows whose marks of being settled stand together, before the rows themselves."""
_BLOCK_BYTES: Final = _BLOCK * (1 + _ROW.size)
_MOST_ITEMS: Final = 0xFFFF_FFFF


class Noted(NamedTuple):
    """A row that is not settled."""

    position: int
    """In the segment, from 0."""
    signal: Signal
    items: int


class RowRegister:
    """The register of one segment. A disk that refuses leaves gaps: said once, and nothing is raised."""

    def __init__(self, segment: Path) -> None:
        """Open the register of a segment's file, or make it."""
        self._is_refused = False
        self._file: Final = self._opened(segment.with_name(segment.name + SUFFIX))

    def add(self, position: int, rows: Iterable[tuple[Signal, int]]) -> None:
        """Note rows that are committed, from a position on."""
        packed = [_pack(position + place, *row) for place, row in enumerate(rows)]
        for start, end in _runs(position, position + len(packed)):
            content = b"".join(packed[start - position : end - position])
            self._write(content, _block_of(start) + _BLOCK + start % _BLOCK * _ROW.size)

    def settle(self, positions: Iterable[int]) -> None:
        """Strike rows out: nobody needs to forward them any more."""
        for first, behind in neighbours(positions):
            for start, end in _runs(first, behind):
                self._write(b"\x01" * (end - start), _block_of(start) + start % _BLOCK)

    def unsettled(self) -> list[Noted]:
        """Return the rows that are to be there, in order; what is no note of ours is passed over."""
        if self._file is None:
            return []
        content = os.pread(self._file, os.fstat(self._file).st_size, 0)
        return list(_read(content))

    def sync(self) -> None:
        """Wait until the disk has it: what is struck out may be gone from the segment after this."""
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)

    def _opened(self, path: Path) -> int | None:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            self._say(error)
            return None

    def _write(self, content: bytes, offset: int) -> None:
        if self._file is None:
            return
        try:
            os.pwrite(self._file, content, offset)
        except OSError as error:
            self._say(error)

    def _say(self, error: OSError) -> None:
        if not self._is_refused:
            logger.warning("journal cannot note which rows it has", extra={"reason": error.strerror})
        self._is_refused = True


def _read(content: bytes) -> Iterator[Noted]:
    for start in range(0, len(content), _BLOCK_BYTES):
        marks, rows = content[start : start + _BLOCK], content[start + _BLOCK : start + _BLOCK_BYTES]
        whole = len(rows) - len(rows) % _ROW.size
        for place, (signal, check, items) in enumerate(_ROW.iter_unpack(rows[:whole])):
            position = start // _BLOCK_BYTES * _BLOCK + place
            if not marks[place] and signal and check == _check(position, signal, items):
                yield Noted(position, _SIGNALS[signal - 1], items)


def _pack(position: int, signal: Signal, items: int) -> bytes:
    number, counted = _SIGNALS.index(signal) + 1, min(items, _MOST_ITEMS)
    return _ROW.pack(number, _check(position, number, counted), counted)


def _check(position: int, signal: int, items: int) -> int:
    """Return what tells a note from nonsense: its bits may flip too."""
    if not 0 < signal <= len(_SIGNALS):
        return -1
    return crc32(b"%d %d %d" % (position, signal, items)) & 0xFFFF


def _block_of(position: int) -> int:
    return position // _BLOCK * _BLOCK_BYTES


def _runs(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a range of positions where blocks end."""
    while start < end:
        behind = min(end, (start // _BLOCK + 1) * _BLOCK)
        yield start, behind
        start = behind


def neighbours(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Join neighbours, given in order: the first of each range, and what comes behind its last."""
    first = behind = -1
    for position in positions:
        if position != behind:
            if first >= 0:
                yield first, behind
            first = position
        behind = position + 1
    if first >= 0:
        yield first, behind
