from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest

from collector_processor.journal import Disk, Journal, is_in_use, open_journal
from collector_processor.journal.chunks import Chunk, Entry, JournalError, JournalLimits, Queue, State
from collector_processor.journal.directory import LOG, MARKS, Space
from collector_processor.journal.keeper import MAX_OPEN
from collector_processor.journal.log_format import HEAD_BYTES
from collector_processor.otlp import NO_TENANT, RefusedError, Signal, Tenant, TraceKey
from collector_processor.wire.facts import TraceNote
from collector_processor.wire.scan import scan_logs, scan_traces
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
    """The files as a killed process leaves them: nothing closed."""
    shutil.copytree(path, to, ignore=shutil.ignore_patterns("lock"))
    return to


def found(path: Path, pattern: str) -> list[Path]:
    return sorted(path.glob(pattern))


def segments(path: Path) -> list[str]:
    return [segment.name for segment in found(path, "*.log")]


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


async def test_a_read_stops_at_its_limit_and_continues_after_it(tmp_path: Path) -> None:
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
        assert "00000001.log" not in names
        assert "00000002.log" in names
        assert "00000003.log" not in names


async def test_a_segment_stays_until_its_last_row_is_forwarded(tmp_path: Path) -> None:
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        first, second = await journal.append([entry(b"a"), entry(b"b")])
        journal.mark_done([first])
        await settled(journal)
        assert [chunk.seq for chunk in await pending(journal)] == [second.seq]
        journal.mark_done([second])
        await settled(journal)
        assert "00000001.log" not in segments(tmp_path)


async def test_a_damaged_request_does_not_stop_the_thinning(tmp_path: Path) -> None:
    limits = JournalLimits(segment_bytes=5 << 20, rest_s=0.0)
    nonsense = entry(b"\xff" * 100, traces=agent_entry().traces)
    async with journal_in(tmp_path, limits) as journal:
        journal.mark_done(await journal.append([nonsense, *(entry(noise(seed)) for seed in range(6))]))
        await settled(journal)
        assert found(tmp_path, "00000001*.log")
        journal.forget(KEY)
        await settled(journal)
        assert not found(tmp_path, "00000001*.log")


async def test_closing_writes_what_was_put_off(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        first, _ = await journal.append([entry(b"a"), entry(b"b")])
        journal.mark_done([first])
    assert not journal._writer._notes
    async with journal_in(tmp_path) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"b"]


async def test_a_restart_never_uses_a_segment_number_again(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        (first,) = await journal.append([entry(b"x")])
    async with journal_in(tmp_path) as journal:
        (second,) = await journal.append([entry(b"y")])
        assert second.seq > first.seq
        assert [chunk.body for chunk in await pending(journal)] == [b"x", b"y"]


async def test_a_second_process_is_refused_with_words(tmp_path: Path) -> None:
    async with journal_in(tmp_path):
        assert is_in_use(tmp_path)
        with pytest.raises(JournalError, match="another blamespan"):
            await open_journal(tmp_path)
    assert not is_in_use(tmp_path)
    assert not is_in_use(tmp_path / "nowhere")


async def test_an_unusable_directory_is_reported_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="cannot open the journal"):
        await open_journal(tmp_path / "file")


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


async def test_a_small_disk_keeps_a_reserve_for_verdicts_and_marks(tmp_path: Path) -> None:
    """Verdicts and forwarded rows are recorded even when new rows are refused."""
    free = [1 << 20]
    async with journal_in(tmp_path, measure=lambda _: Space(size=8 << 20, free=free[0])) as journal:
        with pytest.raises(RefusedError, match="reserve of 1,048,576 bytes"):
            await journal.append([entry(b"small")])
        free[0] *= 2
        await journal.append([entry(b"small")])
        with pytest.raises(RefusedError, match="reserve"):
            await journal.append([entry(noise(1))])
        journal.mark_done(await pending(journal))
        await settled(journal)
        assert [chunk.body for chunk in await pending(journal)] == []


async def test_a_file_system_that_does_not_say_its_size_keeps_no_reserve(tmp_path: Path) -> None:
    async with journal_in(tmp_path, measure=lambda _: Space(size=0, free=0)) as journal:
        (chunk,) = await journal.append([entry(b"small")])
        assert chunk.body == b"small"


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


async def test_held_rows_wait_until_they_are_released(tmp_path: Path) -> None:
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


async def test_analysis_keeps_a_segment_until_the_trace_is_forgotten(tmp_path: Path) -> None:
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        journal.mark_done(await journal.append([agent_entry(1)]))
        await settled(journal)
        assert "00000001.log" in segments(tmp_path)
        assert [numbers_in(body) for _, body in await rows_of(journal, KEY)] == [[1]]
        journal.forget(KEY)
        await settled(journal)
        assert "00000001.log" not in segments(tmp_path)
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


def noise(seed: int, size: int = 1 << 20) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(size)


# Disks that refuse, are slow, or are damaged.


class Named(Disk):
    """A disk that tells its tests which file is meant."""

    def name(self, file: int) -> str:
        return Path(f"/proc/self/fd/{file}").readlink().name


class Faulty(Named):
    """Calls ``fault`` before each call with its name, the file's name and its bytes; it may raise."""

    def __init__(self, fault: Callable[[str, str, bytes], None]) -> None:
        self.fault: Final = fault

    def write(self, file: int, content: bytes, offset: int) -> None:
        self.fault("write", self.name(file), content)
        super().write(file, content, offset)

    def flush(self, file: int) -> None:
        self.fault("flush", self.name(file), b"")
        super().flush(file)

    def flush_names(self, folder: Path) -> None:
        self.fault("flush_names", folder.name, b"")
        super().flush_names(folder)

    def read(self, file: int, size: int, offset: int) -> bytes:
        self.fault("read", self.name(file), b"")
        return super().read(file, size, offset)

    def remove(self, path: Path) -> None:
        self.fault("remove", path.name, b"")
        super().remove(path)


def fail(number: int) -> None:
    raise OSError(number, os.strerror(number))


def failing(number: int, call: str, part: str, *, skip: int = 0, times: int = 1 << 30) -> Faulty:
    """Return a disk whose calls on files with ``part`` in their names fail, some times, after ``skip``."""
    left = [skip, times]

    def fault(said: str, name: str, _: bytes) -> None:
        if said == call and part in name:
            if left[0]:
                left[0] -= 1
            elif left[1]:
                left[1] -= 1
                fail(number)

    return Faulty(fault)


async def test_a_row_that_is_done_and_written_while_it_is_read_does_not_come(tmp_path: Path) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def fault(call: str, _name: str, _content: bytes) -> None:
        if call == "read":
            begun.set()
            may_go_on.wait(60)

    async with journal_in(tmp_path, disk=Faulty(fault)) as journal:
        (chunk,) = await journal.append([entry(b"x")])
        read = asyncio.create_task(journal.read_pending(TRACES, 0, 1 << 20))
        try:
            await asyncio.to_thread(begun.wait, 60)
            journal.mark_done([chunk])
            await journal.append([entry(b"carries the mark along")])
        finally:
            may_go_on.set()
        assert (await read).chunks == ()


async def test_a_row_is_durable_with_its_segments_name_before_it_is_acknowledged(tmp_path: Path) -> None:
    """Flushing a file does not flush its name: after a power cut the whole segment would be gone."""
    calls: list[tuple[str, str]] = []
    disk = Faulty(lambda call, name, _: calls.append((call, name)))
    async with journal_in(tmp_path / "data", disk=disk) as journal:
        await journal.append([entry(b"x")])
        log = "00000001.log"
        created, row = [place for place, call in enumerate(calls) if call == ("write", log)]
        assert created < calls.index(("flush_names", "data"), created) < row
        assert ("flush", log) in calls[row:]
        begun = len(calls)
        await journal.append([entry(b"y")])
        assert calls[begun : begun + 2] == [("write", log), ("flush", log)]


@pytest.mark.parametrize("call", ["flush_names", "flush", "write"])
async def test_a_segment_that_cannot_be_created_durably_takes_no_row(tmp_path: Path, call: str) -> None:
    part = "data" if call == "flush_names" else LOG
    async with journal_in(tmp_path / "data", disk=failing(errno.EIO, call, part, times=2)) as journal:
        for _ in range(2):
            with pytest.raises(RefusedError, match="Input/output"):
                await journal.append([entry(b"x")])
        await journal.append([entry(b"y")])
        assert [chunk.body for chunk in await pending(journal)] == [b"y"]
        assert len(segments(tmp_path / "data")) <= 2


async def test_a_segment_that_could_not_be_deleted_is_deleted_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = failing(errno.EROFS, "remove", "1.log", times=2)
    async with journal_in(tmp_path, SMALL_SEGMENTS, disk=disk) as journal:
        journal.mark_done(await journal.append([entry(b"1")]))
        for _ in range(3):
            await settled(journal)
        assert "00000001.log" not in segments(tmp_path)
    assert caplog.text.count("journal segment cannot be deleted") == 1


async def test_a_cancelled_opening_keeps_its_lock_until_it_has_ended(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        await journal.append([entry(b"1")])
    slow = tmp_path / "00000002.log"
    os.mkfifo(slow)  # opening it waits for someone who writes
    opening = asyncio.create_task(open_journal(tmp_path))
    while not is_in_use(tmp_path):  # noqa: ASYNC110 - the lock tells nobody
        await asyncio.sleep(0.01)
    opening.cancel()
    await asyncio.sleep(0)
    with pytest.raises(JournalError, match="another blamespan"):
        await open_journal(tmp_path)
    await asyncio.to_thread(slow.write_bytes, b"")
    with pytest.raises(asyncio.CancelledError):
        await opening
    slow.unlink()
    async with journal_in(tmp_path) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"1"]


async def test_seqs_go_on_where_everything_was_deleted(tmp_path: Path) -> None:
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        chunks = await journal.append([entry(b"x")])
        journal.mark_done(chunks)
    for path in found(tmp_path, "0*"):
        path.unlink()
    (tmp_path / "00000001.marks").write_bytes(b"left by a kill")
    async with journal_in(tmp_path) as journal:
        (later,) = await journal.append([entry(b"y")])
        assert later.seq > chunks[0].seq
        assert found(tmp_path, "00000001*") == []


@pytest.mark.parametrize("part", [LOG, MARKS])
async def test_an_unknown_version_is_refused_with_words(tmp_path: Path, part: str) -> None:
    async with journal_in(tmp_path) as journal:
        await journal.append([entry(b"x")])
    path = tmp_path / f"00000001{part}"
    before = path.read_bytes()
    head = before[:4] + bytes([before[4] + 1]) + before[5 : HEAD_BYTES - 4]
    path.write_bytes(head + crc32(head).to_bytes(4, "little") + before[HEAD_BYTES:])
    with pytest.raises(JournalError, match="newer blamespan"):
        await open_journal(tmp_path)
    assert not is_in_use(tmp_path)
    path.write_bytes(before[:4] + bytes([before[4] + 1]) + before[5:])  # a flipped bit says so, too
    async with journal_in(tmp_path) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"x"]


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_journal_of_the_old_kind_is_refused_with_what_it_has_not_sent(
    tmp_path: Path, *, is_whole: bool
) -> None:
    with sqlite3.connect(tmp_path / "00000001.sqlite") as db:
        db.execute("CREATE TABLE chunk (seq, signal, items, state)")
        db.executemany(
            "INSERT INTO chunk VALUES (?, ?, ?, ?)",
            [(1, "traces", 1_200, 1), (2, "traces", 34, 0), (3, "traces", 99, 2), (4, "logs", 5, 1)],
        )
    db.close()
    if not is_whole:
        (tmp_path / "00000002.sqlite").write_bytes(b"nonsense" * 1_000)
    before = {path: path.read_bytes() for path in found(tmp_path, "*.sqlite")}
    with pytest.raises(JournalError, match="1,234 spans and 5 log records") as refused:
        await open_journal(tmp_path)
    assert ("at least" in str(refused.value)) != is_whole
    assert "run the earlier version" in str(refused.value)
    assert {path: path.read_bytes() for path in found(tmp_path, "*.sqlite")} == before
    assert not is_in_use(tmp_path)


async def test_a_row_that_the_disk_does_not_give_now_is_not_lost(tmp_path: Path) -> None:
    async with journal_in(tmp_path, disk=failing(errno.EIO, "read", LOG, times=1)) as journal:
        await journal.append([entry(b"x")])
        with pytest.raises(OSError, match="Input/output error"):
            await journal.read_pending(TRACES, 0, 1 << 20)
        assert [chunk.body for chunk in await pending(journal)] == [b"x"]


async def test_a_row_that_the_disk_never_gives_is_lost_in_the_end(tmp_path: Path) -> None:
    async with journal_in(tmp_path, disk=failing(errno.EIO, "read", LOG)) as journal:
        await journal.append([entry(b"x")])
        for _ in range(300):
            with pytest.raises(OSError, match="Input/output error"):
                await journal.read_pending(TRACES, 0, 1 << 20)
        backlog = await journal.read_pending(TRACES, 0, 1 << 20)
        assert [chunk.items for chunk in backlog.lost] == [1]


async def test_a_full_disk_refuses_and_the_journal_lives_on(tmp_path: Path) -> None:
    def fault(call: str, name: str, content: bytes) -> None:
        if call == "write" and name.endswith(LOG) and len(content) > 100_000:
            fail(errno.ENOSPC)

    async with journal_in(tmp_path, disk=Faulty(fault)) as journal:
        await journal.append([entry(b"small")])
        with pytest.raises(RefusedError, match="No space left"):
            await journal.append([entry(noise(1))])
        await journal.append([entry(b"small too")])
        assert [chunk.body for chunk in await pending(journal)] == [b"small", b"small too"]
        assert journal.waiting[TRACES].items == 2


class TornWrites(Named):
    """Writes only the first part of a row's record, then fails; what was written stays."""

    def __init__(self, number: int, *, keep: int) -> None:
        self.number: Final = number
        self.keep: Final = keep
        self.is_on = False

    def write(self, file: int, content: bytes, offset: int) -> None:
        if self.is_on and self.name(file).endswith(LOG):
            self.is_on = False
            super().write(file, content[: self.keep], offset)
            fail(self.number)
        super().write(file, content, offset)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("keep", [0, 1, 60, 500, 1 << 20])
async def test_a_commit_that_was_refused_does_not_come_back_after_a_restart(
    tmp_path: Path, number: int, keep: int
) -> None:
    disk = TornWrites(number, keep=keep)
    async with journal_in(tmp_path, disk=disk) as journal:
        await journal.append([entry(b"before")])
        disk.is_on = True
        with pytest.raises(RefusedError):
            await journal.append([entry(noise(1, 1_000))])
        await journal.append([entry(b"after")])
    async with journal_in(tmp_path) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"before", b"after"]
        assert not journal.lost


async def test_a_large_request_refused_halfway_leaves_what_is_stored_and_no_debts(tmp_path: Path) -> None:
    disk = failing(errno.EIO, "flush", LOG, skip=3, times=1)  # the first one creates the segment
    async with journal_in(tmp_path, disk=disk) as journal:
        with pytest.raises(RefusedError, match="Input/output"):
            await journal.append(large(12))
        assert journal.waiting[TRACES].items == 8
        assert journal.waiting[TRACES].bytes == sum(chunk.size for chunk in await pending(journal))
        await journal.append(large(12))
        assert journal.waiting[TRACES].items == 20


async def test_a_failing_disk_refuses_and_another_segment_is_begun(tmp_path: Path) -> None:
    """After a failed flush nobody knows what is on the disk, whatever a later flush says."""
    async with journal_in(tmp_path, disk=failing(errno.EIO, "flush", "1.log", skip=1)) as journal:
        with pytest.raises(RefusedError, match="Input/output"):
            await journal.append([entry(b"a")])
        assert journal.waiting.get(TRACES) is None
        (chunk,) = await journal.append([entry(b"b")])
        assert chunk.seq >> 32 == 2


async def test_a_failing_disk_evicts_no_trace_that_waits_for_its_analysis(tmp_path: Path) -> None:
    evicted: list[TraceKey] = []
    async with journal_in(tmp_path, disk=failing(errno.EIO, "flush", LOG, skip=2)) as journal:
        journal.on_evicted = evicted.extend
        journal.mark_done(await journal.append([agent_entry(1, trace=1)]))
        for _ in range(3):
            with pytest.raises(RefusedError, match="Input/output"):
                await journal.append([entry(b"small")])
            journal.tidy()
            await journal._reclaimer.finish()
        assert await rows_of(journal, KEY)
    assert evicted == []


async def test_after_a_fault_of_ours_nothing_is_acknowledged(tmp_path: Path) -> None:
    def fault(call: str, name: str, _: bytes) -> None:
        if call == "write" and name.endswith(LOG):
            raise ZeroDivisionError

    async with journal_in(tmp_path, disk=Faulty(fault)) as journal:
        with pytest.raises(RefusedError, match="failed"):
            await journal.append([entry(b"a")])
        with pytest.raises(ZeroDivisionError):
            await journal.failure
        with pytest.raises(RefusedError):
            await journal.append([entry(b"b")])


@pytest.mark.parametrize("is_failed_before", [False, True])
async def test_calls_do_not_wait_for_a_writer_that_has_failed(
    tmp_path: Path, *, is_failed_before: bool
) -> None:
    """A failed writer leads to a shutdown, which releases held rows."""

    def fault(call: str, name: str, content: bytes) -> None:
        if is_on and call == "write" and name.endswith(MARKS) and content[5] != ACKNOWLEDGED:
            raise ZeroDivisionError

    is_on = False
    async with journal_in(tmp_path, disk=Faulty(fault)) as journal, asyncio.timeout(60):
        (first,) = await journal.append([agent_entry(1, state=State.HELD)])
        await journal.append([agent_entry(2, trace=5, state=State.HELD)])
        is_on = True
        if is_failed_before:
            journal.forget(TraceKey(NO_TENANT, trace_name(5)))
            with pytest.raises(ZeroDivisionError):
                await journal.failure
        with pytest.raises(RefusedError):
            await journal.rewrite_held(first.seq, first.body)
        await journal.release_held(KEY)


ACKNOWLEDGED = 2


async def test_a_held_row_that_the_disk_does_not_take_rewritten_stays_held(tmp_path: Path) -> None:
    is_full = False

    def fault(call: str, name: str, content: bytes) -> None:
        if is_full and call == "write" and name.endswith(MARKS) and content[5] != ACKNOWLEDGED:
            fail(errno.ENOSPC)

    async with journal_in(tmp_path, disk=Faulty(fault)) as journal:
        (chunk,) = await journal.append([agent_entry(1, state=State.HELD)])
        is_full = True
        with pytest.raises(RefusedError, match="No space left"):
            await journal.rewrite_held(chunk.seq, many_spans(4))
        assert await pending(journal) == []
        is_full = False
        await journal.rewrite_held(chunk.seq, many_spans(4))
        assert [numbers_in(row.body) for row in await pending(journal)] == [[1, 2, 3, 4]]


async def test_held_rows_go_on_only_when_the_disk_knows_for_good(tmp_path: Path) -> None:
    """Otherwise, after a power cut, they would be sent again with other bytes."""
    calls: list[str] = []
    both = ("00000001.marks", "00000002.marks")

    def fault(call: str, name: str, content: bytes) -> None:
        if name in both and not (call == "write" and content[5] == ACKNOWLEDGED):
            calls.append(call)

    async with journal_in(tmp_path, SMALL_SEGMENTS, disk=Faulty(fault)) as journal:
        journal.on_released = lambda _queue, _seq: calls.append("released")
        chunks = [(await journal.append([agent_entry(n, state=State.HELD)]))[0] for n in (1, 2)]
        calls.clear()
        await journal.rewrite_held(chunks[0].seq, many_spans(4))
        assert calls == ["write", "flush", "released"]
        calls.clear()
        await journal.release_held(KEY)
        assert calls == ["write", "flush", "released"]
        await pending(journal)
        calls.clear()
        journal.mark_done(chunks)
        await settled(journal)
        assert "flush" not in calls


def open_files(folder: Path) -> int:
    """Return how many of a folder's segments this process has open."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another thread closed it as we look
            path = link.readlink()
            count += path.parent == folder and path.suffix.split(" ")[0] in {LOG, MARKS}
    return count


async def test_segments_that_wait_take_no_open_files(tmp_path: Path) -> None:
    """A day of light load leaves 288 segments, a heavy one thousands: each holds a run that may continue."""
    count, most = 4 * MAX_OPEN, 0
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        for number in range(1, count + 1):
            journal.mark_done(await journal.append([agent_entry(number, trace=number)]))
            assert await rows_of(journal, TraceKey(NO_TENANT, trace_name(number)))
            most = max(most, open_files(tmp_path))
        await settled(journal)
        assert len(segments(tmp_path)) >= count
        assert all([await rows_of(journal, TraceKey(NO_TENANT, trace_name(n))) for n in range(1, count + 1)])
        for number in range(1, count + 1):
            journal.forget(TraceKey(NO_TENANT, trace_name(number)))
        await settled(journal)
        assert len(segments(tmp_path)) < MAX_OPEN
    assert open_files(tmp_path) == 0
    assert 0 < most <= 3 * MAX_OPEN + 1  # the writer's marks, the keeper's logs and marks, new rows


async def test_letting_go_of_a_row_that_is_done_does_not_bring_it_back(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "live") as journal:
        chunks = await journal.append([agent_entry(1, state=State.HELD)])
        await journal.append([entry(b"waits")])
        journal.mark_done(chunks)
        await journal.release_held(KEY)
        assert [chunk.body for chunk in await pending(journal)] == [b"waits"]
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    async with journal_in(image) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"waits"]


# Thinning.

THIN: Final = JournalLimits(segment_bytes=5 << 20, rest_s=0.0)


async def test_a_segment_that_few_need_is_thinned(tmp_path: Path) -> None:
    slow = Queue(Signal.TRACES, Tenant("slow"))
    held = agent_entry(2, trace=5, state=State.HELD)
    async with journal_in(tmp_path / "live", THIN) as journal:
        rows = [agent_entry(1), entry(b"throttled", tenant="slow"), held]
        chunks = await journal.append([*rows, *(entry(noise(n)) for n in range(8))])
        await journal.rewrite_held(chunks[2].seq, many_spans(4))
        (path,) = found(tmp_path / "live", "*.log")
        before = path.stat().st_size
        journal.mark_done(chunk for chunk in chunks if chunk.queue == TRACES and chunk.seq != chunks[2].seq)
        await settled(journal)
        (path,) = found(tmp_path / "live", "00000001*.log")
        assert path.stat().st_size < before // 20
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    for folder in (tmp_path / "live", image):
        async with journal_in(folder) as journal:
            assert [numbers_in(body) for _, body in await rows_of(journal, KEY)] == [[1]]
            assert [row.body for row in await pending(journal, slow)] == [b"throttled"]
            assert [numbers_in(row.body) for row in await pending(journal)] == [[1, 2, 3, 4]]
            assert not journal.lost


@pytest.mark.parametrize("call", ["write", "flush"])
async def test_a_segment_that_a_full_disk_kept_from_being_thinned_is_thinned_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr("collector_processor.journal.journal._RETRY_S", 0.0)
    async with journal_in(tmp_path, THIN, disk=failing(errno.ENOSPC, call, "1.new", times=2)) as journal:
        journal.mark_done((await journal.append([entry(noise(seed)) for seed in range(6)]))[1:])
        for _ in range(4):
            await settled(journal)
        assert sum(path.stat().st_size for path in found(tmp_path, "00000001*")) < 2 << 20
        assert [chunk.body for chunk in await pending(journal)] == [noise(0)]
    assert caplog.text.count("journal segment cannot be thinned") == 1


async def test_a_kill_while_a_log_is_replaced_leaves_one_of_both(tmp_path: Path) -> None:
    async with journal_in(tmp_path, disk=failing(errno.EROFS, "remove", LOG)) as journal:
        chunks = await journal.append([entry(b"done"), entry(b"waits")])
        journal.mark_done(chunks[:1])
    log = tmp_path / "00000001.log"
    shutil.copy(log, tmp_path / "00000001-1.log")
    (tmp_path / "00000002.new").write_bytes(b"unfinished")
    async with journal_in(tmp_path) as journal:
        assert [chunk.body for chunk in await pending(journal)] == [b"waits"]
        assert segments(tmp_path) == ["00000001-1.log"]
        assert found(tmp_path, "*.new") == []


async def test_rows_of_a_later_segment_that_were_handed_on_first_are_read_after_the_others(
    tmp_path: Path,
) -> None:
    """A request waits for an earlier one that shares a trace with it, and others pass both."""
    handed_on: list[int] = []

    def hear(chunk: Chunk, _entry: Entry) -> Iterator[None]:
        while not handed_on and chunk.seq >> 32 == 1:
            yield
        handed_on.append(chunk.seq >> 32)

    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        storing = []
        for number, row in enumerate((agent_entry(1), agent_entry(2), entry(b"small"))):
            storing.append(asyncio.create_task(journal.append([row], hear)))
            while journal.commits == number:  # noqa: ASYNC110 - the writer tells nobody
                await asyncio.sleep(0)
        await asyncio.gather(*storing)
        assert handed_on == [3, 1, 2]
        assert [chunk.seq >> 32 for chunk in await pending(journal)] == [1, 2, 3]
