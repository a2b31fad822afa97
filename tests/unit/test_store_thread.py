"""The store's thread runs one call after the other, and each caller gets its own answer."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import Iterator
from threading import Event, current_thread

import pytest

from collector_processor.core.disk import STORE_RETRY_S, StoreError, patiently
from collector_processor.store.database.connection import StoreThread


@pytest.fixture
def thread() -> Iterator[StoreThread]:
    made = StoreThread(name="ledger")
    yield made
    made.close()


async def test_calls_are_made_one_after_the_other_on_a_thread_of_its_own(thread: StoreThread) -> None:
    made: list[tuple[int, str]] = []

    def call(number: int) -> int:
        made.append((number, current_thread().name))
        return 2 * number

    assert await asyncio.gather(*(thread.run(call, number) for number in range(50))) == list(range(0, 100, 2))
    assert made == [(number, "ledger") for number in range(50)]


async def test_an_error_reaches_only_its_own_caller(thread: StoreThread) -> None:
    def refuse() -> None:
        raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        await thread.run(refuse)
    assert await thread.run(int) == 0


async def test_an_abandoned_call_is_skipped(thread: StoreThread) -> None:
    go_on, made = Event(), list[str]()
    blocking = asyncio.create_task(thread.run(go_on.wait))
    waiting = asyncio.create_task(thread.run(made.append, "never"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    go_on.set()
    await blocking
    await thread.run(made.append, "after")
    assert made == ["after"]


async def test_a_call_cancelled_under_way_does_not_disturb_later_ones(thread: StoreThread) -> None:
    begun, go_on = Event(), Event()

    def slow() -> None:
        begun.set()
        go_on.wait()

    under_way = asyncio.create_task(thread.run(slow))
    await asyncio.to_thread(begun.wait)
    under_way.cancel()
    await asyncio.gather(under_way, return_exceptions=True)
    go_on.set()
    assert await thread.run(int) == 0


async def test_a_write_is_tried_again_until_the_disk_takes_it() -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    def write() -> str:
        if len(pauses) < 2:
            raise StoreError("the disk is full")
        return "written"

    thread = StoreThread(pause)
    assert await thread.insist(write) == "written"
    assert pauses == [STORE_RETRY_S, STORE_RETRY_S]
    thread.close()


async def test_a_damaged_file_is_a_store_that_refuses_and_is_named(thread: StoreThread) -> None:
    """If it were raised unchanged, the service would end, and spans would no longer be forwarded."""

    def read() -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    with pytest.raises(StoreError, match="malformed; unless this passes, stop blamespan"):
        await thread.run(read)
    assert await thread.run(int) == 0


async def test_a_file_that_cannot_be_opened_is_a_store_that_refuses(thread: StoreThread) -> None:
    def read() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with pytest.raises(StoreError, match="Too many open files"):
        await thread.run(read)


async def test_a_patient_call_is_retried_until_the_disk_accepts_it() -> None:
    refusals = [OSError(errno.ENFILE, "Too many open files in system"), StoreError("full")]
    pauses: list[float] = []

    async def work() -> str:
        if refusals:
            raise refusals.pop()
        return "done"

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    assert await patiently(work, pause) == "done"
    assert pauses == [STORE_RETRY_S, STORE_RETRY_S]


async def test_a_fault_of_ours_is_not_waited_out() -> None:
    async def work() -> None:
        raise FileNotFoundError(errno.ENOENT, "gone")

    with pytest.raises(FileNotFoundError):
        await patiently(work, asyncio.sleep)


async def test_what_was_asked_before_the_end_is_done_and_nothing_is_taken_after_it() -> None:
    thread, made = StoreThread(), list[int]()
    asked = [asyncio.create_task(thread.run(made.append, number)) for number in range(3)]
    await asyncio.sleep(0)
    thread.close()
    await asyncio.gather(*asked)
    assert made == [0, 1, 2]
    with pytest.raises(RuntimeError, match="has ended"):
        await thread.run(made.append, 3)
    thread.close()  # once more does no harm
