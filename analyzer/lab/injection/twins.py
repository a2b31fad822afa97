"""Twins: trials from the same prefix with and without a fault, and whether they make an honest label. Pure.

A label is honest if the fault takes at least 50 points from the success rate, and the run passes again when
the step is restored. The bound of the effect is that of ``sequential.interval``, which is valid after any
number of looks, so a twin may end as soon as it is decided. Some failures without the fault are allowed: if
only runs without any were kept, the labels of an unreliable workflow would lie at its last steps.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from analyzer.experiment.sequential import Arm, interval
from semconv.record import record

FEWEST: Final = 10
"""Trials without the fault before a label is kept."""
LEAST_EFFECT: Final = 0.5
"""Lower bound of the effect from which a label is honest."""
RESTORED: Final = 5
"""Further trials with the step restored: the twin's own trials were part of the choice."""
LEAST_RESTORED: Final = 4
"""Number of them that must pass."""


class Next(StrEnum):
    """The next trial of a twin."""

    RECORDED = "recorded"
    """With the recorded answer."""
    FAULTY = "faulty"
    RESTORE = "restore"
    """With the recorded answer again, to see whether restoring the step makes the run pass."""
    KEEP = "keep"
    DISCARD = "discard"


@record
class Twin:
    """Trials of one fault so far."""

    recorded: Arm
    faulty: Arm
    restored: Arm

    @property
    def effect(self) -> tuple[float, float]:
        """95 % interval of what the fault takes from the success rate."""
        return interval(self.faulty, self.recorded)


@record
class Course:
    """Next trials of a twin, or the reason for discarding it."""

    next: Next
    reason: str = ""


def course(twin: Twin, most: int) -> Course:
    """Return the next trial that a twin needs, or its result.

    Args:
        twin: its trials.
        most: valid trials per arm; from there on, it is discarded.
    """
    if reason := _dishonest(twin, most):
        return Course(next=Next.DISCARD, reason=reason)
    recorded, faulty = twin.recorded, twin.faulty
    if recorded.n >= FEWEST and twin.effect[0] >= LEAST_EFFECT:
        return Course(next=Next.RESTORE if twin.restored.n < RESTORED else Next.KEEP)
    if min(recorded.n, faulty.n) >= most:
        return Course(next=Next.DISCARD, reason="the effect is not clear")
    return Course(next=Next.FAULTY if faulty.n <= recorded.n and faulty.n < most else Next.RECORDED)


def _dishonest(twin: Twin, most: int) -> str:
    """Return why a twin makes no honest label; empty if it may still make one."""
    arms = (twin.recorded, twin.faulty, twin.restored)
    if (twin.recorded.n - twin.recorded.successes) * _ONE_OF > most:
        return "the run often fails without the fault"
    if max(arm.invalid for arm in arms) >= _MOST_INVALID:
        return f"invalid trials: {next(each.text for arm in arms for each in arm.reasons)}"
    if max(arm.copies for arm in arms) >= _MOST_COPIES * most:
        return "the model always gives the same answers, which count once"
    if twin.restored.n - twin.restored.successes > RESTORED - LEAST_RESTORED:
        return "restoring the step does not heal"
    is_seldom = twin.faulty.successes * _ONE_OF <= most
    return "" if is_seldom else "the run often passes with the fault"


_MOST_COPIES: Final = 2
"""Bound on trials that do not count, as a multiple of those that may."""
_MOST_INVALID: Final = 3
"""Invalid trials of one arm after which a twin is discarded."""
_ONE_OF: Final = 5
"""At most one in this many trials may fail without the fault, or pass with it."""
