"""Divergence of a failed run from the nearest passing runs of its workflow.

At most ``MAX_MEDOIDS`` passing runs stand for all: those that are most central among runs with other
elements than the ones already chosen. The failed run is aligned with each (``inquiry/run_diff.py``); the
nearest is the one with the smallest share of unpaired steps, and the divergence is the first step that has
no counterpart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any, Final

from analyzer.history.elements import unpack
from analyzer.history.known_runs import KnownRun
from analyzer.history.spectrum import Said
from analyzer.inquiry.run_diff import align
from semconv.model import Step, Trajectory
from semconv.record import record

MAX_MEDOIDS: Final = 20
_MOST_CONSIDERED: Final = 200
"""Passing runs among which medoids are chosen, the newest ones."""


class Way(StrEnum):
    """How a run departs from a passing one."""

    EXTRA = "extra"
    """A step that the passing run does not have."""
    MISSING = "missing"
    """A step of the passing run does not come."""
    NONE = "none"
    """All steps are paired; only texts differ."""


@record
class Divergence:
    """The first departure from the nearest passing run."""

    nearest: str
    """Id of the passing run."""
    distance: float
    """Share of both runs' steps without a counterpart, 0 to 1."""
    way: Way
    step: int | None
    """The failed run's step; for a missing one, the step that came instead, ``None`` at the end."""
    expected: str
    """The passing run's action at that point, as prose; empty if it had ended."""
    found: str
    compared: int
    """Passing runs that were aligned."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for programs, always with the same keys."""
        return asdict(self)


def medoids(known: Sequence[KnownRun], most: int = MAX_MEDOIDS) -> list[KnownRun]:
    """Return passing runs that stand for all given ones, most central first.

    Args:
        known: runs of one workflow, newest first; those that did not pass are left out.
        most: how many to return.
    """
    passed = [run for run in known if run.said is Said.PASSED][:_MOST_CONSIDERED]
    distinct = {unpack(run.elements): run for run in reversed(passed)}
    weights = {each: sum(unpack(run.elements) == each for run in passed) for each in distinct}
    near = {
        each: {other: _distance(each, other) for other in distinct} for each in distinct
    }  # at most 200 squared
    covered = dict.fromkeys(distinct, 1.0)
    chosen: list[KnownRun] = []
    while len(chosen) < min(most, len(distinct)):
        gains = {
            each: sum(weights[other] * max(0.0, covered[other] - near[each][other]) for other in distinct)
            for each in distinct
            if distinct[each] not in chosen
        }
        best = max(gains, key=gains.__getitem__)
        chosen.append(distinct[best])
        covered = {other: min(covered[other], near[best][other]) for other in distinct}
    return chosen


def divergence(failed: Trajectory, passed: Sequence[Trajectory]) -> Divergence | None:
    """Return where a run departs from the nearest of these passing runs; ``None`` without any."""
    found = [_against(failed, one, len(passed)) for one in passed[:MAX_MEDOIDS]]
    return min(found, key=lambda one: one.distance, default=None)


def _against(failed: Trajectory, passed: Trajectory, compared: int) -> Divergence:
    pairs = align(failed.steps, passed.steps)
    paired = sum(left is not None and right is not None for left, right in pairs)
    whole = len(failed.steps) + len(passed.steps)
    place = next((at for at, pair in enumerate(pairs) if None in pair), None)
    way, step, expected, what = Way.NONE, None, "", ""
    if place is not None:
        way = Way.MISSING if pairs[place][0] is None else Way.EXTRA
        step = next((at for at, _ in pairs[place:] if at is not None), None)
        other = next((at for _, at in pairs[place:] if at is not None), None)
        expected = "" if other is None else told(passed.steps[other])
        what = "" if step is None else told(failed.steps[step])
        step = None if step is None else failed.steps[step].index
    return Divergence(
        nearest=passed.run_id,
        distance=1 - 2 * paired / whole if whole else 0.0,
        way=way,
        step=step,
        expected=expected,
        found=what,
        compared=min(compared, MAX_MEDOIDS),
    )


def told(step: Step) -> str:
    """Describe a step's action as prose."""
    target = f" {step.target}" if step.target else ""
    return f"{step.agent}: {step.kind}{target}"


def _distance(one: frozenset[bytes], other: frozenset[bytes]) -> float:
    return 1 - len(one & other) / len(one | other) if one or other else 0.0
