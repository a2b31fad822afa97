from __future__ import annotations

import _sqlite3
import asyncio
import ctypes
import errno
import os
import random
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from collector_processor.journal import Journal, is_in_use, open_journal
from collector_processor.journal.chunks import (
    Chunk,
    CorruptBodyError,
    Entry,
    JournalError,
    JournalLimits,
    Queue,
    SegmentSummary,
    State,
    pack_body,
    unpack_body,
)
from collector_processor.journal.directory import REGISTER, Space
from collector_processor.journal.keeper import Reads
from collector_processor.journal.segment_connection import MAX_OPEN, SCHEMA_VERSION
from collector_processor.journal.segments import SegmentFile
from collector_processor.otlp import NO_TENANT, RefusedError, Signal, Tenant, TraceKey
from collector_processor.wire.facts import TraceNote
from collector_processor.wire.scan import scan_logs, scan_traces
from semconv.model import TraceId
from tests.otlp_requests import (
    log_request,
    log_rows_of,
    many_spans,
    numbers_in,
    record,
    request,
    rows_of,
    span,
    trace_name,
)

TRACES = Queue(Signal.TRACES, NO_TENANT)
KEY = TraceKey(NO_TENANT, trace_name(1))
AGENT = {"gen_ai.operation.name": "invoke_agent"}
SMALL_SEGMENTS = JournalLimits(segment_bytes=1)
"""Each commit fills a segment."""


def entry(
    body: bytes,
    *,
    signal: Signal = Signal.TRACES,
    tenant: str = "",
    state: State = State.PENDING,
    traces: tuple[TraceNote, ...] = (),
    received_ns: int = 1_000,
) -> Entry:
    return Entry(
        signal=signal,
        tenant=Tenant(tenant),
        hops=("far", "near"),
        received_ns=received_ns,
        items=1,
        body=body,
        state=state,
        traces=traces,
    )


def agent_entry(
    number: int = 1, *, trace: int = 1, state: State = State.PENDING, received_ns: int = 1_000
) -> Entry:
    body = request(span(number, trace=trace, attributes=AGENT), span(number + 100, trace=77))
    notes = tuple(note for note in scan_traces(body).traces if note.is_agent)
    return entry(body, state=state, traces=notes, received_ns=received_ns)


@asynccontextmanager
async def journal_in(
    path: Path, limits: JournalLimits | None = None, **others: Any
) -> AsyncIterator[Journal]:
    journal = await open_journal(path, limits, **others)
    try:
        yield journal
    finally:
        await journal.close()


async def pending(journal: Journal, queue: Queue = TRACES) -> list[Chunk]:
    """Read everything that a queue has to forward."""
    chunks: list[Chunk] = []
    after = 0
    while True:
        backlog = await journal.read_pending(queue, after, 1 << 20)
        chunks += backlog.chunks
        after = backlog.upto_seq
        if not backlog.is_more:
            return chunks


def crash_image(path: Path, to: Path) -> Path:
    """The files as a killed process leaves them: WAL not checkpointed, nothing closed."""
    shutil.copytree(path, to, ignore=shutil.ignore_patterns("lock", "*-shm"))
    return to


def found(path: Path, pattern: str) -> list[Path]:
    return sorted(path.glob(pattern))


def segments(path: Path) -> list[str]:
    return [segment.name for segment in found(path, "*.sqlite")]


async def settled(journal: Journal) -> None:
    """Let the writer and the keeper finish their work."""
    for _ in range(3):
        await journal.append([entry(b"x", tenant="barrier")])
        await pending(journal)
        journal.tidy()
    await asyncio.sleep(0)
    await journal._reclaimer.finish()


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "live") as journal:
        bodies = [many_spans(n + 1) for n in range(20)]
        await asyncio.gather(*(journal.append([entry(body)]) for body in bodies))
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    async with journal_in(image) as journal:
        assert [chunk.body for chunk in await pending(journal)] == bodies
        assert journal.waiting[TRACES].items == 20
        assert (await pending(journal))[0].hops == ("far", "near")


async def test_a_journal_makes_the_folders_that_it_lies_in(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "data" / "ingest") as journal:
        await journal.append([entry(b"x")])
        assert [chunk.body for chunk in await pending(journal)] == [b"x"]


async def test_requests_that_come_together_share_a_commit(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        await journal.append([entry(b"opens the segment")])
        await asyncio.gather(*(journal.append([entry(b"x")]) for _ in range(500)))
        assert journal.commits <= 1 + 25
        assert len(await pending(journal)) == 501


async def test_rows_of_one_request_are_committed_together(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        chunks = await journal.append([entry(b"a"), entry(b"b")])
        assert journal.commits == 1
        assert chunks[1].seq == chunks[0].seq + 1


async def test_the_forwarder_hears_of_rows_whose_client_has_gone(tmp_path: Path) -> None:
    heard: list[Chunk] = []

    def hear(chunk: Chunk, _entry: Entry) -> Iterator[None]:
        heard.append(chunk)
        yield from [None] * 1_000  # many steps

    async with journal_in(tmp_path) as journal:
        task = asyncio.create_task(journal.append([entry(b"a")], hear))
        await asyncio.sleep(0)
        task.cancel()
        await journal.append([entry(b"b")])
        assert [chunk.body for chunk in heard] == [b"a"]
    assert task.cancelled()


async def test_rows_that_are_not_handed_on_yet_are_not_read_back(tmp_path: Path) -> None:
    """Read in the middle of a request of many traces, a row would be sent twice."""
    read: list[tuple[int, list[bytes]]] = []

    def read_back(chunk: Chunk, _entry: Entry) -> Iterator[None]:
        reading = asyncio.ensure_future(journal.read_pending(TRACES, 0, 1 << 20))
        while not reading.done():
            yield
        read.append((chunk.seq, [one.body for one in reading.result().chunks]))

    async with journal_in(tmp_path) as journal:
        first, second = await journal.append([entry(b"a"), entry(b"b")], read_back)
        assert read == [(first.seq, [b"a"]), (second.seq, [b"a", b"b"])]


async def test_rows_that_are_done_do_not_come_again(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "live") as journal:
        chunks = [(await journal.append([entry(bytes([n]))]))[0] for n in range(5)]
        journal.mark_done(chunks[:4])
        assert [chunk.body for chunk in await pending(journal)] == [b"\x04"]  # noted, if not written yet
        await journal.append([entry(b"carries the marks along")])
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    async with journal_in(image) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"\x04", b"carries the marks along"]


async def test_a_row_that_is_done_while_it_is_read_does_not_come(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        (chunk,) = await journal.append([entry(b"x")])
        read = asyncio.create_task(journal.read_pending(TRACES, 0, 1 << 20))
        await asyncio.sleep(0)
        journal.mark_done([chunk])
        assert (await read).chunks == ()


class SlowlyRead(SegmentFile):
    """Its bodies are read when the test says so; further rows may arrive before that."""

    begun: ClassVar = threading.Event()
    may_go_on: ClassVar = threading.Event()

    def body(self, seq: int) -> bytes | None:
        SlowlyRead.begun.set()
        SlowlyRead.may_go_on.wait()
        return super().body(seq)


async def test_a_row_that_is_done_and_written_while_it_is_read_does_not_come(tmp_path: Path) -> None:
    SlowlyRead.begun.clear()
    SlowlyRead.may_go_on.clear()
    async with journal_in(tmp_path, make_segment=SlowlyRead) as journal:
        (chunk,) = await journal.append([entry(b"x")])
        read = asyncio.create_task(journal.read_pending(TRACES, 0, 1 << 20))
        try:
            await asyncio.to_thread(SlowlyRead.begun.wait)
            journal.mark_done([chunk])
            await journal.append([entry(b"carries the mark along")])
        finally:
            SlowlyRead.may_go_on.set()
        assert (await read).chunks == ()


async def test_what_the_disk_knows_is_forgotten_though_there_is_always_a_read() -> None:
    reads = Reads()
    gates = (threading.Event(), threading.Event())
    before = asyncio.create_task(reads.run(gates[0].wait))
    await asyncio.sleep(0)
    reads.finish(1)
    reads.written((1,))
    after = asyncio.create_task(reads.run(gates[1].wait))
    await asyncio.sleep(0)
    remembered = set(reads.done)
    gates[0].set()
    await before
    left = set(reads.done)
    gates[1].set()
    await after
    reads.close()
    assert (remembered, left) == ({1}, set())


async def test_queues_are_read_apart_and_in_order(tmp_path: Path) -> None:
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        for n in range(6):
            await journal.append([entry(bytes([n]), tenant=f"t{n % 2}")])
        assert len(segments(tmp_path)) == 6
        rows = await pending(journal, Queue(Signal.TRACES, Tenant("t1")))
        assert [chunk.body for chunk in rows] == [b"\x01", b"\x03", b"\x05"]
        assert await pending(journal, Queue(Signal.LOGS, Tenant("t1"))) == []


async def test_rows_that_the_reader_has_are_skipped(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        chunks = [(await journal.append([entry(bytes([n]))]))[0] for n in range(3)]
        backlog = await journal.read_pending(TRACES, 0, 1 << 20, {chunks[1].seq})
        assert [chunk.body for chunk in backlog.chunks] == [b"\x00", b"\x02"]


async def test_a_read_stops_at_its_limit_and_goes_on_behind_it(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        for n in range(4):
            await journal.append([entry(bytes([n]) * 1000)])
        first = await journal.read_pending(TRACES, 0, 2600)
        assert [len(first.chunks), first.is_more] == [2, True]
        rest = await journal.read_pending(TRACES, first.upto_seq, 2600)
        assert [chunk.body[0] for chunk in rest.chunks] == [2, 3]


async def test_a_forwarded_segment_is_deleted_whole(tmp_path: Path) -> None:
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        chunks = [(await journal.append([entry(b"x")]))[0] for _ in range(3)]
        journal.mark_done((chunks[0], chunks[2]))
        await settled(journal)
        names = segments(tmp_path)
        assert "00000001.sqlite" not in names
        assert "00000002.sqlite" in names
        assert "00000003.sqlite" not in names


async def test_a_segment_stays_until_its_last_row_is_forwarded(tmp_path: Path) -> None:
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        first, second = await journal.append([entry(b"a"), entry(b"b")])
        journal.mark_done([first])
        await settled(journal)
        assert [chunk.seq for chunk in await pending(journal)] == [second.seq]
        journal.mark_done([second])
        await settled(journal)
        assert "00000001.sqlite" not in segments(tmp_path)


def test_a_segment_that_is_deleted_next_is_not_copied_first(tmp_path: Path) -> None:
    file = SegmentFile(tmp_path / "1.sqlite", 1)
    with file.transaction():
        file.insert([(1, entry(_noise(1)), pack_body(_noise(1)))])
    file.abandon()
    assert file.path.stat().st_size < 1 << 20


async def test_a_wal_that_has_grown_as_large_as_a_segment_ends_it(tmp_path: Path) -> None:
    """Each small commit rewrites a few pages: the file for all of them is far smaller."""
    async with journal_in(tmp_path, JournalLimits(segment_bytes=256 << 10)) as journal:
        for _ in range(100):
            await journal.append([entry(b"small")])
        assert len(segments(tmp_path)) > 1
        assert all(wal.stat().st_size < 512 << 10 for wal in found(tmp_path, "*-wal"))


@pytest.mark.parametrize("body_bytes", [10_000, 100_000])
def test_connections_keep_few_of_the_bodies_they_stored(tmp_path: Path, body_bytes: int) -> None:
    """A prepared statement keeps its last parameters; one for each number of rows would take much memory."""
    before = sqlite_memory()
    file = SegmentFile(tmp_path / "1.sqlite", 1)
    seq = 0
    for count in range(1, 40):
        with file.transaction():
            bodies = [random.Random(seq + place).randbytes(body_bytes) for place in range(count)]
            file.insert([(seq := seq + 1, entry(body), pack_body(body)) for body in bodies])
    assert sqlite_memory() - before < 5 << 20  # 2 MiB of them pages
    file.relax()
    assert sqlite_memory() - before < 3 << 20
    assert {file.body(number) for number in (1, 2, seq)} >= set(bodies[-1:])
    file.close()


async def test_a_segment_that_takes_no_more_rows_keeps_nothing_of_them_in_memory(tmp_path: Path) -> None:
    before = sqlite_memory()
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        for number in range(MAX_OPEN):
            await journal.append([entry(_noise(number))])
        await settled(journal)
        assert sqlite_memory() - before < MAX_OPEN << 20  # one body is 1 MiB


def sqlite_memory() -> int:
    """Return the bytes that SQLite uses in this process."""
    used = getattr(ctypes.CDLL(getattr(_sqlite3, "__file__", None)), "sqlite3_memory_used", None)
    if used is None:
        pytest.skip("this Python's SQLite cannot be asked what it uses")
    used.restype = ctypes.c_int64
    return int(used())


class Unopenable(SegmentFile):
    """Cannot be closed at first: no descriptor is left for the connection that this needs."""

    refusals: ClassVar = 0

    def abandon(self) -> None:
        if Unopenable.refusals:
            Unopenable.refusals -= 1
            self.close()
            raise sqlite3.OperationalError("unable to open database file")
        super().abandon()


async def test_a_segment_that_could_not_be_deleted_is_deleted_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Unopenable.refusals = 2
    async with journal_in(tmp_path, SMALL_SEGMENTS, make_segment=Unopenable) as journal:
        journal.mark_done(await journal.append([entry(b"1")]))
        for _ in range(3):
            await settled(journal)
        assert "00000001.sqlite" not in segments(tmp_path)
    assert caplog.text.count("journal segment cannot be deleted") == 1


async def test_what_is_no_request_ends_no_tidying(tmp_path: Path) -> None:
    limits = JournalLimits(segment_bytes=5 << 20, rest_s=0.0)
    nonsense = entry(b"\xff" * 100, traces=agent_entry().traces)
    async with journal_in(tmp_path, limits) as journal:
        journal.mark_done(await journal.append([nonsense, *(entry(_noise(seed)) for seed in range(6))]))
        await settled(journal)
        assert "00000001.sqlite" in segments(tmp_path)
        journal.forget(KEY)
        await settled(journal)
        assert "00000001.sqlite" not in segments(tmp_path)


async def test_a_segment_that_stays_gives_its_wal_back(tmp_path: Path) -> None:
    limits = JournalLimits(segment_bytes=1, rest_s=0.0)
    async with journal_in(tmp_path, limits) as journal:
        await journal.append([entry(_noise(1))])
        await settled(journal)
        first = tmp_path / "00000001.sqlite"
        assert first.with_name("00000001.sqlite-wal").stat().st_size == 0
        assert first.stat().st_size > 1 << 20
        assert [chunk.body for chunk in await pending(journal)] == [_noise(1)]


class Uncompactable(SegmentFile):
    """The disk has no room even for deleting."""

    def compact(self, retained: Mapping[int, frozenset[TraceId]]) -> int:
        raise sqlite3.OperationalError(f"the disk is full, and {len(retained)} rows are to stay")


async def test_a_segment_that_cannot_be_compacted_owes_the_disk_its_wal_until_that_is_copied(
    tmp_path: Path,
) -> None:
    limits = JournalLimits(segment_bytes=5 << 20, rest_s=0.0)
    async with journal_in(tmp_path, limits, make_segment=Uncompactable) as journal:
        journal.mark_done((await journal.append([entry(_noise(seed)) for seed in range(6)]))[1:])
        await settled(journal)
        assert (tmp_path / "00000001.sqlite").stat().st_size > 5 << 20
        assert (tmp_path / "00000001.sqlite-wal").stat().st_size <= ONE_PAGE_OF_MARKS


ONE_PAGE_OF_MARKS = 32 + 24 + 4096
"""Marks wait 50 ms for a commit of rows: on a busy machine the WAL may have been copied before they come."""


class FullAtFirst(SegmentFile):
    """The disk has room for deleting only a little later."""

    refusals = 0

    def compact(self, retained: Mapping[int, frozenset[TraceId]]) -> int:
        if self.refusals < 2:
            FullAtFirst.refusals += 1
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().compact(retained)


async def test_a_segment_that_a_full_disk_kept_from_being_compacted_is_compacted_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = JournalLimits(segment_bytes=5 << 20, rest_s=0.0)
    async with journal_in(tmp_path, limits, make_segment=FullAtFirst) as journal:
        journal.mark_done((await journal.append([entry(_noise(seed)) for seed in range(6)]))[1:])
        for _ in range(3):
            await settled(journal)
        assert (tmp_path / "00000001.sqlite").stat().st_size < 2 << 20
        assert [chunk.body for chunk in await pending(journal)] == [_noise(0)]
    assert caplog.text.count("journal segment cannot be compacted") == 1


class SlowToOpen(SegmentFile):
    """Its disk is slow."""

    begun, may_go_on = threading.Event(), threading.Event()

    def summary(self) -> SegmentSummary:
        self.begun.set()
        assert self.may_go_on.wait(60)
        return super().summary()


async def test_an_opening_that_is_cancelled_lets_nobody_in_before_it_has_ended(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        await journal.append([entry(b"1")])
    opening = asyncio.create_task(open_journal(tmp_path, make_segment=SlowToOpen))
    await asyncio.to_thread(SlowToOpen.begun.wait, 60)
    opening.cancel()
    await asyncio.sleep(0)
    with pytest.raises(JournalError, match="another blamespan"):
        await open_journal(tmp_path)
    SlowToOpen.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with journal_in(tmp_path) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"1"]


async def test_a_full_disk_gets_back_what_a_wal_takes(tmp_path: Path) -> None:
    """At once, although a segment rests before it is copied while there is room."""
    space = [Space(size=80 << 20, free=60 << 20)]
    async with journal_in(tmp_path, SMALL_SEGMENTS, measure=lambda _: space[0]) as journal:
        await journal.append([entry(_noise(1))])
        space[0] = Space(size=80 << 20, free=1 << 20)
        with pytest.raises(RefusedError, match="reserve"):
            await journal.append([entry(b"small")])
        await pending(journal)
        await journal._reclaimer.finish()
        assert (tmp_path / "00000001.sqlite-wal").stat().st_size == 0


async def test_closing_writes_what_was_put_off(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        first, _ = await journal.append([entry(b"a"), entry(b"b")])
        journal.mark_done([first])
    assert not journal._writer._marks
    async with journal_in(tmp_path) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"b"]


async def test_a_restart_never_uses_a_segment_number_again(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        (first,) = await journal.append([entry(b"x")])
    async with journal_in(tmp_path) as journal:
        (second,) = await journal.append([entry(b"y")])
        assert second.seq > first.seq
        assert [chunk.body for chunk in await pending(journal)] == [b"x", b"y"]


async def test_seqs_go_on_where_everything_was_deleted(tmp_path: Path) -> None:
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        chunks = await journal.append([entry(b"x")])
        journal.mark_done(chunks)
    async with journal_in(tmp_path):
        pass
    for path in found(tmp_path, "*.sqlite*"):
        path.unlink()
    (tmp_path / "00000001.sqlite-wal").write_bytes(b"left by a kill")
    async with journal_in(tmp_path) as journal:
        (later,) = await journal.append([entry(b"y")])
        assert later.seq > chunks[0].seq
        assert found(tmp_path, "00000001*") == []


async def test_a_second_process_is_refused_with_words(tmp_path: Path) -> None:
    async with journal_in(tmp_path):
        assert is_in_use(tmp_path)
        with pytest.raises(JournalError, match="another blamespan"):
            await open_journal(tmp_path)
    assert not is_in_use(tmp_path)
    assert not is_in_use(tmp_path / "nowhere")


async def test_a_newer_schema_is_refused_with_words(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        await journal.append([entry(b"x")])
    with sqlite3.connect(tmp_path / "00000001.sqlite") as db:
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(JournalError, match="newer blamespan"):
        await open_journal(tmp_path)
    assert not is_in_use(tmp_path)


async def test_a_directory_that_cannot_be_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="cannot open the journal"):
        await open_journal(tmp_path / "file")


def test_a_flipped_bit_is_noticed_where_it_would_decompress() -> None:
    checksum, packed = pack_body(b"too short to compress")
    assert unpack_body(checksum, packed) == b"too short to compress"
    with pytest.raises(CorruptBodyError):
        unpack_body(checksum, packed[:-1] + bytes([packed[-1] ^ 1]))


async def test_a_damaged_row_is_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        for n in range(3):
            await journal.append([entry(bytes([n]) * 500)])
    with sqlite3.connect(tmp_path / "00000001.sqlite") as db:
        db.execute(
            "UPDATE body SET packed = substr(packed, 1, 5) || x'ff' || substr(packed, 7) WHERE seq % 16 = 2"
        )
    db.close()
    async with journal_in(tmp_path) as journal:
        backlog = await journal.read_pending(TRACES, 0, 1 << 20)
        assert [chunk.body[0] for chunk in backlog.chunks] == [0, 2]
        assert [chunk.items for chunk in backlog.lost] == [1]
        journal.mark_done(backlog.lost)
        assert journal.waiting[TRACES].items == 2


class Unreadable(SegmentFile):
    """Its bodies cannot be read now, for example because the disk is behind a network."""

    def __init__(self, path: Path, number: int) -> None:
        super().__init__(path, number)
        self._db = _Refusing(self._db)  # type: ignore[misc, assignment]


class _Refusing:
    """A connection that cannot read bodies."""

    def __init__(self, db: sqlite3.Connection, code: int = sqlite3.SQLITE_IOERR) -> None:
        self._db = db
        self._code = code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql.startswith("SELECT checksum"):
            kind = sqlite3.OperationalError if self._code == sqlite3.SQLITE_IOERR else sqlite3.DatabaseError
            error = kind("disk I/O error")
            error.sqlite_errorcode = self._code
            raise error
        return self._db.execute(sql, *values)


async def test_a_row_that_the_disk_does_not_give_now_is_not_lost(tmp_path: Path) -> None:
    async with journal_in(tmp_path, make_segment=Unreadable) as journal:
        await journal.append([entry(b"x")])
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            await journal.read_pending(TRACES, 0, 1 << 20)
    async with journal_in(tmp_path) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"x"]


async def test_a_damaged_segment_is_set_aside_and_the_others_are_kept(tmp_path: Path) -> None:
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        await journal.append([entry(b"a")])
        await journal.append([entry(b"b")])
    (tmp_path / "00000001.sqlite").write_bytes(b"no database" * 1000)
    async with journal_in(tmp_path) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"b"]
        await journal.append([entry(b"c")])
    assert (tmp_path / "00000001.sqlite.damaged").exists()


async def test_a_full_journal_refuses_before_anything_is_stored(tmp_path: Path) -> None:
    limits = JournalLimits(max_pending_bytes=20_000, max_queue_share=1.0)
    async with journal_in(tmp_path, limits) as journal:
        (first,) = await journal.append([entry(b"x" * 15_000)])
        with pytest.raises(RefusedError, match="full") as refused:
            await journal.append([entry(b"x" * 15_000)])
        assert refused.value.retry_after_s > 0
        assert len(await pending(journal)) == 1
        journal.mark_done([first])
        await journal.append([entry(b"x" * 15_000)])


async def test_one_tenant_fills_only_its_own_share(tmp_path: Path) -> None:
    async with journal_in(tmp_path, JournalLimits(max_pending_bytes=20_000)) as journal:
        await journal.append([entry(b"x" * 9_000, tenant="a")])
        with pytest.raises(RefusedError, match="share"):
            await journal.append([entry(b"x" * 9_000, tenant="a")])
        await journal.append([entry(b"x" * 9_000, tenant="b")])


async def test_what_waits_for_the_disk_is_bounded(tmp_path: Path) -> None:
    async with journal_in(tmp_path, JournalLimits(max_uncommitted_bytes=10_000)) as journal:
        answers = await asyncio.gather(
            *(journal.append([entry(b"x" * 4_000)]) for _ in range(4)), return_exceptions=True
        )
        assert [isinstance(answer, RefusedError) for answer in answers] == [False, False, True, True]


class FullDisk(SegmentFile):
    """A segment with room for only a few pages."""

    def __init__(self, path: Path, number: int) -> None:
        super().__init__(path, number)
        self._db.execute("PRAGMA max_page_count=12")


class BrokenDisk(SegmentFile):
    """A segment whose first commit fails and which cannot be read afterwards."""

    def insert(self, rows: Sequence[Any]) -> None:
        if self.number == 1:
            raise sqlite3.OperationalError("disk I/O error")
        super().insert(rows)

    def pragma(self, name: str) -> int:
        if self.number == 1 and name == "page_count":
            raise sqlite3.OperationalError("disk I/O error")
        return super().pragma(name)


async def test_a_full_disk_refuses_and_the_journal_lives_on(tmp_path: Path) -> None:
    async with journal_in(tmp_path, make_segment=FullDisk) as journal:
        await journal.append([entry(b"small")])
        with pytest.raises(RefusedError, match="full"):
            await journal.append([entry(_noise(1))])
        await journal.append([entry(b"small too")])
        assert [chunk.body for chunk in await pending(journal)] == [b"small", b"small too"]
        assert journal.waiting[TRACES].items == 2


async def test_the_last_of_a_small_disk_is_left_to_those_who_make_room(tmp_path: Path) -> None:
    """Verdicts and forwarded rows are recorded even when new rows are refused."""
    free = [1 << 20]
    async with journal_in(tmp_path, measure=lambda _: Space(size=8 << 20, free=free[0])) as journal:
        with pytest.raises(RefusedError, match="reserve of 1,048,576 bytes"):
            await journal.append([entry(b"small")])
        free[0] *= 2
        await journal.append([entry(b"small")])
        with pytest.raises(RefusedError, match="reserve"):
            await journal.append([entry(_noise(1))])
        journal.mark_done(await pending(journal))
        await settled(journal)
        assert [chunk.body for chunk in await pending(journal)] == []


async def test_what_the_wal_still_owes_the_file_is_no_room_for_new_rows(tmp_path: Path) -> None:
    space = Space(size=80 << 20, free=14 << 20)  # of which 10 MiB are the reserve, and each row needs 2
    async with journal_in(tmp_path, measure=lambda _: space) as journal:
        for seed in range(2):
            await journal.append([entry(_noise(seed))])
        with pytest.raises(RefusedError, match="reserve"):
            await journal.append([entry(_noise(2))])


async def test_a_file_system_that_does_not_say_its_size_keeps_no_reserve(tmp_path: Path) -> None:
    async with journal_in(tmp_path, measure=lambda _: Space(size=0, free=0)) as journal:
        (chunk,) = await journal.append([entry(b"small")])
        assert chunk.body == b"small"


class FailsOnThirdCommit(SegmentFile):
    """A segment that takes two commits."""

    inserts: ClassVar = 0

    def insert(self, rows: Sequence[Any]) -> None:
        FailsOnThirdCommit.inserts += 1
        if FailsOnThirdCommit.inserts == 3:
            raise sqlite3.OperationalError("disk I/O error")
        super().insert(rows)


def large(rows: int) -> list[Entry]:
    """Return the rows of one request of many traces."""
    return [
        entry(
            b"large",
            traces=tuple(
                TraceNote(trace_id=trace_name(1_000 * row + trace), span_count=1, byte_count=1, is_agent=True)
                for trace in range(1_000)
            ),
        )
        for row in range(1, rows + 1)
    ]


async def test_a_small_request_does_not_wait_until_a_large_one_is_stored(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        storing = asyncio.create_task(journal.append(large(12)))
        await asyncio.sleep(0)  # its first commit is requested
        (small,) = await journal.append([entry(b"small")])
        assert not storing.done()
        rows = await storing
        assert [row.body for row in rows] == [b"large"] * 12
        assert rows[0].seq < small.seq < rows[-1].seq
        assert journal.waiting[TRACES].items == 13
        assert len(await pending(journal)) == 13


async def test_a_large_request_refused_halfway_leaves_what_is_stored_and_no_debts(tmp_path: Path) -> None:
    FailsOnThirdCommit.inserts = 0
    async with journal_in(tmp_path, make_segment=FailsOnThirdCommit) as journal:
        with pytest.raises(RefusedError, match="I/O"):
            await journal.append(large(12))
        assert journal.waiting[TRACES].items == 8
        assert journal.waiting[TRACES].bytes == sum(chunk.size for chunk in await pending(journal))
        await journal.append(large(12))
        assert journal.waiting[TRACES].items == 20


async def test_a_large_request_that_is_given_up_halfway_leaves_no_debts(tmp_path: Path) -> None:
    heard, handed_on = list[Chunk](), asyncio.Event()

    def hear(chunk: Chunk, _entry: Entry) -> Iterator[None]:
        heard.append(chunk)
        if len(heard) == 4:
            handed_on.set()
        yield from ()

    async with journal_in(tmp_path) as journal:
        storing = asyncio.create_task(journal.append(large(12), hear))
        await asyncio.sleep(0)
        storing.cancel()
        await journal.append([entry(b"small")])
        await handed_on.wait()  # in slices
        stored = await pending(journal)
        assert [chunk.body for chunk in stored] == [b"large"] * 4 + [b"small"]
        assert journal.waiting[TRACES].bytes == sum(chunk.size for chunk in stored)


async def test_a_failing_disk_refuses_and_another_segment_is_begun(tmp_path: Path) -> None:
    async with journal_in(tmp_path, make_segment=BrokenDisk) as journal:
        with pytest.raises(RefusedError, match="I/O"):
            await journal.append([entry(b"a")])
        assert journal.waiting.get(TRACES) is None
        (chunk,) = await journal.append([entry(b"b")])
        assert chunk.seq >> 32 == 2


class FailsOnSmall(SegmentFile):
    """A segment that cannot write small rows: the disk fails."""

    def insert(self, rows: Sequence[Any]) -> None:
        if rows[0][1].body == b"small":
            raise sqlite3.OperationalError("disk I/O error")
        super().insert(rows)


async def test_a_failing_disk_evicts_no_trace_that_waits_for_its_analysis(tmp_path: Path) -> None:
    evicted: list[TraceKey] = []
    async with journal_in(tmp_path, make_segment=FailsOnSmall) as journal:
        journal.on_evicted = evicted.extend
        journal.mark_done(await journal.append([agent_entry(1, trace=1)]))
        for _ in range(3):
            with pytest.raises(RefusedError, match="I/O"):
                await journal.append([entry(b"small")])
            await settled(journal)
        assert await rows_of(journal, KEY)
    assert evicted == []


class Misreported(SegmentFile):
    """A segment on a disk that cannot be read; SQLite reports it as damage, as it does for EIO."""

    def __init__(self, path: Path, number: int) -> None:
        super().__init__(path, number)
        self._db = _Refusing(self._db, sqlite3.SQLITE_CORRUPT)  # type: ignore[misc, assignment]

    def read_files(self) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_an_error_of_the_disk_that_sqlite_reports_as_damage_loses_no_row(tmp_path: Path) -> None:
    async with journal_in(tmp_path, make_segment=Misreported) as journal:
        await journal.append([entry(b"x")])
        with pytest.raises(OSError, match="Input/output error"):
            await journal.read_pending(TRACES, 0, 1 << 20)
    async with journal_in(tmp_path) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"x"]


async def test_a_row_that_the_disk_never_gives_is_lost_in_the_end(tmp_path: Path) -> None:
    async with journal_in(tmp_path, make_segment=Misreported) as journal:
        await journal.append([entry(b"x")])
        for _ in range(300):
            with pytest.raises(OSError, match="Input/output error"):
                await journal.read_pending(TRACES, 0, 1 << 20)
        backlog = await journal.read_pending(TRACES, 0, 1 << 20)
        assert [chunk.items for chunk in backlog.lost] == [1]


class Faulty(SegmentFile):
    """A segment with a bug."""

    def insert(self, rows: Sequence[Any]) -> None:
        raise ZeroDivisionError(str(len(rows)))


async def test_a_fault_of_ours_is_told_and_nothing_is_acknowledged_any_more(tmp_path: Path) -> None:
    async with journal_in(tmp_path, make_segment=Faulty) as journal:
        with pytest.raises(RefusedError, match="failed"):
            await journal.append([entry(b"a")])
        with pytest.raises(ZeroDivisionError):
            await journal.failure
        with pytest.raises(RefusedError):
            await journal.append([entry(b"b")])


class FaultyLater(SegmentFile):
    """A segment with a bug in everything after its rows."""

    def mark(self, seqs: Iterable[int], state: State) -> None:
        raise ZeroDivisionError(f"{list(seqs)}, {state}")

    def rewrite(self, seq: int, body: bytes) -> None:
        raise ZeroDivisionError(f"{seq}, {len(body)}")


@pytest.mark.parametrize("is_failed_before", [False, True])
async def test_nobody_waits_for_a_writer_that_has_failed(tmp_path: Path, *, is_failed_before: bool) -> None:
    """A failed writer leads to a shutdown, which releases held rows."""
    async with journal_in(tmp_path, make_segment=FaultyLater) as journal, asyncio.timeout(60):
        (first,) = await journal.append([agent_entry(1, state=State.HELD)])
        await journal.append([agent_entry(2, trace=5, state=State.HELD)])
        if is_failed_before:
            journal.forget(TraceKey(NO_TENANT, trace_name(5)))
            with pytest.raises(ZeroDivisionError):
                await journal.failure
        with pytest.raises(RefusedError):
            await journal.rewrite_held(first.seq, first.body)
        await journal.release_held(KEY)


async def test_an_agent_trace_is_read_back_with_only_its_spans(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        await journal.append([agent_entry(1)])
        await journal.append([agent_entry(2)])
        await journal.append([agent_entry(3, trace=5)])
        rows = await rows_of(journal, KEY)
        assert [numbers_in(body) for _, body in rows] == [[1], [2]]
        assert rows[0][0] < rows[1][0]
        assert await rows_of(journal, TraceKey(Tenant("other"), KEY.trace_id)) == ()
        assert KEY.trace_id in journal.knows(NO_TENANT)
        assert KEY.trace_id not in journal.knows(Tenant("other"))


async def test_logs_of_a_trace_are_read_back(tmp_path: Path) -> None:
    body = log_request(record(trace=1, name="gen_ai.choice"), record(trace=2))
    async with journal_in(tmp_path) as journal:
        await journal.append([entry(body, signal=Signal.LOGS, traces=scan_logs(body).traces[:1])])
        ((_, logs),) = await log_rows_of(journal, KEY)
        assert [note.span_count for note in scan_logs(logs).traces] == [1]
        assert await rows_of(journal, KEY) == ()


async def test_a_restart_tells_of_agent_traces_as_they_were(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        (chunk,) = await journal.append([agent_entry(1, received_ns=7)])
        await journal.append([agent_entry(2, state=State.HELD)])
    async with journal_in(tmp_path) as journal:
        first, second = journal.agent_traces()
        assert journal.agent_traces() == ()
        assert (first.seq, first.key.trace_id, first.received_ns) == (chunk.seq, KEY.trace_id, 7)
        assert (first.is_held, second.is_held) == (False, True)
        assert first.notes == agent_entry(1).traces[0].spans
        assert [numbers_in(body) for _, body in await rows_of(journal, KEY)] == [[1], [2]]


async def test_held_rows_wait_until_they_are_let_go(tmp_path: Path) -> None:
    released: list[tuple[Queue, int]] = []
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        journal.on_released = lambda queue, seq: released.append((queue, seq))
        chunks = [(await journal.append([agent_entry(n, state=State.HELD)]))[0] for n in (1, 2)]
        assert await pending(journal) == []
        assert journal.held_items(Signal.TRACES) == 2
        assert [seq for seq, _ in await journal.held_rows(KEY)] == [chunk.seq for chunk in chunks]
        await journal.release_held(KEY)
        assert released == [(TRACES, chunk.seq) for chunk in chunks]
        assert [chunk.seq for chunk in await pending(journal)] == [chunk.seq for chunk in chunks]
        assert await journal.held_rows(KEY) == ()
        await journal.release_held(KEY)
        assert len(released) == 2


class Listening(SegmentFile):
    """A segment that records how long each change of a held row waits for the disk."""

    FULL = 2
    heard: ClassVar[list[tuple[str, bool]]] = []

    def _note(self, what: str) -> None:
        self.heard.append((what, self.pragma("synchronous") == self.FULL))

    def mark(self, seqs: Iterable[int], state: State) -> None:
        self._note(state.name)
        super().mark(seqs, state)

    def rewrite(self, seq: int, body: bytes) -> None:
        self._note("rewrite")
        super().rewrite(seq, body)


async def test_held_rows_go_on_only_when_the_disk_knows_for_good(tmp_path: Path) -> None:
    """Otherwise, after a power cut, they would be sent again with other bytes."""
    Listening.heard.clear()
    async with journal_in(tmp_path, SMALL_SEGMENTS, make_segment=Listening) as journal:
        chunks = [(await journal.append([agent_entry(n, state=State.HELD)]))[0] for n in (1, 2)]
        await settled(journal)
        await journal.rewrite_held(chunks[0].seq, many_spans(4))
        await journal.release_held(KEY)
        journal.mark_done(chunks)
        await settled(journal)
    told = dict(Listening.heard)
    assert (told["rewrite"], told["PENDING"], told["DONE"]) == (True, True, False)


class Counted(SegmentFile):
    """Counts its connections."""

    open_now: ClassVar[set[Counted]] = set()
    most_open: ClassVar[int] = 0

    def __init__(self, path: Path, number: int) -> None:
        super().__init__(path, number)
        self.open_now.add(self)
        Counted.most_open = max(Counted.most_open, len(self.open_now))

    def close(self) -> None:
        super().close()
        self.open_now.discard(self)

    def abandon(self) -> None:
        super().abandon()
        self.open_now.discard(self)


def open_registers(folder: Path) -> int:
    """Return how many of a folder's registers this process has open."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another thread closed it as we look
            path = link.readlink()
            found += path.parent == folder and path.name.endswith(REGISTER)
    return found


async def test_segments_that_wait_take_no_connections(tmp_path: Path) -> None:
    """A day of light load leaves 288 segments, a heavy one thousands: each holds a run that may continue."""
    Counted.most_open = 0
    count = 4 * MAX_OPEN
    async with journal_in(tmp_path, SMALL_SEGMENTS, make_segment=Counted) as journal:
        for number in range(1, count + 1):
            journal.mark_done(await journal.append([agent_entry(number, trace=number)]))
            assert await rows_of(journal, TraceKey(NO_TENANT, trace_name(number)))
        await settled(journal)
        assert len(segments(tmp_path)) >= count
        assert all([await rows_of(journal, TraceKey(NO_TENANT, trace_name(n))) for n in range(1, count + 1)])
        assert open_registers(tmp_path) <= MAX_OPEN
        for number in range(1, count + 1):
            journal.forget(TraceKey(NO_TENANT, trace_name(number)))
        await settled(journal)
        assert len(segments(tmp_path)) < MAX_OPEN
    assert not Counted.open_now
    assert Counted.most_open <= 2 * MAX_OPEN + 3  # the writer's and the keeper's; new rows; one each opens


async def test_a_held_row_is_rewritten_once(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "live") as journal:
        (chunk,) = await journal.append([agent_entry(1, state=State.HELD)])
        await journal.rewrite_held(chunk.seq, many_spans(4))
        await journal.rewrite_held(chunk.seq, many_spans(5))
        await journal.rewrite_held(999, many_spans(5))
        image = crash_image(tmp_path / "live", tmp_path / "killed")
        assert [numbers_in(row.body) for row in await pending(journal)] == [[1, 2, 3, 4]]
    async with journal_in(image) as journal:
        await journal.rewrite_held(chunk.seq, many_spans(5))  # the outbox says it again after a crash
        assert [numbers_in(row.body) for row in await pending(journal)] == [[1, 2, 3, 4]]


async def test_letting_go_of_a_row_that_is_done_does_not_bring_it_back(tmp_path: Path) -> None:
    file = SegmentFile(tmp_path / "00000001.sqlite", 1)
    with file.transaction():
        file.insert([(7, entry(b"x", state=State.HELD), pack_body(b"x"))])
        for state in (State.PENDING, State.DONE, State.PENDING):
            file.mark([7], state)
    assert file.summary().open_rows == 0
    file.close()


async def test_analysis_keeps_a_segment_until_the_trace_is_forgotten(tmp_path: Path) -> None:
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        journal.mark_done(await journal.append([agent_entry(1)]))
        await settled(journal)
        assert "00000001.sqlite" in segments(tmp_path)
        assert [numbers_in(body) for _, body in await rows_of(journal, KEY)] == [[1]]
        journal.forget(KEY)
        await settled(journal)
        assert "00000001.sqlite" not in segments(tmp_path)
        assert await rows_of(journal, KEY) == ()


async def test_retention_evicts_the_longest_silent_and_never_refuses(tmp_path: Path) -> None:
    evicted: list[TraceKey] = []
    size = agent_entry().traces[0].byte_count + 256
    async with journal_in(tmp_path, JournalLimits(max_retained_bytes=2 * size)) as journal:
        journal.on_evicted = evicted.extend
        for n, trace in enumerate((1, 2, 3), start=1):
            await journal.append([agent_entry(n, trace=trace)])
        assert evicted == [KEY]
        assert await rows_of(journal, KEY) == ()
        assert len(await pending(journal)) == 3


async def test_silence_ends_retention_and_lets_held_rows_go(tmp_path: Path) -> None:
    async with journal_in(tmp_path, JournalLimits(max_retained_age_s=1)) as journal:
        await journal.append([agent_entry(1, received_ns=0, state=State.HELD)])
        journal.expire(500_000_000)
        assert KEY.trace_id in journal.knows(NO_TENANT)
        journal.expire(1_500_000_000)
        assert KEY.trace_id not in journal.knows(NO_TENANT)
        await journal.append([entry(b"barrier")])
        assert len(await pending(journal)) == 2


async def test_a_segment_that_few_need_is_compacted(tmp_path: Path) -> None:
    limits = JournalLimits(segment_bytes=6 << 20)
    async with journal_in(tmp_path, limits) as journal:
        rows = [agent_entry(1), entry(b"throttled", tenant="slow")]
        chunks = await journal.append([*rows, *(entry(_noise(n)) for n in range(8))])
        (path,) = found(tmp_path, "*.sqlite")
        before = path.stat().st_size + path.with_name(path.name + "-wal").stat().st_size
        journal.mark_done(chunk for chunk in chunks if chunk.queue == TRACES)
        await settled(journal)
        assert path.stat().st_size < before // 20
        assert [numbers_in(body) for _, body in await rows_of(journal, KEY)] == [[1]]
        assert [row.body for row in await pending(journal, Queue(Signal.TRACES, Tenant("slow")))] == [
            b"throttled"
        ]
    async with journal_in(tmp_path) as journal:
        assert [numbers_in(body) for _, body in await rows_of(journal, KEY)] == [[1]]


def _noise(seed: int) -> bytes:
    """Bytes that do not compress."""
    value, noise = seed * 2 + 1, bytearray()
    while len(noise) < 1 << 20:
        value = value * 6364136223846793005 % (1 << 512) | 1
        noise += value.to_bytes(64)
    return bytes(noise)
