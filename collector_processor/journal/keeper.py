"""Keeper thread of the journal: reads rows, thins logs, deletes segments.

``JournalKeeper`` is synchronous and runs on a thread of its own with descriptors of its own, so that reads
never wait for the writer's disk flush. ``Reads`` runs it from the event loop, one task after another in the
order in which they were requested: a row's place stays valid for a task that was requested before its segment
was thinned or deleted.

``OpenFiles`` is a least-recently-used cache, which bounds file descriptors: a heavy load fills a segment
every few seconds, and each stays for up to a day while it holds spans of a run that may be analysed again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from collector_processor.core.disk import is_refusal
from collector_processor.journal.chunks import ROW_OVERHEAD_BYTES, CorruptBodyError, segment_of
from collector_processor.journal.directory import SegmentDirectory
from collector_processor.journal.log_format import (
    HEAD_BYTES,
    Head,
    Kind,
    check,
    decode_head,
    encode,
    encode_file,
    pack_body,
    resized,
    unpack_body,
    unpack_row,
)
from collector_processor.journal.segment_accounts import Keep, Place
from collector_processor.otlp import CollectorError, Signal
from collector_processor.wire.split import TraceIndex, extract
from semconv.model import TraceId

MAX_OPEN: Final = 8
"""Files open at once; about four are in use at a time: new rows, backlog, analysis, eviction."""
K = TypeVar("K", bound=Hashable)


class OpenFiles(Generic[K]):
    """File descriptors by key."""

    def __init__(self, path: Callable[[K], Path], flags: int) -> None:
        """Create an empty cache.

        Args:
            path: returns the path of a key.
            flags: how files are opened.
        """
        self._path: Final = path
        self._flags: Final = flags | os.O_CLOEXEC
        self._files: Final[OrderedDict[K, int]] = OrderedDict()

    def get(self, key: K) -> int:
        """Return a descriptor, opening the file if needed.

        Raises:
            OSError: it cannot be opened.
        """
        file = self._files.pop(key, None)
        self._files[key] = os.open(self._path(key), self._flags, 0o600) if file is None else file
        while len(self._files) > MAX_OPEN:
            os.close(self._files.popitem(last=False)[1])
        return self._files[key]

    def forget(self, key: K) -> None:
        """Close a file, if it is open."""
        file = self._files.pop(key, None)
        if file is not None:
            os.close(file)

    def close(self) -> None:
        """Close all files."""
        while self._files:
            os.close(self._files.popitem()[1])


logger = logging.getLogger(__name__)
T = TypeVar("T")
_MAX_REFUSALS: Final = 300
"""Reads of a row, about a second apart, that the disk may refuse before the row is given up as damaged."""
_MAX_SHARED_BYTES: Final = 8 << 20
"""Bytes of parsed rows kept because several traces share them: each trace is read separately."""


class StoredRow(NamedTuple):
    """A row that was read."""

    hops: tuple[str, ...]
    body: bytes


class JournalKeeper:
    """Reads, thins and deletes segments; used from one thread."""

    def __init__(self, directory: SegmentDirectory, salts: dict[int, int]) -> None:
        """Create it.

        Args:
            directory: the files.
            salts: the salt of each segment; other threads add to it.
        """
        self._directory: Final = directory
        self._salts: Final = salts
        self._logs: Final[OpenFiles[tuple[int, int]]] = OpenFiles(
            lambda key: directory.log(*key), os.O_RDONLY
        )
        self._marks: Final = OpenFiles(directory.marks, os.O_RDONLY)
        self._refusals: Final[Counter[int]] = Counter()
        """Consecutive reads of a row that the disk refused."""
        self._shared: Final[OrderedDict[int, TraceIndex]] = OrderedDict()
        """Parsed rows of several traces, by seq; such rows are never rewritten."""
        self._shared_bytes = 0

    # Reading.

    def rows(self, places: Iterable[Place]) -> list[StoredRow | None]:
        """Return rows; ``None`` for those that are damaged.

        Raises:
            OSError: the disk refuses; a later read may succeed.
        """
        found: list[StoredRow | None] = []
        for place in places:
            try:
                found.append(self._row(place))
            except CorruptBodyError as error:
                logger.error(  # noqa: TRY400 - the reason is all there is to say
                    "journal row is damaged: its items are lost",
                    extra={"seq": place.seq, "reason": str(error)},
                )
                found.append(None)
        return found

    def _row(self, place: Place) -> StoredRow:
        """Return a row.

        Raises:
            CorruptBodyError: its bytes are damaged, or the disk has refused them for minutes.
            OSError: the disk refuses; a later read may succeed.
        """
        number = segment_of(place.seq)
        try:
            head, meta, packed = self._record(place)
            check(meta, head.meta_bytes, head.meta_crc)
            hops = unpack_row(meta).hops
            if place.rewritten_at is not None:
                head, _, packed = self._read(self._marks.get(number), number, place.rewritten_at)
            body = unpack_body(head, packed)
        except OSError as error:
            self._refusals[place.seq] += 1
            if not is_refusal(error) or self._refusals[place.seq] > _MAX_REFUSALS:
                raise CorruptBodyError(str(error)) from error
            raise
        self._refusals.pop(place.seq, None)
        return StoredRow(hops, body)

    def _record(self, place: Place) -> tuple[Head, bytes, bytes]:
        number = segment_of(place.seq)
        head, meta, packed = self._read(self._logs.get((number, place.version)), number, place.offset)
        if head.seq != place.seq or head.kind != Kind.ROW:
            raise CorruptBodyError("another record is in its place")
        return head, meta, packed

    def _read(self, file: int, number: int, offset: int) -> tuple[Head, bytes, bytes]:
        """Return head, meta and body of a record, the latter two unchecked."""
        disk, salt = self._directory.disk, self._salts.get(number, 0)
        head = decode_head(disk.read(file, HEAD_BYTES, offset), salt)
        if head is None:
            raise CorruptBodyError("its head is damaged")
        rest = disk.read(file, head.size - HEAD_BYTES, offset + HEAD_BYTES)
        return head, rest[: head.meta_bytes], rest[head.meta_bytes :]

    def fragments(
        self,
        signal: Signal,
        trace_id: TraceId,
        places: Iterable[Place],
        cut: Callable[[TraceIndex, TraceId], bytes] = TraceIndex.extract,
    ) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's part of each row, by seq, cut out by ``cut``; damaged rows are left out."""
        found: list[tuple[int, bytes]] = []
        for place in places:
            try:
                row = self._shared.get(place.seq) or self._parsed(signal, place)
            except CorruptBodyError as error:
                logger.warning(
                    "journal row is damaged: analysing without it",
                    extra={"seq": place.seq, "reason": str(error)},
                )
            else:
                found.append((place.seq, cut(row, trace_id)))
        return tuple(found)

    def _parsed(self, signal: Signal, place: Place) -> TraceIndex:
        """Return a row, indexed by trace. Rows of several traces are cached."""
        row = TraceIndex(signal, self._row(place).body)
        if len(row) > 1:
            self._shared[place.seq] = row
            self._shared_bytes += len(row.body)
        while self._shared_bytes > _MAX_SHARED_BYTES and len(self._shared) > 1:
            self._shared_bytes -= len(self._shared.popitem(last=False)[1].body)
        return row

    def whole(
        self, wanted: Iterable[tuple[TraceId, Sequence[Place], Sequence[Place]]]
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

    # Freeing space.

    def thin(self, number: int, version: int, kept: Iterable[Keep]) -> dict[int, int]:
        """Write the log anew with some of its rows; return their offsets by seq.

        Rows that cannot be read are left out. The log before it stays until ``drop_log``.

        Raises:
            OSError: the disk refuses; nothing has changed.
        """
        draft, disk = self._directory.draft(number), self._directory.disk
        salt, offsets = self._salts[number], dict[int, int]()
        file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            first = encode_file(number, salt)
            disk.write(file, first, 0)
            at = len(first)
            for keep in kept:
                try:
                    content = self._thinned(keep, salt)
                except CorruptBodyError:
                    if keep.traces is None:
                        offsets[keep.place.seq] = 0  # no row: counted as lost when it is due to be forwarded
                    continue
                disk.write(file, content, at)
                offsets[keep.place.seq] = at
                at += len(content)
            disk.flush(file)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        draft.replace(self._directory.log(number, version + 1))
        disk.flush_names(self._directory.path)
        return offsets

    def _thinned(self, keep: Keep, salt: int) -> bytes:
        """Return a row's record, with only the spans to keep; what stays whole is copied, damaged or not."""
        head, meta, packed = self._record(keep.place)
        if keep.traces is not None:
            body = unpack_body(head, packed)
            check(meta, head.meta_bytes, head.meta_crc)
            try:
                some = extract(keep.queue.signal, body, keep.traces)
            except CollectorError as error:  # it is no request
                raise CorruptBodyError(str(error)) from error
            if len(some) < len(body):
                meta, packed = resized(meta, len(some) + ROW_OVERHEAD_BYTES), pack_body(some)
                return b"".join(
                    encode(
                        Kind.ROW,
                        head.seq,
                        salt,
                        meta=meta,
                        body=packed,
                        signal=head.signal,
                        items=head.items,
                        totals=head.totals,
                    )
                )
        file = self._logs.get((segment_of(head.seq), keep.place.version))
        return self._directory.disk.read(file, head.size, keep.place.offset)

    def drop_log(self, number: int, version: int) -> None:
        """Delete a log that was replaced."""
        self._logs.forget((number, version))
        self._directory.log(number, version).unlink(missing_ok=True)

    def delete(self, number: int, version: int) -> None:
        """Delete a segment."""
        self._logs.forget((number, version))
        self._marks.forget(number)
        self._directory.remove(number)

    def close(self) -> None:
        """Close all files."""
        self._logs.close()
        self._marks.close()


class Reads:
    """Runs work on the keeper's thread; used on one event loop."""

    def __init__(self) -> None:
        """Create it inside the running loop."""
        self._loop: Final = asyncio.get_running_loop()
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-keeper")

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the keeper's thread, after all work requested before."""
        return await self._loop.run_in_executor(self._thread, work)

    def close(self) -> None:
        """End the thread; no work may be running."""
        self._thread.shutdown()
