"""Group-commit writer thread of the journal.

While one commit waits for the disk, requests queue up; the next commit takes them all. So concurrent
requests share one disk flush, and throughput grows with load.

New rows and their acknowledgement go first. Changes of state are collected and written with the next commit
of rows, or by themselves after a short delay: losing some in a crash means that rows are forwarded twice,
never that one is lost. Releasing held rows is durable before the forwarder is notified: they must not be
sent again in another form.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Final

from collector_processor.core.disk import Condition
from collector_processor.journal.chunks import (
    DiskFullError,
    JournalError,
    JournalLimits,
    State,
    first_seq,
    pack_body,
    segment_of,
)
from collector_processor.journal.deliveries import Deliveries
from collector_processor.journal.directory import DiskReserve, RowRegister, SegmentDirectory
from collector_processor.journal.dispatch import (
    Append,
    Command,
    Detach,
    Flush,
    Forget,
    Mark,
    Rewrite,
    SkipTo,
    Stop,
    WrittenBack,
)
from collector_processor.journal.segment_connection import OpenFileCache
from collector_processor.journal.segments import SegmentFile
from collector_processor.otlp import RefusedError

logger = logging.getLogger(__name__)

_MARK_DELAY_S: Final = 0.05
"""Seconds that a change of state may wait for the next commit of rows."""
_MARK_RETRY_S: Final = 1.0
"""Seconds before a change of state is retried if the disk refuses."""
_WORTH_DELETING: Final = 1 << 20
"""Size in bytes from which a full disk ends the active segment, so that it can be deleted to free space."""
_MAX_GROUP: Final = 4096
"""Upper bound of commands in one group commit."""
_RETRY_AFTER_S: Final = 5.0
"""Retry delay sent to clients when the disk refuses: space must be freed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterEvents:
    """Callbacks for events that no command requested."""

    rotated: Callable[[int], None]
    """Called when a segment takes no more rows."""
    failed: Callable[[BaseException], None]
    """Called when the thread ends because of a bug."""


class JournalWriter:
    """Does all writing; callbacks run on the event loop through ``deliveries``."""

    def __init__(
        self,
        directory: SegmentDirectory,
        next_segment: int,
        limits: JournalLimits,
        deliveries: Deliveries,
        events: WriterEvents,
    ) -> None:
        self._directory: Final = directory
        self._reserve: Final = DiskReserve(directory.path, directory.measure)
        self.next_segment = next_segment
        """Number of the next segment; read by other threads too."""
        self._limits: Final = limits
        self._deliveries: Final = deliveries
        self._post: Final = deliveries.post_last
        self._events: Final = events
        self._queue: Final[SimpleQueue[Command]] = SimpleQueue()
        self._active: SegmentFile | None = None
        self._active_since = 0.0
        self._owed_bytes = 0
        """Bytes by which the active segment's file will grow when its WAL is copied to it."""
        self._last_seq = 0
        self._files: Final = OpenFileCache(directory.open_relaxed, self._write_back)
        """Connections to segments that take no more rows."""
        self._registers: Final[OpenFileCache[RowRegister]] = OpenFileCache(directory.register)
        self._marks: defaultdict[int, list[Mark | Forget]] = defaultdict(list)
        self._flush_at: float | None = None
        self._is_refused = False
        """Whether the disk refused the last change of state; consecutive refusals are logged once."""
        self.condition: Final = Condition()
        """Whether the disk takes new rows."""
        self.commits = 0
        """Transactions that stored rows."""
        self._thread: Final = Thread(target=self._main, name="journal-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, command: Command) -> None:
        """Queue a command."""
        self._queue.put(command)

    def join(self) -> None:
        """Wait until the thread has ended; blocks."""
        self._thread.join()

    def _main(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - the thread's end: raised where Journal.failure is awaited
            self._post(partial(self._events.failed, error))
        finally:
            if self._active is not None:
                self._active.close()
            self._files.close()
            self._registers.close()

    def _run(self) -> None:
        is_stopping = False
        while not is_stopping:
            commands = self._gather()
            is_stopping = any(isinstance(command, Stop) for command in commands)
            for command in commands:
                if isinstance(command, Mark | Forget):
                    self._marks[command.segment].append(command)
            self._append([command for command in commands if isinstance(command, Append)])
            for command in commands:
                if isinstance(command, Rewrite):
                    self._rewrite(command)
                elif isinstance(command, Flush):
                    self._flush_segment(command.segment)
                    self._post(command.done)
                elif isinstance(command, Detach):
                    self._detach(command)
                elif isinstance(command, SkipTo):
                    self._retire()
                    self.next_segment = max(self.next_segment, command.segment)
                    self._post(command.done)
                elif isinstance(command, WrittenBack):
                    self._reserve.retired(command.segment, 0)
            self._flush_marks(is_due=is_stopping)

    def _gather(self) -> list[Command]:
        """Wait for a command, then take all queued commands, within bounds."""
        timeout = None if self._flush_at is None else max(0.0, self._flush_at - monotonic())
        commands: list[Command] = []
        size = 0
        try:
            commands.append(self._queue.get(timeout=timeout))
            while size < self._limits.group_bytes and len(commands) < _MAX_GROUP:
                last = commands[-1]
                size += sum(entry.size for entry in last.entries) if isinstance(last, Append) else 0
                commands.append(self._queue.get_nowait())
        except Empty:
            pass
        return commands

    # New rows.

    def _append(self, appends: Sequence[Append]) -> None:
        if not appends:
            return
        self.condition.asked()
        try:
            seqs = self._store(appends)
        except (sqlite3.Error, OSError) as error:
            self.condition.refused()
            logger.error(  # noqa: TRY400 - expected: a full disk
                "cannot write to the journal: requests are refused until it succeeds",
                extra={"reason": str(error)},
            )
            refusal = DiskFullError if _is_full(error) else RefusedError
            refused = refusal(f"cannot write to the journal: {error}", retry_after_s=_RETRY_AFTER_S)
            self._answer(appends, [refused] * len(appends))
            self.condition.answered()
            if refusal is not DiskFullError:
                self._retire()  # the segment may be damaged
            elif self._active is not None and self._active.disk_bytes >= _WORTH_DELETING:
                self._retire()  # once forwarded, it can be deleted to free space
            return
        self.condition.answered()
        self.commits += 1
        self._answer(appends, seqs)
        self._rotate()

    def _answer(self, appends: Sequence[Append], answers: Sequence[tuple[int, ...] | RefusedError]) -> None:
        self._deliveries.post(
            *(
                (partial(append.done, answer), append.traces)
                for append, answer in zip(appends, answers, strict=True)
            )
        )

    def _store(self, appends: Sequence[Append]) -> list[tuple[int, ...]]:
        """Commit the rows; return the seqs for each command."""
        packed = [pack_body(entry.body) for append in appends for entry in append.entries]
        self._reserve.check(sum(len(body) for _, body in packed), self._owed_bytes)
        active = self._open_active()
        entries = [entry for append in appends for entry in append.entries]
        seqs: list[tuple[int, ...]] = []
        for append in appends:
            first = self._last_seq + 1
            self._last_seq += len(append.entries)  # never reused, even if the commit fails
            seqs.append(tuple(range(first, self._last_seq + 1)))
        rows = list(zip(chain.from_iterable(seqs), entries, packed, strict=True))
        with active.transaction():
            active.insert(rows)
            applied = self._apply_marks(active)
        if seqs:
            self._registers.get(active.number).add(
                seqs[0][0] - first_seq(active.number) - 1, [(entry.signal, entry.items) for entry in entries]
            )
        self._marks_written(active.number, applied)
        return seqs

    def _open_active(self) -> SegmentFile:
        if self._active is None:
            number = self.next_segment
            self.next_segment += 1  # never reused, even if this fails
            self._directory.reserve(number)
            self._active = self._directory.open(number)
            self._active_since = monotonic()
            self._owed_bytes = 0
            self._last_seq = first_seq(number)
        return self._active

    def _rotate(self) -> None:
        active = self._active
        if active is None:
            return
        is_old = monotonic() - self._active_since > self._limits.segment_age_s
        disk_bytes = active.disk_bytes
        self._owed_bytes = active.owed_of(disk_bytes)
        if is_old or max(disk_bytes, active.wal_bytes) >= self._limits.segment_bytes:
            self._retire()

    def _retire(self) -> None:
        """End the active segment: it takes no more rows."""
        active, owed_bytes = self._active, self._owed_bytes
        self._active, self._owed_bytes = None, 0
        if active is not None:
            self._reserve.retired(active.number, owed_bytes)  # last known size: a failing disk has none
            self._files.put(active.number, self._reopen(active))
            self._post(partial(self._events.rotated, active.number))

    def _reopen(self, file: SegmentFile) -> SegmentFile:
        """Replace a segment's connection: its prepared statements keep copies of the last rows."""
        try:
            fresh = self._directory.open_relaxed(file.number)
        except (sqlite3.Error, JournalError):  # the next write to it reports the error
            file.relax()
            return file
        file.close()  # not the last connection, so its WAL is not copied now
        return fresh

    # Changes of state.

    def _flush_marks(self, *, is_due: bool) -> None:
        """Write the collected changes of state if they are due, or schedule them."""
        now = monotonic()
        delay_s = _MARK_DELAY_S
        if is_due or (self._flush_at is not None and now >= self._flush_at):
            for number in sorted(self._marks):
                self._flush_segment(number)
            self._flush_at = None
            delay_s = _MARK_RETRY_S if self._is_refused else _MARK_DELAY_S
        if self._marks and self._flush_at is None:
            self._flush_at = now + delay_s

    def _flush_segment(self, number: int) -> None:
        try:
            file = self._file(number)
            is_release = any(_releases_rows(command) for command in self._marks.get(number, ()))
            with file.durable_transaction() if is_release else file.transaction():
                commands = self._apply_marks(file)
        except sqlite3.Error as error:  # retried; a restart before that only forwards rows twice
            if not self._is_refused:
                logger.warning(
                    "cannot record forwarded rows: retried; a restart would forward them again",
                    extra={"reason": str(error)},
                )
            self._is_refused = True
        else:
            self._is_refused = False
            self._marks_written(number, commands)

    def _apply_marks(self, file: SegmentFile) -> list[Mark | Forget]:
        commands = self._marks.get(file.number, [])
        for command in commands:
            if isinstance(command, Mark):
                file.mark(command.seqs, command.state)
            else:
                file.forget(command.trace_id, command.seqs)
        return commands

    def _marks_written(self, number: int, commands: Sequence[Mark | Forget]) -> None:
        self._marks.pop(number, None)
        marks = [command for command in commands if isinstance(command, Mark)]
        if marks:
            done = sorted(seq for mark in marks if mark.state is State.DONE for seq in mark.seqs)
            self._registers.get(number).mark_done(seq - first_seq(number) - 1 for seq in done)
            self._post(partial(_finish, marks))

    def _rewrite(self, command: Rewrite) -> None:
        try:
            file = self._file(segment_of(command.seq))
            with file.durable_transaction():
                file.rewrite(command.seq, command.body)
        except sqlite3.Error as error:
            refused = RefusedError(f"cannot write to the journal: {error}", retry_after_s=_RETRY_AFTER_S)
            self._post(partial(command.done, refused))
        else:
            self._post(partial(command.done, None))

    def _detach(self, command: Detach) -> None:
        self._marks.pop(command.segment, None)
        self._reserve.detached(command.segment)
        if register := self._registers.take(command.segment):
            register.close()
        self._post(partial(command.done, self._files.take(command.segment)))

    def _file(self, number: int) -> SegmentFile:
        """Return our connection to a segment; a new connection to an older segment is relaxed."""
        if self._active is not None and self._active.number == number:
            return self._active
        return self._files.get(number)

    def _write_back(self, number: int, file: SegmentFile) -> None:
        """Copy an old segment's WAL to its file, and update the bytes it owes."""
        try:
            file.write_back()
            self._reserve.retired(number, file.owed_bytes)
        except sqlite3.Error as error:  # the WAL and its bytes still owed stay
            logger.warning(
                "cannot copy the WAL of a journal segment: retried later", extra={"reason": str(error)}
            )


def _is_full(error: sqlite3.Error | OSError) -> bool:
    """Return whether the disk is full, as opposed to a damaged file."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOSPC
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _releases_rows(command: Mark | Forget) -> bool:
    """Return whether a command releases held rows, which must survive a power cut or be sent twice."""
    return isinstance(command, Mark) and command.state is State.PENDING


def _finish(marks: Sequence[Mark]) -> None:
    for mark in marks:
        mark.done()
