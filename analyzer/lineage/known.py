"""What a run was given and what its tools returned, by value. Pure.

Agents' words are never a source (see ``sources``). The arguments of calls are known to whoever reads the
answer: whether *they* are right is asked of the arguments themselves.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from analyzer.lineage.dates import DateFound, agree, dates_in
from analyzer.lineage.figures import figures
from analyzer.lineage.sources import Source, is_blind, sources
from analyzer.lineage.values import Value, ValueKind, values_in
from analyzer.lineage.vocabulary import number_words
from analyzer.signals.normalize import excerpt
from analyzer.signals.run_view import HEAD, Reading
from analyzer.signals.wordings import languages_in
from semconv.model import Evidence, StepKind
from semconv.record import record

_HEARD: Final = 2_000
"""Characters by which a text's languages are recognised."""
_WORD: Final = re.compile(r"[^\s\d.,;:!?()\"']+")
_MOST_NAMES: Final = 200
_LONGEST_NAME: Final = 40
_MOST_NAME_WORDS: Final = 4


@record
class Told:
    """A value that the task (``step`` is ``None``) or a step's text gave."""

    value: Value
    step: int | None


@record
class ToldDate:
    """A date that was given."""

    date: DateFound
    told: Told


class Known:
    """The values of a run's texts from outside; computed on first use, once."""

    def __init__(self, reading: Reading) -> None:
        self.reading: Final = reading
        self._before: Final[dict[int, str]] = {}
        self.sources: Final[Sequence[Source]] = sources(reading)
        self.is_blind: Final = is_blind(reading)
        self.has_results: Final = any(source.is_result for source in self.sources)

    @functools.cached_property
    def text(self) -> str:
        """All texts from outside and all arguments, in lower case."""
        called = (
            f"{step.target} {step.input[:HEAD]}" for step in self.reading.steps if step.kind is StepKind.TOOL
        )
        asked = (call.arguments[:HEAD] for step in self.reading.steps for call in step.calls)
        return "\n".join([*(source.text for source in self.sources), *called, *asked]).casefold()

    @functools.cached_property
    def asked(self) -> str:
        """What people asked for: the task, and what they said later."""
        steps = self.reading.steps
        people = (step.output for step in steps if step.kind is StepKind.HUMAN)
        said = (
            step.input[one.start : one.end] for step in steps[:1] for one in step.heard if one.role == "user"
        )
        told = [self.reading.trajectory.task, *people] if self.reading.trajectory.task else [*said, *people]
        return "\n".join(dict.fromkeys(told))[:HEAD]

    @functools.cached_property
    def instructions(self) -> str:
        """All instructions, each once."""
        return "\n".join(dict.fromkeys(step.instructions for step in self.reading.steps))

    def read_before(self, position: int) -> str:
        """Return the texts from outside that agents could have read before a step, in lower case."""
        if position not in self._before:
            texts = (one.text for one in self.sources if one.step is None or one.step < position)
            self._before[position] = "\n".join([self.instructions, *texts]).casefold()
        return self._before[position]

    def results(self) -> Iterator[tuple[int, str]]:
        """Yield the results of tools: the position at which each is known, and its text."""
        return ((one.step, one.text) for one in self.sources if one.is_result and one.step is not None)

    def origin_of(self, literal: str, position: int) -> int:
        """Return the position of the first step of an agent, up to a call, that wrote a value of the call."""
        for place, step in enumerate(self.reading.steps[:position]):
            if step.kind is not StepKind.TOOL and literal in step.output:
                return place
        return position

    def has(self, key: str) -> bool:
        """Tell whether a text from outside, or an argument, has a value or a word in lower case."""
        return key in self.text

    @functools.cached_property
    def told_dates(self) -> tuple[ToldDate, ...]:
        """All dates that were given, in order."""
        return tuple(
            ToldDate(
                date=one,
                told=Told(
                    value=Value(
                        kind=ValueKind.DATE,
                        key=one.literal,
                        literal=one.literal,
                        start=one.start,
                        end=one.end,
                    ),
                    step=source.step,
                ),
            )
            for source in self.sources
            for one in dates_in(source.text)
        )

    @functools.cached_property
    def dates(self) -> tuple[DateFound, ...]:
        """All dates that were given or asked for in a call."""
        return (*(told.date for told in self.told_dates), *dates_in(self.text[-HEAD:]))

    def has_date(self, one: DateFound) -> bool:
        """Tell whether a date was given, or asked for."""
        return any(agree(one, other) for other in self.dates)

    @functools.cached_property
    def counts(self) -> tuple[int, ...]:
        """Small whole numbers in texts from outside, as digits or words."""
        return tuple(dict.fromkeys(count for source in self.sources for count in counts_in(source.text)))

    def told(self, kind: ValueKind) -> Iterator[Told]:
        """Yield the values of a kind that were given, in order."""
        for source in self.sources:
            yield from (
                Told(value=one, step=source.step) for one in values_in(source.text) if one.kind is kind
            )

    @functools.cached_property
    def names(self) -> tuple[Told, ...]:
        """Names in the data that tools returned: whole texts of at most four words, each with a capital."""
        found: dict[str, Told] = {}
        for source in self.sources:
            for text in strings_of(source.text) if source.is_result else ():
                if _is_name(text) and len(found) < _MOST_NAMES:
                    value = Value(kind=ValueKind.NAME, key=text.casefold(), literal=text, start=0, end=0)
                    found.setdefault(value.key, Told(value=value, step=source.step))
        return tuple(found.values())

    def first_said(self, says: Callable[[str], bool], after: int = -1) -> int:
        """Return the position of the first step of an agent that says something, or of its last step.

        Args:
            says: tells whether a text says it.
            after: the position of the step after which it can be said.
        """
        last = 0
        for position, text in enumerate(self.reading.outputs):
            if self.reading.steps[position].kind is StepKind.TOOL:
                continue
            last = position
            if position > after and says(text):
                return position
        return last

    def quote(self, position: int, literal: str) -> Evidence:
        """Return a step's words around a value; an empty quote if its text does not have it."""
        step = self.reading.steps[position]
        at = step.output.find(literal)
        quote = excerpt(step.output, at, at + len(literal), before=50, after=50) if at >= 0 else ""
        return Evidence(step=step.index, quote=quote)

    def giver(self, position: int) -> str:
        """Return what to call the step that gave a value."""
        step = self.reading.steps[position]
        return (step.target or step.agent) if step.kind is StepKind.TOOL else f"step {step.index}"


@functools.lru_cache(maxsize=128)
def counts_in(text: str) -> tuple[int, ...]:
    """Return the whole numbers up to 366 in a text, as digits or as words of its languages."""
    digits = (int(one.value) for one in figures(text) if one.value == int(one.value) and 0 < one.value <= 366)
    known = number_words(languages_in(text[:_HEARD]))
    words = (known[word] for word in _WORD.findall(text.casefold()) if word in known) if known else ()
    return tuple(dict.fromkeys([*digits, *words]))


def strings_of(text: str) -> Iterator[str]:
    """Yield the texts in a JSON document, at any depth; none if the text is none."""
    if text[:1] not in "[{":
        return
    try:
        stack: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError):
        return
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += reversed(value.values())
        elif isinstance(value, list):
            stack += reversed(value)
        elif isinstance(value, str):
            yield value


def _is_name(text: str) -> bool:
    words = text.split()
    is_short = 0 < len(words) <= _MOST_NAME_WORDS and len(text) <= _LONGEST_NAME
    return (
        is_short
        and text[0].isupper()
        and len(text) > len("Ab")
        and all(map(_has_letters, words))
        and not text.isupper()
    )


def _has_letters(word: str) -> bool:
    return all(char.isalpha() or char in "'’&-." for char in word)  # noqa: RUF001 - an apostrophe
