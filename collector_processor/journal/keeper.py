"""What the journal does beside the writer: opening, reading, compacting, deleting.

Synchronous; all of it runs on one thread of its own, with connections of its
own, so that reads never wait for the writer's disk flush.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Final

from collector_processor.cutting import extract
from collector_processor.journal.chunks import (
    Backlog,
    CorruptBodyError,
    JournalError,
    SegmentSummary,
    Wanted,
    first_seq,
    segment_of,
)
from collector_processor.journal.directory import SegmentDirectory
from collector_processor.journal.few_open import FewOpen
from collector_processor.journal.salvage import salvage
from collector_processor.journal.segments import SegmentFile
from collector_processor.otlp import Signal
from semconv.model import TraceId

logger = logging.getLogger(__name__)

_LOCK_FILE: Final = "lock"


class DirectoryLock:
    """Keeps a second process out of a directory until it is released, or we die."""

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
                "stop it, or give this one another data directory"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    @staticmethod
    def is_taken(directory: Path) -> bool:
        """Whether a running process holds the lock; leaves no trace."""
        try:
            with (directory / _LOCK_FILE).open(encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # never used, or not ours to read
            return False
        return False

    def release(self) -> None:
        """Let others in."""
        self._file.close()


class JournalKeeper:
    """Reads and tends the segments."""

    def __init__(self, directory: SegmentDirectory) -> None:
        self._directory: Final = directory
        self._files: Final = FewOpen(directory.open_relaxed)
        self.lost: Final[Counter[Signal]] = Counter()
        """Items that were acknowledged, and that a segment does not even describe any more."""

    def recover(self) -> list[SegmentSummary]:
        """Open what is there, oldest first; what can be read of a damaged segment is put in its place.

        Raises:
            JournalError: a newer version wrote it, or the disk refuses.
        """
        self._directory.sweep()
        summaries: list[SegmentSummary] = []
        for number in self._directory.numbers():
            try:
                summaries.append(self._files.get(number).summary())
                self._compare(number)
            except sqlite3.OperationalError as error:  # a disk that refuses is no damage
                raise _refused(self._directory.file(number).name, error) from error
            except sqlite3.DatabaseError as error:
                logger.error("journal segment is damaged", extra={"segment": number, "reason": str(error)})  # noqa: TRY400 - the reason is all there is
                self._close(number)
                summaries += self._salvaged(number)
        return summaries

    def _salvaged(self, number: int) -> list[SegmentSummary]:
        """Set a damaged segment aside; return what could be saved of it, if there is anything."""
        draft = self._directory.draft(number)
        try:
            rows = salvage(self._directory.file(number), number, draft)
        except sqlite3.OperationalError as error:
            raise _refused(draft.name, error) from error
        if not rows.described:
            draft.unlink(missing_ok=True)
        self._directory.set_aside(number)
        self._compare(number, is_there=bool(rows.described))
        if not rows.described:
            return []
        logger.warning("journal segment was salvaged", extra={"segment": number, **asdict(rows)})
        return [self._files.get(number).summary()]

    def _compare(self, number: int, *, is_there: bool = True) -> None:
        """Count what the register says of a segment and the segment does not; each loss once."""
        states = self._files.get(number).states() if is_there else {}
        with closing(self._directory.register(number)) as register:
            noted = {first_seq(number) + 1 + one.position: one for one in register.unsettled()}
            gone = [one for seq, one in noted.items() if seq not in states]
            done = [one for seq, one in noted.items() if states.get(seq)]  # killed before it was struck out
            register.settle(sorted(one.position for one in (*gone, *done)))
        for one in gone:
            self.lost[one.signal] += one.items
        if gone:
            items = sum(one.items for one in gone)
            logger.error(
                "acknowledged rows are gone from a journal segment",
                extra={"segment": number, "rows": len(gone), "items": items},
            )

    def waiting(self, wanted: Wanted) -> Backlog:
        """Read pending rows of a queue from the first segment that has any."""
        for number in self._directory.numbers():
            if not segment_of(wanted.after_seq) <= number <= segment_of(wanted.upto_seq):
                continue
            here = replace(wanted, after_seq=max(wanted.after_seq, first_seq(number)))
            backlog = self._files.get(number).waiting(here)
            if backlog.chunks or backlog.lost or backlog.is_more:
                return replace(backlog, is_more=True)
        return Backlog(upto_seq=wanted.upto_seq)

    def fragments(
        self, signal: Signal, trace_id: TraceId, seqs: Collection[int]
    ) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's part of each row; rows that are gone or damaged are left out."""
        found: list[tuple[int, bytes]] = []
        if not seqs:
            return ()
        numbers = set(self._directory.numbers())
        for seq in sorted(seqs):
            if segment_of(seq) not in numbers:
                continue
            try:
                body = self._files.get(segment_of(seq)).body(seq)
            except CorruptBodyError as error:
                logger.warning("journal row is damaged", extra={"seq": seq, "reason": str(error)})
                continue
            if body is not None:
                found.append((seq, extract(signal, body, (trace_id,))))
        return tuple(found)

    def whole(
        self, wanted: Iterable[tuple[TraceId, Sequence[int], Sequence[int]]]
    ) -> list[tuple[tuple[tuple[int, bytes], ...], tuple[tuple[int, bytes], ...]]]:
        """Return, for each trace, its part of its rows and of its rows of log records."""
        return [
            (self.fragments(Signal.TRACES, trace_id, rows), self.fragments(Signal.LOGS, trace_id, logs))
            for trace_id, rows, logs in wanted
        ]

    def compact(self, number: int, retained: Mapping[int, frozenset[TraceId]]) -> int:
        """Compact a segment; return the bytes that its rows still count for."""
        with closing(self._directory.register(number)) as register:
            register.sync()  # else a power cut might bring back notes of rows that are dropped now
        return self._files.get(number).compact(retained)

    def write_back(self, number: int) -> None:
        """Copy a segment's WAL to its file, and give its space back."""
        self._files.get(number).empty_wal()

    def delete(self, number: int, writers: SegmentFile | None) -> None:
        """Delete a segment, given the connection that the writer had to it, if it had one."""
        for file in (writers, self._files.take(number)):
            if file is not None:
                file.abandon()
        self._directory.remove(number)

    def _close(self, number: int) -> None:
        file = self._files.take(number)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all connections."""
        self._files.close()


def _refused(name: str, error: sqlite3.Error) -> JournalError:
    return JournalError(f"the journal ({name}) cannot be opened: {error}; make room, or see to the disk")
