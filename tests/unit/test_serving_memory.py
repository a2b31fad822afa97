from __future__ import annotations

import asyncio
import ctypes
import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from analyzer.cli.commands.operate.serve import collect_garbage
from analyzer.service.listeners import trim_periodically
from collector_processor.receivers.overload import glibc

_PIECE = 4096
_PIECES = 20_000


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


async def test_what_a_burst_has_left_free_goes_back_though_something_lies_behind_it() -> None:
    allocate, free = _allocator()
    before = _resident()
    pieces = [allocate(_PIECE) for _ in range(_PIECES)]
    for piece in pieces:
        ctypes.memset(piece, 1, _PIECE)
    for piece in pieces[:-1]:  # the last one keeps the heap from shrinking by itself
        free(piece)
    task = asyncio.create_task(trim_periodically(glibc().trim, every_s=0.05))
    async with asyncio.timeout(60):
        while _resident() - before > _PIECE * _PIECES // 4:  # noqa: ASYNC110 - nobody tells what is resident
            await asyncio.sleep(0.05)
    task.cancel()
    free(pieces[-1])


def _allocator() -> tuple[Callable[[int], int], Callable[[int], None]]:
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        pytest.skip("the C library is another than glibc")
    library.malloc.restype = ctypes.c_void_p
    library.free.argtypes = [ctypes.c_void_p]
    return library.malloc, library.free


def _resident() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the system does not say how much memory is in use")


async def test_old_garbage_is_collected_when_memory_has_grown_and_at_times() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

    thresholds, collected = gc.get_threshold(), list[int]()
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
        memory = 200 << 20 if minute >= 4 else memory
        if minute == 22:
            raise asyncio.CancelledError
        await asyncio.sleep(0)

    gc.disable()  # young objects are collected whenever it suits Python
    try:
        with pytest.raises(asyncio.CancelledError):
            await collect_garbage(pause, lambda: memory)
        assert gc.get_threshold()[:2] == thresholds[:2]
        assert gc.get_threshold()[2] > 1 << 20
        assert gc.get_freeze_count() > 0
    finally:
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    assert collected == [0, 4, 10, 20]
