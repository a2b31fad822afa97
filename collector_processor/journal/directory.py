"""The journal's directory: its files, its lock, the calls to the disk, and reserved space.

A segment is two files, named by its number, which is never used twice: the log with its rows, and the marks,
which record what became of them. Segments of an earlier version were SQLite files; a directory with such
files is refused. Synchronous; knows nothing of the rows.

The reserve: on a completely full disk no space can be freed, because writing a verdict, marking rows as
forwarded and thinning a segment all need space themselves. So new rows are refused a little earlier. Another
program may still fill the disk; then everything waits until there is space.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, NamedTuple, TypeAlias

from collector_processor.journal.chunks import JournalError, State
from collector_processor.journal.log_format import Kind, encode, encode_file

LOG: Final = ".log"
MARKS: Final = ".marks"
_DRAFT: Final = ".new"
_OLD: Final = ".sqlite"
_NEXT_FILE: Final = "next"
_LOCK_FILE: Final = "lock"
_RESERVE_DIVISOR: Final = 8
"""The reserve is at most an eighth of the disk, and at most ``_MAX_RESERVE_BYTES``."""
_MAX_RESERVE_BYTES: Final = 32 << 20
"""Upper bound of the reserve in bytes."""


class Disk:
    """Calls to the disk that the journal's promises rest on. Each raises ``OSError`` if the disk refuses."""

    def write(self, file: int, content: bytes, offset: int) -> None:
        """Write all bytes at an offset; not durable before ``flush``."""
        written = os.pwrite(file, content, offset)
        while written < len(content):
            written += os.pwrite(file, memoryview(content)[written:], offset + written)

    def flush(self, file: int) -> None:
        """Return once everything written to the file is durable."""
        os.fdatasync(file)

    def flush_names(self, folder: Path) -> None:
        """Return once the folder's entries are durable; flushing a file does not include its name."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def read(self, file: int, size: int, offset: int) -> bytes:
        """Read up to ``size`` bytes."""
        return os.pread(file, size, offset)

    def remove(self, path: Path) -> None:
        """Delete a file, if it is there."""
        path.unlink(missing_ok=True)


class RelaxedDisk(Disk):
    """Never waits for the disk: for a journal whose rows are durable elsewhere."""

    def flush(self, file: int) -> None:
        """Return at once."""

    def flush_names(self, folder: Path) -> None:
        """Return at once."""


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
    """The files of the journal's segments.

    A log that was thinned is a new file, whose name has a version behind the number.
    """

    path: Path
    disk: Disk = field(default_factory=Disk)
    measure: Measure = measure_space
    """Returns the space of the file system."""

    def log(self, number: int, version: int = 0) -> Path:
        """Return the path of a segment's rows."""
        return self.path / (f"{number:08}-{version}{LOG}" if version else f"{number:08}{LOG}")

    def marks(self, number: int) -> Path:
        """Return the path of a segment's marks."""
        return self.path / f"{number:08}{MARKS}"

    def draft(self, number: int) -> Path:
        """Return the path at which a thinned log is written."""
        return self.path / f"{number:08}{_DRAFT}"

    def create(self, number: int, salt: int) -> int:
        """Create a segment durably; return its open log.

        Raises:
            OSError: the disk refuses.
        """
        slots = b"".join(b"".join(encode(Kind.ACKNOWLEDGED, 0, salt)) for _ in range(2))
        contents = {
            self.marks(number): encode_file(number, salt) + slots,
            self.log(number): encode_file(number, salt),
        }
        files: list[int] = []
        try:
            for path, content in contents.items():
                files.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
                self.disk.write(files[-1], content, 0)
                self.disk.flush(files[-1])
            self.disk.flush_names(self.path)
        except OSError:
            for file in files:
                os.close(file)
            self.remove(number)
            raise
        marks, log = files
        os.close(marks)
        return log

    def remove(self, number: int) -> None:
        """Remove the files of a segment."""
        for path in (*self.path.glob(f"{number:08}-*{LOG}"), self.log(number), self.marks(number)):
            self.disk.remove(path)

    def segments(self) -> dict[int, int]:
        """Return the version of each existing log by its number, ascending."""
        found: dict[int, int] = {}
        for path in self.path.glob(f"*{LOG}"):
            number, _, version = path.stem.partition("-")
            if number.isdigit() and (version or "0").isdigit():
                found[int(number)] = max(found.get(int(number), 0), int(version or "0"))
        return dict(sorted(found.items()))

    def next_number(self) -> int:
        """Return a number that was never used, even if all segments were deleted since."""
        try:
            reserved = int((self.path / _NEXT_FILE).read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            reserved = 1
        return max(reserved, *(number + 1 for number in self.segments()), 1)

    def reserve(self, number: int) -> None:
        """Record durably that a number is used.

        Raises:
            OSError: the disk refuses.
        """
        draft = self.path / f"{_NEXT_FILE}.new"
        with draft.open("wb", buffering=0) as file:
            self.disk.write(file.fileno(), str(number + 1).encode(), 0)
            self.disk.flush(file.fileno())
        draft.replace(self.path / _NEXT_FILE)
        self.disk.flush_names(self.path)

    def sweep(self) -> None:
        """Finish what a kill interrupted: the deletion of a segment, or of a log that was thinned."""
        for draft in self.path.glob(f"*{_DRAFT}"):
            draft.unlink()
        current = self.segments()
        for number, version in current.items():
            for older in range(version):
                self.log(number, older).unlink(missing_ok=True)
        for path in self.path.glob(f"*{MARKS}"):
            if path.stem.isdigit() and int(path.stem) not in current:
                path.unlink()

    def refuse_old_kind(self) -> None:
        """Refuse a directory that an earlier version wrote.

        Raises:
            JournalError: it has segments in SQLite; says how much of it was not sent.
        """
        old = [path for path in sorted(self.path.glob(f"*{_OLD}")) if path.stem.isdigit()]
        if not old:
            return
        unsent, is_whole = Counter[str](), True
        for path in old:
            try:
                unsent.update(_unsent(path))
            except (sqlite3.Error, UnicodeDecodeError):
                is_whole = False
        spans, others = unsent["traces"], unsent["logs"] + unsent["metrics"]
        said = f"{spans:,} spans and {others:,} log records and data points" + " at least" * (not is_whole)
        raise JournalError(
            f"the journal in {self.path} ({old[0].name}) was written by an earlier blamespan, in a format "
            f"that this version does not read; {said} in it are not forwarded yet: run the earlier version "
            "until blamespan_items_held is 0 and stop it, then move the *.sqlite* files away, "
            "or use another data directory"
        )


def _unsent(path: Path) -> dict[str, int]:
    """Return the items that an earlier version's segment has not forwarded, by signal."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        query = "SELECT signal, sum(items) FROM chunk WHERE state != ? GROUP BY signal"
        return dict(db.execute(query, (State.DONE.value,)).fetchall())


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


def check_reserve(directory: SegmentDirectory, size: int) -> None:
    """Check that new rows of ``size`` bytes fit without using the reserve.

    Raises:
        OSError: ``ENOSPC``: the reserve would be used.
    """
    space = directory.measure(directory.path)
    reserve = min(_MAX_RESERVE_BYTES, space.size // _RESERVE_DIVISOR)
    if space.size and space.free - size < reserve:
        raise OSError(
            errno.ENOSPC, f"the disk is full except for a reserve of {reserve:,} bytes: free some space"
        )
