"""Timing and correctness of verdicts, simulated: ``python -m benchmarks.completion``.

A simulation in virtual time of the real intake, journal, slow lane and store with default settings and
without a model: services x SDK batch delays x pauses x shapes of runs x restarts of the service. Each cell
plays runs whose right verdict is known; half of them begin after the other half has ended. Exits with 1 if a
final verdict is wrong, or 1 % of the blames were withdrawn, over all cells, or over all cells with the same
batch delay or pause.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.completion.counting import Counts, count
from benchmarks.completion.report import figures, heading, setting
from benchmarks.completion.stories import KINDS, Shape, tell
from benchmarks.completion.world import Begun, play, requests
from collector_processor.settings import Settings, load_settings
from semconv.model import TraceId

SERVICES: Final = (1, 2, 5)
DELAYS_S: Final = (0.2, 5.0, 30.0)
"""Batch delays; the middle one is the SDKs' default."""
PAUSES_S: Final = (5.0, 20.0, 60.0, 300.0, 3600.0)
RESTARTS: Final = (0, 1)
CRON_RUNS: Final = 9
MOST_WITHDRAWN: Final = 0.01
HELD: Final = ("delay_s", "pause_s")
"""Properties that users cannot adapt to blamespan: each value alone must stay below ``MOST_WITHDRAWN``."""
_BEGIN_S: Final = 1_760_000_000.0
_STAGGER_S: Final = 3.0
"""Concurrent runs begin within this many seconds times their number."""
_BETWEEN_S: Final = 120.0
"""Seconds from the end of the first half to the beginning of the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination of parameters."""

    shape: Shape
    services: int
    delay_s: float
    pause_s: float
    restarts: int
    """Kills in the middle of runs, for each half."""


def grid(chosen: argparse.Namespace) -> Iterator[Cell]:
    """Yield the requested cells."""
    axes = itertools.product(chosen.shapes, chosen.services, chosen.delays, chosen.pauses, chosen.restarts)
    for shape, services, delay_s, pause_s, restarts in axes:
        yield Cell(shape=Shape(shape), services=services, delay_s=delay_s, pause_s=pause_s, restarts=restarts)


def runs_of(cell: Cell, chance: random.Random) -> list[list[Begun]]:
    """Return the runs of a cell, in groups of concurrent runs."""
    if cell.shape is Shape.CRON:
        return [_group(cell, [*KINDS, *KINDS, KINDS[-1]][:CRON_RUNS], _BEGIN_S, chance)]
    first = _group(cell, KINDS, _BEGIN_S, chance)
    return [first, _group(cell, KINDS, max(run.end_s for run in first) + _BETWEEN_S, chance)]


def _group(cell: Cell, kinds: Sequence[Any], begin_s: float, chance: random.Random) -> list[Begun]:
    return [
        Begun(
            begin_s=begin_s + chance.uniform(0, _STAGGER_S * len(kinds)),
            story=tell(
                cell.shape,
                kind,
                services=cell.services,
                pause_s=cell.pause_s,
                ids=[TraceId(f"{chance.getrandbits(128):032x}") for _ in range(3)],
            ),
        )
        for kind in kinds
    ]


def restarts_of(cell: Cell, groups: Sequence[Sequence[Begun]]) -> list[float]:
    """Return the times of kills: while a group's runs pause, and when the first has just ended."""
    if not cell.restarts:
        return []
    middles = [max(run.begin_s for run in group) + 2 + cell.pause_s / 2 for group in groups]
    ends = [min(run.end_s for run in group) + 0.5 for group in groups]
    return [*middles, *ends]


async def measure(cell: Cell, settings: Settings, seed: int) -> tuple[Counts, Counts]:
    """Play a cell, and return its counts, and those of its first group alone."""
    chance = random.Random(f"{seed}/{cell}")
    groups = runs_of(cell, chance)
    runs = [run for group in groups for run in group]
    arrivals = list(requests(runs, cell.delay_s, chance))
    seen = await play(settings, runs, arrivals, restarts_of(cell, groups))
    first = [run.truth for run in groups[0]]
    return count([run.truth for run in runs], seen), count(first, seen)


def main() -> int:
    """Measure and print."""
    chosen = _arguments()
    began, total, first = time.monotonic(), Counts(), Counts()
    by_axis: dict[tuple[str, object], Counts] = {}
    print(heading(_KEYS))
    for cell in grid(chosen):
        folder = Path(tempfile.mkdtemp(prefix="completion-", dir=_memory()))
        try:
            settings = load_settings({}, data_dir=folder, **dict(chosen.set))
            found, cold = asyncio.run(measure(cell, settings, chosen.seed))
        finally:
            shutil.rmtree(folder)
        _say_row(cell, found)
        total += found
        first += cold
        for axis in asdict(cell).items():
            by_axis.setdefault(axis, Counts())
            by_axis[axis] += found
    _say_summary(by_axis, total, first)
    print(f"took {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0 if _is_held(by_axis, total) else 1


def _is_held(by_axis: Mapping[tuple[str, object], Counts], total: Counts) -> bool:
    """Return whether verdicts were right and stayed, as the module docstring defines."""
    held = [total, *(found for (axis, _), found in by_axis.items() if axis in HELD)]
    return not total.wrong and all(found.withdrawn_share < MOST_WITHDRAWN for found in held)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.completion", description=__doc__)
    shapes = [shape for shape in Shape if shape is not Shape.LATE_LINK]
    parser.add_argument("--shapes", nargs="+", choices=[*Shape], default=shapes, help="all but: late link")
    parser.add_argument("--services", nargs="+", type=int, default=SERVICES)
    parser.add_argument("--delays", nargs="+", type=float, default=DELAYS_S, help="seconds")
    parser.add_argument("--pauses", nargs="+", type=float, default=PAUSES_S, help="seconds")
    parser.add_argument("--restarts", nargs="+", type=int, default=RESTARTS, choices=RESTARTS)
    parser.add_argument(
        "--set", nargs="+", type=setting, default=(), metavar="NAME=NUMBER", help="settings not by default"
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _memory() -> Path | None:
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else None


_KEYS: Final = f"{'shape':<10}{'services':>9}{'delay':>7}{'pause':>7}{'restart':>8}"


def _say_row(cell: Cell, found: Counts) -> None:
    key = f"{cell.shape:<10}{cell.services:>9}{cell.delay_s:>7g}{cell.pause_s:>7g}{cell.restarts:>8}"
    print(key + figures(found), flush=True)


def _say_summary(by_axis: Mapping[tuple[str, object], Counts], total: Counts, cold: Counts) -> None:
    print("\n" + heading(f"{'all cells with':<41}"))
    for (axis, value), found in sorted(by_axis.items(), key=lambda entry: entry[0][0]):
        name = f"{axis} {value}"
        print(f"{name:<41}{figures(found)}")
    print(f"{'total':<41}{figures(total)}")
    print(f"withdrawn: {total.withdrawn_share:.1%} of {total.blames} blames")
    first = "of these, in the first runs of a service"
    print(f"{first}: {cold.withdrawn} of {cold.blames}")


if __name__ == "__main__":
    sys.exit(main())
