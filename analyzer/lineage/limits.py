"""Limits of the task that the chosen entry of a list breaks, although another entry keeps them. Pure.

"Before noon", and the chosen flight leaves at 15:10, while others of the same result leave in the morning. A
limit that nothing keeps is left to the answer's words, and a list of which several entries are named is a
comparison, unless the answer counts them ("three calls close before the year ends"), or names in a row as
many as the task wants. An answer that counts and names all entries compares them too, unless in a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import MAXYEAR, date
from itertools import pairwise
from typing import Final, TypeAlias

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import clocks_in, dates_in
from analyzer.lineage.deeds import SENTENCE, is_question, sentence_at
from analyzer.lineage.entries import Entry, Listed, Scalar, is_number, lists_in
from analyzer.lineage.figures import CURRENCY_CODES, figures, unit_of
from analyzer.lineage.known import Known, counts_in, words_in
from analyzer.texts.normalize import excerpt
from analyzer.texts.numbers import measure_of
from analyzer.texts.vocabulary import has_alternative, phrase_at_end, phrases, worded, words_for
from semconv.model import Evidence
from semconv.record import record

_GAP: Final = 14
"""Characters between a word of a limit and its value: an article, a currency sign."""
_BRACKETS: Final = re.compile(r"\([^()]{0,120}\)")
_IN_ROW: Final = re.compile(r"[^\w.;:!?\n]{0,8}(?:[^\W\d]{1,12}[^\w.;:!?\n]{1,8})?")
"""What stands between two names of a row: marks, and at most a word such as "and"."""
_LONGEST_NO: Final = 24
"""Characters before the word of a limit in which a word that denies stands."""
_CHOOSES_BEFORE: Final = r"(?<!\w){chooses}\s*$"
_CHOOSES_AFTER: Final = r"^\W{0,3}{chooses_last}(?!\w)"
_PARTS: Final = re.compile(r"[^a-zA-Z²]+|(?<=[a-z])(?=[A-Z])")
"""What stands between the words of a key."""
_MOST: Final = 0.8
_NOON: Final = 12 * 60
_HOUR: Final = re.compile(
    r"(?<![\d:.,])([01]?\d|2[0-3])\s?(?:uhr|uur|h|heures?|時|时|点|點|시)(?![\w:])", re.IGNORECASE
)
"""A full hour, right after the word of a limit: elsewhere ``14 h`` is a duration."""
_DAYS: Final = ("time", "d")
_MONEY: Final = CURRENCY_CODES | {"kr", "kč", "ft", "lei", "руб", "грн", "лв"}  # noqa: RUF001 - Russian


_Read: TypeAlias = "Callable[[str, Scalar], float | None]"
_Ahead: TypeAlias = "tuple[float | None, int, _Read]"
"""A value after the word of a limit, or ``None``; where it ends, and what reads fields like it."""


@record
class _Limit:
    """A limit in the task."""

    words: str
    is_most: bool
    value: float
    read: _Read
    """Reads a field, by its key and value, as what the limit is about; ``None`` if it is something else."""
    dimension: str
    """What it measures: ``time``; empty for times of day, days and money."""

    @property
    def lasts(self) -> bool:
        """Whether its word may say how long something lasts: ``open until 23:00``."""
        return not words_for("until").isdisjoint(words_in(self.words))

    def sets_most(self, key: str) -> bool:
        """Tell whether a column keeps the limit below its value: ``open_until`` keeps "until 23:00" above."""
        return self.is_most and not (self.lasts and _is_end(key))

    def reads_texts_of(self, listed: Listed, besides: Iterable[str]) -> bool:
        """Tell whether another column has what the limit may be about, in words: ``45 min by train``."""
        return self.dimension != "" and any(
            isinstance(value, str) and key not in besides and _has_measure(value, self.dimension)
            for entry in listed.entries
            for key, value in entry.fields.items()
        )


def broken_limits(known: Known) -> Iterator[Clue]:
    """Yield the limits of the task that the named entry of a list breaks while another keeps them."""
    answer = known.answer
    lists = [listed for _, text in known.results() for listed in lists_in(text)] if answer else []
    limits = [*_limits(known), *_days_left(known)] if lists else []
    if not limits or known.admits_fault or has_alternative(known.asked):
        return
    small, words = answer.casefold(), words_in(answer)
    for listed in lists:
        named = [entry for entry in listed.entries if entry.is_named_in(words, small)]
        is_row = _are_one_list(named, small)
        is_choice = len(named) < len(listed.entries) or is_row
        is_count = is_choice and len(named) in counts_in(answer)
        is_wanted = is_choice and 1 < len(named) in counts_in(known.asked)
        meant = [
            limit for limit in limits if len(named) == 1 or is_wanted or (is_count and limit.read in _OF_DAYS)
        ]
        chosen = ((limit, _breaking(listed, limit, named, small)) for limit in meant)
        yield from (_clue(known, limit, *found) for limit, found in chosen if found is not None)


def _is_end(key: str) -> bool:
    """Tell whether a column's name says until when something lasts."""
    return not words_for("until").isdisjoint(key.casefold().split("_"))


def _are_one_list(named: Sequence[Entry], answer: str) -> bool:
    """Tell whether an answer names entries in a row; one that names all of them elsewhere compares them."""
    names = (next((name for name in entry.names if name in answer), "") for entry in named)
    places = sorted((answer.find(name), answer.find(name) + len(name)) for name in names)
    between = (_BRACKETS.sub("", answer[one[1] : other[0]]) for one, other in pairwise(places))
    return all(_IN_ROW.fullmatch(text) for text in between)


def _limits(known: Known) -> Iterator[_Limit]:
    """Yield the limits of a task: a word, with a time, a date, an amount or a measure right after it."""
    for kind, is_most, finders in _KINDS:
        for found in phrases(kind, known.languages).finditer(known.asked):
            ahead = known.asked[found.end() : found.end() + 2 * _GAP]
            for find in finders:
                value, end, read = find(ahead, known.languages)
                if value is not None and not _is_no_limit(known.asked, found, end, find):
                    denial = _denial(known, found)
                    start = found.start() if denial is None else denial
                    words = known.asked[start : found.end() + end]
                    is_upper = is_most == (denial is None)
                    dimension = read.measure[0] if isinstance(read, _OfUnit) else ""
                    yield _Limit(words=words, is_most=is_upper, value=value, read=read, dimension=dimension)


def _days_left(known: Known) -> Iterator[_Limit]:
    """Yield how many days are left until a date that limits, if the task says which day is today."""
    today = known.today
    for found in phrases("before", known.languages).finditer(known.asked) if today else ():
        ahead = known.asked[found.end() : found.end() + 2 * _GAP]
        day = next((one for one in dates_in(ahead) if one.start <= _GAP), None)
        if today is None or day is None or _is_no_limit(known.asked, found, day.end, _day_in):
            continue
        (one, *others) = day.readings
        year = one.year or today.year + ((one.month, one.day) < (today.month, today.day))
        if not others:
            first = date(min(year, MAXYEAR), one.month, 1)  # 29 February may not be in that year
            left = (first - today).days + one.day - 1
            words = known.asked[found.start() : found.end() + day.end]
            yield _Limit(words=words, is_most=True, value=left, read=_OfUnit(measure=_DAYS), dimension="time")


def _is_no_limit(asked: str, word: re.Match[str], end: int, find: Callable[..., _Ahead]) -> bool:
    """Tell whether a word and what follows limit something else: until when the asker has to choose."""
    if find is _measure_in:
        return _is_told(asked, word.start())
    before, after = asked[max(0, word.start() - _LONGEST_NO) : word.start()], asked[word.end() + end :]
    return any(worded(one).search(text) for one, text in ((_CHOOSES_BEFORE, before), (_CHOOSES_AFTER, after)))


def _is_told(asked: str, at: int) -> bool:
    """Tell whether a place is in a sentence that only tells something, beside a question."""
    sentences = [one for one in SENTENCE.findall(asked) if one.strip()]
    return not is_question(sentence_at(asked, at)) and any(map(is_question, sentences))


def _denial(known: Known, word: re.Match[str]) -> int | None:
    """Return where a word that denies stands right before the word of a limit: ``nothing above 35``."""
    start = max(0, word.start() - _LONGEST_NO)
    denial = phrase_at_end(word.string[start : word.start()].rstrip(), "no", known.languages)
    return None if denial is None else start + denial.start()


def _time_in(ahead: str, languages: tuple[str, ...]) -> _Ahead:
    clock = next((one for one in clocks_in(ahead) if one.start <= _GAP), None)
    if clock is not None:
        return float(clock.minutes), clock.end, _clock
    hour = _HOUR.search(ahead)
    if hour is not None and hour.start() <= _GAP:
        return 60.0 * int(hour[1]), hour.end(), _clock
    noon = phrases("noon", languages).search(ahead)
    return (_NOON, noon.end(), _clock) if noon is not None and noon.start() <= _GAP else _NOTHING


def _day_in(ahead: str, _languages: tuple[str, ...]) -> _Ahead:
    day = next((one for one in dates_in(ahead) if one.start <= _GAP), None)
    return (_day("", day.literal), day.end, _day) if day is not None else _NOTHING


def _amount_in(ahead: str, _languages: tuple[str, ...]) -> _Ahead:
    figure = next((one for one in figures(ahead) if one.start <= _GAP), None)
    return (figure.value, figure.end, _price) if figure and figure.unit in _MONEY else _NOTHING


def _measure_in(ahead: str, _languages: tuple[str, ...]) -> _Ahead:
    figure = next((one for one in figures(ahead) if one.start <= _GAP), None)
    measure = measure_of(figure.unit) if figure else None
    if figure is None or measure is None or measure[0] == "scale":
        return _NOTHING
    return figure.value, figure.start + len(figure.shown), _OfUnit(measure=measure)


@record
class _OfUnit:
    """Reads plain numbers under keys that end in one unit: ``frame_cm``, ``hours``."""

    measure: tuple[str, str]
    """Dimension and unit."""

    def __call__(self, key: str, value: Scalar) -> float | None:
        if not is_number(value):
            return None
        return float(value) if measure_of(unit_of(_PARTS.split(key)[-1])) == self.measure else None


def _has_measure(text: str, dimension: str) -> bool:
    measures = (measure_of(figure.unit) for figure in figures(text))
    return any(one is not None and one[0] == dimension for one in measures)


def _day(_key: str, value: Scalar) -> float | None:
    """Read a text that is one date with its year."""
    found = dates_in(value) if isinstance(value, str) else ()
    is_one = len(found) == 1 and len(found[0].readings) == 1 and found[0].readings[0].year
    return found[0].readings[0].order if is_one else None


def _clock(_key: str, value: Scalar) -> float | None:
    if not isinstance(value, str):
        return None
    found = clocks_in(value)
    return float(found[0].minutes) if len(found) == 1 else None


def _price(key: str, value: Scalar) -> float | None:
    if not worded("{price_key}").search(key) or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    found = figures(value)
    return found[0].value if len(found) == 1 else None


_NOTHING: Final[_Ahead] = (None, 0, _price)
_DATED: Final = (_time_in, _day_in)
_OF_DAYS: Final = (_day, _OfUnit(measure=_DAYS))
"""What reads the columns of dates, and of days until then."""
_KINDS: Final = (
    ("before", True, _DATED),
    ("after", False, _DATED),
    ("at_most", True, (_amount_in, _measure_in)),
    ("at_least", False, (_amount_in, _measure_in)),
)
"""Kinds of words, whether they set the most, and what may follow them."""


def _breaking(listed: Listed, limit: _Limit, named: Sequence[Entry], answer: str) -> tuple[str, str] | None:
    """Return the name of a named entry that breaks a limit, and its field; ``None`` if none does."""
    fields = {
        key
        for entry in listed.entries
        for key, value in entry.fields.items()
        if limit.read(key, value) is not None
    }
    if not named or len(fields) != 1 or limit.reads_texts_of(listed, fields):
        return None  # with two times or prices an entry does not tell which of them is meant
    (key,) = fields
    if limit.lasts and limit.read is _clock and not _is_end(key):
        return None  # "open until ten": a column of closing times keeps it above, one of arrivals below
    broken = [entry for entry in named if key in entry.fields and _breaks(entry, key, limit)]
    if not broken or all(_breaks(entry, key, limit) for entry in listed.entries):
        return None
    name = next((name for name in broken[0].names if name in answer), broken[0].names[0])
    return name, f"{key} {broken[0].fields[key]}"


def _breaks(entry: Entry, key: str, limit: _Limit) -> bool:
    value = limit.read(key, entry.fields.get(key, ""))
    if value is None:
        return True  # it cannot be chosen by this limit either
    return value > limit.value if limit.sets_most(key) else value < limit.value


def _clue(known: Known, limit: _Limit, name: str, field: str) -> Clue:
    position = known.first_said(lambda text: name in text.casefold())
    text = known.reading.outputs[position]
    at = max(0, text.casefold().find(name))
    shown, wanted = text[at : at + len(name)], " ".join(limit.words.split())
    reason = f"chose {shown} ({field}), where the task asks for “{wanted}”"
    words = excerpt(text, at, at + len(name), before=60, after=60)
    quote = Evidence(step=known.reading.steps[position].index, quote=words)
    return known.clue(position, ClueKind.CONSTRAINT, reason, quote, sign="limit", most=_MOST)
