"""Memory that a burst leaves free goes back to the system: measured by the process's resident memory."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from analyzer.service.all_in_one import trim_periodically
from collector_processor.receivers.overload import glibc

_PIECE = 4096
_PIECES = 20_000


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
