"""Runs of the same workflow: the same service and name, and at least half of the agents of the smaller one.

A run that broke off early has few agents, and its workflow's other runs have them all. A name alone is not
enough, because ``POST /chat`` may start any workflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LEAST_SHARED: Final = 0.5
"""Share of the smaller run's agents that the other run must have."""


def has_shared_agents(one: Iterable[object], other: Iterable[object]) -> bool:
    """Return whether enough of the smaller run's agents, by name or digest, are in the other run."""
    ours, theirs = frozenset(one), frozenset(other)
    smaller = min(len(ours), len(theirs))
    return not smaller or len(ours & theirs) >= LEAST_SHARED * smaller
