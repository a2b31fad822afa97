"""Splits of labelled runs into folds without leaks between training and test data. Pure.

The splits for cross-validation are deterministic: they follow from the content of the runs and a salt, not
from their order or a clock. Related runs stay in one fold: runs with identical histories (duplicates in one
data set, one conversation labelled twice), and runs of one task, which share the correct answer and likely
mistakes. Every fold has about the same share of each subset.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.match_agents import normalise
from semconv.model import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKeys:
    """Keys that relate a run to others."""

    subset: str
    history: str
    """See ``history_key``."""
    task: str = ""
    """See ``task_key``; empty relates to no run."""


def keys_of(run: Conversation) -> RunKeys:
    """Return the keys that decide with which runs a run must share a fold."""
    return RunKeys(subset=run.subset, history=history_key(run.trajectory), task=task_key(run.trajectory))


def history_key(trajectory: Trajectory) -> str:
    """Return a digest of agents and texts in order; equal for one conversation from two sources."""
    digest = hashlib.sha256()
    for step in trajectory.steps:
        said = " ".join(step.output.split())
        digest.update(f"{normalise(step.agent)}\x00{said}\x01".encode(errors="replace"))
    return digest.hexdigest()


def task_key(trajectory: Trajectory) -> str:
    """Return a digest of the task's words; empty for a run without a task."""
    words = " ".join(trajectory.task.split()).casefold()
    return hashlib.sha256(words.encode(errors="replace")).hexdigest() if words else ""


def families(keys: Sequence[RunKeys], most: int | None = None) -> tuple[str, ...]:
    """Return the family of each run, named after its first history, independent of the runs' order.

    A task with more than ``most`` runs relates none of them: if all runs have the same task, future ones will
    have it too, so nothing leaks.
    """
    runs_of = Counter(key.task for key in keys)
    leader: dict[str, str] = {}

    def leader_of(key: str) -> str:
        while leader.setdefault(key, key) != key:
            key = leader[key]
        return key

    for one in keys:
        if one.task and (most is None or runs_of[one.task] <= most):
            first, other = sorted((leader_of(f"h{one.history}"), leader_of(f"t{one.task}")))
            leader[other] = first  # histories sort before tasks
    return tuple(leader_of(f"h{key.history}") for key in keys)


def split(runs: Sequence[Conversation], count: int) -> tuple[tuple[int, ...], ...]:
    """Return the indices of the runs of each fold, at most ``count`` folds and none empty.

    Raises:
        ValueError: ``count`` is less than 2.
    """
    return split_by_keys([keys_of(run) for run in runs], count)


def split_by_keys(keys: Sequence[RunKeys], count: int, salt: int = 0) -> tuple[tuple[int, ...], ...]:
    """Split runs by their keys alone, as ``split`` does; another ``salt`` gives another split.

    Raises:
        ValueError: as ``split``.
    """
    if count < 2:
        raise ValueError(f"{count} folds: expected at least 2")
    members: dict[str, list[int]] = {}
    for index, family in enumerate(families(keys, most=max(1, len(keys) // count))):
        members.setdefault(family, []).append(index)

    def place(family: str) -> tuple[list[str], str]:
        return sorted(keys[index].subset for index in members[family]), _salted(family, salt)

    order = sorted(members, key=place)
    folds: list[list[int]] = [[] for _ in range(count)]
    for number, family in enumerate(order):
        folds[number % count] += members[family]
    return tuple(tuple(sorted(fold)) for fold in folds if fold)


def _salted(family: str, salt: int) -> str:
    return hashlib.sha256(f"{salt}:{family}".encode()).hexdigest() if salt else family
