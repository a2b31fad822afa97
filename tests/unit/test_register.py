"""Vanished rows: a start detects them by a register beside each segment."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector_processor.journal.chunks import JournalLimits
from collector_processor.journal.directory import REGISTER, RegisteredRow, RowRegister
from collector_processor.otlp import Signal
from tests.otlp_requests import request, span
from tests.unit.test_journal import (
    SMALL_SEGMENTS,
    TRACES,
    crash_image,
    entry,
    found,
    journal_in,
    pending,
    settled,
)

ROWS = 20


def body(number: int) -> bytes:
    return request(span(number, attributes={"text": random.Random(number).randbytes(3000).hex()}))


async def killed(tmp_path: Path, *, forwarded: int = 0, limits: JournalLimits | None = None) -> Path:
    """Return the folder of a killed process with some rows in its WAL, some of them done."""
    async with journal_in(tmp_path / "live", limits) as journal:
        for number in range(1, ROWS + 1):
            await journal.append([entry(body(number))])
        journal.mark_done((await pending(journal))[:forwarded])
        while journal._reads.done:  # noqa: ASYNC110 - the journal tells nobody when the disk knows
            await asyncio.sleep(0.01)
        return crash_image(tmp_path / "live", tmp_path / "killed")


def flip(wal: Path, share: float) -> None:
    content = bytearray(wal.read_bytes())
    content[int(len(content) * share)] ^= 4
    wal.write_bytes(content)


async def test_rows_behind_a_flipped_bit_of_the_wal_are_counted_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image = await killed(tmp_path)
    (wal,) = found(image, "*-wal")
    flip(wal, 0.5)
    async with journal_in(image) as journal:
        there = journal.waiting[TRACES].items
        assert 0 < there < ROWS
        assert journal.lost == {Signal.TRACES: ROWS - there}
        assert "acknowledged rows are missing from a journal segment" in caplog.messages
    async with journal_in(image) as journal:
        assert not journal.lost  # each loss counts once
        assert journal.waiting[TRACES].items == there


async def test_what_was_forwarded_before_it_vanished_is_not_lost(tmp_path: Path) -> None:
    image = await killed(tmp_path, forwarded=ROWS)
    (wal,) = found(image, "*-wal")
    flip(wal, 0.2)
    async with journal_in(image) as journal:
        assert not journal.lost


async def test_a_segment_of_which_nothing_can_be_read_is_counted(tmp_path: Path) -> None:
    """Not even the register has the rows."""
    image = await killed(tmp_path)
    for file in (*found(image, "*.sqlite"), *found(image, "*-wal")):
        file.write_bytes(b"nonsense " * 1000)
    async with journal_in(image) as journal:
        assert journal.lost == {Signal.TRACES: ROWS}


@pytest.mark.parametrize("forwarded", [0, 7, ROWS])
async def test_a_kill_alone_loses_nothing_and_nothing_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, forwarded: int
) -> None:
    image = await killed(tmp_path, forwarded=forwarded)
    for _ in range(2):
        async with journal_in(image) as journal:
            assert not journal.lost
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_what_was_deleted_or_compacted_is_not_missed(tmp_path: Path) -> None:
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        for number in range(1, ROWS + 1):
            await journal.append([entry(body(number))])
        journal.mark_done((await pending(journal))[: ROWS // 2])
        await settled(journal)
        assert len(found(tmp_path, f"*{REGISTER}")) == len(found(tmp_path, "*.sqlite")) < ROWS
    async with journal_in(tmp_path, SMALL_SEGMENTS) as journal:
        assert not journal.lost


async def test_without_a_register_nothing_is_said(tmp_path: Path) -> None:
    """A disk that refused it, or a person, left none."""
    image = await killed(tmp_path)
    for register in found(image, f"*{REGISTER}"):
        register.unlink()
    async with journal_in(image) as journal:
        assert not journal.lost
        assert journal.waiting[TRACES].items == ROWS


async def test_a_disk_that_refuses_the_register_refuses_no_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with journal_in(tmp_path) as journal:
        (tmp_path / f"00000001.sqlite{REGISTER}").mkdir()  # cannot be opened as a file
        await journal.append([entry(body(1))])
        journal.mark_done(await pending(journal))
        await journal.append([entry(body(2))])
        assert journal.waiting[TRACES].items == 1
    assert (
        caplog.messages.count("cannot write the journal's row register: missing rows would not be noticed")
        == 1
    )


@settings(deadline=None)
@given(
    batches=st.lists(st.integers(1, 700), max_size=5),
    data=st.data(),
)
def test_a_register_knows_what_was_added_and_not_struck_out(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], data: st.DataObject
) -> None:
    register = RowRegister(tmp_path_factory.mktemp("register") / "segment")
    expected: dict[int, RegisteredRow] = {}
    for count in batches:
        first = len(expected)
        rows = [(data.draw(st.sampled_from(Signal)) if count < 9 else Signal.LOGS, n) for n in range(count)]
        register.add(first, rows)
        expected |= {
            first + n: RegisteredRow(first + n, signal, items) for n, (signal, items) in enumerate(rows)
        }
    done = data.draw(st.sets(st.integers(0, max(0, len(expected) - 1)), max_size=50))
    register.mark_done(sorted(done & set(expected)))
    assert register.pending() == [noted for place, noted in expected.items() if place not in done]
    register.close()


@given(content=st.binary(max_size=6000))
def test_nonsense_in_a_register_is_no_loss(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    segment = tmp_path_factory.mktemp("register") / "segment"
    segment.with_name(f"segment{REGISTER}").write_bytes(content)
    register = RowRegister(segment)
    assert len(register.pending()) <= len(content) // 500  # one in 65,536 notes may pass for one
    register.close()
