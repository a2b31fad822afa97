"""Values in arguments, results and texts, in a form in which equal ones are equal. Pure.

Numbers are compared by value, whatever separates their thousands and decimals, and with or without a unit;
other values by their words. Language-free: a word is a run of letters, or one character of a script that
writes no blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from hashlib import blake2b
from typing import Any, Final

from analyzer.signals.normalize import plain_typography
from analyzer.signals.numbers import DENSE
from semconv.dialects.reading.values import structured
from semconv.record import record

MAX_LEAVES: Final = 48
"""Values of one argument list or result that are read."""
_MAX_DEPTH: Final = 8
_MAX_ITEMS: Final = 16
_LONG: Final = 8
"""Words from which a value is a text."""
_WORD_CHARS: Final = 24
_TOKEN: Final = re.compile(rf"\d+(?:[.,']\d+)*|[{DENSE}]|[^\W\d_{DENSE}]+")
_QUANTITY: Final = re.compile(
    r"\s*(?:[A-Z]{3}\s+|[$€£¥₹]\s*)?([+-]?\d+(?:[.,' ]\d+)*)\s*(?:[^\W\d_]{1,4}|[$€£¥₹%°])?\.?\s*"
)
_DIGITS: Final = re.compile(r"\d+")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_WORD: Final = re.compile(r"[^\W\d]+(?:-[^\W\d]+)?")


@record
class Leaf:
    """One value of a JSON document; the whole text, with an empty path, if it is none."""

    path: str
    """Keys joined by points; an element of a list is ``[]``, whatever its place."""
    text: str
    is_text: bool
    """Whether it is prose rather than a value."""
    is_value: bool
    """Whether an equal value elsewhere may be its source: not for truth values and nothing."""
    choice: str
    """The value if it is one of few: a truth value, a word, or how many elements a list has; else empty."""
    number: str | None = None
    """The canonical number; ``None`` if it is none."""


def leaves_of(text: str) -> list[Leaf]:
    """Return the values of a text: those of its JSON in reading order, at most ``MAX_LEAVES``."""
    leaves: list[Leaf] = []
    waiting: list[tuple[str, int, Any]] = [("", 0, structured(text))] if text.strip() else []
    while waiting and len(leaves) < MAX_LEAVES:
        path, depth, value = waiting.pop()
        inner = structured(value) if isinstance(value, str) and path else value
        parts = list(_parts(path, inner)) if depth < _MAX_DEPTH else []
        if isinstance(inner, list):
            leaves.append(_size(path, len(inner)))
        if parts:
            waiting.extend((each, depth + 1, part) for each, part in reversed(parts))
        elif not isinstance(inner, list | dict):
            leaves.append(_leaf(path, inner))
    return leaves


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, part in list(value.items())[:MAX_LEAVES]:
            yield f"{path}.{name}" if path else str(name), part
    elif isinstance(value, list):
        for part in value[:_MAX_ITEMS]:
            yield f"{path}[]", part


def _size(path: str, count: int) -> Leaf:
    many = "none" if not count else "one" if count == 1 else "several"
    return Leaf(path=f"{path}[] count", text=str(count), is_text=False, is_value=False, choice=many)


def _leaf(path: str, value: Any) -> Leaf:
    if value is None or isinstance(value, bool):
        word = {None: "null", True: "true", False: "false"}[value]
        return Leaf(path=path, text=word, is_text=False, is_value=False, choice=word)
    text = plain_typography(value if isinstance(value, str) else str(value)).strip()
    number = quantity(text)
    is_text = number is None and len(tokens_of(text[: 40 * _LONG])) > _LONG
    is_word = number is None and len(text) <= _WORD_CHARS and _WORD.fullmatch(text)
    choice = text if is_word else ""
    return Leaf(path=path, text=text, is_text=is_text, is_value=bool(text), choice=choice, number=number)


def quantity(text: str) -> str | None:
    """Return the number of a text that is one, with or without a unit or a currency; ``None`` if not."""
    found = _QUANTITY.fullmatch(text) if len(text) <= _WORD_CHARS else None
    if found is None:
        return None
    sign = "-" if found[1].startswith("-") else ""
    return sign + number_of(found[1].lstrip("+-").replace(" ", ""))


def number_of(text: str) -> str:
    """Return a number in canonical form, without separators of thousands and idle zeros.

    The last separator is the decimal one if it occurs once and three digits do not follow a comma.
    A number with leading zeros is a name, and stays as it is.
    """
    if text.isdigit():
        return text
    separator = next(char for char in reversed(text) if not char.isdigit())
    head, _, tail = text.rpartition(separator)
    is_grouped = text.count(separator) > 1 or (separator != "." and len(tail) == 3 and head.isdigit())
    plain = "".join(char for char in head if char.isdigit())
    try:
        value = Decimal(f"{plain}{tail}" if is_grouped else f"{plain}.{tail}")
    except InvalidOperation:
        return text
    return f"{value.normalize():f}"


def tokens_of(text: str) -> list[str]:
    """Return the words and numbers of a text, in canonical form."""
    return [
        number_of(token) if token[0].isdigit() and not token.isdigit() else token
        for token in _TOKEN.findall(plain_typography(text).casefold())
    ]


def whole(tokens: Sequence[str]) -> str:
    """Return the tokens as a text in which those of a value can be found between blanks."""
    return f" {' '.join(tokens)} "


def key_of(text: str) -> str:
    """Return the canonical form of a value, by which values are compared; empty without words."""
    number = quantity(text)
    return " ".join(tokens_of(text)) if number is None else number


def shape_of(text: str) -> str:
    """Return how a value is written: ``A-9`` for ``ORD-4711``."""
    return _LETTERS.sub(lambda found: "A" if found[0].isupper() else "a", _DIGITS.sub("9", text))


def digest(text: str) -> int:
    """Return 16 bits of a digest."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=2).digest())


__all__ = ["Leaf", "digest", "key_of", "leaves_of", "quantity", "shape_of", "tokens_of", "whole"]
