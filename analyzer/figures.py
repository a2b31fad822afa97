"""Numbers in prose: which ones a text states, and which can be had from others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations, islice
from typing import Final

NUMBER: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,15}(?:\.\d{1,15})?"
_LITERAL: Final = re.compile(rf"(?<![\w.,])({NUMBER})(?![\w]|[.,]\d)")
_SCALES: Final = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_SCALED: Final = re.compile(rf"(?<![\w.,])({NUMBER})[\s-]({'|'.join(_SCALES)})\b", re.IGNORECASE)
_MOST_OPERANDS: Final = 12


def numbers(text: str) -> frozenset[float]:
    """Return the values a text states, thousands separators and currency signs aside."""
    return frozenset(worth(found) for found in _LITERAL.findall(text))


def written_out(text: str) -> dict[float, float]:
    """Return each figure that a text gives with a scale word, and its value written out (2.1 → 2,100,000)."""
    return {
        worth(found[1]): round(worth(found[1]) * _SCALES[found[2].casefold()], 6)
        for found in _SCALED.finditer(text)
    }


def derivable(value: float, known: Iterable[float]) -> bool:
    """Tell whether one or two plain operations on known values give ``value``.

    Looks at no more than the first dozen of them: with enough numbers, any can be had.
    """
    operands = list(islice(known, _MOST_OPERANDS))
    within = 5e-3 * max(1.0, abs(value))
    for one, other in combinations(operands, 2):
        if any(abs(value - result) <= within for result in _combine(one, other)):
            return True
    return any(
        abs(value - a * b * c) <= within or abs(value - (a + b + c)) <= within
        for a, b, c in combinations(operands, 3)
    )


def _combine(one: float, other: float) -> Iterator[float]:
    yield from (one + other, one - other, other - one, one * other)
    if other:
        yield from (one / other, 100 * one / other)
    if one:
        yield from (other / one, 100 * other / one)


def worth(literal: str) -> float:
    """Return what a literal that ``NUMBER`` matches is worth."""
    return float(literal.replace(",", ""))
