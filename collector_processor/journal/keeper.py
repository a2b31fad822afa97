"""Keeper thread of the journal: recovery, salvage, reading, compaction and deletion of segments.

``JournalKeeper`` is synchronous and runs on a thread of its own with connections of its own, so that reads
never wait for the writer's disk flush. ``Reads`` runs it from the event loop.

A forwarded row is marked as done in memory at once but on disk only later, so a read that began earlier may
still return it. ``Reads`` remembers such rows until the disk has them and every earlier read has ended.
It is not enough to wait until no read is running: under load, one always is.

``salvage`` copies the readable rows of a damaged segment into a new one, row by row: if a page is missing (a
truncated file) or garbled, only its rows are lost. A row whose body is lost is copied without it, so that its
items are counted as lost when they would be forwarded.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

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
from collector_processor.journal.segment_connection import OpenFileCache
from collector_processor.journal.segments import SegmentFile
from collector_processor.otlp import Signal
from collector_processor.wire.by_trace import TraceIndex
from semconv.model import TraceId

logger = logging.getLogger(__name__)
T = TypeVar("T")
_MAX_MISSING_ROWS: Final = 20_000
"""Consecutive missing rows after which a salvage ends; several times the rows of one page."""
_TABLES: Final = ("chunk", "body", "trace")
_MAX_SHARED_BYTES: Final = 8 << 20
"""Bytes of parsed rows kept because several traces share them: each trace is read separately."""


class JournalKeeper:
    """Reads, recovers, compacts and deletes segments; used from one thread."""

    def __init__(self, directory: SegmentDirectory) -> None:
        self._directory: Final = directory
        self._files: Final = OpenFileCache(directory.open_relaxed)
        self._shared: Final[OrderedDict[int, TraceIndex]] = OrderedDict()
        """Parsed rows of several traces, by seq; such rows are never rewritten."""
        self._shared_bytes = 0
        self.lost: Final[Counter[Signal]] = Counter()
        """Acknowledged items whose rows are missing from their segment."""

    def recover(self) -> list[SegmentSummary]:
        """Open the existing segments, oldest first; replace a damaged one with its readable rows.

        Raises:
            JournalError: a newer version wrote it, or the disk refuses.
        """
        self._directory.sweep()
        summaries: list[SegmentSummary] = []
        for number in self._directory.numbers():
            try:
                summaries.append(self._files.get(number).summary())
                self._compare(number)
            except sqlite3.OperationalError as error:  # the disk refuses: not damage
                raise _refused(self._directory.file(number).name, error) from error
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite quotes damaged bytes
                logger.error(  # noqa: TRY400 - the reason is all there is to say
                    "journal segment is damaged: salvaging its readable rows",
                    extra={"segment": number, "reason": str(error)},
                )
                self._close(number)
                summaries += self._salvaged(number)
        return summaries

    def _salvaged(self, number: int) -> list[SegmentSummary]:
        """Replace a damaged segment with its readable rows; return their summary, if there are any."""
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
        logger.warning("journal segment salvaged", extra={"segment": number, **asdict(rows)})
        return [self._files.get(number).summary()]

    def _compare(self, number: int, *, is_there: bool = True) -> None:
        """Count the rows that the register lists and the segment lacks, and mark them as done."""
        states = self._files.get(number).states() if is_there else {}
        with closing(self._directory.register(number)) as register:
            noted = {first_seq(number) + 1 + one.position: one for one in register.pending()}
            gone = [one for seq, one in noted.items() if seq not in states]
            done = [one for seq, one in noted.items() if states.get(seq)]  # killed before they were marked
            register.mark_done(sorted(one.position for one in (*gone, *done)))
        for one in gone:
            self.lost[one.signal] += one.items
        if gone:
            items = sum(one.items for one in gone)
            logger.error(
                "acknowledged rows are missing from a journal segment",
                extra={"segment": number, "rows": len(gone), "items": items},
            )

    def waiting(self, wanted: Wanted) -> Backlog:
        """Read a queue's pending rows from the first segment that has any."""
        for number in self._directory.numbers():
            if not segment_of(wanted.after_seq) <= number <= segment_of(wanted.upto_seq):
                continue
            here = replace(wanted, after_seq=max(wanted.after_seq, first_seq(number)))
            backlog = self._files.get(number).waiting(here)
            if backlog.chunks or backlog.lost or backlog.is_more:
                return replace(backlog, is_more=True)
        return Backlog(upto_seq=wanted.upto_seq)

    def fragments(
        self,
        signal: Signal,
        trace_id: TraceId,
        seqs: Collection[int],
        cut: Callable[[TraceIndex, TraceId], bytes] = TraceIndex.extract,
    ) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's part of each row, cut out by ``cut``; missing and damaged rows are left out."""
        found: list[tuple[int, bytes]] = []
        if not seqs:
            return ()
        numbers = set(self._directory.numbers())
        for seq in sorted(seqs):
            if segment_of(seq) not in numbers:
                continue
            try:
                row = self._shared.get(seq) or self._parsed(signal, seq)
            except CorruptBodyError as error:
                logger.warning(
                    "journal row is damaged: analysing without it", extra={"seq": seq, "reason": str(error)}
                )
                continue
            if row is not None:
                found.append((seq, cut(row, trace_id)))
        return tuple(found)

    def _parsed(self, signal: Signal, seq: int) -> TraceIndex | None:
        """Return a row, indexed by trace; ``None`` if there is none. Rows of several traces are cached."""
        body = self._files.get(segment_of(seq)).body(seq)
        if body is None:
            return None
        row = TraceIndex(signal, body)
        if len(row) > 1:
            self._shared[seq] = row
            self._shared_bytes += len(body)
        while self._shared_bytes > _MAX_SHARED_BYTES and len(self._shared) > 1:
            self._shared_bytes -= len(self._shared.popitem(last=False)[1].body)
        return row

    def whole(
        self, wanted: Iterable[tuple[TraceId, Sequence[int], Sequence[int]]]
    ) -> list[tuple[tuple[tuple[int, bytes], ...], tuple[tuple[int, bytes], ...]]]:
        """Return, to analyse each trace, its part of its rows with spans and of its rows with log records."""
        cut = TraceIndex.extract_for_reading
        return [
            (
                self.fragments(Signal.TRACES, trace_id, rows, cut),
                self.fragments(Signal.LOGS, trace_id, logs, cut),
            )
            for trace_id, rows, logs in wanted
        ]

    def compact(self, number: int, retained: Mapping[int, frozenset[TraceId]]) -> int:
        """Compact a segment; return the counted bytes of its remaining rows."""
        with closing(self._directory.register(number)) as register:
            register.sync()  # else a power cut could bring back register entries of the dropped rows
        return self._files.get(number).compact(retained)

    def write_back(self, number: int) -> None:
        """Copy a segment's WAL to its file and truncate it."""
        self._files.get(number).empty_wal()

    def delete(self, number: int, writers: SegmentFile | None) -> None:
        """Delete a segment; ``writers`` is the writer's connection to it, if there is one."""
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
    return JournalError(f"cannot open the journal ({name}): {error}; free disk space, or check the disk")


class Reads:
    """Runs work on the keeper's thread and tracks rows done meanwhile; used on one event loop."""

    def __init__(self) -> None:
        """Create it inside the running loop."""
        self._loop: Final = asyncio.get_running_loop()
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-keeper")
        self._moments: Final = count()
        self._running: Final[dict[int, None]] = {}
        """Start numbers of the running reads, in order."""
        self._done: set[int] = set()
        self._written: Final[deque[tuple[int, tuple[int, ...]]]] = deque()
        """Rows of ``_done`` that are written, with the read number at that moment."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the keeper's thread."""
        with self.reading():
            return await self._loop.run_in_executor(self._thread, work)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep rows that become done in ``done`` until the block ends, to compare them with the rows read."""
        began = next(self._moments)
        self._running[began] = None
        try:
            yield
        finally:
            del self._running[began]
            self._prune()

    @property
    def done(self) -> AbstractSet[int]:
        """Rows that are done, although a running read may still return them as pending."""
        return self._done

    def finish(self, seq: int) -> None:
        """Record that a row is done."""
        self._done.add(seq)

    def written(self, seqs: Iterable[int]) -> None:
        """Record that rows are marked done on disk; forgotten once all earlier reads have ended."""
        self._written.append((next(self._moments), tuple(seqs)))
        self._prune()

    def _prune(self) -> None:
        oldest = next(iter(self._running), None)
        while self._written and (oldest is None or self._written[0][0] < oldest):
            self._done.difference_update(self._written.popleft()[1])

    def deleted(self, number: int) -> None:
        """Forget the rows of a deleted segment."""
        self._done = {seq for seq in self._done if segment_of(seq) != number}

    def close(self) -> None:
        """End the thread; no work may be running."""
        self._thread.shutdown()


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """Numbers of rows that a damaged segment still describes, and of those that have a body."""

    described: int
    whole: int


def salvage(damaged: Path, number: int, draft: Path) -> Salvaged:
    """Copy the readable rows of a segment into ``draft``, and count them.

    Raises:
        sqlite3.OperationalError: the disk refuses.
    """
    draft.unlink(missing_ok=True)
    sound = SegmentFile(draft, number)
    try:
        with closing(sqlite3.connect(f"{damaged.as_uri()}?mode=ro", uri=True)) as source:
            # Otherwise SQLite refuses a file that is shorter than its header states.
            source.execute("PRAGMA writable_schema=ON")
            with sound.durable_transaction():
                copied = [_copy(source, sound, seq) for seq in _seqs(source, number)]
                return Salvaged(described=len(copied), whole=sum(copied))
    finally:
        sound.close()


def _seqs(source: sqlite3.Connection, number: int) -> Iterator[int]:
    """Yield the seqs of the rows that the segment describes."""
    seq = first_seq(number)
    missing = 0
    while missing < _MAX_MISSING_ROWS:
        seq += 1
        missing += 1
        if _read(source, "chunk", seq):
            missing = 0
            yield seq


def _copy(source: sqlite3.Connection, sound: SegmentFile, seq: int) -> bool:
    found = {table: _read(source, table, seq) for table in _TABLES}
    for table, rows in found.items():
        sound.take_over(table, rows)
    return bool(found["body"])


def _read(source: sqlite3.Connection, table: str, seq: int) -> list[tuple[Any, ...]]:
    try:
        return source.execute(f"SELECT * FROM {table} WHERE seq = ?", (seq,)).fetchall()  # noqa: S608 - our own words
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return []  # unreadable rows count as missing
