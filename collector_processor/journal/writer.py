"""The journal's one writer: a thread that commits in groups.

While one commit waits for the disk, requests queue up; the next commit takes
them all. So an acknowledgement costs one disk flush shared by whoever is there,
and throughput grows with load instead of falling.

New rows and their acknowledgement go first. Changes of state are collected and
ride along with the next commit of rows, or go by themselves after a moment:
losing some in a crash means that rows are forwarded twice, never that one is
lost. Letting held rows go is durable before it is done: they must not be sent
again as something else.
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
from typing import Final, TypeAlias

from collector_processor.journal.chunks import (
    JournalError,
    JournalLimits,
    State,
    first_seq,
    pack_body,
    segment_of,
)
from collector_processor.journal.commands import (
    Append,
    Command,
    Detach,
    Forget,
    Mark,
    Relieve,
    Rewrite,
    Settle,
    Stop,
)
from collector_processor.journal.directory import SegmentDirectory
from collector_processor.journal.few_open import FewOpen
from collector_processor.journal.register import RowRegister
from collector_processor.journal.reserve import DiskReserve
from collector_processor.journal.segments import SegmentFile
from collector_processor.otlp import RefusedError

logger = logging.getLogger(__name__)

_MARK_DELAY_S: Final = 0.05
"""How long a change of state may wait for company."""
_MARK_RETRY_S: Final = 1.0
"""How long it waits where the disk refuses."""
_WORTH_DELETING: Final = 1 << 20
"""Bytes of a segment on a full disk; a smaller one goes on to be used."""
_MAX_GROUP: Final = 4096
"""Commands taken at once."""
_RETRY_AFTER_S: Final = 5.0
"""What we ask of clients when the disk refuses: somebody has to make room."""

Post: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs something on the event loop; called from the writer's thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterEvents:
    """What happens unasked."""

    rotated: Callable[[int], None]
    """A segment takes no more rows."""
    failed: Callable[[BaseException], None]
    """The thread ended by a fault of ours."""


class JournalWriter:
    """Owns all writing; every callback arrives on the event loop through ``post``."""

    def __init__(
        self,
        directory: SegmentDirectory,
        next_segment: int,
        limits: JournalLimits,
        post: Post,
        events: WriterEvents,
    ) -> None:
        self._directory: Final = directory
        self._reserve: Final = DiskReserve(directory.path, directory.measure)
        self._next_segment = next_segment
        self._limits: Final = limits
        self._post: Final = post
        self._events: Final = events
        self._queue: Final[SimpleQueue[Command]] = SimpleQueue()
        self._active: SegmentFile | None = None
        self._active_since = 0.0
        self._owed_bytes = 0
        """What the active segment's file will grow by when its WAL is copied to it."""
        self._last_seq = 0
        self._files: Final = FewOpen(directory.open_relaxed, self._write_back)
        """Segments that take no more rows."""
        self._registers: Final[FewOpen[RowRegister]] = FewOpen(directory.register)
        self._soon: defaultdict[int, list[Mark | Forget]] = defaultdict(list)
        self._soon_at: float | None = None
        self._is_refused = False
        """Whether the disk refused the last change of state; that is said once."""
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
        except Exception as error:  # noqa: BLE001 - the thread's end: whoever awaits Journal.failure raises it
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
                    self._soon[command.segment].append(command)
            self._append([command for command in commands if isinstance(command, Append)])
            for command in commands:
                if isinstance(command, Rewrite):
                    self._rewrite(command)
                elif isinstance(command, Settle):
                    self._settle_segment(command.segment)
                    self._post(command.done)
                elif isinstance(command, Detach):
                    self._detach(command)
                elif isinstance(command, Relieve):
                    self._reserve.retired(command.segment, 0)
            self._settle_all(is_due=is_stopping)

    def _gather(self) -> list[Command]:
        """Wait for a command, then take all that is there, within bounds."""
        timeout = None if self._soon_at is None else max(0.0, self._soon_at - monotonic())
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
        try:
            seqs = self._store(appends)
        except (sqlite3.Error, OSError) as error:
            logger.error("journal cannot store", extra={"reason": str(error)})  # noqa: TRY400 - expected: a full disk
            refused = RefusedError(f"the journal cannot store: {error}", retry_after_s=_RETRY_AFTER_S)
            self._post(partial(_answer, appends, [refused] * len(appends)))
            if not _is_full(error):
                self._retire()  # who knows what is the matter with it
            elif self._active is not None and self._active.disk_bytes >= _WORTH_DELETING:
                self._retire()  # once it is forwarded, it can be deleted to make room
            return
        self.commits += 1
        self._post(partial(_answer, appends, seqs))
        self._rotate()

    def _store(self, appends: Sequence[Append]) -> list[tuple[int, ...]]:
        """Commit the rows; return their seqs, for each command."""
        packed = [pack_body(entry.body) for append in appends for entry in append.entries]
        self._reserve.check(sum(len(body) for _, body in packed), self._owed_bytes)
        active = self._open_active()
        entries = [entry for append in appends for entry in append.entries]
        seqs: list[tuple[int, ...]] = []
        for append in appends:
            first = self._last_seq + 1
            self._last_seq += len(append.entries)  # used up, even if the commit fails
            seqs.append(tuple(range(first, self._last_seq + 1)))
        rows = list(zip(chain.from_iterable(seqs), entries, packed, strict=True))
        with active.transaction():
            active.insert(rows)
            riding = self._apply_soon(active)
        if seqs:
            self._registers.get(active.number).add(
                seqs[0][0] - first_seq(active.number) - 1, [(entry.signal, entry.items) for entry in entries]
            )
        self._applied(active.number, riding)
        return seqs

    def _open_active(self) -> SegmentFile:
        if self._active is None:
            number = self._next_segment
            self._next_segment += 1  # no number is used twice, whatever happens now
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
        """Take no more rows into the active segment."""
        active, owed_bytes = self._active, self._owed_bytes
        self._active, self._owed_bytes = None, 0
        if active is not None:
            self._reserve.retired(active.number, owed_bytes)  # of a bad disk no size is to be had
            self._files.put(active.number, self._afresh(active))
            self._post(partial(self._events.rotated, active.number))

    def _afresh(self, file: SegmentFile) -> SegmentFile:
        """Return another connection to a segment: the one that stored rows has copies of the last of them."""
        try:
            fresh = self._directory.open_relaxed(file.number)
        except (sqlite3.Error, JournalError):  # what is the matter shows when something is written to it
            file.relax()
            return file
        file.close()  # not the last connection, so its WAL is not copied now
        return fresh

    # Changes of state.

    def _settle_all(self, *, is_due: bool) -> None:
        """Write collected changes if their time has come, or set the time."""
        now = monotonic()
        delay_s = _MARK_DELAY_S
        if is_due or (self._soon_at is not None and now >= self._soon_at):
            for number in sorted(self._soon):
                self._settle_segment(number)
            self._soon_at = None
            delay_s = _MARK_RETRY_S if self._is_refused else _MARK_DELAY_S
        if self._soon and self._soon_at is None:
            self._soon_at = now + delay_s

    def _settle_segment(self, number: int) -> None:
        try:
            file = self._file(number)
            lets_go = any(_lets_go(command) for command in self._soon.get(number, ()))
            with file.durable_transaction() if lets_go else file.transaction():
                commands = self._apply_soon(file)
        except sqlite3.Error as error:  # tried again; a restart before that only forwards them twice
            if not self._is_refused:
                logger.warning("journal cannot note what was forwarded", extra={"reason": str(error)})
            self._is_refused = True
        else:
            self._is_refused = False
            self._applied(number, commands)

    def _apply_soon(self, file: SegmentFile) -> list[Mark | Forget]:
        commands = self._soon.get(file.number, [])
        for command in commands:
            if isinstance(command, Mark):
                file.mark(command.seqs, command.state)
            else:
                file.forget(command.trace_id, command.seqs)
        return commands

    def _applied(self, number: int, commands: Sequence[Mark | Forget]) -> None:
        self._soon.pop(number, None)
        marks = [command for command in commands if isinstance(command, Mark)]
        if marks:
            done = sorted(seq for mark in marks if mark.state is State.DONE for seq in mark.seqs)
            self._registers.get(number).settle(seq - first_seq(number) - 1 for seq in done)
            self._post(partial(_finish, marks))

    def _rewrite(self, command: Rewrite) -> None:
        try:
            file = self._file(segment_of(command.seq))
            with file.durable_transaction():
                file.rewrite(command.seq, command.body)
        except sqlite3.Error as error:
            refused = RefusedError(f"the journal cannot store: {error}", retry_after_s=_RETRY_AFTER_S)
            self._post(partial(command.done, refused))
        else:
            self._post(partial(command.done, None))

    def _detach(self, command: Detach) -> None:
        self._soon.pop(command.segment, None)
        self._reserve.detached(command.segment)
        if register := self._registers.take(command.segment):
            register.close()
        self._post(partial(command.done, self._files.take(command.segment)))

    def _file(self, number: int) -> SegmentFile:
        """Return our connection to a segment; to an older one without waits for the disk."""
        if self._active is not None and self._active.number == number:
            return self._active
        return self._files.get(number)

    def _write_back(self, number: int, file: SegmentFile) -> None:
        """Have an old segment's file take up its WAL: it owes the disk nothing any more."""
        try:
            file.write_back()
            self._reserve.retired(number, file.owed_bytes)
        except sqlite3.Error as error:  # the WAL stays, and so does what is owed
            logger.warning("journal segment cannot be written back", extra={"reason": str(error)})


def _is_full(error: sqlite3.Error | OSError) -> bool:
    """Whether there is no room, which says nothing against the file."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOSPC
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _lets_go(command: Mark | Forget) -> bool:
    """Whether held rows go on: forgotten in a power cut, they would be sent again, and in another form."""
    return isinstance(command, Mark) and command.state is State.PENDING


def _answer(appends: Sequence[Append], answers: Sequence[tuple[int, ...] | RefusedError]) -> None:
    for append, answer in zip(appends, answers, strict=True):
        append.done(answer)


def _finish(marks: Sequence[Mark]) -> None:
    for mark in marks:
        mark.done()
