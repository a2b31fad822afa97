"""Where to ask next, and what an answer that may be wrong is worth: noisy binary search.

A belief is a probability for each of n places in a row; a question is whether the place sought
is among the first k. The question that splits the belief's mass most evenly tells most; each
answer multiplies the belief by how likely it is to be right (Horstein's scheme; its analysis for
general questions: arXiv:0910.4397). With a told error rate of 0 the split is kept small enough
on both sides that ceil(log2 n) questions always do, whatever the belief was to begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

Belief: TypeAlias = tuple[float, ...]
"""One probability a place, in order; they sum to 1."""

_FEW: Final = 64
_MOST_AMONG_FEW: Final = 31
_MOST: Final = 100


def most_questions(places: int) -> int:
    """Return how many questions may be asked at most: fewer than half the places, from 64 places on."""
    if places < _FEW:
        return max(_MOST_AMONG_FEW, needed(places))
    return min((places - 1) // 2, _MOST)


def needed(places: int) -> int:
    """Return how many questions find one of ``places`` when every answer is right: ceil(log2)."""
    return (places - 1).bit_length() if places > 1 else 0


def blend(places: int, hints: Sequence[tuple[int, float]], trust: float) -> Belief:
    """Return an even belief, moved by ``trust`` (0..1) towards hints (place, weight)."""
    total = sum(weight for _, weight in hints)
    if total <= 0:
        return (1 / places,) * places
    belief = [(1 - trust) / places] * places
    for place, weight in hints:
        belief[place] += trust * weight / total
    return tuple(belief)


def split(belief: Belief, error_rate: float) -> int:
    """Return how many of the first places the next question should be about, 1..n-1."""
    live = [place for place, share in enumerate(belief) if share > 0]
    widest = 2 ** (needed(len(live)) - 1) if error_rate == 0 else len(belief)
    best, least = live[0] + 1, 2.0
    mass, left = 0.0, 0
    for place in range(len(belief) - 1):
        mass += belief[place]
        left += belief[place] > 0
        fits = 0 < left <= widest and 0 < len(live) - left <= widest
        if fits and abs(mass - 0.5) < least:
            best, least = place + 1, abs(mass - 0.5)
    return best


def answered(belief: Belief, first: int, *, is_among: bool, error_rate: float) -> Belief:
    """Return the belief after the answer whether the place sought is among the ``first`` places."""
    weights = [
        share * (1 - error_rate if (place < first) is is_among else error_rate)
        for place, share in enumerate(belief)
    ]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def is_settled(belief: Belief, wanted: float, error_rate: float) -> bool:
    """Tell whether one place is likely enough; where answers are always right, whether it alone is left."""
    if error_rate == 0:
        return sum(share > 0 for share in belief) == 1
    return max(belief) >= wanted
