"""Numbers in prose: those that a text states, those derivable from others, and the units of equations.

``60 min + 1 h = 2 h`` and ``1.2 GB + 300 MB = 1.5 GB`` are true, although the bare
numbers do not add up. Nothing is converted: an equation with mixed units is not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations, islice
from typing import Final

from analyzer.texts.normalize import lowercased, outside_code, plain_typography

NUMBER: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,15}(?:\.\d{1,15})?"
_REST: Final = r"\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d{0,14}(?:\.\d{1,15})?"
"""``NUMBER`` after its first digit. A pattern that begins with the digit and only then looks behind is
several times faster to search."""
_GROUPS: Final = r"\d{0,2}(?:\.\d{3}){2,}|\d{0,2}(?:'\d{3})+(?:\.\d+)?"
"""Numbers as written elsewhere (``45.870.000``, ``1'234.5``), after the first digit."""
DENSE: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Letters of scripts that stand beside numbers without a blank."""
_LETTER: Final = rf"[^\W{DENSE}]"
_LITERAL: Final = re.compile(rf"\d(?<!{_LETTER}\d)(?<![.,]\d)(?:{_GROUPS}|{_REST})(?!{_LETTER}|[.,]\d)")
_SCALES: Final = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_SCALE_ENDS: Final = ("hundred", "thousand", "illion")
"""Each scale word ends in one of these; most texts have none and are not searched for scaled numbers."""
_SCALED: Final = re.compile(rf"(\d(?<![\w.,]\d)(?:{_REST}))[\s-]({'|'.join(_SCALES)})\b", re.IGNORECASE)
_MOST_OPERANDS: Final = 12


@lru_cache(maxsize=128)
def numbers(text: str) -> frozenset[float]:
    """Return the values that a text states, ignoring thousands separators and currency signs."""
    return frozenset([worth(found) for found in _LITERAL.findall(plain_typography(text))])


def stated_numbers(text: str) -> frozenset[float]:
    """Return the values that prose states; numbers in code, links and paths are not claims."""
    prose = " ".join(outside_code(text))
    return numbers(" ".join(word for word in prose.split() if not _is_address(word)))


def _is_address(word: str) -> bool:
    return "://" in word or (word.count("/") > 1 and re.search(r"[A-Za-z]", word) is not None)


def written_out(text: str) -> dict[float, float]:
    """Return each number with a scale word and its full value (2.1 million: 2.1 → 2,100,000)."""
    small = lowercased(text)
    if not any(word in small for word in _SCALE_ENDS):
        return {}
    return {
        worth(found[1]): round(worth(found[1]) * _SCALES[lowercased(found[2])], 6)
        for found in _SCALED.finditer(text)
    }


def derivable(value: float, known: Iterable[float]) -> bool:
    """Tell whether one or two basic operations on known values give ``value``.

    Uses at most the first dozen values: with enough numbers, any value is derivable.
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


def _combine(one: float, other: float) -> tuple[float, ...]:
    plain = (one + other, one - other, other - one, one * other)
    divided = (one / other, 100 * one / other) if other else ()
    return plain + divided + ((other / one, 100 * other / one) if one else ())


def worth(literal: str) -> float:
    """Return the value of a literal that ``NUMBER`` matches, or that is grouped as elsewhere."""
    plain = literal.replace(",", "").replace("'", "")
    return float(plain.replace(".", "") if plain.count(".") > 1 else plain)


_SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "time": (
        "ms millisecond millisekunden", "s sec second sekunden sekunde seconde segundo",
        "min minute minuten minuto", "h hr hour stunde stunden heure hora",
        "d day tag tage tagen jour día dia giorno giorni dag dagen dní dni gün дней 日 天 일", "week",
        "month", "quarter", "y yr year", "decade", "century centurie",
    ),
    "length": (
        "mm millimeter millimetre millimètre milímetro millimetro",
        "cm centimeter centimetre centimètre zentimeter centímetro centimetro",
        "m meter metre mètre metro",
        "km kilometer kilometre kilomètre kilómetro quilómetro quilômetro chilometro",
        "inch inche", "ft foot feet", "yd yard", "mi mile",
    ),
    "mass": (
        "ug µg μg microgram mikrogramm microgramme",
        "mg milligram milligramm milligramme miligramo miligrama",
        "g gram gramm gramme gramo grama grammo",
        "kg kilogram kilo kilogramm kilogramme kilogramo quilograma quilo chilogrammo",
        "oz ounce", "lb pound", "t ton tonne tonnen tonelada tonnellata",
    ),
    "volume": (
        "ml milliliter millilitre mililitro", "cl", "dl", "l liter litre litro",
        "hl hectoliter hectolitre hektoliter hectolitro", "tsp teaspoon", "tbsp tablespoon",
        "cup",
    ),
    "data": (
        "bit", "b byte octet", "kb kilobyte kilooctet", "mb megabyte mégaoctet", "gb gigabyte gigaoctet",
        "tb terabyte téraoctet", "kib", "mib", "gib", "tib",
    ),
    "area": ("m2 m² sqm", "ha hectare hectar hektar hectárea", "km2 km²", "acre", "sqft ft2 ft²"),
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


def measure_of(unit: str) -> tuple[str, str] | None:
    """Return the dimension of a unit and the unit's usual spelling; ``None`` for an unknown word.

    A quotient (``mg/l``) has the dimension of both its parts.
    """
    above, _, below = unit.partition("/")
    one, other = _MEASURE.get(above), _MEASURE.get(below)
    if below and one and other:
        return f"{one[0]}/{other[1]}", f"{one[1]}/{other[1]}"
    return None if below else one


_PROSE: Final = frozenset(
    {
        "a", "all", "also", "and", "are", "as", "at", "because", "but", "by", "for", "from", "hence", "i",
        "if", "in", "instead", "is", "it", "making", "more", "of", "on", "or", "overall", "per", "so", "that",
        "the", "then", "therefore", "this", "thus", "to", "total", "we", "when", "where", "which", "while",
        "with",
    }
)  # fmt: skip
"""Words after a result that are not its unit."""
_CONVERSIONS: Final = (7, 10, 12, 24, 30, 60, 100, 365, 1_000, 1_024, 1_440, 3_600, 86_400, 1_000_000)
"""Ratios between units, for operands without units and a result with one (``90 + 30 = 2 hours``)."""


def agree(operands: Sequence[Sequence[str]], result: Sequence[str], *, added: bool, ratio: float) -> bool:
    """Tell whether an equation's units allow comparing its bare numbers.

    Args:
        operands: The words beside each operand of the left side.
        result: The words after the result, including prose.
        added: Whether the left side is a sum, whose operands share one unit.
        ratio: The left side's value divided by the stated one.
    """
    given = [_prepared(words) for words in operands]
    stated = _result_words(result)
    sizes: dict[str, set[str]] = {}
    for name in {name for names in given for name in names} | set(stated):
        dimension, size = _MEASURE.get(name, ("", name))
        sizes.setdefault(dimension, set()).add(size)
    if any(dimension and len(some) > 1 for dimension, some in sizes.items()):
        return False  # minutes beside hours
    scaled = [names for names in given if _dimensions(names) & {"scale"}]
    if bool(scaled) != ("scale" in _dimensions(stated)) or (
        scaled and len(scaled) != (len(given) if added else 1)
    ):
        return False  # ``2 dozen + 1 = 25``
    measured = set[str]().union(*(_dimensions(names) for names in given))
    if (
        not measured
        and _dimensions(stated)
        and any(abs(r / n - 1) < 1e-2 for r in _either(ratio) for n in _CONVERSIONS)
    ):
        return False
    if set(stated) - {name for names in given for name in names} and _is_prefixed(ratio):
        return False  # ``14 x 435 W = 6.09 kWp``
    if measured and _dimensions(stated) - measured:
        return False  # ``3600 s / 60 = 60 km``: not one calculation
    return not added or _one_unit(given, stated)


def _is_prefixed(ratio: float) -> bool:
    """Tell whether two values differ by what a prefix of a unit stands for: kilo, milli, mega."""
    return any(abs(each / size - 1) < 5e-3 for each in _either(ratio) for size in (1e3, 1e6))


def _one_unit(given: Sequence[Sequence[str]], stated: Sequence[str]) -> bool:
    units = {names[-1] for names in given if names}
    if len({_MEASURE.get(unit, ("", unit)) for unit in units}) > 1:
        return False
    if any(not names for names in given) and any(unit in _MEASURE for unit in units):
        return False  # ``5 ft + 3 = …``: the unit of 3 is unknown
    words = {name for names in given for name in names}
    return not (units - {"$", "€", "£"} and stated and not words & set(stated) and stated[0] not in _MEASURE)


def _prepared(words: Sequence[str]) -> list[str]:
    return [_singular(part) for word in words for part in re.split(r"[/\s-]+", word) if part]


def _result_words(words: Sequence[str]) -> list[str]:
    """Return the words of the result itself, before the prose that follows."""
    found: list[str] = []
    for word in words:
        if word.casefold() in _PROSE:
            break
        found.extend(_prepared([word]))
    return found


def _dimensions(names: Sequence[str]) -> set[str]:
    return {_MEASURE[name][0] for name in names if name in _MEASURE}


def _singular(word: str) -> str:
    word = word.casefold()
    return word[:-1] if len(word) > 2 and word.endswith("s") and not word.endswith("ss") else word


def _either(ratio: float) -> tuple[float, ...]:
    return (ratio, 1 / ratio) if ratio else ()
