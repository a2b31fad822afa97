"""``python -m benchmarks.accuracy.suspicion``: recall and false alarms of suspected failures.

Prints a table in Markdown; ``--write`` also fits the coefficients to all runs and writes them. Scores in the
table are out of fold: the coefficients are fitted to the other kinds of stories.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from analyzer.lineage.clue import DEFAULT_FALSE_ALARMS, REASONED, weigh
from analyzer.signals.suspicion import Clue, clues
from analyzer.signals.triage import triage
from analyzer.texts.run_view import read
from benchmarks.accuracy.suspicion.faults import FAULTS
from benchmarks.accuracy.suspicion.fit import Example, fit, out_of_fold
from benchmarks.accuracy.suspicion.good_runs import KINDS, good_run
from benchmarks.accuracy.suspicion.play import RENDERINGS, trajectory_of
from benchmarks.accuracy.suspicion.story import plain
from benchmarks.accuracy.suspicion.tables import row, table, threshold
from semconv.model import Trajectory

_WEIGHTS: Final = Path(__file__).parents[3] / "analyzer/lineage/weights.py"
_TOLERATED: Final = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
_GOOD: Final = 1_020


def examples_of(number: int) -> list[Example]:
    """Return the good run of a number, and its faulted twins."""
    story = good_run(number)
    rendering = RENDERINGS[number // len(KINDS) % len(RENDERINGS)]
    clues_of_good = _clues(trajectory_of(story, rendering))
    found = [Example(story=story.kind, dialect=rendering.name, fault="", clues=clues_of_good)]
    known = frozenset((str(clue.kind), clue.reason) for clue in clues_of_good)
    for place, fault in enumerate(FAULTS):
        twin = fault(story, random.Random(number * len(FAULTS) + place))
        if twin is None:
            continue
        trajectory = trajectory_of(twin.story, rendering)
        assert not triage(trajectory).failed, triage(trajectory).reason
        found.append(
            Example(
                story=story.kind,
                dialect=rendering.name,
                fault=twin.fault,
                clues=_clues(trajectory),
                of_twin=known,
                step=_step_at_fault(trajectory, twin.agent, plain(twin.text)),
            )
        )
    return found


def examples(count: int) -> list[Example]:
    """Return good runs and their faulted twins, made in as many processes as there are cores."""
    with ProcessPoolExecutor() as pool:
        return [one for found in pool.map(examples_of, range(count), chunksize=20) for one in found]


def _clues(trajectory: Trajectory) -> tuple[Clue, ...]:
    return clues(read(trajectory))


def _step_at_fault(trajectory: Trajectory, agent: str, text: str) -> int | None:
    said = " ".join(text.split())[:80]
    if not said:
        return None
    mine = (
        step.index
        for step in trajectory.steps
        if step.agent == agent and said in " ".join(step.output.split())
    )
    return next(mine, None)


def write(found: Sequence[Example], scores: Sequence[float]) -> None:
    """Write the coefficients and the thresholds."""
    good = [score for one, score in zip(found, scores, strict=True) if not one.fault]
    lines = ["WEIGHTS: Final[Mapping[str, Mapping[str, float]]] = {"]
    for kind, coefficients in fit(found).items():
        if kind in REASONED:
            continue
        lines += [
            f'    "{kind}": {{',
            *(f'        "{sign}": {value},' for sign, value in coefficients.items()),
            "    },",
        ]
    lines += ["}", "THRESHOLDS: Final[tuple[tuple[float, float], ...]] = ("]
    lines += [f"    ({share}, {threshold(good, share)})," for share in _TOLERATED]
    lines += [
        ")",
        f'"""Tolerated share of good runs, and least probability; from {len(good)} of them, out of fold."""',
    ]
    head = _WEIGHTS.read_text().partition("WEIGHTS:")[0]
    _WEIGHTS.write_text(head + "\n".join(lines) + "\n")


def report(found: Sequence[Example], tolerated: float, *, writes: bool = False) -> None:
    """Print the tables, with scores out of fold."""
    scores = out_of_fold(found)
    good = [(one, score) for one, score in zip(found, scores, strict=True) if not one.fault]
    bad = [(one, score) for one, score in zip(found, scores, strict=True) if one.fault]
    least = threshold([score for _, score in good], tolerated)
    print(f"{len(good)} good runs, {len(bad)} faulted twins; suspected from {least}")
    table("fault", bad, least, lambda one: one.fault)
    table("faulted, by dialect", bad, least, lambda one: one.dialect)
    table("good, by dialect", good, least, lambda one: one.dialect)
    table("good, by story", good, least, lambda one: one.story)
    weights = fit(found)
    noticed = [
        (one, weigh(one.clues, weights)) for one, score in bad if score >= least and one.step is not None
    ]
    right = sum(weighed.clues[0][1].step == one.step for one, weighed in noticed)
    print("\n| step at fault named, of those noticed | | n | 95 % |\n|---|---|---|---|")
    print(row("all", right, len(noticed)))
    if writes:
        write(found, scores)


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", type=int, default=_GOOD, help="good runs")
    parser.add_argument("--tolerated", type=float, default=DEFAULT_FALSE_ALARMS, help="share of good runs")
    parser.add_argument("--write", action="store_true", help="write the coefficients")
    asked = parser.parse_args()
    begun = time.perf_counter()
    report(examples(asked.good), asked.tolerated, writes=asked.write)
    print(f"\n{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
