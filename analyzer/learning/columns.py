"""Figures of a run's steps as columns, and how one is made of another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

Columns: TypeAlias = Mapping[str, Sequence[float]]
"""Figures by feature, one a step each."""
READ: Final = 6_000
"""Characters of a step that are looked at: what people write, not what pages hold."""


def shift(column: Sequence[float], by: int) -> list[float]:
    """Return what the step before (1) or after (-1) has; 0 where there is none."""
    return [0.0, *column[:-1]] if by > 0 else [*column[1:], 0.0]


def counted_before(claims: Iterable[bool]) -> list[int]:
    """Return how many claims are true before each place."""
    counts, so_far = [], 0
    for claim in claims:
        counts.append(so_far)
        so_far += claim
    return counts
