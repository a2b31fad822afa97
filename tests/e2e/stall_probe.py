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
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import uvloop

from analyzer.__main__ import main

EVERY_S: Final = 0.005
LEAST_S: Final = 0.01
"""Shorter delays are not recorded."""
MORE_TRIALS: Final = 20
BEGINNINGS: Final = {
    "serve": (
        "analyzer.service.all_in_one:_Service.start",
        "analyzer.service.halves:AnalyzerServer.start",
        "analyzer.cli.commands.serve:_show_until_stopped",
    ),
    "gateway": ("analyzer.cli.commands.gateway:_serve",),
    "mcp": ("uvicorn:Server.serve",),
}
"""Coroutines in which commands begin to serve: only the command's own modules are imported."""
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


def add_probe(beginning: str, path: Path) -> None:
    """Start a probe when the coroutine begins; it ends with the event loop."""
    module, _, place = beginning.partition(":")
    *owners, name = place.split(".")
    owner: Any = reduce(getattr, owners, import_module(module))
    begin = getattr(owner, name)

    async def probed(*arguments: Any, **options: Any) -> Any:
        probes.add(asyncio.create_task(probe(path)))
        return await begin(*arguments, **options)

    setattr(owner, name, probed)


def open_more_trials() -> None:
    """Open trials beside the one that ``gateway`` opens, each with a number behind that one's id."""
    gateway: Any = import_module("analyzer.experiment.replay.gateway_server").Gateway
    begin = gateway.open

    def opened(*arguments: Any, trial: str, **options: Any) -> Any:
        for number in range(MORE_TRIALS):
            begin(*arguments, trial=f"{trial}{number}", **options)
        return begin(*arguments, trial=trial, **options)

    gateway.open = opened


if __name__ == "__main__":
    noted = Path(sys.argv.pop(1))
    for beginning in BEGINNINGS[sys.argv[1]]:
        add_probe(beginning, noted)
    if sys.argv[1] == "gateway":
        open_more_trials()
    measure_callbacks(noted)
    measure_collections(noted)
    setattr(uvloop, "run", asyncio.run)  # noqa: B010 - another signature
    main()
