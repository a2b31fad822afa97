"""Arguments of calls that contradict the task: 4712 for the order 4711, 24 May for 14 May, last year's table.

An argument may be anything an agent knows. It is a slip of a given value if it differs from that in one
place, nothing that the agent had read has it, nothing gives it by counting or arithmetic, and no call uses
the given one: an agent that tries several values uses that one too. Exchanged digits of an id are a slip in
any call that does more than look up. A look-up may ask for any id: it is a slip if the answer is for the
given one, which no result has. Dates, figures and plain numbers count in deeds only: searches and
calculations take what is near to what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import islice
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import (
    agree,
    dates_in,
    differ_in_one,
    digits_apart,
    follows,
    mistaken,
    without_dates,
    years_in,
)
from analyzer.lineage.deeds import acts_of
from analyzer.lineage.derivation import BY_CHANCE, alike_by_chance, near_miss, places_apart, plain_results
from analyzer.lineage.entries import fields_in, is_number, record_texts
from analyzer.lineage.figures import Figure, figures
from analyzer.lineage.known import BEFORE, Known, around, counts_in, words_in
from analyzer.lineage.values import ValueKind, values_in
from analyzer.texts.commands import call_name
from analyzer.texts.run_view import HEAD
from analyzer.texts.tool_names import deed_of, looks_up
from analyzer.texts.vocabulary import phrase_at_end, weekdays_in
from semconv.model import Evidence, StepKind
from semconv.record import record

_IN_PATH: Final = re.compile(r"(?<![^\W_])[A-Za-z][A-Za-z0-9]*-?\d[\w-]*(?![^\W_])")
_TWO_PARTS: Final = re.compile(r"(?<![\w.,/-])\d{2,4}-\d{3,8}(?![\w.,/-]\d|\w|-)")
"""Numbers in two parts, such as ``2026-0481``."""
_DAY: Final = re.compile(r"(?<![\d.,:])\d{1,2}(?![\d:]|[.,]\d)")
"""A number that may be a day without its month: "to the 22nd"."""
_APART: Final = re.compile(r"[\W_]+|(?<=[^\W\d])(?=\d)")
"""What stands between the letters and the digits of an id: ``case-12`` is case 12."""
_MOST_CALLS: Final = 100
_LEAST_DIGITS: Final = 3
_MOST_GIVEN: Final = 8
_MOST_KEYS: Final = 40
_MOST_KEYED: Final = 1_000
"""Latest values of a key in results that are compared with an argument."""
_NEIGHBOUR: Final = 7
"""Days around a date that a call may ask for without a reason: the week that begins or ends with it."""
_YEARS_APART: Final = 5
"""Years within which two years may be taken for each other."""
_REACH: Final = 24
"""Characters before an id in which a word of order stands."""
_ORDERS: Final = ("before", "after")
"""Kinds of phrases that say on which side of an id another one stands."""


@record
class _Call:
    """A call's arguments as text."""

    position: int
    tool: str
    text: str
    is_deed: bool
    """Whether it changes something."""


@record
class _Slip:
    """A value of a call, and the given one in whose place it stands."""

    position: int
    what: str
    used: str
    given: str
    giver: str = "the task"


@record
class _Case:
    """What people asked for, and the calls made for it."""

    asked: str
    calls: tuple[_Call, ...]
    known: Known

    def is_used(self, literal: str) -> bool:
        """Tell whether a call uses a value."""
        return literal.casefold() in self.known.in_calls

    def exchanges(self, call: _Call, value: str, given: str) -> bool:
        """Tell whether a call has a given id with exchanged digits, and no call of its tool the id itself.

        A tool that only looks things up may look at anything, and a record that has both leads to the other.
        """
        if looks_up(call.tool) or not is_exchanged(value, given):
            return False
        same = (other.text for other in self.calls if other.tool == call.tool)
        if any(given.casefold() in words_in(text) for text in same):
            return False
        pair = {value.casefold(), given.casefold()}
        texts = (text for place, text in self.known.results() if place < call.position)
        return not any(pair <= words_in(record_text) for text in texts for record_text in record_texts(text))

    def answers_for(self, call: _Call, value: str, given: str) -> bool:
        """Tell whether a run looks one id up and answers for a given one that no result has."""
        is_span = bool(years_in(value))  # 2024-2025: part of the years that were asked for
        if is_span or not looks_up(call.tool) or self.known.is_read(value.casefold(), call.position):
            return False
        told = words_in(self.known.answer)
        if given.casefold() not in told or value.casefold() in told or _is_mark(self.known, given):
            return False
        return not any(given.casefold() in words_in(text) for _, text in self.known.results())

    def reports(self, given: Figure, used: Figure) -> bool:
        """Tell whether the answer has a given figure, and no agent has words with the one of a call."""
        if given.value not in {one.value for one in figures(self.known.answer)}:
            return False
        said = (text for _, text in self.known.words_after(BEFORE))
        return not any(used.value == one.value for text in said for one in figures(text))


def _is_mark(known: Known, given: str) -> bool:
    """Tell whether a task names an id only to say where another one stands: ``the order after 4711``."""
    at = known.asked.find(given)
    before = known.asked[max(0, at - _REACH) : max(0, at)].rstrip("# ")
    return any(phrase_at_end(before, kind, known.languages) for kind in _ORDERS)


def contradicting_arguments(known: Known) -> Iterator[Clue]:
    """Yield the values of calls that differ in one place from what people gave and no call uses."""
    calls = [
        _Call(
            position=place,
            tool=step.target or "",
            text=step.input[:HEAD],
            is_deed=_is_deed(call_name(step)),
        )
        for place, step in enumerate(known.reading.steps)
        if step.kind is StepKind.TOOL and step.input
    ]
    if not calls:
        return
    case = _Case(asked=known.asked, calls=tuple(calls[:_MOST_CALLS]), known=known)
    for find in _FINDERS:
        slip = next(find(case), None)
        if slip is not None:
            yield _clue(known, slip)


def _dates(case: _Case) -> Iterator[_Slip]:
    asked = dates_in(case.asked)[:_MOST_GIVEN]
    used = [(call, one) for call in case.calls for one in dates_in(call.text)] if asked else []
    unused = [given for given in asked if not any(agree(given, one) for _, one in used)]
    named = weekdays_in(case.asked, case.known.languages) if unused else frozenset()
    days = {int(day) for day in _DAY.findall(without_dates(case.asked))} if unused else set[int]()
    for call, one in used:
        is_span = len(dates_in(call.text)) > 1  # it ends a month or a year later
        differs = mistaken if is_span else differ_in_one
        near = [given for given in unused if differs(one, given)] if call.is_deed else []
        if not near:
            continue
        read = (*asked, *(told.date for told in case.known.dates if told.told.position < call.position))
        is_named = any(date(*day).weekday() in named for day in one.readings if day.year)
        is_named = is_named or any(day.day in days for day in one.readings)
        counts = (*counts_in(case.asked), *case.known.counts)
        is_led = follows(one, read, counts) or follows(one, asked, (), within=_NEIGHBOUR)
        if not any(agree(one, other) for other in read) and not (is_named or is_led):
            given = min(near, key=lambda each: digits_apart(one, each))
            yield _Slip(position=call.position, what="the date", used=one.literal, given=given.literal)


def _years(case: _Case) -> Iterator[_Slip]:
    named = years_in(case.asked)
    values = values_in(case.asked) if named else ()
    codes = [value.literal for value in values if value.kind is ValueKind.CODE]
    asked = [year for year in named if not any(str(year) in code and str(year) != code for code in codes)]
    if len(asked) != 1:
        return
    used = [(call, year) for call in case.calls for year in years_in(call.text)]
    if any(year == asked[0] for _, year in used):
        return
    years = [year for _, year in used]
    if years and min(years) < asked[0] < max(years):
        return  # a range around it
    for call, year in used:
        is_name = re.search(rf"[^\W\d]\w*{year}", call.text) is not None  # of a table or a file
        if (
            is_name
            and abs(year - asked[0]) <= _YEARS_APART
            and not case.known.is_number_read(year, call.position)
        ):
            yield _Slip(position=call.position, what="the year", used=str(year), given=str(asked[0]))


def _codes(case: _Case) -> Iterator[_Slip]:
    asked = _codes_in(case.asked)
    answer = words_in(case.known.answer) if asked else frozenset()
    unused = [one for one in asked if not case.is_used(one)][:_MOST_GIVEN]
    for call in case.calls if asked else ():
        for one in _codes_in(call.text) if unused or not looks_up(call.tool) else ():
            if one in asked or (years_in(one) and not _TWO_PARTS.fullmatch(one)):
                continue
            near = next((given for given in unused if one_slip(one, given)), None)
            is_name = any(map(str.isalpha, one))
            is_other = call.is_deed and not case.known.is_read(one, call.position)
            if near is not None and (is_name or is_other or case.answers_for(call, one, near)):
                yield _Slip(position=call.position, what="the number", used=one, given=near)
            taken = next((given for given in asked[:_MOST_GIVEN] if case.exchanges(call, one, given)), None)
            if taken is not None and one.casefold() not in answer and taken.casefold() in answer:
                yield _Slip(position=call.position, what="the number", used=one, given=taken)


def _codes_in(text: str) -> Sequence[str]:
    """Return the ids of a text, as written: also those in the names of files, and numbers in two parts."""
    found = [value for value in values_in(text) if value.kind in {ValueKind.CODE, ValueKind.PATH}]
    parts = (_IN_PATH.findall(one.literal) if one.kind is ValueKind.PATH else (one.literal,) for one in found)
    return [
        *dict.fromkeys((*(part.lstrip("#") for each in parts for part in each), *_TWO_PARTS.findall(text)))
    ]


def _figures(case: _Case) -> Iterator[_Slip]:
    if not any(call.is_deed for call in case.calls):
        return
    asked = [one for one in figures(case.asked) if len(one.literal_digits) > 1]
    used = [(call, one) for call in case.calls if asked for one in figures(call.text) if not one.is_small]
    values = {figure.value for _, figure in used}
    unused = [figure for figure in asked if figure.value not in values][:_MOST_GIVEN]
    pairs = len(values) * len(unused)
    for call, one in used if unused else ():
        if not call.is_deed:
            continue
        near = next((each for each in unused if _is_slip_of(case, call, one, each, pairs)), None)
        if near is None or case.known.is_number_read(one.value, call.position):
            continue
        told = [figure.value for figure in figures(case.asked)][:_MOST_GIVEN]
        beside = [figure.value for figure in figures(call.text) if figure.value != one.value][:_MOST_GIVEN]
        returned = (near.value, *_figures_before(case.known, call.position))
        computed = (each for operands in (told, beside, returned) for each in plain_results(operands))
        if not case.known.is_read(one.literal, call.position) and not any(map(one.is_about, computed)):
            yield _Slip(position=call.position, what="the figure", used=one.literal, given=near.literal)


def _is_slip_of(case: _Case, call: _Call, used: Figure, given: Figure, pairs: int) -> bool:
    """Tell whether a figure of a call is a slip of a given one: no chance, or reported as that one."""
    if not given.is_label and pairs * alike_by_chance(used, given.value) <= BY_CHANCE:
        return True
    is_near = near_miss(used, given.value) and len(used.literal_digits) == len(given.literal_digits)
    is_whole = any(is_number(value) and value == used.value for value in fields_in(call.text).values())
    return is_near and is_whole and case.reports(given, used)


def _figures_before(known: Known, position: int) -> Sequence[float]:
    """Return the latest figures that results gave before a call, at most ``_MOST_GIVEN``."""
    found = (figure.value for place, each in known.figures() if place < position for figure in each)
    return [*dict.fromkeys(found)][-_MOST_GIVEN:]


def _keyed(case: _Case) -> Iterator[_Slip]:
    """Yield ids that nobody gave under a key for which an earlier result had another id of the same kind."""
    for call in case.calls:
        if deed_of(call.tool) in _MAKES_IDS:
            continue
        for key, value in list(fields_in(call.text).items())[:_MOST_KEYS]:
            if (
                not isinstance(value, str)
                or not _is_id(value)
                or case.known.is_read(value.casefold(), call.position)
                or _APART.sub(" ", value).casefold() in _APART.sub(" ", case.asked).casefold()
            ):
                continue
            kind = _kind_of_id(value)
            given = (
                (one, position)
                for position, one in case.known.keyed(key)[: -_MOST_KEYED - 1 : -1]
                if position < call.position
                and _kind_of_id(one) == kind
                and not _is_near(value, one)
                and (not case.is_used(one) or case.exchanges(call, value, one))
            )
            for one, position in islice(given, 1):
                yield _Slip(
                    position=call.position,
                    what=f"the {key}",
                    used=value,
                    given=one,
                    giver=case.known.giver(position),
                )


_MAKES_IDS: Final = frozenset(
    {"create", "add", "insert", "register", "open", "upload", "write", "save", "submit", "post"}
)
"""Deeds whose ids the caller may choose."""


def _is_deed(tool: str) -> bool:
    return not looks_up(tool) and bool(deed_of(tool) or acts_of(tool))


def _is_id(value: str) -> bool:
    return " " not in value and "/" not in value and any(map(str.isdigit, value)) and bool(_kind_of_id(value))


def _kind_of_id(value: str) -> str:
    """Return the letters with which an id begins; empty if it begins with something else."""
    return value[: next((place for place, char in enumerate(value) if not char.isalpha()), 0)].casefold()


def _is_near(value: str, given: str) -> bool:
    """Tell whether an id is one of the next or the previous ones of a series."""
    ours, theirs = (re.fullmatch(r"(.*?)(\d{1,9})", one) for one in (value, given))
    if ours is None or theirs is None or ours[1] != theirs[1]:
        return False
    return 0 < abs(int(ours[2]) - int(theirs[2])) <= _NEXT


_NEXT: Final = 3


def is_exchanged(value: str, given: str) -> bool:
    """Tell whether an id is another one with two digits exchanged, which no counting gives."""
    return one_slip(value.casefold(), given.casefold()) and sorted(value) == sorted(given)


def one_slip(one: str, other: str) -> bool:
    """Tell whether two codes of one shape differ in one digit, or have two neighbouring digits exchanged."""
    if len(one) != len(other) or one == other or sum(map(str.isdigit, one)) < _LEAST_DIGITS:
        return False
    apart = places_apart(one, other)
    if any(not (one[place].isdigit() and other[place].isdigit()) for place in apart):
        return False
    is_swap = (
        len(apart) == 2
        and apart[1] == apart[0] + 1
        and one[apart[0]] == other[apart[1]]
        and one[apart[1]] == other[apart[0]]
    )
    return len(apart) == 1 or is_swap


_FINDERS: Final[Sequence[Callable[[_Case], Iterator[_Slip]]]] = (_dates, _years, _codes, _figures, _keyed)


def _clue(known: Known, slip: _Slip) -> Clue:
    position = known.origin_of(slip.used, slip.position)
    call, evidence = known.reading.steps[slip.position], known.quote(position, slip.used)
    quote = evidence if evidence.quote else Evidence(step=call.index, quote=around(call.input, slip.used))
    reason = (
        f"called {call.target or 'a tool'} with {slip.what} {slip.used}, where {slip.giver} gave {slip.given}"
    )
    return known.clue(position, ClueKind.CHANGED, reason, quote, sign="argument")
