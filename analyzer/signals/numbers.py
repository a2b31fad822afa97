"""Units that stand beside numbers: whether the two sides of an equation speak of the same ones.

``60 min + 1 h = 2 h`` and ``1.2 GB + 300 MB = 1.5 GB`` are true, though the bare
numbers do not add up. Nothing is converted: where units differ, nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "time": (
        "ms millisecond", "s sec second", "min minute", "h hr hour", "d day", "week", "month", "quarter",
        "y yr year", "decade", "century centurie",
    ),
    "length": (
        "mm millimeter millimetre", "cm centimeter centimetre", "m meter metre", "km kilometer kilometre",
        "inch inche", "ft foot feet", "yd yard", "mi mile",
    ),
    "mass": ("mg milligram", "g gram", "kg kilogram kilo", "oz ounce", "lb pound", "t ton tonne"),
    "volume": ("ml milliliter millilitre", "cl", "l liter litre", "tsp teaspoon", "tbsp tablespoon", "cup"),
    "data": ("bit", "b byte", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib"),
    "energy": ("wh", "kwh", "mwh", "j joule", "kj", "kcal"),
    "power": ("w watt", "kw", "mw"),
    "scale": (
        "dozen", "hundred", "k thousand", "mn million", "bn billion", "trillion", "percent pct", "score",
    ),
}  # fmt: skip
_MEASURE: Final[dict[str, tuple[str, str]]] = {
    spelling: (dimension, row.split()[0])
    for dimension, rows in _SPELLINGS.items()
    for row in rows
    for spelling in row.split()
}
_PROSE: Final = frozenset(
    {
        "a",
        "all",
        "also",
        "and",
        "are",
        "as",
        "at",
        "because",
        "but",
        "by",
        "for",
        "from",
        "hence",
        "i",
        "if",
        "in",
    }
    | {
        "instead",
        "is",
        "it",
        "making",
        "more",
        "of",
        "on",
        "or",
        "overall",
        "per",
        "so",
        "that",
        "the",
        "then",
    }
    | {"therefore", "this", "thus", "to", "total", "we", "when", "where", "which", "while", "with"}
)
"""Words after a result that are no unit of it."""
_CONVERSIONS: Final = (7, 10, 12, 24, 30, 60, 100, 365, 1_000, 1_024, 1_440, 3_600, 86_400, 1_000_000)
"""What one unit holds of another, where bare operands give a measured result (``90 + 30 = 2 hours``)."""


def agree(operands: Sequence[Sequence[str]], result: Sequence[str], *, added: bool, ratio: float) -> bool:
    """Tell whether an equation's units let its bare numbers be compared.

    Args:
        operands: The words that stand beside each operand of the left side.
        result: The words that follow the result, prose among them.
        added: Whether the left side is a sum: then its operands have one unit.
        ratio: The left side's value by the stated one.
    """
    given = [_prepared(words) for words in operands]
    told = _told(result)
    sizes: dict[str, set[str]] = {}
    for name in {name for names in given for name in names} | set(told):
        dimension, size = _MEASURE.get(name, ("", name))
        sizes.setdefault(dimension, set()).add(size)
    if any(dimension and len(some) > 1 for dimension, some in sizes.items()):
        return False  # minutes beside hours
    scaled = [names for names in given if _dimensions(names) & {"scale"}]
    if bool(scaled) != ("scale" in _dimensions(told)) or (
        scaled and len(scaled) != (len(given) if added else 1)
    ):
        return False  # ``2 dozen + 1 = 25``
    measured = set[str]().union(*(_dimensions(names) for names in given))
    if (
        not measured
        and _dimensions(told)
        and any(abs(r / n - 1) < 1e-2 for r in _either(ratio) for n in _CONVERSIONS)
    ):
        return False
    if measured and _dimensions(told) - measured:
        return False  # ``3600 s / 60 = 60 km``: something else is meant
    return not added or _one_unit(given, told)


def _one_unit(given: Sequence[Sequence[str]], told: Sequence[str]) -> bool:
    units = {names[-1] for names in given if names}
    if len({_MEASURE.get(unit, ("", unit)) for unit in units}) > 1:
        return False
    if any(not names for names in given) and any(unit in _MEASURE for unit in units):
        return False  # ``5 ft + 3 = …``: three of what?
    words = {name for names in given for name in names}
    return not (units - {"$", "€", "£"} and told and not words & set(told) and told[0] not in _MEASURE)


def _prepared(words: Sequence[str]) -> list[str]:
    return [_singular(part) for word in words for part in re.split(r"[/\s-]+", word) if part]


def _told(words: Sequence[str]) -> list[str]:
    """The result's own words: those before the prose that follows it."""
    told: list[str] = []
    for word in words:
        if word.casefold() in _PROSE:
            break
        told.extend(_prepared([word]))
    return told


def _dimensions(names: Sequence[str]) -> set[str]:
    return {_MEASURE[name][0] for name in names if name in _MEASURE}


def _singular(word: str) -> str:
    word = word.casefold()
    return word[:-1] if len(word) > 2 and word.endswith("s") and not word.endswith("ss") else word


def _either(ratio: float) -> tuple[float, ...]:
    return (ratio, 1 / ratio) if ratio else ()
