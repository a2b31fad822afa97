"""What a run was given and what its tools returned, by value. Pure.

Agents' words are never a source (see ``sources``). The arguments of calls are known to whoever reads the
answer: whether *they* are right is asked of the arguments themselves. Every text is read once; what is looked
up afterwards is found by its words.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import DateFound, agree, dates_in
from analyzer.lineage.entries import rows_in, strings_of
from analyzer.lineage.figures import Figure, figures
from analyzer.lineage.sources import Source, is_blind, sources
from analyzer.lineage.values import Value, ValueKind, values_in
from analyzer.texts.normalize import excerpt
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import HEAD, QUOTE, THINKING, Reading, final_answer, own_words
from analyzer.texts.vocabulary import all_number_words, number_words, phrases, words_for
from analyzer.texts.wordings import languages_in, mentions_fault
from semconv.model import Evidence, StepKind
from semconv.record import record

BEFORE: Final = -1
"""Position of what the run was given before its first step: the task and the instructions."""
_HEARD: Final = 2_000
"""Characters by which a text's languages are recognised."""
_WORD: Final = re.compile(r"[^\s\d.,;:!?()\"']+")
_TOKEN: Final = re.compile(r"[^\s\"'`(),;:\[\]{}<>=|*]+")
_PART: Final = re.compile(r"\w+(?:-\w+)*")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_BEGINNING: Final = 5
_LONGEST_YEAR: Final = 366
_MOST_NAMES: Final = 200
_LONGEST_NAME: Final = 40
_GAP: Final = 14
"""Characters between a word such as "today" and its date."""


@record
class Told:
    """A value that a text from outside has; ``position`` is that of the step, or ``BEFORE``."""

    value: Value
    position: int


@record
class ToldDate:
    """A date that was given."""

    date: DateFound
    told: Told


class Known:
    """The values of a run's texts from outside; computed on first use, once."""

    def __init__(self, reading: Reading) -> None:
        self.reading: Final = reading
        self.sources: Final[Sequence[Source]] = sources(reading)
        self.is_blind: Final = is_blind(reading)
        self.has_results: Final = any(source.is_result for source in self.sources)

    def results(self) -> Iterator[tuple[int, str]]:
        """Yield the results of tools: the position at which each is known, and its text."""
        return ((one.step, one.text) for one in self.sources if one.is_result and one.step is not None)

    def figures(self) -> Iterator[tuple[int, Sequence[Figure]]]:
        """Yield the figures of the results of tools, with the position at which they are known."""
        return ((one.step, one.figures) for one in self.sources if one.is_result and one.step is not None)

    @functools.cached_property
    def last_calls(self) -> Mapping[str | None, int]:
        """The position of the last call of each tool."""
        steps = enumerate(self.reading.steps)
        return {step.target: position for position, step in steps if step.kind is StepKind.TOOL}

    @functools.cached_property
    def asked(self) -> str:
        """What people asked for: the task, and what they said later."""
        steps, task = self.reading.steps, self.reading.trajectory.task
        people = (step.output for step in steps if step.kind is StepKind.HUMAN)
        said = (source.text for source in self.sources if not source.is_result and source.step is not None)
        return "\n".join(dict.fromkeys([*([task] if task else []), *people, *said]))[:HEAD]

    @functools.cached_property
    def answer(self) -> str:
        """The run's answer, at most ``HEAD`` characters."""
        return final_answer(self.reading.trajectory)[:HEAD]

    @functools.cached_property
    def admits_fault(self) -> bool:
        """Whether the answer may say that something failed; the task's own words do not count."""
        return mentions_fault(self.answer, self.asked)

    @functools.cached_property
    def languages(self) -> tuple[str, ...]:
        """The languages in which people asked."""
        return languages_in(self.asked[:_HEARD])

    def asks_for(self, *kinds: str) -> bool:
        """Tell whether people ask in words of these kinds of ``vocabulary.toml``: for ``every`` entry."""
        return any(phrases(kind, self.languages).search(self.asked) for kind in kinds)

    @functools.cached_property
    def today(self) -> date | None:
        """The day that stands, with its year, right after a word such as ``today`` in what people say."""
        for found in phrases("current", self.languages).finditer(self.asked):
            near = dates_in(self.asked[found.end() : found.end() + 2 * _GAP])
            days = [day for one in near if one.start <= _GAP for day in one.readings if day.year]
            if len(days) == 1:
                return date(*days[0])
        return None

    @functools.cached_property
    def instructions(self) -> str:
        """All instructions, each once."""
        return "\n".join(dict.fromkeys(step.instructions for step in self.reading.steps))[:HEAD]

    @functools.cached_property
    def _words(self) -> Mapping[str, tuple[int, ...]]:
        """The positions of the first two texts that have each word, in lower case."""
        found: dict[str, tuple[int, ...]] = {}
        texts = [(BEFORE, self.instructions), *((place_of(source), source.text) for source in self.sources)]
        for position, text in texts:
            for word in words_in(text):
                places = found.get(word, ())
                if len(places) < 2 and position not in places:
                    found[word] = (*places, position)
        return found

    @functools.cached_property
    def in_calls(self) -> frozenset[str]:
        """The words of all calls, in lower case."""
        called = (
            f"{step.target} {step.input[:HEAD]}" for step in self.reading.steps if step.kind is StepKind.TOOL
        )
        asked = (call.arguments[:HEAD] for step in self.reading.steps for call in step.calls)
        return frozenset(word for text in (*called, *asked) for word in words_in(text))

    def has(self, word: str) -> bool:
        """Tell whether a text from outside, or a call, has a word or a value in lower case."""
        return word in self._words or word in self.in_calls

    def is_read(self, word: str, position: int) -> bool:
        """Tell whether an agent could have read a word or a value in lower case before a step."""
        return any(place < position for place in self._words.get(word, ()))

    def is_elsewhere(self, word: str, position: int, before: int | None = None) -> bool:
        """Tell whether a text from outside has a word in lower case, apart from the one known at a step.

        Args:
            word: the word.
            position: that of the step.
            before: only texts that are known before this position.
        """
        end = len(self.reading.steps) if before is None else before
        return any(place != position and place < end for place in self._words.get(word, ()))

    @functools.cached_property
    def _numbers(self) -> Mapping[float, int]:
        """The first position at which each number is known."""
        found: dict[float, int] = {}
        for position, text in [
            (BEFORE, self.instructions),
            *((place_of(source), source.text) for source in self.sources),
        ]:
            for number in numbers(text):
                found.setdefault(number, position)
        return found

    def is_number_read(self, number: float, position: int) -> bool:
        """Tell whether an agent could have read a number before a step."""
        return self._numbers.get(number, position) < position

    def source_of_word(self, word: str) -> Source | None:
        """Return the first text from outside that has a word or a value in lower case."""
        place = next(iter(self._words.get(word, ())), None)
        at = None if place == BEFORE else place
        texts = (source for source in self.sources if source.step == at and word in source.text.casefold())
        return None if place is None else next(texts, None)

    def source_of_number(self, number: float) -> Source | None:
        """Return the first text from outside that has a number, also within a date or an id."""
        place = self._numbers.get(number)
        at = None if place == BEFORE else place
        return None if place is None else next((source for source in self.sources if source.step == at), None)

    @functools.cached_property
    def dates(self) -> tuple[ToldDate, ...]:
        """All dates that were given, in order."""
        return tuple(
            ToldDate(date=one, told=Told(value=_as_value(one), position=place_of(source)))
            for source in self.sources
            for one in dates_in(source.text)
        )

    @functools.cached_property
    def _dates_in_calls(self) -> tuple[DateFound, ...]:
        inputs = dict.fromkeys(step.input[:HEAD] for step in self.reading.steps if step.kind is StepKind.TOOL)
        return tuple(one for text in inputs for one in dates_in(text))

    @functools.cached_property
    def all_dates(self) -> tuple[DateFound, ...]:
        """The different dates that were given or asked for in a call."""
        found = (*(told.date for told in self.dates), *self._dates_in_calls)
        return tuple({one.readings: one for one in found}.values())

    def has_date(self, one: DateFound) -> bool:
        """Tell whether a date was given, or asked for in a call."""
        return any(agree(one, other) for other in self.all_dates)

    @functools.cached_property
    def counts(self) -> tuple[int, ...]:
        """Small whole numbers in texts from outside, as digits or words."""
        return tuple(self.first_counts())

    def first_counts(self) -> Iterator[int]:
        """Yield them in order, each once; each text is read once one of its numbers is wanted."""
        seen: set[int] = set()
        for count in (one for source in self.sources for one in counts_in(source.text)):
            if count not in seen:
                seen.add(count)
                yield count

    def told(self, kind: ValueKind) -> Iterator[Told]:
        """Yield the values of a kind that were given, in order."""
        for source in self.sources:
            found = (value for value in values_in(source.text) if value.kind is kind)
            yield from (Told(value=value, position=place_of(source)) for value in found)

    @functools.cached_property
    def names(self) -> tuple[Told, ...]:
        """Names in the data that tools returned: whole texts of one word with a capital."""
        found: dict[str, Told] = {}
        for position, text in self.results():
            for _, name in strings_of(text):
                if _is_name(name) and len(found) < _MOST_NAMES:
                    value = Value(kind=ValueKind.NAME, key=name.casefold(), literal=name, start=0, end=0)
                    found.setdefault(value.key, Told(value=value, position=position))
        return tuple(found.values())

    @functools.cached_property
    def whole_values(self) -> frozenset[str]:
        """The texts that results have as the whole value of a field, in lower case."""
        fields = (value for _, text in self.results() for row in rows_in(text) for value in row.values())
        return frozenset(value.casefold().strip() for value in fields if isinstance(value, str))

    def keyed(self, key: str) -> Sequence[tuple[int, str]]:
        """Return the texts that results have under a key, each with the position of its step."""
        return self._by_key.get(key.casefold(), ())

    @functools.cached_property
    def _by_key(self) -> Mapping[str, list[tuple[int, str]]]:
        found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for position, text in self.results():
            for key, value in strings_of(text):
                found[key.casefold()].append((position, value))
        return found

    def words_after(self, position: int) -> Iterator[tuple[int, str]]:
        """Yield what agents say after a step, in words of their own: the position of each, and its text."""
        later = enumerate(self.reading.steps[position + 1 :], position + 1)
        words = ((place, own_words(step)[:HEAD]) for place, step in later if step.kind in THINKING)
        return ((place, text) for place, text in words if text)

    def heard_by(self, position: int) -> str:
        """Return what the agent of a step was told up to this step: messages, and results of its calls."""
        steps = self.reading.steps
        own = [step for step in steps[: position + 1] if step.agent == steps[position].agent]
        texts = [step.input for step in own if step.kind is not StepKind.TOOL]
        results = [step.output for step in own if step.kind is StepKind.TOOL and step is not steps[position]]
        return "\n".join([*dict.fromkeys(step.instructions for step in own), *texts, *results])

    def origin_of(self, literal: str, position: int) -> int:
        """Return the position of the first step of an agent, up to a call, that wrote a value of the call."""
        for place, step in enumerate(self.reading.steps[:position]):
            if step.kind is not StepKind.TOOL and literal in step.output:
                return place
        return position

    def first_said(self, says: Callable[[str], bool], after: int = BEFORE) -> int:
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

    def first_with(self, literal: str, after: int = BEFORE) -> int:
        """Return the position of the first step of an agent that has a text, as ``first_said`` does.

        ``9 March`` does not stand in ``19 March``.
        """
        return self.first_said(lambda text: _has_whole(text, literal), after)

    def first_stating(self, value: float, after: int = BEFORE) -> int:
        """Return the position of the first step of an agent that gives a figure, as ``first_said`` does."""
        return self.first_said(lambda text: any(figure.value == value for figure in figures(text)), after)

    def clue(
        self,
        position: int,
        kind: ClueKind,
        reason: str,
        *quotes: Evidence,
        value: float | None = None,
        sign: str = "",
        most: float = 1.0,
    ) -> Clue:
        """Return the clue that a step made a mistake, with those quotes that have words."""
        return Clue(
            step=self.reading.steps[position].index,
            kind=kind,
            reason=reason,
            evidence=tuple([quote for quote in quotes if quote.quote]),
            value=value,
            signs={sign: 1.0} if sign else {},
            most=most,
        )

    def quote(self, position: int, literal: str, reach: int = 50) -> Evidence:
        """Return a step's words around a value; an empty quote if its text does not have it."""
        step = self.reading.steps[position]
        return Evidence(step=step.index, quote=around(step.output, literal, reach))

    def words(self, position: int, text: str) -> Evidence:
        """Return the first words of a text as those of a step."""
        return Evidence(step=self.reading.steps[position].index, quote=beginning(text, QUOTE))

    def giver(self, position: int) -> str:
        """Return what to call the text that gave a value."""
        if position == BEFORE:
            return "the task"
        step = self.reading.steps[position]
        return (step.target or step.agent) if step.kind is StepKind.TOOL else f"step {step.index}"


@functools.lru_cache(maxsize=2)
def known_of(reading: Reading) -> Known:
    """Return what a run was given; suspicion, signals and lineage ask for the same run in turn."""
    return Known(reading)


def around(text: str, literal: str, reach: int = 50) -> str:
    """Return a text's words around the first place of a literal; empty if it does not have it."""
    at = text.find(literal)
    return excerpt(text, at, at + len(literal), before=reach, after=reach) if at >= 0 else ""


def _has_whole(text: str, literal: str) -> bool:
    """Tell whether a text has a literal without a digit before its first one, or after its last one."""
    at = text.find(literal)
    while at >= 0:
        pairs = (text[max(0, at - 1) : at + 1], text[at + len(literal) - 1 : at + len(literal) + 1])
        if not any(len(pair) > 1 and pair.isdigit() for pair in pairs):
            return True
        at = text.find(literal, at + 1)
    return False


def place_of(source: Source) -> int:
    """Return the position of the step that gave a text, or ``BEFORE``."""
    return BEFORE if source.step is None else source.step


def _as_value(date: DateFound) -> Value:
    return Value(
        kind=ValueKind.DATE, key=date.literal.casefold(), literal=date.literal, start=date.start, end=date.end
    )


@functools.lru_cache(maxsize=128)
def words_in(text: str) -> frozenset[str]:
    """Return the words of a text in lower case: as blanks and brackets separate them, and their parts."""
    small = text[:HEAD].casefold()
    tokens = set(_TOKEN.findall(small))
    odd = [token for token in tokens if not token.isalnum()]  # a plain word is its only part
    whole = [token.rstrip(".!?").lstrip("#") for token in odd]
    return frozenset(tokens.difference(odd).union(whole, _PART.findall(" ".join(odd))))


def beginnings_in(text: str, least: int) -> frozenset[str]:
    """Return the first five letters of a text's words, in lower case: forms of a word share them.

    Args:
        text: any text.
        least: letters of the shortest word that counts.
    """
    words = (word for word in _LETTERS.findall(text.casefold()) if len(word) >= least)
    return frozenset(word[:_BEGINNING] for word in words)


@functools.lru_cache(maxsize=128)
def counts_in(text: str) -> tuple[int, ...]:
    """Return the whole numbers up to 366 in a text, as digits or as words of its languages."""
    counted = (figure for figure in figures(text) if figure.unit not in words_for("hour_of_day"))
    wholes = (int(figure.value) for figure in counted if figure.value == int(figure.value))
    digits = (number for number in wholes if 0 < number <= _LONGEST_YEAR)
    numerals = all_number_words()
    spelled = [word for word in _WORD.findall(text.casefold()) if word in numerals]
    known = number_words(languages_in(text[:_HEARD])) if spelled else {}
    return tuple(dict.fromkeys([*digits, *(known[word] for word in spelled if word in known)]))


def _is_name(text: str) -> bool:
    is_short = len("Abc") <= len(text) <= _LONGEST_NAME
    return is_short and text[0].isupper() and not text.isupper() and _has_letters(text)


def _has_letters(word: str) -> bool:
    return all(char.isalpha() or char in "'’&-." for char in word)  # noqa: RUF001 - an apostrophe
