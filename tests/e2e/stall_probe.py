"""Runs ``blamespan`` with a probe on its event loop: ``stall_probe.py FILE COMMAND…``.

Each line of FILE is one delay of the loop or one long callback: the time (``time.monotonic``), the seconds
of delay, the CPU seconds used meanwhile by this process and by the loop's own thread, the CPU seconds of the
callback (or garbage collection), and its name. On a busy machine the loop is late because it gets no CPU, and
several callbacks run before the probe does; the CPU time of a single callback is ours alone.

The loop is asyncio's, whose callbacks can be measured, in place of uvloop's.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import uvicorn
import uvloop

from analyzer.__main__ import main
from analyzer.cli.commands import gateway, serve
from analyzer.service import all_in_one
from analyzer.service.halves import AnalyzerServer

EVERY_S: Final = 0.005
LEAST_S: Final = 0.01
"""Shorter delays are not recorded."""
BEGINNINGS: Final[tuple[tuple[Any, str], ...]] = (
    (all_in_one._Service, "start"),
    (AnalyzerServer, "start"),
    (gateway, "_serve"),
    (serve, "_show_until_stopped"),
    (uvicorn.Server, "serve"),
)
"""Coroutines that begin to serve, by owner and name: the last is the MCP server's."""
probes: Final[set[asyncio.Task[None]]] = set()


async def probe(path: Path) -> None:
    """Record delays until cancelled."""
    with path.open("a", buffering=1) as file:
        while True:
            before, used, own = time.monotonic(), time.process_time(), time.thread_time()
            await asyncio.sleep(EVERY_S)
            now = time.monotonic()
            late_s = now - before - EVERY_S
            if late_s >= LEAST_S:
                ours_s, own_s = time.process_time() - used, time.thread_time() - own
                file.write(f"{now} {late_s} {ours_s} {own_s} 0 -\n")


def measure_callbacks(path: Path) -> None:
    """Record each callback that uses much CPU time; not those of the loop in which litellm warms up."""
    handle_class: Any = asyncio.Handle
    run = handle_class._run
    file = path.open("a", buffering=1)

    def measured(handle: asyncio.Handle) -> None:
        own = time.thread_time()
        run(handle)
        used_s = time.thread_time() - own
        if used_s >= LEAST_S and threading.current_thread() is threading.main_thread():
            task = getattr(getattr(handle, "_callback", None), "__self__", None)
            known = repr(task.get_coro()) if isinstance(task, asyncio.Task) else repr(handle)
            name = "-".join(known.split())
            file.write(f"{time.monotonic()} 0 0 0 {used_s} {name}\n")

    handle_class._run = measured


def measure_collections(path: Path) -> None:
    """Record long garbage collections as callbacks: no thread runs during one, the loop's neither."""
    file = path.open("a", buffering=1)
    began = 0.0

    def measured(phase: str, found: dict[str, int]) -> None:
        nonlocal began
        now = time.thread_time()
        if phase == "start":
            began = now
        elif now - began >= LEAST_S:
            file.write(
                f"{time.monotonic()} 0 0 0 {now - began} collection-of-generation-{found['generation']}\n"
            )

    gc.callbacks.append(measured)


def add_probe(owner: Any, name: str, path: Path) -> None:
    """Start a probe when the coroutine begins; it ends with the event loop."""
    begin = getattr(owner, name)

    async def probed(*arguments: Any, **options: Any) -> Any:
        probes.add(asyncio.create_task(probe(path)))
        return await begin(*arguments, **options)

    setattr(owner, name, probed)


if __name__ == "__main__":
    noted = Path(sys.argv.pop(1))
    for owner, name in BEGINNINGS:
        add_probe(owner, name, noted)
    measure_callbacks(noted)
    measure_collections(noted)
    setattr(uvloop, "run", asyncio.run)  # noqa: B010 - another signature
    main()
