"""Evidence that a run failed although it reported no failure. No model.

Signals say which step of a *failed* run is to blame, and may point at steps of good runs too. The detectors
here look for contradictions within the run and exclude known harmless causes of apparent ones; the remaining
clues are weighed by coefficients fitted to generated runs (``weights.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

from analyzer.lineage.calculations import wrong_sums
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.known import known_of
from analyzer.lineage.readers import MOST_CLUES, READERS
from analyzer.lineage.slips import wrong_figures
from analyzer.signals.suspicion.approvals import unapproved
from analyzer.signals.suspicion.constraints import broken_constraints
from analyzer.signals.suspicion.other_language import other_language
from analyzer.signals.suspicion.undelivered import undelivered
from analyzer.signals.suspicion.unmentioned_errors import ignored_errors, loops
from analyzer.signals.suspicion.unmet import unmet
from analyzer.signals.suspicion.unsourced import unsourced
from analyzer.texts.run_view import Reading
from semconv.model import Trajectory

__all__ = ["DETECTORS", "Clue", "ClueKind", "Detector", "clues", "obstacle"]

Detector: TypeAlias = Callable[[Reading], Iterator[Clue]]


def read_lineage(reading: Reading) -> Iterator[Clue]:
    """Yield what the readers of the run's lineage find."""
    known = known_of(reading)
    for reader in READERS:
        yield from islice(reader(known), MOST_CLUES)


DETECTORS: Final[tuple[Detector, ...]] = (
    wrong_figures,
    wrong_sums,
    unsourced,
    read_lineage,
    ignored_errors,
    loops,
    broken_constraints,
    undelivered,
    unmet,
    unapproved,
    other_language,
)


MOST_STEPS: Final = 300
"""Steps of a run up to which figures, sums and sources are searched: each costs some milliseconds, and in
long runs most figures have a source."""
_FOR_SHORT: Final[frozenset[Detector]] = frozenset({wrong_figures, wrong_sums, unsourced, read_lineage})
"""Detectors that compare texts with all others; the rest are linear, and look at runs of any length."""


def clues(reading: Reading, detectors: Sequence[Detector] = DETECTORS) -> tuple[Clue, ...]:
    """Return the clues against a run; empty if spans are missing."""
    if obstacle(reading.trajectory) or not reading.steps:
        return ()
    is_long = len(reading.steps) > MOST_STEPS
    used = [detector for detector in detectors if not (is_long and detector in _FOR_SHORT)]
    return tuple(clue for detector in used for clue in detector(reading))


def obstacle(trajectory: Trajectory) -> str:
    """Return why a run cannot be searched for clues; empty if it can."""
    return "" if trajectory.complete else "spans are missing"
