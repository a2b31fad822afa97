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

from analyzer.__main__ import main
from analyzer.service import all_in_one
from analyzer.service.analyzer_half.server import AnalyzerServer

EVERY_S: Final = 0.005
LEAST_S: Final = 0.01
"""Shorter delays are not recorded."""


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


if __name__ == "__main__":
    noted = Path(sys.argv.pop(1))
    start = all_in_one._Service.start

    async def started(self: Any, given: Any) -> Any:
        running = await start(self, given)
        self._lifetime.background(probe(noted))
        return running

    all_in_one._Service.start = started  # type: ignore[method-assign]
    listen = AnalyzerServer.start
    probes: set[asyncio.Task[None]] = set()

    async def listening(self: AnalyzerServer) -> int:
        probes.add(asyncio.create_task(probe(noted)))
        return await listen(self)

    AnalyzerServer.start = listening  # type: ignore[method-assign]
    main()
