"""Values in text that name something: links, addresses, paths, codes and dates. Pure.

Quantities are figures (``figures.py``). A value's key is equal for all ways of writing it; where a text has
the key, it has the value. All patterns are linear, and the number of values of a text is bounded.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from analyzer.lineage.dates import dates_in
from semconv.record import record


class ValueKind(StrEnum):
    """What a value names."""

    LINK = "link"
    ADDRESS = "address"
    """An e-mail address."""
    PATH = "path"
    """A file or a folder."""
    CODE = "code"
    """The number or the id of a thing: letters with digits, or a number of four digits and more."""
    DATE = "date"
    NAME = "name"
    """A person, a place, a company or a product: words with capital letters."""


@record
class Value:
    """A value in a text."""

    kind: ValueKind
    key: str
    literal: str
    start: int
    end: int


MOST: Final = 200
"""Values read from one text."""
_LINK: Final = re.compile(r"https?://[^\s)\]>\"'“”<]{1,2000}")
_ADDRESS: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}")
_PATH: Final = re.compile(
    r"(?<![\w./~-])(?:[~.\w-]{0,64}/)+[\w.-]{1,120}|(?<![\w.-])[\w-]{1,120}(?:\.[\w-]{1,20}){0,3}\.[a-z][a-z0-9]{0,4}\b"
)
_CODE: Final = re.compile(
    r"(?=[#A-Za-z\d])(?:(?<![\w/.,-])#?(?=[\w-]{0,40}\d)(?=[\w-]{0,40}[A-Za-z])[A-Za-z0-9][\w-]{2,40}(?![\w/]|\.\d)"
    r"|(?<![\w/.,:-])#?\d{4,18}(?![\w/%:-]|[.,]\d)|(?<![\w/.,:-])\d{1,8}(?:\.\d{1,8}){2,5}(?![\w/.]\d|\w))"
)
_EXTENSION: Final = re.compile(r"\.[a-z][a-z0-9]{0,4}$")
_MAY_BE_PATH: Final = re.compile(r"/|\.[a-z]")
"""Most texts have no match, and so no path."""
_DIGIT: Final = re.compile(r"\d")
_LEAST_PATH: Final = 4


@functools.lru_cache(maxsize=128)
def values_in(text: str) -> tuple[Value, ...]:
    """Return the values of a text, in order, none within another."""
    found = [*_all(text)]
    if len({value.kind for value in found}) > 1:  # those of one kind are in order
        found.sort(key=lambda value: (value.start, -value.end))
    kept: list[Value] = []
    for one in found:
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return tuple(kept[:MOST])


def _all(text: str) -> Iterator[Value]:
    for date in dates_in(text):
        yield Value(
            kind=ValueKind.DATE,
            key=str(date.readings),
            literal=date.literal,
            start=date.start,
            end=date.end,
        )
    for kind, mark, pattern in ((ValueKind.LINK, "://", _LINK), (ValueKind.ADDRESS, "@", _ADDRESS)):
        for found in pattern.finditer(text) if mark in text else ():
            literal = found[0].rstrip(".,;:!?")
            yield Value(
                kind=kind,
                key=literal.casefold().rstrip("/"),
                literal=literal,
                start=found.start(),
                end=found.start() + len(literal),
            )
    for found in _PATH.finditer(text) if _MAY_BE_PATH.search(text) else ():
        literal = found[0].rstrip(".,;:!?")
        if len(literal) >= _LEAST_PATH and _is_path(literal):
            yield _value(ValueKind.PATH, literal, found.start())
    for found in _CODE.finditer(text) if _DIGIT.search(text) else ():
        yield _value(ValueKind.CODE, found[0], found.start())


def _value(kind: ValueKind, literal: str, start: int) -> Value:
    return Value(
        kind=kind, key=literal.casefold().lstrip("#"), literal=literal, start=start, end=start + len(literal)
    )


def _is_path(literal: str) -> bool:
    """Tell a path from ``and/or``, ``km/h`` and ``3.5``: it has an extension, or begins at a root."""
    name = literal.rpartition("/")[2]
    has_extension = _EXTENSION.search(name) is not None and any(map(str.isalpha, name.partition(".")[0]))
    return has_extension or literal.startswith(("/", "~/", "./", "../"))
