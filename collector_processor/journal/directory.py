"""The journal's directory: names of segments, registers of their rows, the lock, and reserved disk space.

A segment is an SQLite file, its WAL and the register of its rows. Its file name is its number, and no number
is used twice. Synchronous; knows nothing of the segments' contents.

The register: SQLite reads a WAL up to the first frame with a wrong checksum and silently ignores the rest, so
a flipped bit makes committed rows vanish. Each committed row is therefore registered with its signal and its
number of items, and marked as done once it is forwarded. Recovery compares the register with the segment. Its
writes are not flushed: after a power cut it may lack rows that exist, which is harmless, but never has rows
that were not committed.

The reserve: on a completely full disk no space can be freed, because writing a verdict, marking rows as
forwarded and compacting a segment all need space themselves. So new rows are refused a little earlier.
Another program may still fill the disk; then everything waits until there is space.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NamedTuple, TypeAlias
from zlib import crc32

from collector_processor.journal.chunks import JournalError, ranges
from collector_processor.journal.segments import SegmentFile
from collector_processor.otlp import Signal

logger = logging.getLogger(__name__)

REGISTER: Final = "-rows"
"""Suffix of a register's file name, after that of its segment."""
_SIGNALS: Final = tuple(Signal)
_ROW: Final = struct.Struct("<BHI")
"""Layout of a registered row: signal, counted from 1; checksum; items."""
_BLOCK: Final = 512
"""Rows in a block, which begins with a done flag for each of them."""
_BLOCK_BYTES: Final = _BLOCK * (1 + _ROW.size)
_MAX_ITEMS: Final = 0xFFFF_FFFF


class RegisteredRow(NamedTuple):
    """A registered row that is not done."""

    position: int
    """Position in the segment, from 0."""
    signal: Signal
    items: int


class RowRegister:
    """The register of one segment. Failed writes leave gaps; they are logged once, never raised."""

    def __init__(self, segment: Path) -> None:
        """Open the register of a segment's file, or create it."""
        self._is_refused = False
        self._file: Final = self._open(segment.with_name(segment.name + REGISTER))

    def add(self, position: int, rows: Iterable[tuple[Signal, int]]) -> None:
        """Register committed rows, from a position on."""
        packed = [_pack(position + place, *row) for place, row in enumerate(rows)]
        for start, end in _runs(position, position + len(packed)):
            content = b"".join(packed[start - position : end - position])
            self._write(content, _block_of(start) + _BLOCK + start % _BLOCK * _ROW.size)

    def mark_done(self, positions: Iterable[int]) -> None:
        """Mark rows as done: they need no forwarding any more."""
        for first, behind in ranges(positions):
            for start, end in _runs(first, behind):
                self._write(b"\x01" * (end - start), _block_of(start) + start % _BLOCK)

    def pending(self) -> list[RegisteredRow]:
        """Return the rows that must be in the segment, in order; damaged entries are skipped."""
        if self._file is None:
            return []
        content = os.pread(self._file, os.fstat(self._file).st_size, 0)
        return list(_read(content))

    def sync(self) -> None:
        """Flush to disk; afterwards, rows marked as done may be removed from the segment."""
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)

    def _open(self, path: Path) -> int | None:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            self._warn_once(error)
            return None

    def _write(self, content: bytes, offset: int) -> None:
        if self._file is None:
            return
        try:
            os.pwrite(self._file, content, offset)
        except OSError as error:
            self._warn_once(error)

    def _warn_once(self, error: OSError) -> None:
        if not self._is_refused:
            logger.warning(
                "cannot write the journal's row register: missing rows would not be noticed",
                extra={"reason": error.strerror},
            )
        self._is_refused = True


def _read(content: bytes) -> Iterator[RegisteredRow]:
    for start in range(0, len(content), _BLOCK_BYTES):
        marks, rows = content[start : start + _BLOCK], content[start + _BLOCK : start + _BLOCK_BYTES]
        whole = len(rows) - len(rows) % _ROW.size
        for place, (signal, check, items) in enumerate(_ROW.iter_unpack(rows[:whole])):
            position = start // _BLOCK_BYTES * _BLOCK + place
            if not marks[place] and signal and check == _check(position, signal, items):
                yield RegisteredRow(position, _SIGNALS[signal - 1], items)


def _pack(position: int, signal: Signal, items: int) -> bytes:
    number, counted = _SIGNALS.index(signal) + 1, min(items, _MAX_ITEMS)
    return _ROW.pack(number, _check(position, number, counted), counted)


def _check(position: int, signal: int, items: int) -> int:
    """Return the checksum of an entry; -1 for an unknown signal."""
    if not 0 < signal <= len(_SIGNALS):
        return -1
    return crc32(b"%d %d %d" % (position, signal, items)) & 0xFFFF


def _block_of(position: int) -> int:
    return position // _BLOCK * _BLOCK_BYTES


def _runs(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a range of positions at block boundaries."""
    while start < end:
        behind = min(end, (start // _BLOCK + 1) * _BLOCK)
        yield start, behind
        start = behind


_SUFFIX: Final = ".sqlite"
_SALVAGED: Final = ".salvaged"
_NEXT_FILE: Final = "next"
_LOCK_FILE: Final = "lock"
_RESERVE_DIVISOR: Final = 8
"""The reserve is at most an eighth of the disk, and at most ``_MAX_RESERVE_BYTES``."""
_MAX_RESERVE_BYTES: Final = 32 << 20
"""Upper bound of the reserve in bytes."""


class Space(NamedTuple):
    """Bytes of a file system; size 0 if it does not report them."""

    size: int
    free: int


Measure: TypeAlias = Callable[[Path], Space]


def measure_space(folder: Path) -> Space:
    """Return the space of a folder's file system."""
    found = os.statvfs(folder)
    return Space(size=found.f_blocks * found.f_frsize, free=found.f_bavail * found.f_frsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDirectory:
    """The files of the journal's segments."""

    path: Path
    make: Callable[[Path, int], SegmentFile] = SegmentFile
    measure: Measure = measure_space
    """Returns the space of the file system."""

    def open(self, number: int) -> SegmentFile:
        """Open a connection to a segment, or create it.

        Raises:
            JournalError: a newer version wrote the file, or it is not a journal segment.
            sqlite3.DatabaseError: the file is damaged, or the disk is full.
        """
        return self.make(self.file(number), number)

    def open_relaxed(self, number: int) -> SegmentFile:
        """Open a connection to a segment that takes no more rows; raises as ``open`` does."""
        file = self.open(number)
        file.relax()
        return file

    def remove(self, number: int) -> None:
        """Remove the files of a segment; no connection to it may be open."""
        for suffix in ("", "-wal", "-shm", REGISTER):
            self.file(number).with_name(self.file(number).name + suffix).unlink(missing_ok=True)

    def numbers(self) -> list[int]:
        """Return the numbers of the existing segments, ascending."""
        stems = [path.stem for path in self.path.glob(f"*{_SUFFIX}")]
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def next_number(self) -> int:
        """Return a number that was never used, even if all segments were deleted since."""
        try:
            reserved = int((self.path / _NEXT_FILE).read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            reserved = 1
        return max(reserved, *(number + 1 for number in self.numbers()), 1)

    def reserve(self, number: int) -> None:
        """Record durably that a number is used.

        Raises:
            OSError: the disk refuses.
        """
        draft = self.path / f"{_NEXT_FILE}.new"
        with draft.open("w", encoding="ascii") as file:
            file.write(str(number + 1))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path / _NEXT_FILE)
        _flush_names(self.path)

    def sweep(self) -> None:
        """Finish operations interrupted by a kill: a segment's deletion, or the salvage of a damaged one."""
        for draft in self.path.glob(f"*{_SALVAGED}"):
            whole = draft.with_suffix(_SUFFIX)
            if whole.exists():
                draft.unlink()  # unfinished: salvaged again now
            elif draft.stem.isdigit():
                self.set_aside(int(draft.stem))
        for suffix in ("-wal", "-shm", REGISTER):
            for path in self.path.glob(f"*{_SUFFIX}{suffix}"):
                if not path.with_name(path.name.removesuffix(suffix)).exists():
                    path.unlink()

    def register(self, number: int) -> RowRegister:
        """Open or create the register of a segment's rows."""
        return RowRegister(self.file(number))

    def file(self, number: int) -> Path:
        """Return the path of a segment."""
        return self.path / f"{number:08}{_SUFFIX}"

    def draft(self, number: int) -> Path:
        """Return the path to which the readable rows of a damaged segment are copied."""
        return self.path / f"{number:08}{_SALVAGED}"

    def set_aside(self, number: int) -> None:
        """Rename a damaged segment to ``.damaged`` and replace it with the salvaged copy.

        The file is renamed first: if a kill interrupts this, the next start continues here when the file is
        gone, and restarts the salvage when it is not. Its WAL is renamed too, or SQLite would take it for
        the copy's. The register stays: it describes the same rows.
        """
        for suffix in ("", "-wal", "-shm"):
            path = self.file(number).with_name(self.file(number).name + suffix)
            if path.exists():
                path.rename(path.with_name(f"{path.name}.damaged"))
        if self.draft(number).exists():
            self.draft(number).replace(self.file(number))
        _flush_names(self.path)


def _flush_names(folder: Path) -> None:
    """Flush a folder's entries to disk; flushing a file does not include its name."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class DirectoryLock:
    """Lock that keeps a second process out of a directory, until it is released or this process ends."""

    def __init__(self, directory: Path) -> None:
        """Take the lock.

        Raises:
            JournalError: another process has it.
        """
        self._file: Final[IO[str]] = (directory / _LOCK_FILE).open("a+", encoding="ascii")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            owner = self._file.read().strip() or "unknown"
            self._file.close()
            raise JournalError(
                f"another blamespan (process {owner}) uses {directory}: "
                "stop it, or use another data directory for this one"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    @staticmethod
    def is_taken(directory: Path) -> bool:
        """Return whether a running process holds the lock; creates no file."""
        try:
            with (directory / _LOCK_FILE).open(encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # the lock file is missing, or we may not read it
            return False
        return False

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


def is_in_use(path: Path) -> bool:
    """Return whether a running process has the journal in this directory."""
    return DirectoryLock.is_taken(path)


class DiskReserve:
    """Refuses rows that would use the reserved disk space; used by the writer only."""

    def __init__(self, folder: Path, measure: Measure = measure_space) -> None:
        """Watch the file system of ``folder``."""
        self._folder: Final = folder
        self._measure: Final = measure
        self._owed: Final[dict[int, int]] = {}

    def retired(self, segment: int, owed_bytes: int) -> None:
        """Record the bytes by which the file of a segment without new rows may still grow."""
        self._owed[segment] = owed_bytes

    def detached(self, segment: int) -> None:
        """Record that a segment will be deleted."""
        self._owed.pop(segment, None)

    def check(self, packed_bytes: int, owed_bytes: int) -> None:
        """Check that new rows fit without using the reserve.

        Args:
            packed_bytes: size of the rows; they are written to the WAL first and to the file later.
            owed_bytes: bytes in the active segment's WAL that are not in its file yet.

        Raises:
            OSError: ``ENOSPC``: the reserve would be used.
        """
        space = self._measure(self._folder)
        reserve = min(_MAX_RESERVE_BYTES, space.size // _RESERVE_DIVISOR)
        needed = 2 * packed_bytes + owed_bytes + sum(self._owed.values())
        if space.size and space.free - needed < reserve:
            raise OSError(
                errno.ENOSPC, f"the disk is full except for a reserve of {reserve:,} bytes: free some space"
            )
