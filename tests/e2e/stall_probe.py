"""Runs ``blamespan`` with a probe on its event loop: ``stall_probe.py FILE COMMAND…``.

Each line of FILE is one delay of the loop: the time (``time.monotonic``), the seconds of delay, and the CPU
seconds used meanwhile by this process and by the loop's own thread. On a busy machine the loop is late
because it gets no CPU; the part that is our fault is the smaller of the first two.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Final

import uvicorn

from analyzer.__main__ import main
from analyzer.cli.commands.prove import gateway
from analyzer.service import all_in_one
from analyzer.service.analyzer_half.server import AnalyzerServer

EVERY_S: Final = 0.005
LEAST_S: Final = 0.01
"""Shorter delays are not recorded."""
BEGINNINGS: Final[tuple[tuple[Any, str], ...]] = (
    (all_in_one._Service, "start"),
    (AnalyzerServer, "start"),
    (gateway, "_serve"),
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
                file.write(f"{now} {late_s} {time.process_time() - used} {time.thread_time() - own}\n")


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
    main()
