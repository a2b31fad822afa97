"""Derivation of figures from others: by rounding, conversion or arithmetic. Pure.

With enough figures to combine, some combination gives almost any value, so that a figure for which none is
found is not wrong for that.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations, permutations
from typing import Final

from analyzer.lineage.figures import CURRENCY_CODES, Figure

_MOST_OPERANDS: Final = 24
_MOST_IN_THREES: Final = 10
_FEW: Final = 10
_LONGEST_SUM: Final = 12
_LONGEST_COLUMN: Final = 200
_LONGEST_PARTS: Final = 40
"""Bound on the length of a column for adding up its first and largest values, which is quadratic."""
_HEDGE: Final = 0.1
"""Relative distance within which a figure marked as inexact still equals another."""
_ROUND_DIGITS: Final = 3
"""Digits up to which a figure marked as inexact is one: "about 9,266.14" copies a number."""
_SCALES: Final = (1e3, 1e-3, 1e6, 1e-6, 1e9, 1e-9)
_SHARES: Final = (100.0, 0.01)
_TIMES: Final = (
    60.0, 1 / 60, 3600.0, 1 / 3600, 24.0, 1 / 24, 7.0, 1 / 7, 12.0, 1 / 12, 365.0, 1 / 365, 30.0, 1 / 30,
    52.0, 1440.0, 1 / 1440, 86400.0, 1 / 86400, 1e3, 1e-3,
)  # fmt: skip
_LENGTHS: Final = (1.609344, 1 / 1.609344, 2.54, 1 / 2.54, 0.3048, 1 / 0.3048, 3.6, 1 / 3.6, 100.0, 0.01)
_MASSES: Final = (
    0.45359237,
    1 / 0.45359237,
    28.349523,
    1 / 28.349523,
    3.785412,
    1 / 3.785412,
    4.184,
    1 / 4.184,
)
_CENTS: Final = (100.0, 0.01)
_AREAS: Final = (1e4, 1e-4, 1e6, 1e-6, 100.0, 0.01, 2.471054, 1 / 2.471054, 10.7639, 1 / 10.7639)
_BYTES: Final = (1024.0, 1 / 1024, 1024.0**2, 1 / 1024**2, 1024.0**3, 1 / 1024**3, 8.0, 1 / 8)
_FACTORS: Final[dict[str, tuple[float, ...]]] = {
    "%": _SHARES,
    **dict.fromkeys(("s", "min", "h", "day", "week", "month", "year", "hr", "m", "ms"), _TIMES),
    **dict.fromkeys(
        ("m", "km", "mi", "mile", "cm", "mm", "ft", "feet", "inch", "in", "km/h", "mph", "kmh", "m/s"),
        _LENGTHS,
    ),
    **dict.fromkeys(("kg", "g", "lb", "oz", "l", "litre", "liter", "gallon", "kcal", "kj"), _MASSES),
    **dict.fromkeys(("m2", "m²", "sqm", "ha", "hectare", "km2", "km²", "acre", "sqft", "ft2", "ft²"), _AREAS),
    **dict.fromkeys((*CURRENCY_CODES, "ct", "cent", "p"), _CENTS),
    **dict.fromkeys(("b", "kb", "mb", "gb", "tb", "byte", "bit", "gib", "mib"), _BYTES),
}
"""Factors between units, by the unit of the figure; one factor too many lets wrong figures pass."""
BY_CHANCE: Final = 0.1
"""Expected number of chance likenesses, up to which a likeness counts as a slip."""
_LEAST_REORDERED: Final = 4
"""Digits from which any other order of them counts as a slip."""
_TEMPERATURES: Final = frozenset({"°", "°c", "°f", "c", "f"})


_RESULTS: Final[dict[str, tuple[float, ...]]] = {
    "%": (100.0,),
    **dict.fromkeys(
        ("s", "min", "h", "day", "ms", "week"), (60.0, 1 / 60, 24.0, 1 / 24, 3600.0, 1 / 3600, 1e3, 1e-3)
    ),
    **dict.fromkeys(("km/h", "kmh", "mph"), (60.0, 3.6, 1 / 3.6)),
}
"""Conversions of the result of an operation, by its unit."""


def _factors(unit: str) -> tuple[float, ...]:
    if unit == "%":
        return _SHARES
    return (*_SCALES, *_FACTORS.get(unit, ()), *(() if unit else _SHARES))


class Given:
    """Searches for figures that are known values, rounded or converted."""

    def __init__(self, values: Iterable[float]) -> None:
        """Create it from known values, which count with either sign."""
        self._values: Final = sorted({value for one in values for value in (one, -one)})

    def stands(self, figure: Figure) -> bool:
        """Return whether a known value equals this figure, as written or rounded to its digits."""
        return _finds(self._values, figure, (1.0,))

    def converts(self, figure: Figure) -> bool:
        """Return whether a known value in another unit equals this figure."""
        if _finds(self._values, figure, _factors(figure.unit)):
            return True
        if figure.unit not in _TEMPERATURES:
            return False
        fahrenheit = any(_is(figure, value * 9 / 5 + 32) for value in self._values)
        return fahrenheit or any(_is(figure, (value - 32) * 5 / 9) for value in self._values)


class Derivation:
    """Searches for figures that arithmetic on known values gives."""

    def __init__(self, operands: Sequence[float], columns: Sequence[Sequence[float]]) -> None:
        """Create it from known values.

        Args:
            operands: values that may be computed with, the most relevant first.
            columns: lists of values that may be added up.
        """
        self._operands: Final = [*dict.fromkeys(operands)][:_MOST_OPERANDS]
        self._results: Final = sorted(
            [*_column_results(columns), *_alone(self._operands), *_pairs(self._operands)]
        )
        self._in_threes: list[float] | None = None

    def computes(self, figure: Figure) -> bool:
        """Tell whether arithmetic on known values gives this figure; on three only if there are few."""
        if _finds(self._results, figure, (1.0, *_RESULTS.get(figure.unit, _SCALES[:4]))):
            return True
        return len(self._operands) <= _FEW and self.computes_in_threes(figure)

    def computes_in_threes(self, figure: Figure) -> bool:
        """Tell whether an operation on three known values gives this figure."""
        if self._in_threes is None:
            self._in_threes = sorted(_in_threes(combinations(self._operands[:_MOST_IN_THREES], 3)))
        return _finds(self._in_threes, figure, (1.0,))

    def add(self, value: float) -> None:
        """Add a value to compute with: an intermediate result."""
        if value in self._operands:
            return
        self._results.extend(
            [*_alone([value]), *(x for other in self._operands for x in _pair(value, other))]
        )
        self._results.sort()
        if self._in_threes is not None and len(self._operands) < _MOST_IN_THREES:
            new = _in_threes((value, *two) for two in combinations(self._operands, 2))
            self._in_threes = sorted([*self._in_threes, *new])  # quick: most of it is in order
        else:
            self._in_threes = None
        self._operands.insert(0, value)


def converts(figure: Figure, figures: Sequence[Figure]) -> bool:
    """Tell whether a figure is one of some figures in another unit of measure: anybody may convert that."""
    factors = _FACTORS.get(figure.unit, ())
    return any(_is(figure, one.value * factor) for one in figures if one.unit for factor in factors)


def _finds(ordered: Sequence[float], figure: Figure, factors: Sequence[float]) -> bool:
    """Return whether one of the values, times one of the factors, equals the figure."""
    within = _tolerance(figure)
    return any(_has(ordered, figure.value / factor, within / factor) for factor in factors)


def formula_of(figure: Figure, beside: Sequence[Figure], figures: Sequence[Figure]) -> str:
    """Return how known figures give one, as text such as ``2 x 210``; empty if no short formula does.

    Args:
        figure: a figure that follows from known ones.
        beside: the other figures of its text, in order; the text probably computes with them.
        figures: those from outside.
    """
    low, high = _bounds(figure)
    known = [one for one in (*beside, *figures) if one.value != figure.value]
    operands = list({one.value: one for one in known}.values())[:_MOST_OPERANDS]
    factors = _factors(figure.unit)
    for operand in operands:
        for factor in factors:
            if low <= operand.value * factor <= high:
                return (
                    f"{operand.literal} x {factor:g}"
                    if factor >= 1
                    else f"{operand.literal} / {1 / factor:.6g}"
                )
    pairs = (_shown(low, high, figure.unit, one, other) for one, other in permutations(operands, 2))
    sums = (
        _shown_sums(low, high, [one for one in row if one.value != figure.value]) for row in (beside, figures)
    )
    return next(filter(None, chain(pairs, sums)), "") or _shown_product(low, high, operands)


def _shown(low: float, high: float, unit: str, one: Figure, other: Figure) -> str:
    a, b = one.value, other.value
    sign = (
        "x" if low <= a * b <= high else "+" if low <= a + b <= high else "-" if low <= a - b <= high else ""
    )
    if sign or (b and low <= a / b <= high):
        return f"{one.literal} {sign or '/'} {other.literal}"
    if b and unit == "%" and low <= 100 * a / b <= high:
        return f"100 x {one.literal} / {other.literal}"
    if b and unit == "%" and low <= 100 * (a - b) / b <= high:
        return f"100 x ({one.literal} - {other.literal}) / {other.literal}"
    shares = (("+", b), ("-", -b)) if 0 < b < 1 or other.unit == "%" else ()
    for sign, share in shares:
        if 0 < b < 1 and low <= a * (1 + share) <= high:
            return f"{one.literal} x (1 {sign} {other.literal})"
        if other.unit == "%" and low <= a * (1 + share / 100) <= high:
            return f"{one.literal} {sign} {other.literal} %"
    return ""


def _shown_sums(low: float, high: float, row: Sequence[Figure]) -> str:
    """Return the sum of neighbouring figures that gives one: a column, or the figures of a sentence."""
    for start in range(min(len(row), _MOST_OPERANDS)):
        total = 0.0
        for end in range(start, min(len(row), start + _LONGEST_SUM)):
            total += row[end].value
            if end > start + 1 and low <= total <= high:
                return " + ".join(figure.literal for figure in row[start : end + 1])
    return ""


def _shown_product(low: float, high: float, operands: Sequence[Figure]) -> str:
    for three in combinations(operands[:_MOST_IN_THREES], 3):
        if low <= math.prod(figure.value for figure in three) <= high:
            return " x ".join(figure.literal for figure in three)
    return ""


def plain_results(values: Sequence[float]) -> list[float]:
    """Return sums, differences, products, quotients and percentages of few values: likely computations."""
    found: list[float] = []
    for one, other in combinations(values, 2):
        found += [
            one + other,
            abs(one - other),
            one * other,
            *([one / other, other / one] if one and other else []),
            *(
                whole * (100 + sign * share) / 100
                for whole, share in ((one, other), (other, one))
                for sign in (1, -1)
            ),
            one * other / 100,
        ]
    for a, b, c in combinations(values, 3):
        found += [a * b * c, a + b + c]
    if values:
        found.append(sum(values))
    return found


def results_of(values: Sequence[float]) -> list[float]:
    """Return what operations on two and on three of a few values give."""
    return [*_pairs(values), *_in_threes(combinations(values, 3))]


def results_of_both(one: float, values: Iterable[float]) -> Iterator[float]:
    """Yield what an operation on one value and each of some others gives."""
    return (result for value in values for result in _pair(one, value))


def _has(ordered: Sequence[float], value: float, within: float) -> bool:
    at = bisect_left(ordered, value - within)
    return at < len(ordered) and ordered[at] <= value + within


def places_apart(one: str, other: str) -> list[int]:
    """Return the places in which two texts of one length differ."""
    return [place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]


def near_miss(figure: Figure, value: float) -> bool:
    """Tell whether the figure is a known value with a slip: digits in another order, one wrong, a zero more.

    Three digits and fewer are in another order only if two are exchanged: of others there are too many.
    """
    if not value or not figure.value or _is(figure, value):
        return False
    ratio = abs(figure.value / value)
    if any(math.isclose(ratio, power, rel_tol=1e-9) for power in (10.0, 0.1)):
        return True
    one, other = figure.literal_digits.rstrip("0"), _digits(value)
    if len(one) != len(other) or len(one) < 2 or not 0.1 < ratio < 10:
        return False
    differing = places_apart(one, other)
    is_reordered = sorted(one) == sorted(other) and (len(differing) == 2 or len(one) >= _LEAST_REORDERED)
    return len(differing) == 1 or is_reordered


def alike_by_chance(figure: Figure, value: float) -> float:
    """Return the probability that a random value of as many digits looks like this kind of slip.

    The kinds are a zero too many or too few, digits in another order, and one wrong digit. Infinite if a
    figure is no slip of a value. Of k places, k!/e orders (rounded) leave no digit where it was.
    """
    if not near_miss(figure, value):
        return math.inf
    digits = len(figure.digits)
    all_of_length = 9 * 10.0 ** (digits - 1)
    if _digits(value) == figure.digits:
        return 2 / all_of_length
    one, other = figure.digits, _digits(value)
    if sorted(one) != sorted(other):
        return 9 * digits / all_of_length
    differing = sum(a != b for a, b in zip(one, other, strict=True))
    return math.comb(digits, differing) * round(math.factorial(differing) / math.e) / all_of_length


def _digits(value: float) -> str:
    return "".join(char for char in f"{abs(value):.10g}" if char.isdigit()).rstrip("0").lstrip("0")


def _is(figure: Figure, value: float) -> bool:
    return abs(figure.value - value) <= _tolerance(figure)


def _bounds(figure: Figure) -> tuple[float, float]:
    """Return the least and the greatest value that is the figure, as it is written."""
    within = _tolerance(figure)
    return figure.value - within, figure.value + within


def _tolerance(figure: Figure) -> float:
    within = 0.51 * figure.step + 1e-9 * abs(figure.value)
    if len(figure.digits) <= _ROUND_DIGITS and figure.is_hedged:
        within = max(within, _HEDGE * abs(figure.value), _rounding(figure))
    return within


def _rounding(figure: Figure) -> float:
    """Half a unit in the last digit that is not zero: 500 for a rough ``12,000``."""
    digits = figure.literal_digits
    zeros = len(digits) - len(digits.rstrip("0")) if "." not in figure.literal else 0
    return 0.51 * figure.step * 10.0**zeros


def _pairs(values: Sequence[float]) -> list[float]:
    found: list[float] = []
    for one, other in combinations(values, 2):
        found += _pair(one, other)
    return found


def _pair(one: float, other: float) -> tuple[float, ...]:
    difference = abs(one - other)
    quotients = (
        (one / other, other / one, difference / abs(one), difference / abs(other)) if one and other else ()
    )
    return (
        one + other,
        difference,
        one * other,
        one * (1 - other / 100),
        one * (1 + other / 100),
        other * (1 - one / 100),
        other * (1 + one / 100),
        *quotients,
        (one + other) / 2,
    )


def _alone(values: Sequence[float]) -> Iterator[float]:
    for value in values:
        yield from (100 - value, 1 - value, value / 2, value * 2, value * value)


def _in_threes(threes: Iterable[tuple[float, ...]]) -> list[float]:
    """Return the results on triples of values: a list, since yielding thousands takes twice as long."""
    found: list[float] = []
    for a, b, c in threes:
        product = a * b * c
        found += (a + b + c, product, product / 100)
        for x, y, z in ((a, b, c), (b, a, c), (c, a, b)):
            total, times = y + z, y * z
            found += (x + y - z, total - x, x * y + z, x * total)
            found += (x * abs(y - z), abs(x - times), x + times / 100)
            if x:
                found += (times / x, total / x)
            if times:
                found.append(x / times)
    return found


def _column_results(columns: Sequence[Sequence[float]]) -> Iterator[float]:
    for column in columns:
        values = column[:_LONGEST_COLUMN]
        n = len(values)
        ordered = sorted(values)
        total = sum(values)
        yield from (total, total / n, float(n), ordered[-1] - ordered[0])
        if (counted := n - values.count(0.0)) not in {0, n}:
            yield total / counted  # the days on which a shop is closed do not count
        yield (ordered[n // 2] + ordered[(n - 1) // 2]) / 2
        for top in range(2, n if n <= _LONGEST_PARTS else 0):
            head, tail = sum(ordered[:top]), sum(ordered[-top:])
            yield from (head, tail, sum(values[:top]), sum(values[-top:]), tail / top, head / top)
        if total:
            for value in values:
                yield 100 * value / total
                yield total - value
        yield math.sqrt(sum((value - total / n) ** 2 for value in values) / n)
    for one, other in combinations([column for column in columns if len(column) <= _LONGEST_COLUMN][:8], 2):
        if len(one) == len(other):
            products = [x * y for x, y in zip(one, other, strict=True)]
            yield from (sum(products), *products)
            if sum(one):
                yield sum(products) / sum(one)
            if sum(other):
                yield sum(products) / sum(other)
            yield from (x - y for x, y in zip(one, other, strict=True))
            yield from (x + y for x, y in zip(one, other, strict=True))
            yield sum(one) - sum(other)
            yield sum(one) + sum(other)
