"""Recovery of a segment: which rows it has, what became of them, and what is missing.

A row whose body is damaged is found when it is to be forwarded. Rows that cannot be found at all are counted
here: the totals of items that were acknowledged, less those of the rows that are there, less those of missing
rows that were done. A segment is read as it is, damaged or not, and deleted once its rows are done.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO, Final

from collector_processor.journal.chunks import (
    CorruptBodyError,
    IndexEntry,
    JournalError,
    Queue,
    State,
    Totals,
)
from collector_processor.journal.directory import Disk, SegmentDirectory
from collector_processor.journal.log_format import (
    DONE_ROW,
    FILE_BYTES,
    HEAD_BYTES,
    MARKS_BEGIN,
    NOTHING,
    POSITION,
    SIGNALS,
    TRACE_ID_BYTES,
    Head,
    ItemTotals,
    Kind,
    check,
    encode,
    is_other_version,
    salt_of,
    scan,
    unpack_row,
)
from collector_processor.journal.segment_accounts import QueueRows
from collector_processor.otlp import Signal

logger = logging.getLogger(__name__)

_BUFFER: Final = 1 << 18
_POSITIONS: Final = 0xFFFF_FFFF


@dataclass(slots=True, kw_only=True)
class RecoveredSegment:
    """A segment that an earlier process wrote."""

    number: int
    version: int
    salt: int | None = None
    """``None`` if nothing in it can be read."""
    rows: defaultdict[Queue, QueueRows] = field(default_factory=lambda: defaultdict(QueueRows))
    """Rows that are not done, or that have an agent trace."""
    rewritten: dict[int, int] = field(default_factory=dict)
    """Offsets of new bodies in the marks, by the row's seq."""
    waiting: defaultdict[Queue, Totals] = field(default_factory=lambda: defaultdict(Totals))
    """Pending and held rows, by queue."""
    index: list[IndexEntry] = field(default_factory=list)
    stored_bytes: int = 0
    open_rows: int = 0
    lost: Counter[Signal] = field(default_factory=Counter)
    """Acknowledged items that are missing."""


@dataclass(slots=True)
class _Marks:
    """What a segment's marks say; rows are positions in the segment."""

    totals: ItemTotals = NOTHING
    counted: ItemTotals = NOTHING
    done: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Index of the signal, and items."""
    released: set[int] = field(default_factory=set)
    rewritten: dict[int, int] = field(default_factory=dict)
    forgotten: set[tuple[int, bytes]] = field(default_factory=set)


def recover_segments(directory: SegmentDirectory) -> list[RecoveredSegment]:
    """Read the existing segments, oldest first; delete nothing but what a kill left half deleted.

    Raises:
        JournalError: a newer version wrote one, or the disk refuses.
    """
    try:
        directory.sweep()
        return [_recover(directory, *found) for found in directory.segments().items()]
    except OSError as error:
        name = Path(str(error.filename)).name if error.filename else directory.path
        raise JournalError(
            f"cannot open the journal ({name}): {error.strerror}; free disk space, or check the disk"
        ) from error


def _recover(directory: SegmentDirectory, number: int, version: int) -> RecoveredSegment:
    marks_path, log_path = directory.marks(number), directory.log(number, version)
    segment = RecoveredSegment(number=number, version=version)
    salt = _salt(number, log_path, marks_path)
    if salt is None:
        logger.error(
            "journal segment is damaged: nothing in it can be read, and its lost rows cannot be counted",
            extra={"segment": number},
        )
        return segment
    segment.salt = salt
    marks = _read_marks(marks_path, salt)
    with log_path.open("rb", buffering=_BUFFER) as log:
        present = _read_rows(log, salt, marks, segment)
    missing_done = _sum(marks.done.values())  # those that are there were taken out
    missing = _less(marks.totals, present, missing_done, marks.counted)
    segment.lost = Counter({signal: items for signal, items in zip(SIGNALS, missing, strict=True) if items})
    if segment.lost:
        logger.error(
            "acknowledged rows are missing from a journal segment",
            extra={"segment": number, "items": segment.lost.total()},
        )
        counted = _totals([sum(items) for items in zip(marks.counted, missing, strict=True)])
        _count(directory.disk, marks_path, encode(Kind.COUNTED, 0, salt, totals=counted))
    return segment


def _salt(number: int, *paths: Path) -> int | None:
    """Return a segment's salt from either of its files; ``None`` if both begin with damage.

    Raises:
        JournalError: a newer version wrote them.
    """
    firsts = {path: _first(path) for path in paths}
    found = next((salt for first in firsts.values() if (salt := salt_of(first, number)) is not None), None)
    for path, first in firsts.items():
        if is_other_version(first, is_certain=found is not None):
            raise JournalError(
                f"the journal ({path.name}) was written by a newer blamespan: "
                "upgrade, or use another data directory"
            )
    return found


def _first(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES)
    except FileNotFoundError:
        return b""


def _read_marks(path: Path, salt: int) -> _Marks:
    """Read a segment's marks; damaged records are left out: their rows are forwarded again."""
    marks = _Marks()
    if not path.exists():
        return marks
    with path.open("rb", buffering=_BUFFER) as file:
        end = file.seek(0, SEEK_END)
        for at, head in scan(file, end, salt):
            file.seek(at + HEAD_BYTES + head.meta_bytes)
            body = file.read(head.body_bytes)
            try:
                check(body, head.body_bytes, head.body_crc)
            except CorruptBodyError:
                continue
            _follow(marks, at, head, body)
    return marks


def _follow(marks: _Marks, at: int, head: Head, body: bytes) -> None:
    """Apply one record of a segment's marks."""
    match head.kind:
        case Kind.ACKNOWLEDGED:
            marks.totals = _most(marks.totals, head.totals)
        case Kind.COUNTED:
            marks.counted = _most(marks.counted, head.totals)
        case Kind.DONE:
            marks.done.update((row, (signal, items)) for row, signal, items in DONE_ROW.iter_unpack(body))
        case Kind.RELEASED:
            marks.released.update(row for (row,) in POSITION.iter_unpack(body))
        case Kind.FORGOTTEN:
            trace_id = body[:TRACE_ID_BYTES]
            rows = POSITION.iter_unpack(body[TRACE_ID_BYTES:])
            marks.forgotten.update((row, trace_id) for (row,) in rows)
        case Kind.REWRITTEN:
            marks.rewritten.setdefault(head.seq & _POSITIONS, at)
        case _:
            pass


def _read_rows(log: BinaryIO, salt: int, marks: _Marks, segment: RecoveredSegment) -> ItemTotals:
    """Add the intact rows to ``segment``; return their items."""
    present = [0] * len(SIGNALS)
    behind, end = FILE_BYTES, log.seek(0, SEEK_END)
    is_damaged = False
    for at, head in scan(log, end, salt):
        is_damaged |= at != behind
        behind = at + head.size
        log.seek(at + HEAD_BYTES)
        meta = log.read(head.meta_bytes)
        try:
            check(meta, head.meta_bytes, head.meta_crc)
        except CorruptBodyError:
            is_damaged = True
        else:
            _add_row(at, head, meta, marks, segment)
            present[head.signal] += head.items
        marks.totals = _most(marks.totals, head.totals)
    if is_damaged:
        logger.error("journal segment is damaged: reading its intact rows", extra={"segment": segment.number})
    return _totals(present)


def _add_row(at: int, head: Head, meta: bytes, marks: _Marks, segment: RecoveredSegment) -> None:
    position, row, signal = head.seq & _POSITIONS, unpack_row(meta), SIGNALS[head.signal]
    state = row.state
    if marks.done.pop(position, None):
        state = State.DONE
    elif position in marks.released or position in marks.rewritten:
        state = State.PENDING
    traces = row.traces
    if marks.forgotten:
        traces = tuple(
            note for note in traces if (position, bytes.fromhex(note.trace_id)) not in marks.forgotten
        )
    queue = Queue(signal, row.tenant)
    segment.stored_bytes += row.size
    if state is State.DONE and not traces:
        return
    segment.rows[queue].add(position, at, row.size, head.items, state)
    if position in marks.rewritten:
        segment.rewritten[head.seq] = marks.rewritten[position]
    if state is not State.DONE:
        segment.open_rows += 1
        totals = segment.waiting[queue]
        totals.items += head.items
        totals.bytes += row.size
        totals.oldest_ns = min(totals.oldest_ns or row.received_ns, row.received_ns)
    segment.index += [
        IndexEntry(
            tenant=row.tenant,
            note=note,
            seq=head.seq,
            signal=signal,
            received_ns=row.received_ns,
            state=state,
        )
        for note in traces
    ]


def _count(disk: Disk, path: Path, record: Sequence[bytes]) -> None:
    """Record that losses were counted; if the disk refuses, the next start counts them again."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            disk.write(file, b"".join(record), max(MARKS_BEGIN, os.fstat(file).st_size))
            disk.flush(file)
        finally:
            os.close(file)
    except OSError as error:
        logger.warning("cannot record which items were lost", extra={"reason": str(error)})


def _totals(items: Sequence[int]) -> ItemTotals:
    traces, logs, metrics = items
    return traces, logs, metrics


def _most(*several: ItemTotals) -> ItemTotals:
    return _totals([max(items) for items in zip(*several, strict=True)])


def _less(totals: ItemTotals, *several: ItemTotals) -> ItemTotals:
    """Return the totals without several others, and never below 0."""
    return _totals([max(0, first - sum(others)) for first, *others in zip(totals, *several, strict=True)])


def _sum(rows: Iterable[tuple[int, int]]) -> ItemTotals:
    items = [0] * len(SIGNALS)
    for signal, count in rows:
        items[signal] += count
    return _totals(items)
