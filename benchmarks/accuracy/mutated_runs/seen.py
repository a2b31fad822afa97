"""What a right run shows of itself: its answer, what its tools returned, and the numbers of both. Pure.

Numbers are found by their digits alone, not by the readers under test: a figure that these cannot read counts
as missed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

from analyzer.lineage.dates import dates_in
from semconv.record import record

Run: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Mapping[str, Any]

_NUMBER: Final = re.compile(
    r"(?<![\d.,:/_#A-Za-z-])\d+(?:[.,'\u00a0\u202f ]\d{3}(?!\d))*(?:[.,]\d+)?(?![\d:/_A-Za-z-]|[.,]\d)"
)
_YEAR: Final = re.compile(r"(?:19|20)\d\d")
_FEWEST_DIGITS: Final = 2
"""Digits of a figure that is changed: one digit stands in too many texts to be of this one."""


@record
class Token:
    """A number in a text, as written."""

    literal: str
    start: int

    @property
    def key(self) -> str:
        """Its digits without zeros at either end: equal for all ways of writing it."""
        return key_of(self.literal)


def key_of(literal: str) -> str:
    """Return the digits of a number without zeros at either end."""
    return "".join(filter(str.isdigit, literal)).strip("0") or "0"


def numbers_in(text: str) -> Iterator[Token]:
    """Yield the numbers of a text, in order: no dates, times, years, or parts of ids."""
    spans = [(one.start, one.end) for one in dates_in(text)]
    for found in _NUMBER.finditer(text):
        is_date = any(start < found.end() and found.start() < end for start, end in spans)
        if not is_date and _YEAR.fullmatch(found[0]) is None:
            yield Token(literal=found[0], start=found.start())


def is_figure(token: Token) -> bool:
    """Tell whether a number has digits enough to be that of one result."""
    return sum(map(str.isdigit, token.literal)) >= _FEWEST_DIGITS


def with_other_digit(literal: str) -> Iterator[str]:
    """Yield a number or an id with one of its digits changed to another one, but 0."""
    for place, digit in enumerate(literal):
        for other in "123456789" if digit.isdigit() else "":
            if other != digit:
                yield literal[:place] + other + literal[place + 1 :]


def with_digits_exchanged(literal: str) -> Iterator[str]:
    """Yield a number with two neighbouring digits exchanged; none begins with 0 for that."""
    for place, (one, other) in enumerate(pairwise(literal)):
        if one.isdigit() and other.isdigit() and one != other and (place or other != "0"):
            yield literal[:place] + other + one + literal[place + 2 :]


class Seen:
    """A run and what can be read from it; each part is computed once."""

    def __init__(self, run: Run) -> None:
        self.run: Final = run
        self.task: Final[str] = run["task"]
        self.answer: Final[str] = run["output"]
        self.steps: Final[Sequence[Mapping[str, Any]]] = run["steps"]

    @functools.cached_property
    def answered(self) -> int:
        """The place of the step that says the answer, or -1."""
        places = [place for place, step in enumerate(self.steps) if step["kind"] == "llm"]
        return places[-1] if places and self.steps[places[-1]].get("said") == self.answer != "" else -1

    @functools.cached_property
    def results(self) -> Sequence[str]:
        """The results of all calls, as text."""
        return [text_of(step.get("result", "")) for step in self.steps if step["kind"] == "tool"]

    @functools.cached_property
    def returned(self) -> frozenset[str]:
        """Keys of the numbers that calls returned."""
        return frozenset(token.key for text in self.results for token in numbers_in(text))

    @functools.cached_property
    def every(self) -> frozenset[str]:
        """Keys of all numbers of the run, also within ids, dates and times."""
        return frozenset(key_of(one) for one in re.findall(r"[\d.,]*\d", self.whole))

    @functools.cached_property
    def whole(self) -> str:
        """All of the run as text."""
        return json.dumps(self.run, ensure_ascii=False)

    @functools.cached_property
    def tables(self) -> Sequence[Sequence[Row]]:
        """Rows that can be confused: those of a list, and the results of several calls of one tool."""
        found: list[list[Row]] = []
        of_tool: dict[str, list[Row]] = {}
        for step in self.steps:
            if step["kind"] != "tool":
                continue
            result = _parsed(step.get("result", ""))
            found += _lists_in(result)
            if isinstance(result, dict):
                of_tool.setdefault(step["tool"], []).append({**step.get("arguments", {}), **result})
        return [rows for rows in (*found, *of_tool.values()) if len(rows) > 1]


def text_of(value: Any) -> str:
    """Return a result as the tool's text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parsed(result: Any) -> Any:
    if not isinstance(result, str):
        return result
    try:
        return json.loads(result)
    except ValueError:
        return None


def _lists_in(result: Any) -> Iterator[list[Row]]:
    waiting = [result]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            yield [row for row in one if isinstance(row, dict)]
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
