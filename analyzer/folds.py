"""Splitting labelled runs for cross-validation, so that nothing is tested on what it was made from.

Deterministic: the split follows from the content of the runs, not from their
order, a clock or a seed. Runs with identical histories (twins in one data set,
one conversation labelled twice) are always in one fold, and every fold has
about the same share of each subset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from analyzer.agent_names import normalise
from analyzer.conversation import Conversation
from semconv.model import Trajectory


def history_key(trajectory: Trajectory) -> str:
    """Return a digest of who said what, in order; equal for the same conversation from two sources."""
    digest = hashlib.sha256()
    for step in trajectory.steps:
        said = " ".join(step.output.split())
        digest.update(f"{normalise(step.agent)}\x00{said}\x01".encode(errors="replace"))
    return digest.hexdigest()


def split(runs: Sequence[Conversation], count: int) -> tuple[tuple[int, ...], ...]:
    """Return the indices of the runs of each fold, at most ``count`` folds and none empty.

    Raises:
        ValueError: ``count`` is less than 2: there would be nothing to learn from.
    """
    return split_keys([(run.subset, history_key(run.trajectory)) for run in runs], count)


def split_keys(keys: Sequence[tuple[str, str]], count: int) -> tuple[tuple[int, ...], ...]:
    """Do the same for runs of which only subset and history key are at hand.

    Raises:
        ValueError: as ``split``.
    """
    if count < 2:
        raise ValueError(f"{count} folds: expected at least 2")
    groups: dict[str, list[int]] = {}
    for index, (_, history) in enumerate(keys):
        groups.setdefault(history, []).append(index)
    order = sorted(groups, key=lambda history: (min(keys[i][0] for i in groups[history]), history))
    folds: list[list[int]] = [[] for _ in range(count)]
    for number, history in enumerate(order):
        folds[number % count] += groups[history]
    return tuple(tuple(sorted(fold)) for fold in folds if fold)
