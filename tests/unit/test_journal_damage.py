"""A damaged journal: a flipped bit costs at most one row, sound rows go on, lost items are counted."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from collector_processor.journal import Disk, JournalError, JournalLimits, open_journal
from collector_processor.journal.chunks import Entry, Queue, State
from collector_processor.journal.log_format import FILE_BYTES, HEAD_BYTES, encode_row, pack_body, salt_of
from collector_processor.otlp import NO_TENANT, Signal, Tenant
from tests.otlp_requests import many_spans
from tests.unit.test_journal import agent_entry, crash_image, entry, journal_in, noise, settled

ROWS = 6
ITEMS = 3
LOG, MARKS = "00000001.log", "00000001.marks"
TRACES = Queue(Signal.TRACES, NO_TENANT)


def body(number: int) -> bytes:
    return noise(number, 60)


def row(number: int, content: bytes | None = None) -> Entry:
    return Entry(
        signal=Signal.TRACES,
        tenant=NO_TENANT,
        hops=("far",),
        received_ns=5,
        items=ITEMS,
        body=body(number) if content is None else content,
    )


async def fill(path: Path, *, forwarded: int = 0, rows: int = ROWS) -> Path:
    """Return a copy of the folder as a kill leaves it, with some rows that were forwarded."""
    async with journal_in(path / "live") as journal:
        chunks = [(await journal.append([row(number)]))[0] for number in range(rows)]
        journal.mark_done(chunks[:forwarded])
        await journal.append([entry(b"barrier", signal=Signal.LOGS)])
        return crash_image(path / "live", path / "killed")


async def found(path: Path) -> tuple[list[bytes], int]:
    """Return the bodies that can be forwarded, and the number of lost items; check the journal's sums."""
    async with journal_in(path) as journal:
        backlog = await journal.read_pending(TRACES, 0, 1 << 30)
        lost = sum(chunk.items for chunk in backlog.lost)
        waiting = journal.waiting[TRACES].items if TRACES in journal.waiting else 0
        assert waiting == sum(chunk.items for chunk in (*backlog.chunks, *backlog.lost))
        return [chunk.body for chunk in backlog.chunks], lost + journal.lost.get(Signal.TRACES, 0)


def damaged(image: Path, to: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(image, to)
    (to / name).write_bytes(change((to / name).read_bytes()))
    return to


def flip(at: int, bit: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


async def test_a_flipped_bit_anywhere_in_the_log_costs_at_most_one_row_and_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image = await fill(tmp_path)
    chance, hit = random.Random(1), 0
    for at in range((image / LOG).stat().st_size):
        caplog.clear()
        bodies, lost = await found(damaged(image, tmp_path / "damaged", LOG, flip(at, chance.randrange(8))))
        assert bodies == [body(number) for number in range(ROWS) if body(number) in bodies]
        assert lost == ITEMS * (ROWS - len(bodies))
        assert len(bodies) >= ROWS - 1
        assert bool(lost) <= any("damaged" in said or "missing" in said for said in caplog.messages)
        hit += bool(lost)
    assert hit > 0.8 * ROWS * (HEAD_BYTES + 60)


async def test_a_flipped_bit_anywhere_in_the_marks_loses_no_row(tmp_path: Path) -> None:
    """At worst, rows are forwarded again."""
    image = await fill(tmp_path, forwarded=3)
    chance = random.Random(2)
    for at in range((image / MARKS).stat().st_size):
        bodies, lost = await found(damaged(image, tmp_path / "damaged", MARKS, flip(at, chance.randrange(8))))
        assert bodies[-3:] == [body(number) for number in range(3, ROWS)]
        assert lost == 0


async def expect_torn(image: Path, to: Path, torn: bytes) -> None:
    assert await found(damaged(image, to, LOG, lambda content: content + torn)) == ([*map(body, range(3))], 0)


async def test_a_last_record_torn_at_any_byte_leaves_the_rows_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut during a commit: nothing was acknowledged, so nothing is lost."""
    async with journal_in(tmp_path / "live") as journal:
        for number in range(3):
            await journal.append([row(number)])
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    log = (image / LOG).read_bytes()
    salt = salt_of(log, 1)
    assert salt is not None
    seq = (1 << 32) + 4
    record = b"".join(encode_row(row(3), pack_body(body(3)), seq, (4 * ITEMS, 0, 0), salt))
    for kept in range(len(record)):
        await expect_torn(image, tmp_path / "torn", record[:kept])
        if kept < HEAD_BYTES:  # the file's size may be durable without its bytes
            await expect_torn(image, tmp_path / "torn", record[:kept] + bytes(len(record) - kept))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    whole = damaged(image, tmp_path / "torn", LOG, lambda content: content + record)
    assert await found(whole) == ([body(number) for number in range(4)], 0)


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2, 0.0])
async def test_the_rest_of_a_truncated_log_is_read_and_its_loss_is_counted_once(
    tmp_path: Path, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    image = await fill(tmp_path, rows=40)
    cut = damaged(image, tmp_path / "cut", LOG, lambda content: content[: int(len(content) * share)])
    bodies, lost = await found(cut)
    assert bodies == [body(number) for number in range(len(bodies))]
    assert 40 * share - 2 < len(bodies) <= 40 * share
    assert lost == ITEMS * (40 - len(bodies))
    assert "acknowledged rows are missing from a journal segment" in caplog.messages
    assert await found(cut) == (bodies, 0)


async def test_what_was_forwarded_before_it_vanished_is_not_lost(tmp_path: Path) -> None:
    image = await fill(tmp_path, forwarded=4)
    (image / LOG).write_bytes(b"")
    assert await found(image) == ([], ITEMS * (ROWS - 4))


@pytest.mark.parametrize("name", [LOG, MARKS])
async def test_a_first_page_of_zeros_costs_only_its_rows(tmp_path: Path, name: str) -> None:
    image = await fill(tmp_path, rows=100)
    zeroed = damaged(image, tmp_path / "zeroed", name, lambda content: bytes(4096) + content[4096:])
    bodies, lost = await found(zeroed)
    assert bodies == [body(number) for number in range(100 - len(bodies), 100)]
    assert len(bodies) > 50
    assert lost == ITEMS * (100 - len(bodies))


async def test_an_unreadable_segment_is_reported_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with journal_in(tmp_path, JournalLimits(segment_bytes=1)) as journal:
        for number in range(2):
            await journal.append([row(number)])
    for name in (LOG, MARKS):
        (tmp_path / name).write_bytes(b"nonsense" * 1_000)
    assert await found(tmp_path) == ([body(1)], 0)
    assert "nothing in it can be read, and its lost rows cannot be counted" in caplog.text


@pytest.mark.parametrize("is_forged", [True, False])
async def test_bytes_of_a_client_are_never_taken_for_a_row(tmp_path: Path, *, is_forged: bool) -> None:
    """A span may contain a whole record, which would be found behind a damaged head."""
    async with journal_in(tmp_path / "live") as journal:
        await journal.append([row(0, noise(0, 500))])
        await journal.append([row(1)])
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    log = (image / LOG).read_bytes()
    salt = salt_of(log, 1)
    assert salt is not None
    guess = 12345 if is_forged else salt
    victim = entry(b"forged", tenant="victim")
    forged = b"".join(encode_row(victim, pack_body(b"forged"), (1 << 32) + 9, (9, 0, 0), guess))
    at = log.index(noise(0, 500)[:100])
    log = log[:at] + forged + log[at + len(forged) :]
    (image / LOG).write_bytes(flip(FILE_BYTES + 1, 0)(log))
    async with journal_in(image) as journal:
        assert (Queue(Signal.TRACES, Tenant("victim")) in journal.waiting) != is_forged
        if is_forged:
            assert journal.lost == {Signal.TRACES: ITEMS}
        assert [chunk.body for chunk in (await journal.read_pending(TRACES, 0, 1 << 20)).chunks] == [body(1)]


async def test_a_body_full_of_magic_numbers_is_searched_in_linear_time(tmp_path: Path) -> None:
    async with journal_in(tmp_path / "live") as journal:
        await journal.append([row(0, b"".join(b"BLML%06d" % number for number in range(300_000)))])
        await journal.append([row(1)])
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    assert await found(damaged(image, tmp_path / "damaged", LOG, flip(FILE_BYTES + 1, 0))) == (
        [body(1)],
        ITEMS,
    )


@pytest.mark.parametrize("seed", range(12))
async def test_several_flipped_bits_never_change_a_row(tmp_path: Path, seed: int) -> None:
    image = await fill(tmp_path, rows=40)
    chance = random.Random(seed)

    def change(content: bytes) -> bytes:
        for _ in range(5):
            content = flip(chance.randrange(len(content)), chance.randrange(8))(content)
        return content

    bodies, lost = await found(damaged(image, tmp_path / "damaged", LOG, change))
    assert bodies == [body(number) for number in range(40) if body(number) in bodies]
    assert 35 <= len(bodies) < 40
    assert lost == ITEMS * (40 - len(bodies))


@pytest.mark.parametrize("forwarded", [0, 3, ROWS])
async def test_a_kill_alone_loses_nothing_and_reports_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, forwarded: int
) -> None:
    image = await fill(tmp_path, forwarded=forwarded)
    for _ in range(2):
        assert await found(image) == ([body(number) for number in range(forwarded, ROWS)], 0)
    assert not caplog.records


async def test_without_marks_every_row_is_there_and_nothing_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A person deleted them, or a disk lost them: rows are forwarded again."""
    image = await fill(tmp_path, forwarded=3)
    (image / MARKS).unlink()
    assert await found(image) == ([body(number) for number in range(ROWS)], 0)
    assert not caplog.records


async def test_a_damaged_body_that_is_to_stay_in_a_thinned_log_is_counted_when_it_is_due(
    tmp_path: Path,
) -> None:
    limits = JournalLimits(segment_bytes=5 << 20, rest_s=0.0)
    async with journal_in(tmp_path, limits) as journal:
        chunks = await journal.append([row(0), row(1), agent_entry(1), *(entry(noise(n)) for n in range(6))])
        content = bytearray((tmp_path / LOG).read_bytes())
        content[content.index(body(0)) + 5] ^= 4
        (tmp_path / LOG).write_bytes(content)
        journal.mark_done(chunks[2:])
        await settled(journal)
        assert not (tmp_path / LOG).exists()
        backlog = await journal.read_pending(TRACES, 0, 1 << 20)
        assert [chunk.body for chunk in backlog.chunks] == [body(1)]
        assert [chunk.items for chunk in backlog.lost] == [ITEMS]
    assert await found(tmp_path) == ([body(1)], ITEMS)


async def test_an_unreadable_disk_is_not_taken_for_damage(tmp_path: Path) -> None:
    """If its rows counted as lost, sound acknowledged rows would never be forwarded."""
    image = await fill(tmp_path)
    (image / LOG).rename(tmp_path / "aside")
    (image / LOG).mkdir()  # cannot be opened as a file
    with pytest.raises(JournalError, match=f"{LOG}.*directory"):
        await open_journal(image)
    (image / LOG).rmdir()
    (tmp_path / "aside").rename(image / LOG)
    assert len((await found(image))[0]) == ROWS


async def test_a_damaged_new_body_of_a_held_row_is_not_forwarded_in_its_old_form(tmp_path: Path) -> None:
    """The verdict's outbox says the new body again."""
    async with journal_in(tmp_path / "live") as journal:
        (chunk,) = await journal.append([agent_entry(1, state=State.HELD)])
        await journal.rewrite_held(chunk.seq, many_spans(4))
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    size = (image / MARKS).stat().st_size
    async with journal_in(damaged(image, tmp_path / "damaged", MARKS, flip(size - 1, 0))) as journal:
        assert (await journal.read_pending(TRACES, 0, 1 << 20)).chunks == ()
        assert journal.held_items(Signal.TRACES) == 1
        await journal.rewrite_held(chunk.seq, many_spans(4))
        (again,) = (await journal.read_pending(TRACES, 0, 1 << 20)).chunks
        assert again.body == many_spans(4)


class LosingDisk(Disk):
    """A disk that keeps only what was flushed: ``image`` is what a power cut leaves."""

    def __init__(self) -> None:
        self.durable: dict[str, bytes] = {}
        self.names: set[str] = set()

    def flush(self, file: int) -> None:
        super().flush(file)
        path = Path(f"/proc/self/fd/{file}").readlink()
        self.durable[path.name] = path.read_bytes()

    def flush_names(self, folder: Path) -> None:
        super().flush_names(folder)
        self.names = {path.name for path in folder.iterdir()}

    def image(self, to: Path) -> Path:
        to.mkdir()
        for name in self.names & self.durable.keys():
            (to / name).write_bytes(self.durable[name])
        return to


@pytest.mark.parametrize("seed", range(20))
async def test_a_power_cut_that_drops_everything_unflushed_loses_nothing_acknowledged(
    tmp_path: Path, seed: int
) -> None:
    chance, disk = random.Random(seed), LosingDisk()
    waiting, done = set[bytes](), set[bytes]()
    limits = JournalLimits(segment_bytes=chance.choice([1, 2_000, 20_000, 1 << 20]))
    async with journal_in(tmp_path / "live", limits, disk=disk) as journal:
        number = 0
        for _ in range(chance.randrange(1, 25)):
            some = [entry(body(number := number + 1)) for _ in range(chance.randrange(1, 4))]
            stored = await asyncio.gather(*(journal.append([one]) for one in some))
            waiting.update(chunk.body for chunks in stored for chunk in chunks)
            forwarded = [chunk for (chunk,) in stored if chance.random() < 0.5]
            journal.mark_done(forwarded)
            done.update(chunk.body for chunk in forwarded)
        image = disk.image(tmp_path / "after")
    bodies, lost = await found(image)
    assert lost == 0
    assert waiting - done <= set(bodies) <= waiting
    assert len(bodies) == len(set(bodies))


async def test_a_tenant_is_kept_with_its_rows(tmp_path: Path) -> None:
    tenants = [Tenant("x-scope=eu%2Fwest"), Tenant("ü"), NO_TENANT]
    async with journal_in(tmp_path) as journal:
        for tenant in tenants:
            await journal.append([entry(b"x", tenant=tenant)])
    async with journal_in(tmp_path) as journal:
        assert {queue.tenant for queue in journal.waiting} == set(tenants)
