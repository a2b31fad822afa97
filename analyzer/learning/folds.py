"""Splitting labelled runs for cross-validation, so that nothing is tested on what it was made from.

Deterministic: the split follows from the content of the runs and a salt, not from
their order or a clock. Kin stay in one fold: runs with identical histories (twins in
one data set, one conversation labelled twice), and runs of one task, whose right
answer and wrong turns are the same. Every fold has about the same share of each subset.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.agent_names import normalise
from analyzer.conversation import Conversation
from semconv.model import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Kin:
    """What a run has in common with others."""

    subset: str
    history: str
    """See ``history_key``."""
    task: str = ""
    """See ``task_key``; empty binds to nothing."""


def kin_of(run: Conversation) -> Kin:
    """Return what decides in whose company a run must be."""
    return Kin(subset=run.subset, history=history_key(run.trajectory), task=task_key(run.trajectory))


def history_key(trajectory: Trajectory) -> str:
    """Return a digest of who said what, in order; equal for the same conversation from two sources."""
    digest = hashlib.sha256()
    for step in trajectory.steps:
        said = " ".join(step.output.split())
        digest.update(f"{normalise(step.agent)}\x00{said}\x01".encode(errors="replace"))
    return digest.hexdigest()


def task_key(trajectory: Trajectory) -> str:
    """Return a digest of the task's words; empty for a run without a task."""
    words = " ".join(trajectory.task.split()).casefold()
    return hashlib.sha256(words.encode(errors="replace")).hexdigest() if words else ""


def families(kin: Sequence[Kin], most: int | None = None) -> tuple[str, ...]:
    """Return the family of each run, named after the first history in it, whatever the runs' order.

    A task of more than ``most`` runs binds none of them: where all runs have the
    same task, the next one will have it too, and there is nothing to keep apart.
    """
    runs_of = Counter(one.task for one in kin)
    leader: dict[str, str] = {}

    def leader_of(key: str) -> str:
        while leader.setdefault(key, key) != key:
            key = leader[key]
        return key

    for one in kin:
        if one.task and (most is None or runs_of[one.task] <= most):
            first, other = sorted((leader_of(f"h{one.history}"), leader_of(f"t{one.task}")))
            leader[other] = first  # histories sort before tasks
    return tuple(leader_of(f"h{one.history}") for one in kin)


def split(runs: Sequence[Conversation], count: int) -> tuple[tuple[int, ...], ...]:
    """Return the indices of the runs of each fold, at most ``count`` folds and none empty.

    Raises:
        ValueError: ``count`` is less than 2: there would be nothing to learn from.
    """
    return split_kin([kin_of(run) for run in runs], count)


def split_kin(kin: Sequence[Kin], count: int, salt: int = 0) -> tuple[tuple[int, ...], ...]:
    """Do the same for runs of which only that is at hand; another ``salt`` is another split.

    Raises:
        ValueError: as ``split``.
    """
    if count < 2:
        raise ValueError(f"{count} folds: expected at least 2")
    members: dict[str, list[int]] = {}
    for index, family in enumerate(families(kin, most=max(1, len(kin) // count))):
        members.setdefault(family, []).append(index)

    def place(family: str) -> tuple[list[str], str]:
        return sorted(kin[index].subset for index in members[family]), _salted(family, salt)

    order = sorted(members, key=place)
    folds: list[list[int]] = [[] for _ in range(count)]
    for number, family in enumerate(order):
        folds[number % count] += members[family]
    return tuple(tuple(sorted(fold)) for fold in folds if fold)


def _salted(family: str, salt: int) -> str:
    return hashlib.sha256(f"{salt}:{family}".encode()).hexdigest() if salt else family
