"""Numbers in prose: which ones a text states, and which can be had from others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations, islice
from typing import Final

from analyzer.folding import in_small, outside_code

NUMBER: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,15}(?:\.\d{1,15})?"
_REST: Final = r"\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d{0,14}(?:\.\d{1,15})?"
"""``NUMBER`` after its first digit. A pattern that begins with that digit, and only then looks at what is
before it, is searched for several times quicker."""
_LITERAL: Final = re.compile(rf"\d(?<![\w.,]\d)(?:{_REST})(?![\w]|[.,]\d)")
_SCALES: Final = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_SCALE_ENDS: Final = ("hundred", "thousand", "illion")
"""One of these ends each scale word; most texts have none, and are not searched for figures with one."""
_SCALED: Final = re.compile(rf"(\d(?<![\w.,]\d)(?:{_REST}))[\s-]({'|'.join(_SCALES)})\b", re.IGNORECASE)
_MOST_OPERANDS: Final = 12


def numbers(text: str) -> frozenset[float]:
    """Return the values a text states, thousands separators and currency signs aside."""
    return frozenset([worth(found) for found in _LITERAL.findall(text)])


def said_figures(text: str) -> frozenset[float]:
    """Return the values that prose states: those of code, links and paths are none of its claims."""
    prose = " ".join(outside_code(text))
    return numbers(" ".join(word for word in prose.split() if not _is_address(word)))


def _is_address(word: str) -> bool:
    return "://" in word or (word.count("/") > 1 and re.search(r"[A-Za-z]", word) is not None)


def written_out(text: str) -> dict[float, float]:
    """Return each figure that a text gives with a scale word, and its value written out (2.1 → 2,100,000)."""
    small = in_small(text)
    if not any(word in small for word in _SCALE_ENDS):
        return {}
    return {
        worth(found[1]): round(worth(found[1]) * _SCALES[in_small(found[2])], 6)
        for found in _SCALED.finditer(text)
    }


def derivable(value: float, known: Iterable[float]) -> bool:
    """Tell whether one or two plain operations on known values give ``value``.

    Looks at no more than the first dozen of them: with enough numbers, any can be had.
    """
    operands = list(islice(known, _MOST_OPERANDS))
    within = 5e-3 * max(1.0, abs(value))
    for one, other in combinations(operands, 2):
        for result in _combine(one, other):
            if abs(value - result) <= within:
                return True
    for one, other, third in combinations(operands, 3):
        if abs(value - one * other * third) <= within or abs(value - (one + other + third)) <= within:
            return True
    return False


def _combine(one: float, other: float) -> Iterator[float]:
    yield from (one + other, one - other, other - one, one * other)
    if other:
        yield from (one / other, 100 * one / other)
    if one:
        yield from (other / one, 100 * other / one)


def worth(literal: str) -> float:
    """Return what a literal that ``NUMBER`` matches is worth."""
    return float(literal.replace(",", ""))
