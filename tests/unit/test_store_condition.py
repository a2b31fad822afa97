"""A store's condition: a refusal counts for a while, and a call that takes long is a store that hangs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collector_processor.core.disk import REFUSING_S, SILENT_S, Condition, Fault, StoreError
from collector_processor.store.database.connection import StoreThread


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def thread() -> Iterator[StoreThread]:
    made = StoreThread()
    yield made
    made.close()


def fault_of(condition: Condition) -> Fault | None:
    return condition.fault


def test_a_refusal_counts_until_long_after_the_next_attempt_would_have_been() -> None:
    clock = Clock()
    condition = Condition(clock)
    assert fault_of(condition) is None
    condition.asked()
    condition.refused()
    condition.answered()
    assert fault_of(condition) is Fault.REFUSES
    clock.now += REFUSING_S - 1
    condition.asked()
    condition.answered()
    assert fault_of(condition) is Fault.REFUSES, "a read may succeed on a full disk"
    clock.now += 1
    assert fault_of(condition) is None


def test_a_call_that_is_not_answered_is_a_store_that_hangs() -> None:
    clock = Clock()
    condition = Condition(clock)
    condition.asked()
    clock.now += SILENT_S
    assert fault_of(condition) is None
    clock.now += 1
    assert fault_of(condition) is Fault.HANGS
    condition.answered()
    assert fault_of(condition) is None


async def test_the_stores_thread_notes_refusals_and_no_other_errors(thread: StoreThread) -> None:
    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(ValueError, match="ours"):
        await thread.run(fail, ValueError("ours"))
    assert thread.condition.fault is None
    with pytest.raises(StoreError):
        await thread.run(fail, StoreError("full"))
    assert thread.condition.fault is Fault.REFUSES
