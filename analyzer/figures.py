"""Numbers in prose: which ones a text states, and sums that do not add up.

Only plain arithmetic on literals is checked (``16 x 10 x 3 = 450``), read
backwards from the sign of equality; nothing is evaluated as code, and a text
without end costs no more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

_NUMBER: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,15}(?:\.\d{1,15})?"
_LITERAL: Final = re.compile(rf"(?<![\w.,])({_NUMBER})(?![\w]|[.,]\d)")
_RESULT: Final = re.compile(rf"(?:=|\bequals\b|\bis equal to\b)\s?[$€£]?\s?({_NUMBER})(?![\w%]|[.,]\d)")
_TOKEN: Final = re.compile(
    rf"(?P<number>(?<![\w.,])(?:{_NUMBER})(?![\w.]))"
    r"|(?P<stop>\*\*)"
    r"|(?P<operator>\\times|\\cdot|[+*×·÷]|(?<=\s)[x−-](?=\s)|(?<=\d)\s?x\s?(?=[$€£]?\d)|/(?=\s?[$€£]?\d))"  # noqa: RUF001 - as written
    r"|(?P<unit>(?:/\s?)?[A-Za-z][A-Za-z/-]*|[$€£])"
    r"|(?P<other>\S)"
)
_WINDOW: Final = 160
"""Characters before a sign of equality in which its calculation is looked for."""
_MOST_UNITS: Final = 4
"""Words that may follow an operand (``$3 per GPU-hour``)."""
_BEFORE: Final = frozenset({"=", ":", ",", ";", ".", "**", "`", "•", '"', "'", "(", "[", "{", "“", "|", ">"})
"""Signs that may stand before a calculation without being part of it."""
_MOST_SUMS: Final = 50
"""Signs of equality that are looked at in one text."""
_MOST_OPERANDS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongSum:
    """A calculation whose stated result is not its result."""

    quote: str
    stated: float
    right: float


def numbers(text: str) -> frozenset[float]:
    """Return the values a text states, thousands separators and currency signs aside."""
    return frozenset(_value(found) for found in _LITERAL.findall(text))


def wrong_sums(text: str) -> Iterator[WrongSum]:
    """Yield the calculations in a text that are stated wrong, beyond rounding."""
    for found in islice(_RESULT.finditer(text), _MOST_SUMS):
        line = text.rfind("\n", 0, found.start()) + 1
        offset = max(line, found.start() - _WINDOW)
        calculation = _calculation_before(text[offset : found.start()])
        if calculation is None or _rounds_to(calculation.right, found.group(1)):
            continue
        quote = text[offset + calculation.start : found.end()].strip()
        yield WrongSum(quote=quote, stated=_value(found.group(1)), right=calculation.right)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calculation:
    start: int
    right: float


def _calculation_before(text: str) -> _Calculation | None:
    """Read ``operand (operator operand)+`` backwards from the end of ``text``."""
    pieces: list[str] = []
    start = len(text)
    units = 0
    for token in reversed(list(_TOKEN.finditer(text))):
        operand_next = len(pieces) % 2 == 0
        if token.lastgroup == "unit" and (units := units + 1) <= _MOST_UNITS:
            if operand_next or token.group() in "$€£":
                continue
            break  # a word before the leftmost operand
        if token.lastgroup == "number" and operand_next:
            pieces.append(token.group())
            start, units = token.start(), 0
        elif token.lastgroup == "operator" and not operand_next:
            pieces.append(token.group().strip())
        elif not operand_next and (token.group() in _BEFORE or token.start() == 0):
            break  # a bullet, or the end of what comes before
        else:
            return None  # brackets, per cent, powers, ranges: not plain arithmetic
    if len(pieces) < 3 or len(pieces) % 2 == 0:
        return None
    result = _evaluate(pieces[::-1])
    return None if result is None else _Calculation(start=start, right=result)


def _evaluate(pieces: Sequence[str]) -> float | None:
    """Products before sums, left to right; ``None`` for a division by zero."""
    terms = [_value(pieces[0])]
    for operator, literal in zip(pieces[1::2], pieces[2::2], strict=True):
        operand = _value(literal)
        if operator == "+":
            terms.append(operand)
        elif operator in "-−":  # noqa: RUF001 - the minus sign proper
            terms.append(-operand)
        elif operator in "/÷":
            if not operand:
                return None
            terms[-1] /= operand
        else:
            terms[-1] *= operand
    return sum(terms)


def _combine(one: float, other: float) -> Iterator[float]:
    yield from (one + other, one - other, other - one, one * other)
    if other:
        yield from (one / other, 100 * one / other)
    if one:
        yield from (other / one, 100 * other / one)


def _value(literal: str) -> float:
    return float(literal.replace(",", ""))


def _rounds_to(result: float, stated: str) -> bool:
    """Tell whether ``stated`` is ``result`` to the places it has, half a unit either way."""
    places = len(stated.partition(".")[2])
    return abs(result - _value(stated)) <= 0.51 * 10.0**-places + 1e-9 * abs(result)
