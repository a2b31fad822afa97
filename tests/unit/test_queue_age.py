"""The age of a queue's oldest item."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector_processor.journal import open_journal
from collector_processor.journal.accounts import MAX_MARKS, QueueAge
from collector_processor.journal.chunks import ROW_OVERHEAD_BYTES, Entry, JournalLimits
from collector_processor.otlp import NO_TENANT, RefusedError, Signal

SECOND = 1_000_000_000


def test_the_oldest_is_what_came_first_of_what_is_left() -> None:
    age = QueueAge()
    for second in range(10):
        age.add(100, second * SECOND)
    assert age.oldest_ns == 0
    age.remove(100)
    assert age.oldest_ns == SECOND
    age.remove(850)
    assert age.oldest_ns == 9 * SECOND


def test_an_empty_queue_has_no_age_and_a_new_item_has_its_own() -> None:
    age = QueueAge()
    assert age.oldest_ns is None
    age.add(100, SECOND)
    age.remove(100)
    assert age.oldest_ns is None
    age.add(100, 500 * SECOND)
    assert age.oldest_ns == 500 * SECOND


def test_what_was_not_stored_after_all_leaves_the_older_ones_as_they_are() -> None:
    age = QueueAge()
    age.add(100, SECOND)
    age.add(100, 5 * SECOND)
    age.take_back(100)
    assert age.oldest_ns == SECOND
    age.remove(100)
    assert age.oldest_ns is None


def test_a_day_of_a_backend_that_is_away_takes_no_more_marks_than_there_may_be() -> None:
    age = QueueAge()
    for second in range(86_400):
        age.add(1, second * SECOND)
    assert len(age.marks) <= MAX_MARKS
    assert age.oldest_ns == 0
    age.remove(43_200)
    assert age.oldest_ns is not None
    assert abs(age.oldest_ns - 43_200 * SECOND) <= 2 * age.step_ns


def test_a_clock_that_goes_back_makes_nothing_older_than_it_is() -> None:
    age = QueueAge()
    age.add(100, 10 * SECOND)
    age.add(100, 2 * SECOND)
    assert age.oldest_ns == 10 * SECOND


async def test_the_journal_says_how_full_and_how_old_a_queue_is_after_a_restart_too(tmp_path: Path) -> None:
    limits = JournalLimits(max_pending_bytes=10_000)
    journal = await open_journal(tmp_path, limits)
    chunks = await journal.append([_entry(1_000, 3), _entry(1_000, 5_000_000_003)])
    size = 2 * (1_000 + ROW_OVERHEAD_BYTES)
    for _ in range(2):
        look = journal.look(Signal.TRACES)
        assert (look.size_bytes, look.capacity_bytes, look.oldest_ns) == (size, 10_000, 3)
        assert look.fullness == size / 5_000, "a tenant's signal may take half of it"
        assert journal.look(Signal.LOGS).oldest_ns is None
        await journal.close()
        journal = await open_journal(tmp_path, limits)
    journal.mark_done(chunks[:1])
    journal.mark_done(chunks[1:])
    assert journal.look(Signal.TRACES).oldest_ns is None
    await journal.close()


async def test_a_refused_request_leaves_sizes_and_ages_as_they_were(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path, JournalLimits(max_pending_bytes=10_000))
    await journal.append([_entry(1_000, 3)])
    before = journal.look(Signal.TRACES)
    with pytest.raises(RefusedError):
        await journal.append([_entry(9_000, 4)])
    assert journal.look(Signal.TRACES) == before
    await journal.close()


def _entry(size: int, received_ns: int) -> Entry:
    return Entry(
        signal=Signal.TRACES, tenant=NO_TENANT, hops=(), received_ns=received_ns, items=1, body=bytes(size)
    )
