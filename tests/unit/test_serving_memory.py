from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress

import pytest

from analyzer.service.all_in_one import trim_periodically
from analyzer.service.lifetime import collect_garbage, collecting_rarely


async def test_memory_is_given_back_again_and_again_until_the_end() -> None:
    given: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(
        trim_periodically(lambda: loop.call_soon_threadsafe(given.put_nowait, 1), every_s=0.0)
    )
    async with asyncio.timeout(60):
        for _ in range(3):
            await given.get()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_old_garbage_is_collected_only_when_memory_has_doubled() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

    collected = list[int]()
    memory, minute = 100 << 20, 0
    cycle = Cycle()
    alive = weakref.ref(cycle)
    del cycle

    async def pause(seconds: float) -> None:
        nonlocal memory, minute, alive
        assert seconds == 60
        if alive() is None:
            collected.append(minute)
            cycle = Cycle()
            alive = weakref.ref(cycle)
            del cycle
        minute += 1
        memory = {4: 600 << 20, 6: 613 << 20, 10: 1200 << 20, 12: 1230 << 20}.get(minute, memory)
        if minute == 22:
            raise asyncio.CancelledError
        await asyncio.sleep(0)

    gc.disable()  # young objects are collected whenever it suits Python
    try:
        with pytest.raises(asyncio.CancelledError):
            await collect_garbage(pause, lambda: memory)
    finally:
        gc.enable()
    assert collected == [6, 12]


async def test_a_serving_process_leaves_old_objects_alone() -> None:
    thresholds = gc.get_threshold()
    try:
        async with collecting_rarely():
            await asyncio.sleep(0)
            assert gc.get_freeze_count() > 0
            assert gc.get_threshold()[:2] == thresholds[:2]
            assert gc.get_threshold()[2] > 1 << 20
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
