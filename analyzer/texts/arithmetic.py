"""Detection of wrong calculations in prose (``16 x 10 x 3 = 450``).

Plain arithmetic on literals is parsed backwards from the equals sign, and the
result forwards; nothing is evaluated as code, and the cost is linear in the
text's length. A calculation that cannot be parsed completely is not judged: a
false accusation costs more than a missed one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from analyzer.texts.numbers import NUMBER, agree, worth

# Each alternative begins with a literal letter: faster to search than a word boundary.
_RESULT: Final = re.compile(
    rf"(?:=|e(?<=\be)quals\b|i(?<=\bi)s equal to\b)\s?[$€£]?\s?({NUMBER})"
    r"(?![\w%]|[.,]\d|[ \u00a0\u202f]\d{3}(?!\d))"  # a blank may part thousands
)
_TOKEN: Final = re.compile(
    rf"(?P<number>(?<![\w.,])(?:{NUMBER})(?![\w.]))"
    r"|(?P<stop>\*\*)"
    r"|(?P<operator>\\times|\\cdot|[+*×·÷]|(?<=\s)[x−-](?=\s)|(?<=\d)\s?x\s?(?=[$€£]?\d)|/(?=\s?[$€£]?\d))"  # noqa: RUF001 - as written
    r"|(?P<unit>(?:/\s?)?[A-Za-z][A-Za-z/-]*|[$€£])"
    r"|(?P<other>\S)"
)
_FOLLOWING: Final = re.compile(_TOKEN.pattern.replace(r"(?![\w.]))", r"(?!\w|[.,]\d))", 1))
"""The same tokens after the equals sign, where a full stop may end a number."""
_WINDOW: Final = 160
"""Characters searched for the calculation on either side of an equals sign."""
_MOST_UNITS: Final = 4
"""Pattern of words that may follow an operand (``$3 per GPU-hour``)."""
_BEFORE: Final = frozenset({"=", ":", ",", ";", ".", "**", "`", "•", '"', "'", "(", "[", "{", "“", "|", ">"})
"""Characters that may precede a calculation without being part of it."""
_DIVIDED: Final = re.compile(r"\d\s?[^\W\d_]{0,2}\s+$")
"""What stands before a colon that divides, as much of Europe writes it (``500 g : 6 * 9``)."""
_GOES_ON: Final = frozenset("^%‰√°²³±~/+×·÷*−")  # noqa: RUF001 - the actual signs
"""Characters after a result that continue the expression."""
_INVOLVED: Final = frozenset(
    {
        "of", "half", "twice", "double", "triple", "root", "sqrt", "log", "ln", "sin", "cos", "tan", "plus",
        "minus", "times", "mod", "over", "choose", "sum", "by",
    }
)  # fmt: skip
"""Words before a calculation that make it part of a larger expression."""
_OTHER_ARITHMETIC: Final = re.compile(
    r"\b(?:mod|modulo|modular|binary|hex(?:adecimal)?|octal|base[ -]?\d+|remainder|R(?= ?\d)|bitwise)\b",
    re.IGNORECASE,
)
_ROUNDED: Final = re.compile(
    r"\b(?:round\w*|approx\w*|about|roughly|truncat\w*|floor\w*|ceil\w*|integer|whole)\b", re.IGNORECASE
)
_CONJUNCTIONS: Final = frozenset({"and", "as", "because", "but", "is", "or", "so", "then", "which", "while"})
"""Words that begin another clause with its own numbers."""
_GROUPED: Final = re.compile(r"\d{1,3}(?:\.\d{3})+")
"""A number whose point may be a thousands separator, as in much of Europe."""
_REMARK: Final = 40
"""Characters after a result searched for a word that says it is rounded."""
_MOST_SUMS: Final = 50
"""Equals signs examined per text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongCalculation:
    """A calculation whose stated result is wrong."""

    quote: str
    stated: float
    right: float
    start: int
    end: int
    """Position of the quote in the text, end excluded."""

    @property
    def right_shown(self) -> str:
        """The right result, with the stated result's decimals or as many more as are needed to differ."""
        decimals = len(f"{self.stated:.10g}".partition(".")[2])
        candidates = (f"{self.right:,.{places}f}" for places in range(decimals, 10))
        return next(
            (one for one in candidates if float(one.replace(",", "")) != self.stated), f"{self.right:,.10g}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expression:
    """``operand (operator operand)*``, with the words beside each operand."""

    start: int
    end: int
    pieces: tuple[str, ...]
    units: tuple[tuple[str, ...], ...]
    bulleted: bool = False
    """Whether a dash precedes it, which may be a minus sign."""

    @property
    def is_sum(self) -> bool:
        return any(operator in "+-−" for operator in self.pieces[1::2])  # noqa: RUF001 - a minus sign

    @property
    def is_whole(self) -> bool:
        return all(literal.replace(",", "").isdigit() for literal in self.pieces[::2])


def wrong_calculations(text: str) -> Iterator[WrongCalculation]:
    """Yield the calculations in a text whose stated result is wrong beyond rounding."""
    if "=" not in text and "equal" not in text:
        return
    for found in islice(_RESULT.finditer(text), _MOST_SUMS):
        line = text.rfind("\n", 0, found.start()) + 1
        offset = max(line, found.start() - _WINDOW)
        calculation = _calculation_before(text[offset : found.start()])
        if calculation is None:
            continue
        end = text.find("\n", found.start(1))
        ahead = text[found.start() : min(len(text) if end < 0 else end, found.end() + _WINDOW)]
        result = _result_after(ahead, found.start(1) - found.start())
        if result is None or _OTHER_ARITHMETIC.search(text[offset : found.start()] + ahead):
            continue
        right, stated = _evaluate(calculation.pieces), _evaluate(result.pieces)
        if right is None or stated is None or _holds(calculation, right, result, stated, ahead[result.end :]):
            continue
        start, stop = offset + calculation.start, max(found.end(), found.start() + result.end)
        right, stated = _likelier(right, stated, calculation, result)
        yield WrongCalculation(quote=text[start:stop], stated=stated, right=right, start=start, end=stop)


def _likelier(right: float, stated: float, left: _Expression, result: _Expression) -> tuple[float, float]:
    """Return the right and the stated result, with points as thousands separators if that is nearer."""
    grouped = tuple(_evaluate([_ungrouped(piece) for piece in each.pieces]) for each in (left, result))
    if grouped[0] is None or grouped[1] is None:
        return right, stated
    ways = ((right, stated), (grouped[0], grouped[1]))
    return min(ways, key=lambda way: abs(way[0] - way[1]) / max(abs(way[0]), abs(way[1]), 1e-9))


def _holds(left: _Expression, right: float, result: _Expression, stated: float, after: str) -> bool:
    """Tell whether an equation is true, or cannot be judged."""
    following = result.units[0] if len(result.units) == 1 else ()
    if not agree(left.units, following, added=left.is_sum, ratio=right / stated if stated else 0.0):
        return True
    if len(result.pieces) > 1:
        runs_on = _rounds_to(right, result.pieces[0])  # ``3 + 4 = 7 * 2 = 14``
        exact = left.is_whole and result.is_whole
        return runs_on or not exact or abs(right - stated) <= 1e-9 * max(1.0, abs(right))
    literal = result.pieces[0]
    negative = _evaluate(("0", "-", *left.pieces)) if left.bulleted else None
    readings = (literal, _ungrouped(literal))
    thousands = _evaluate([_ungrouped(piece) for piece in left.pieces])  # ``10 x 420 + 1.800 = 6.000``
    ways = [way for way in (right, negative, thousands) if way is not None]
    if any(_rounds_to(way, read) for way in ways for read in readings):
        return True
    return bool(_ROUNDED.search(after[:_REMARK])) and abs(right - stated) <= _last_digit(literal)


def _calculation_before(text: str) -> _Expression | None:
    """Read ``operand (operator operand)+`` backwards from the end of ``text``."""
    pieces: list[str] = []
    units: list[list[str]] = [[]]
    start = len(text)
    tokens = list(_TOKEN.finditer(text))
    bulleted = False
    for position in range(len(tokens) - 1, -1, -1):
        token = tokens[position]
        operand_next = len(pieces) % 2 == 0
        if token.lastgroup == "unit" and len(units[-1]) < _MOST_UNITS:
            if operand_next or token.group() in "$€£":
                units[-1].append(token.group())
                continue
            if token.end() == start or not _stands_apart(token, tokens[position - 1] if position else None):
                return None
            break  # a word before the leftmost operand
        if token.lastgroup == "number" and operand_next and not re.match(r"0\d", token.group()):
            pieces.append(token.group())
            start = token.start()
        elif token.lastgroup == "operator" and not operand_next:
            pieces.append(token.group().strip())
            units.append([])
        elif not operand_next and _may_stand_before(token, text[token.start() : start]):
            bulleted = token.group() in "-−–"  # noqa: RUF001 - the actual signs
            break  # a bullet, or the end of what comes before
        else:
            return None  # brackets, per cent, powers, ranges, dates: not plain arithmetic
    if len(pieces) < 3 or len(pieces) % 2 == 0:
        return None
    words = tuple(tuple(reversed(names)) for names in reversed(units))
    return _Expression(start=start, end=len(text), pieces=tuple(pieces[::-1]), units=words, bulleted=bulleted)


def _may_stand_before(token: re.Match[str], between: str) -> bool:
    apart = between != token.group()
    if token.group() == ":":
        before = token.string[: token.start()]
        if _DIVIDED.search(before):
            return False
        return apart or not before.rstrip()[-1:].isdigit()  # ``10:45 + 15``
    return token.group() in _BEFORE or (token.start() == 0 and apart and token.lastgroup != "number")


def _stands_apart(word: re.Match[str], before: re.Match[str] | None) -> bool:
    """Tell whether a word before a calculation is separate from it, unlike in ``5 ft 3 + 4``."""
    return word.group().casefold() not in _INVOLVED and (before is None or before.lastgroup != "number")


def _result_after(text: str, start: int) -> _Expression | None:
    """Read ``operand (operator operand)*`` forwards; ``None`` if it continues with unknown tokens."""
    pieces: list[str] = []
    units: list[list[str]] = []
    end = start
    tokens = list(_FOLLOWING.finditer(text, start))
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        operand_next = len(pieces) % 2 == 0
        if token.lastgroup == "number" and operand_next:
            pieces.append(token.group())
            units.append([])
            end = token.end()
        elif token.lastgroup == "operator" and not operand_next and _takes_operand(following):
            pieces.append(token.group().strip())
        elif operand_next and token.group() in "$€£":
            continue
        elif operand_next or token.lastgroup == "number" or _continues(token, end, text):
            return None  # ``3 1/3``, ``5 ft 7``, ``3 000``
        elif (
            token.lastgroup == "unit" and token.group() not in _CONJUNCTIONS and len(units[-1]) < _MOST_UNITS
        ):
            units[-1].append(token.group())
        else:
            break
    if len(pieces) % 2 == 0:
        return None
    names = tuple(tuple(words) for words in units)
    return _Expression(start=start, end=end, pieces=tuple(pieces), units=names)


def _takes_operand(following: re.Match[str] | None) -> bool:
    return following is not None and (following.lastgroup == "number" or following.group() in "$€£")


def _ungrouped(literal: str) -> str:
    return literal.replace(".", "") if _GROUPED.fullmatch(literal) else literal


def _continues(token: re.Match[str], end: int, text: str) -> bool:
    """Tell whether a character after a result continues the expression."""
    sign, rest = token.group(), text[token.end() :]
    if sign in ("*", "**"):
        return bool(re.match(r"\s*\d|\s+[A-Za-z]\b", rest))  # otherwise it closes bold markup
    if token.lastgroup == "unit":
        return sign in ("R", "x", "X", "e") or (token.start() == end and sign[0].isalpha())
    if sign in "-–−":  # noqa: RUF001 - the actual signs
        return bool(re.match(r"\s*\d|\s*[A-Za-z]\b", rest)) or (token.start() == end and rest[:1].isalnum())
    if sign == "\\":
        return bool(re.match(r"%|times|cdot|frac|sqrt|div|pm|bmod|pmod", rest))
    if sign in ":.,":
        return token.start() == end and rest[:1].isdigit()
    return sign in _GOES_ON or token.lastgroup == "operator"


def _evaluate(pieces: Sequence[str]) -> float | None:
    """Evaluate products before sums, left to right; ``None`` for a division by zero."""
    terms = [worth(pieces[0])]
    for operator, literal in zip(pieces[1::2], pieces[2::2], strict=True):
        operand = worth(literal)
        if operator == "+":
            terms.append(operand)
        elif operator in "-−":  # noqa: RUF001 - the actual minus sign
            terms.append(-operand)
        elif operator in "/÷":
            if not operand:
                return None
            terms[-1] /= operand
        else:
            terms[-1] *= operand
    return sum(terms)


def _rounds_to(result: float, stated: str) -> bool:
    """Tell whether ``stated`` equals ``result`` rounded to its digits, half a unit either way."""
    places = len(stated.partition(".")[2])
    return abs(result - worth(stated)) <= 0.51 * 10.0**-places + 1e-9 * abs(result)


def _last_digit(stated: str) -> float:
    """Return the value of one unit in the last non-zero digit: 100 for ``2,500``."""
    whole, _, part = stated.replace(",", "").partition(".")
    return 10.0 ** -len(part) if part else 10.0 ** (len(whole) - len(whole.rstrip("0")))
