"""A damaged journal: sound rows are forwarded, lost ones are counted."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from collector_processor.journal import Journal, JournalError, open_journal
from collector_processor.journal.chunks import Entry, Queue
from collector_processor.journal.segments import SegmentFile
from collector_processor.otlp import NO_TENANT, Signal

TRACES = Queue(Signal.TRACES, NO_TENANT)
ROWS = 40
ITEMS = 3
SEGMENT = "00000001.sqlite"


def bodies(seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(3000) for _ in range(ROWS)]


@asynccontextmanager
async def journal_in(path: Path) -> AsyncIterator[Journal]:
    journal = await open_journal(path)
    try:
        yield journal
    finally:
        await journal.close()


async def fill(path: Path) -> Path:
    async with journal_in(path) as journal:
        for body in bodies():
            await journal.append(
                [
                    Entry(
                        signal=Signal.TRACES,
                        tenant=NO_TENANT,
                        hops=("far",),
                        received_ns=5,
                        items=ITEMS,
                        body=body,
                    )
                ]
            )
    return path / SEGMENT


async def found(path: Path) -> tuple[list[bytes], int, int]:
    """Return the bodies that can be forwarded, the number of lost items, and that of waiting ones."""
    async with journal_in(path) as journal:
        waiting = journal.waiting[TRACES].items if TRACES in journal.waiting else 0
        backlog = await journal.read_pending(TRACES, 0, 1 << 30)
        return [chunk.body for chunk in backlog.chunks], sum(chunk.items for chunk in backlog.lost), waiting


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
async def test_of_a_truncated_segment_what_is_left_goes_on_and_the_rest_is_counted(
    tmp_path: Path, share: float
) -> None:
    segment = await fill(tmp_path)
    whole = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(int(whole * share))
    sound, lost, waiting = await found(tmp_path)
    assert sound == [body for body in bodies() if body in sound]
    assert len(sound) > ROWS * (share - 0.2)
    assert waiting == len(sound) * ITEMS + lost
    assert waiting > ROWS * ITEMS * share / 2  # rows are described in few pages, mostly early ones
    assert (tmp_path / f"{SEGMENT}.damaged").stat().st_size == int(whole * share)
    assert (await found(tmp_path))[0] == sound  # it is a sound segment now


@pytest.mark.parametrize("seed", range(12))
async def test_flipped_bits_cost_the_rows_they_hit_and_never_change_one(tmp_path: Path, seed: int) -> None:
    segment = await fill(tmp_path)
    chance, content = random.Random(seed), bytearray(segment.read_bytes())
    for _ in range(5):
        content[chance.randrange(4096, len(content))] ^= 1 << chance.randrange(8)
    segment.write_bytes(content)
    sound, lost, waiting = await found(tmp_path)
    assert set(sound) <= set(bodies())
    assert len(sound) >= ROWS // 2
    assert waiting == len(sound) * ITEMS + lost


async def test_a_kill_in_the_middle_of_saving_is_made_good_by_the_next_start(tmp_path: Path) -> None:
    segment = await fill(tmp_path)
    segment.rename(tmp_path / "00000001.salvaged")
    (tmp_path / f"{SEGMENT}.damaged").write_bytes(b"whatever it was")
    assert len((await found(tmp_path))[0]) == ROWS


async def test_a_kill_before_a_damaged_wal_was_set_aside_costs_nothing_that_was_saved(tmp_path: Path) -> None:
    segment = await fill(tmp_path)
    saved = segment.rename(tmp_path / "00000001.salvaged")
    damaged = tmp_path / f"{SEGMENT}.damaged"
    shutil.copy(saved, damaged)
    with closing(sqlite3.connect(damaged)) as db:
        db.execute("DELETE FROM body")
        db.commit()
        shutil.copy(f"{damaged}-wal", f"{segment}-wal")
    assert len((await found(tmp_path))[0]) == ROWS


async def test_a_disk_that_refuses_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file were set aside as damaged, sound acknowledged rows would never be forwarded."""
    segment = await fill(tmp_path)

    def refuse(_: SegmentFile) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(SegmentFile, "summary", refuse)
    with pytest.raises(JournalError, match="disk I/O error"):
        await open_journal(tmp_path)
    monkeypatch.undo()
    assert segment.exists()
    assert len((await found(tmp_path))[0]) == ROWS


@pytest.mark.parametrize("bit", [1, 128], ids=["another letter", "no letter of Unicode"])
async def test_a_flipped_bit_of_the_schema_costs_the_segment_and_is_counted(tmp_path: Path, bit: int) -> None:
    """SQLite quotes the damaged bytes in its message, which Python then cannot decode."""
    segment = await fill(tmp_path)
    content = bytearray(segment.read_bytes())
    content[content.index(b"CREATE TABLE body") + len(b"CREATE T")] ^= bit
    segment.write_bytes(content)
    sound, lost, waiting = await found(tmp_path)
    assert (sound, lost, waiting) == ([], ROWS * ITEMS, ROWS * ITEMS)
    assert (tmp_path / f"{SEGMENT}.damaged").exists()
