"""Group-commit writer thread of the journal.

While one commit waits for the disk, requests queue up; the next commit takes them all. So concurrent
requests share one disk flush, and throughput grows with load.

New rows and their acknowledgement go first. What becomes of rows is collected and written with the next
commit of rows, or by itself after a short delay: losing some in a crash means that rows are forwarded twice,
never that one is lost. Releasing held rows is durable before the forwarder is notified: they must not be sent
again in another form.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from secrets import randbits
from threading import Thread
from time import monotonic
from typing import Final

from collector_processor.core.disk import Condition
from collector_processor.journal.chunks import DiskFullError, JournalLimits, first_seq, segment_of
from collector_processor.journal.directory import SegmentDirectory, check_reserve
from collector_processor.journal.dispatch import (
    Append,
    Command,
    Deliveries,
    Detach,
    Flush,
    Note,
    Rewrite,
    SkipTo,
    Stop,
    Stored,
)
from collector_processor.journal.keeper import OpenFiles
from collector_processor.journal.log_format import (
    FILE_BYTES,
    HEAD_BYTES,
    MARKS_BEGIN,
    NOTHING,
    SIGNALS,
    ItemTotals,
    Kind,
    encode,
    encode_row,
    pack_body,
)
from collector_processor.otlp import RefusedError

logger = logging.getLogger(__name__)

_NOTE_DELAY_S: Final = 0.05
"""Seconds that a note may wait for the next commit of rows."""
_NOTE_RETRY_S: Final = 1.0
"""Seconds before notes are retried if the disk refuses."""
_WORTH_DELETING: Final = 1 << 20
"""Size in bytes from which a full disk ends the active segment, so that it can be deleted to free space."""
_MAX_GROUP: Final = 4096
"""Upper bound of commands in one group commit."""
_MAX_ROWS: Final = 1 << 16
"""Rows after which a segment ends: the event loop looks at all of them when the segment is thinned."""
_RETRY_AFTER_S: Final = 5.0
"""Retry delay sent to clients when the disk refuses: space must be freed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterEvents:
    """Callbacks for events that no command requested."""

    rotated: Callable[[int], None]
    """Called when a segment takes no more rows."""
    failed: Callable[[BaseException], None]
    """Called when the thread ends because of a bug."""


@dataclass(slots=True, kw_only=True)
class _ActiveSegment:
    """The segment that takes new rows."""

    number: int
    file: int
    salt: int
    since: float
    end: int = FILE_BYTES
    """Size of its log: where the next record goes."""
    last_seq: int = field(init=False)
    totals: ItemTotals = NOTHING

    def __post_init__(self) -> None:
        self.last_seq = first_seq(self.number)


class JournalWriter:
    """Does all writing of rows and marks; callbacks run on the event loop through ``deliveries``."""

    def __init__(
        self,
        directory: SegmentDirectory,
        salts: dict[int, int],
        limits: JournalLimits,
        deliveries: Deliveries,
        events: WriterEvents,
    ) -> None:
        self._directory: Final = directory
        self._disk: Final = directory.disk
        self._salts: Final = salts
        """The salt of each segment, by number."""
        self.next_segment = directory.next_number()
        """Number of the next segment; read by other threads too."""
        self._limits: Final = limits
        self._deliveries: Final = deliveries
        self._post: Final = deliveries.post_last
        self._events: Final = events
        self._queue: Final[SimpleQueue[Command]] = SimpleQueue()
        self._active: _ActiveSegment | None = None
        self._marks: Final = OpenFiles(directory.marks, os.O_RDWR | os.O_CREAT)
        self._notes: defaultdict[int, list[Note]] = defaultdict(list)
        """Notes to be written, by segment."""
        self._flush_at: float | None = None
        self._is_refused = False
        """Whether the disk refused the last note; consecutive refusals are logged once."""
        self.condition: Final = Condition()
        """Whether the disk takes new rows."""
        self.commits = 0
        """Commits that stored rows."""
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
                os.close(self._active.file)
            self._marks.close()

    def _run(self) -> None:
        is_stopping = False
        while not is_stopping:
            commands = self._gather()
            is_stopping = any(isinstance(command, Stop) for command in commands)
            for command in commands:
                if isinstance(command, Note):
                    self._notes[command.segment].append(command)
            appends = [command for command in commands if isinstance(command, Append)]
            is_awaited = any(isinstance(command, Note) and command.done for command in commands)
            self._rewrite([command for command in commands if isinstance(command, Rewrite)])
            self._flush_notes(is_due=bool(appends) or is_awaited or is_stopping)
            self._append(appends)
            for command in commands:
                if isinstance(command, Flush):
                    self._post(partial(command.done, self._write_notes(command.segment, is_flushed=True)))
                elif isinstance(command, Detach):
                    self._notes.pop(command.segment, None)
                    self._salts.pop(command.segment, None)
                    self._marks.forget(command.segment)
                    self._post(command.done)
                elif isinstance(command, SkipTo):
                    self._retire()
                    self.next_segment = max(self.next_segment, command.segment)
                    self._post(command.done)

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
            stored = self._store(appends)
        except OSError as error:
            self.condition.refused()
            logger.error(  # noqa: TRY400 - expected: a full disk
                "cannot write to the journal: requests are refused until it succeeds",
                extra={"reason": str(error)},
            )
            is_full = error.errno == errno.ENOSPC
            refusal = DiskFullError if is_full else RefusedError
            refused = refusal(f"cannot write to the journal: {error}", retry_after_s=_RETRY_AFTER_S)
            self._answer(appends, [refused] * len(appends))
            # After another error than a full disk, what a flush wrote is unknown: never write there again.
            # A full segment can be deleted once it is forwarded, which frees space.
            if self._active is not None and (not is_full or self._active.end >= _WORTH_DELETING):
                self._retire()
        else:
            self.commits += 1
            self._answer(appends, stored)
            self._rotate()
        finally:
            self.condition.answered()

    def _answer(self, appends: Sequence[Append], answers: Sequence[Sequence[Stored] | RefusedError]) -> None:
        self._deliveries.post(
            *(
                (partial(append.done, answer), append.traces)
                for append, answer in zip(appends, answers, strict=True)
            )
        )

    def _store(self, appends: Sequence[Append]) -> list[list[Stored]]:
        """Commit the rows; return the places of each command's rows.

        Raises:
            OSError: the disk refuses; none of the rows is stored.
        """
        packed = [[pack_body(entry.body) for entry in append.entries] for append in appends]
        check_reserve(self._directory, sum(len(body) for bodies in packed for body in bodies))
        active = self._open_active()
        at, totals = active.end, list(active.totals)
        parts, stored = list[bytes](), list[list[Stored]]()
        for append, bodies in zip(appends, packed, strict=True):
            stored.append([])
            for entry, body in zip(append.entries, bodies, strict=True):
                active.last_seq += 1  # never reused, even if the commit fails
                totals[SIGNALS.index(entry.signal)] += entry.items
                record = encode_row(
                    entry, body, active.last_seq, (totals[0], totals[1], totals[2]), active.salt
                )
                stored[-1].append(Stored(active.last_seq, at))
                at += sum(map(len, record))
                parts += record
        try:
            self._disk.write(active.file, b"".join(parts), active.end)
            self._disk.flush(active.file)
        except OSError:
            with suppress(OSError):  # else rows that were refused come back after a restart
                os.ftruncate(active.file, active.end)
            raise
        active.end, active.totals = at, (totals[0], totals[1], totals[2])
        self._acknowledge(active)
        return stored

    def _acknowledge(self, active: _ActiveSegment) -> None:
        """Note the totals of durable rows, so that a start notices if the log's end is missing."""
        record = b"".join(encode(Kind.ACKNOWLEDGED, active.last_seq, active.salt, totals=active.totals))
        try:
            self._disk.write(
                self._marks.get(active.number), record, FILE_BYTES + HEAD_BYTES * (self.commits % 2)
            )
        except OSError as error:
            self._warn("cannot record acknowledged rows: missing ones would not be noticed", error)

    def _open_active(self) -> _ActiveSegment:
        if self._active is None:
            number, salt = self.next_segment, randbits(32)
            self.next_segment += 1  # never reused, even if this fails
            self._directory.reserve(number)
            file = self._directory.create(number, salt)
            self._salts[number] = salt
            self._active = _ActiveSegment(number=number, file=file, salt=salt, since=monotonic())
        return self._active

    def _rotate(self) -> None:
        active = self._active
        if active is not None and (
            active.end >= self._limits.segment_bytes
            or active.last_seq - first_seq(active.number) >= _MAX_ROWS
            or monotonic() - active.since > self._limits.segment_age_s
        ):
            self._retire()

    def _retire(self) -> None:
        """End the active segment: it takes no more rows."""
        active, self._active = self._active, None
        if active is not None:
            os.close(active.file)
            self._post(partial(self._events.rotated, active.number))

    # What becomes of rows.

    def _flush_notes(self, *, is_due: bool) -> None:
        """Write the collected notes if they are due, or schedule them."""
        now = monotonic()
        delay_s = _NOTE_DELAY_S
        if is_due or (self._flush_at is not None and now >= self._flush_at):
            for number in sorted(self._notes):
                self._write_notes(number)
            self._flush_at = None
            delay_s = _NOTE_RETRY_S if self._is_refused else _NOTE_DELAY_S
        if self._notes and self._flush_at is None:
            self._flush_at = now + delay_s

    def _write_notes(self, number: int, *, is_flushed: bool = False) -> bool:
        """Write a segment's notes; return whether the disk took them."""
        notes = self._notes.get(number, [])
        records = [
            (kind, b"".join(note.body for note in some))
            for kind, same in groupby(notes, key=lambda note: note.kind)
            for some in (([note] for note in same) if kind is Kind.FORGOTTEN else [same])
        ]
        is_flushed |= any(note.done is not None for note in notes)
        try:
            if number in self._salts:  # else it is deleted, or nothing in it can be read
                self._add_marks(number, [(kind, 0, body) for kind, body in records], is_flushed=is_flushed)
        except OSError as error:  # retried; a restart before that only forwards rows twice
            self._warn("cannot record forwarded rows: retried; a restart would forward them again", error)
            return False
        self._is_refused = False
        self._notes.pop(number, None)
        for note in notes:
            if note.done is not None:
                self._post(note.done)
        return True

    def _warn(self, text: str, error: OSError) -> None:
        if not self._is_refused:
            logger.warning(text, extra={"reason": str(error)})
        self._is_refused = True

    def _add_marks(
        self, number: int, records: Sequence[tuple[Kind, int, bytes]], *, is_flushed: bool
    ) -> list[int]:
        """Append records (kind, seq, body) to a segment's marks; return their offsets.

        Raises:
            OSError: the disk refuses; what was written is overwritten by the next call.
        """
        file = self._marks.get(number)
        salt = self._salts[number]
        at, offsets, content = max(MARKS_BEGIN, os.fstat(file).st_size), list[int](), bytearray()
        for kind, seq, body in records:
            offsets.append(at + len(content))
            content += b"".join(encode(kind, seq, salt, body=body))
        try:
            self._disk.write(file, bytes(content), at)
            if is_flushed:
                self._disk.flush(file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, at)
            raise
        return offsets

    def _rewrite(self, rewrites: Sequence[Rewrite]) -> None:
        """Store new bodies, with one flush for each segment."""
        for number, same in groupby(
            sorted(rewrites, key=lambda rewrite: rewrite.seq), key=lambda rewrite: segment_of(rewrite.seq)
        ):
            some = list(same)
            answers: Sequence[int | RefusedError]
            try:
                records = [(Kind.REWRITTEN, rewrite.seq, pack_body(rewrite.body)) for rewrite in some]
                answers = self._add_marks(number, records, is_flushed=True)
            except OSError as error:
                reason = f"cannot write to the journal: {error}"
                answers = [RefusedError(reason, retry_after_s=_RETRY_AFTER_S)] * len(some)
            for one, answer in zip(some, answers, strict=True):
                self._post(partial(one.done, answer))
