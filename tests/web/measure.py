"""``python -m tests.web.measure``: how long pages take with 100,000 runs, while 16 analyses run."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from aiohttp import ClientSession

from analyzer.opinion import Choice
from analyzer.web.jobs import Asked, Jobs
from collector_processor.runstore import Commit
from semconv.model import Attribution, Trajectory
from tests.web.showcase import demo_run
from tests.web.stage import ANALYST, Stage, open_stage, serving, verdict_of

RUNS: Final = 100_000
_BATCH: Final = 5_000
_ASKED: Final = 100
"""Requests for each page."""


def fill(stage: Stage, trajectory: Trajectory, told: Attribution, runs: int) -> None:
    """Store many verdicts, as one analysis after the other would have."""
    for start in range(0, runs, _BATCH):
        verdicts = tuple(
            replace(verdict_of(trajectory, told, f"service-{number % 20}", number), run_id=f"{number:032x}")
            for number in range(start, start + _BATCH)
        )
        stage.verdicts.commit(Commit(analysed=(), verdicts=verdicts))


async def keep_busy(jobs: Jobs, trajectory: Trajectory, at_once: int) -> None:
    """Keep so many analyses under way until cancelled."""
    choice = Choice(method="signals", takes_as_failed=True)
    asked = Asked(name="busy", choice=choice, size=1, load=lambda: [trajectory] * 10)
    number = 0
    while True:
        under_way = sum(not job.is_over for owner in range(at_once) for job in jobs.of(str(owner)))
        for _ in range(at_once - under_way):
            jobs.start(str(number % at_once), asked)
            number += 1
        await asyncio.sleep(0.01)


async def ask(session: ClientSession, address: str) -> float:
    """Return how many milliseconds one answer takes."""
    began = time.perf_counter()
    async with session.get(address) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()
    return 1000 * (time.perf_counter() - began)


async def measure() -> None:
    """Fill a store, ask for pages in quiet and under load, and print what they took."""
    trajectory = demo_run()
    told = (await ANALYST.analyse(trajectory)).attribution
    with tempfile.TemporaryDirectory() as folder:
        stage = open_stage(Path(folder))
        fill(stage, trajectory, told, RUNS)
        run_id = await stage.add(trajectory, "demo")
        newest = stage.verdicts.recent(1)[0]
        stage.verdicts.commit(Commit(analysed=(), verdicts=(replace(newest, decided_ns=2**62),)))
        parts = stage.parts()
        assert parts.pages is not None
        assert parts.pages.jobs is not None
        pages = {
            "runs": "/runs", "search that finds": "/runs?q=solar", "search for nothing": "/runs?q=nowhere",
            "status nobody has": "/runs?status=error", "one run": f"/runs/{run_id}", "health": "/health",
        }  # fmt: skip
        async with serving(parts) as address, ClientSession() as session:
            for name, at_once in (("in quiet", 0), ("16 analyses under way", 16)):
                busy = asyncio.create_task(keep_busy(parts.pages.jobs, trajectory, at_once))
                for page, path in pages.items():
                    took = sorted([await ask(session, address + path) for _ in range(_ASKED)])
                    print(json.dumps(_line(name, page, took)), flush=True)
                busy.cancel()
            await parts.pages.jobs.close()


def _line(name: str, page: str, took: list[float]) -> dict[str, object]:
    return {
        "load": name, "page": page, "runs": RUNS, "n": len(took),
        "median_ms": round(statistics.median(took), 1),
        "p99_ms": round(took[int(0.99 * len(took)) - 1], 1), "slowest_ms": round(took[-1], 1),
    }  # fmt: skip


if __name__ == "__main__":
    asyncio.run(measure())
