"""Lists cut short: of five entries the answer counts three, and nothing tells them from the others. Pure.

Whoever leaves entries out may have a reason that is worked out from several fields, or known from elsewhere.
None explains an entry that is left out although it equals one that is named, in all but its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import gt, lt
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import clocks_in, dates_in
from analyzer.lineage.deeds import SENTENCE, spaced
from analyzer.lineage.entries import Entry, Listed, Scalar, fields_in, lists_in
from analyzer.lineage.figures import Figure, figures, words_of
from analyzer.lineage.known import Known, beginnings_in, counts_in, words_in
from analyzer.lineage.sources import LARGEST
from analyzer.texts.numbers import measure_of
from analyzer.texts.run_view import HEAD
from analyzer.texts.tool_names import looks_up
from analyzer.texts.vocabulary import number_words, phrases, weekdays_in
from analyzer.texts.wordings import languages_in
from semconv.model import StepKind

_LEAST: Final = 3
_LONGEST_YEAR: Final = 4
"""Digits of a number that may be a year; a longer one that no other entry has is the number of a thing."""
_MOST_STEPS: Final = 60
"""Latest steps of a run whose lists are compared with all of its texts."""
_LEAST_WORD: Final = 4
"""Letters of a word that a condition has in common with the task."""
_SHOWN: Final = 60
_MOST_KEYS: Final = 40
"""Arguments of a call that are looked for in the task."""
_LONGEST_NAME: Final = 4
"""Words of the longest text that only names an entry; a longer one describes it."""
_FEW: Final = 3
"""Entries named for each one left out, from which leaving it out looks like a slip and not like a choice."""
_WORD: Final = re.compile(r"[^\W_]+")
_NUMBERS: Final = re.compile(r"(?:^|_)(?:id|no|nr|num|number|code|key|index|rank)$|^#$", re.IGNORECASE)
"""Names of columns that number the entries."""
_NUMBER: Final = re.compile(r"\d{1,12}(?:[.,]\d{1,6})?")
_COUNTED: Final = re.compile(
    r"(?<![^\s*_(])(?=(\d{1,3}|[^\s\d.,;:!?()\"'*_]{1,14})[\s*_]{1,4}((?:[^\s\d.,;:!?()\"']{2,30}[\s*_]{1,3}){0,2}[^\s\d.,;:!?()\"'*_]{2,30}))"
)
"""A number and the words after it; each word may be the number, so that matches overlap."""


_MOST_OTHERS: Final = 2
_MOST_IN_ALL: Final = 5
"""Words such as "which" and "please" beside a condition, in its sentence and in the task."""


def cut_lists(known: Known) -> Iterator[Clue]:
    """Yield the lists of results of which the answer counts fewer entries than there are."""
    answer = known.answer
    words, small = words_in(answer), answer.casefold()
    for step, text in known.results() if answer else ():
        for whole in lists_in(text):
            listed = _asked_for_by_flag(known, whole, step)
            named = [entry.is_named_in(words, small) for entry in listed.entries]
            is_part = len(named) >= _LEAST and 1 < sum(named) < len(named)
            if is_part and _is_cut(known, listed, named, answer, step):
                yield _clue(known, listed, named, step)


def _is_cut(known: Known, listed: Listed, named: Sequence[bool], answer: str, step: int) -> bool:
    count = sum(named)
    told = [entry for entry, is_named in zip(listed.entries, named, strict=True) if is_named]
    left = [entry for entry, is_named in zip(listed.entries, named, strict=True) if not is_named]
    if count in _counts_asked_for(known, step):
        return False  # so many were asked for
    if _misses_of_a_limit(known, told, left):
        return True
    if len(named) in counts_in(answer):
        return False  # the answer says how many there are
    if not _has_twin(told, left):
        is_whole = count in counts_in(answer) and not _is_divided(known, told, left, step)
        is_meant = is_whole and (_says_yes_to_all(known, listed) or _is_filtered(known, step))
        is_start = all(named[:count]) and _are_counted(known, listed, told, left, step)
        is_cut = is_meant or _are_among(told, left) or (is_start and not _sets_apart(known, told, left))
        return known.asks_for("every") and is_cut and _is_gap(known, left, step)
    names = (name for entry in listed.entries for name in entry.names)
    is_start, are_few = all(named[:count]), _FEW * len(left) <= count
    is_whole = _is_meant_whole(known, listed, told, left, step)
    return (is_start or are_few) and is_whole and not any(known.is_elsewhere(name, step) for name in names)


def _counts_asked_for(known: Known, position: int) -> frozenset[int]:
    """Return the counts in the task, without one that numbers what a call asks for: ``district 4``."""
    call = known.reading.steps[position]
    given = fields_in(call.input[:HEAD]) if call.kind is StepKind.TOOL else {}
    asked = known.asked
    for key, value in given.items() if len(given) <= _MOST_KEYS else ():
        if isinstance(value, int):
            asked = re.sub(rf"(?<!\w){re.escape(key)}\s#?{value}(?!\w)", "", asked, flags=re.IGNORECASE)
    return frozenset(counts_in(asked))


def _is_meant_whole(
    known: Known, listed: Listed, told: Sequence[Entry], left: Sequence[Entry], step: int
) -> bool:
    """Tell whether an answer is to name a whole list.

    Of mere names an agent may know more than the list says: who of them is a woman. It knows no more of ids,
    nor of a list that was made by a condition of the task.
    """
    is_counted = counts(known.answer, len(told), words_of(listed.key))
    if not _are_mere_names(listed.entries):
        return is_counted or known.asks_for("every")
    says_why = _says_why(known, listed, step)
    are_ids = any(map(str.isdigit, "".join(name for entry in listed.entries for name in entry.names)))
    if not says_why and not are_ids:
        return False
    if is_counted and len(listed.entries) not in counts_in(known.asked):
        return True
    return known.asks_for("every") or (says_why and _are_counted(known, listed, told, left, step))


def _are_mere_names(entries: Sequence[Entry]) -> bool:
    """Tell whether nothing but names tells some entries apart: other columns have one value for all."""
    return all(_telling(entry, "") == _telling(entries[0], "") for entry in entries)


def _are_counted(
    known: Known, listed: Listed, told: Sequence[Entry], left: Sequence[Entry], position: int
) -> bool:
    """Tell whether the answer, or who first names a part, counts it by the noun of the list or the task."""
    first = known.first_said(lambda text: _names_part(text, told, left), after=position)
    columns = " ".join(listed.entries[0].fields)
    nouns = frozenset(word for word in words_of(known.asked) if measure_of(word) is None)
    wanted = nouns | words_of(f"{listed.key} {columns}")
    return any(
        counts(text, len(told), wanted, known.languages)
        for text in (known.answer, known.reading.outputs[first])
    )


def _says_why(known: Known, listed: Listed, position: int) -> bool:
    """Tell whether a call or its list has a word of the task besides that for the entries."""
    call = known.reading.steps[position]
    words = _WORD.findall(f"{spaced(call.target or '')} {call.input[:HEAD]} {listed.key}")
    said = " ".join(word for word in words if not looks_up(word))
    shared = beginnings_in(known.asked, _LEAST_WORD) & beginnings_in(said, _LEAST_WORD)
    return len(shared - _counted_words(known)) > 0


def _counted_words(known: Known) -> frozenset[str]:
    """Return the beginnings of the words after numbers in the answer."""
    numbers = number_words((*languages_in(known.answer), *known.languages))
    nouns = (
        one[2] for one in _COUNTED.finditer(known.answer) if one[1].isdigit() or one[1].casefold() in numbers
    )
    return beginnings_in(" ".join(noun.split()[0] for noun in nouns), _LEAST_WORD)


def _sets_apart(known: Known, told: Sequence[Entry], left: Sequence[Entry]) -> bool:
    """Tell whether a column has other values for those left out; times count if the task has one."""
    has_time = bool(clocks_in(known.asked) or dates_in(known.asked)) or known.asks_for("current")
    columns = {key for entry in told for key in _telling(entry, "")}
    pairs = (
        [{_rank(entry.fields.get(key, "")) for entry in entries} for entries in (told, left)]
        for key in columns
        if has_time or not all(_is_clock(entry.fields.get(key, "")) for entry in (*told, *left))
    )
    return any(ours.isdisjoint(theirs) for ours, theirs in pairs)


def _is_clock(value: Scalar) -> bool:
    return isinstance(value, str) and len(clocks_in(value)) == 1


def _asked_for_by_flag(known: Known, listed: Listed, position: int) -> Listed:
    """Return the entries that say yes in a column that the task names; all of them if there is none.

    A task with a figure may set another limit, and one with more words another condition ("overdue novels").
    """
    for key in _named_columns(known, listed):
        values = [entry.fields.get(key) for entry in listed.entries]
        is_flag = True in values and all(isinstance(value, bool) for value in values)
        if is_flag and _is_only_condition(known, listed, key, position):
            entries = [entry for entry, value in zip(listed.entries, values, strict=True) if value is True]
            return Listed(key=listed.key, entries=tuple(entries))
    return listed


def _is_only_condition(known: Known, listed: Listed, key: str, position: int) -> bool:
    """Tell whether the task, and its sentence with a column's name, have few words that the call lacks."""
    call = known.reading.steps[position]
    said = f"{call.target} {call.input[:HEAD]} {listed.key} {key}".casefold().replace("_", " ")
    stems = {one[:_LEAST_WORD] for one in _WORD.findall(said)}
    every = phrases("every", known.languages)
    asked = every.sub(" ", known.asked.casefold())
    sentence = next((one[0] for one in SENTENCE.finditer(asked) if key.casefold() in one[0]), "")
    one, all_of_them = (
        sum(len(word) >= _LEAST_WORD and word[:_LEAST_WORD] not in stems for word in set(_WORD.findall(text)))
        for text in (sentence, asked)
    )
    return one <= _MOST_OTHERS and all_of_them <= _MOST_IN_ALL


def _says_yes_to_all(known: Known, listed: Listed) -> bool:
    """Tell whether all entries say yes in a column that the task names."""
    named = _named_columns(known, listed)
    return any(all(entry.fields.get(key) is True for entry in listed.entries) for key in named)


def _named_columns(known: Known, listed: Listed) -> list[str]:
    """Return the columns of a list that the task names; none if it has a figure, which may be a limit."""
    asked = words_in(known.asked) if not figures(known.asked) else frozenset[str]()
    return [key for key in listed.entries[0].fields if asked and key.casefold() in asked]


def _is_divided(known: Known, told: Sequence[Entry], left: Sequence[Entry], position: int) -> bool:
    """Tell whether a column or another result sets the named entries apart: those that are paid."""
    keys = told[0].fields
    columns = [
        (
            {_rank(one.fields.get(key, "")) for one in told},
            {_rank(one.fields.get(key, "")) for one in left},
        )
        for key in keys
    ]
    if any(len(ours) == 1 < len(told) and ours.isdisjoint(theirs) for ours, theirs in columns):
        return True
    numbers = [pair for key, pair in zip(keys, columns, strict=True) if _is_measured((*told, *left), key)]
    if len(numbers) > 1 and any(_are_apart(ours, theirs) for ours, theirs in numbers):
        return True
    others = [text.casefold() for place, text in known.results() if place != position]
    return any(name in text for text in others for entry in told for name in entry.names)


def _is_measured(entries: Sequence[Entry], key: str) -> bool:
    """Tell whether a column holds plain numbers, neither dates nor yes and no."""
    values = [entry.fields.get(key, "") for entry in entries]
    return all(
        not isinstance(value, bool) and isinstance(_rank(value), float) and not dates_in(str(value))
        for value in values
    )


def _are_apart(ours: Iterable[float | str], theirs: Iterable[float | str]) -> bool:
    """Tell whether all numbers of one set are above all those of the other."""
    one, other = ([float(each) for each in side] for side in (ours, theirs))
    return max(one) < min(other) or max(other) < min(one)


def _is_filtered(known: Known, position: int) -> bool:
    """Tell whether a call has the only limit of the task among its arguments: its result keeps it."""
    limits = {figure.value for figure in figures(known.asked) if not figure.is_label}
    call = known.reading.steps[position]
    used = {one.value for one in figures(call.input[:HEAD])} if call.kind is StepKind.TOOL else set[float]()
    return len(limits) == 1 and limits <= used


def _is_asked_for(known: Known, position: int) -> bool:
    """Tell whether a call had a condition that it was asked for: its result holds what meets it."""
    call = known.reading.steps[position]
    orders = (
        known.reading.outputs[place]
        for place, step in enumerate(known.reading.steps[:position])
        if step.kind is not StepKind.TOOL and step.agent != call.agent
    )
    asked = {word for text in (known.asked, *orders) for word in _WORD.findall(text.casefold())}
    used = asked & {*_WORD.findall(call.input[:HEAD].casefold())}
    return any(len(word) >= _LEAST_WORD for word in used)


def _is_gap(known: Known, left: Sequence[Entry], position: int) -> bool:
    """Tell whether nothing may be the reason for those left out: no other text or call has the name of one.

    A task that names a day of the week may mean some of the dates in a column.
    """
    is_far = len(known.reading.steps) > _MOST_STEPS and position < len(known.reading.steps) - _MOST_STEPS
    if is_far or weekdays_in(known.asked, known.languages) or not _is_asked_for(known, position):
        return False
    names = frozenset(name for entry in left for name in entry.names)
    results = (text for place, text in known.results() if place != position)
    others = (
        step.input[:HEAD] if step.kind is StepKind.TOOL else known.reading.outputs[place]
        for place, step in enumerate(known.reading.steps)
        if place != position
    )
    texts = map(str.casefold, (*results, *others))
    return not any(name in text for text in texts for name in names)


def _are_among(told: Sequence[Entry], left: Sequence[Entry]) -> bool:
    """Tell whether the only column that does not name the entries has no reason for those left out.

    Its least and its greatest values are those of entries that are named.
    """
    rows = [_telling(entry, "") for entry in (*told, *left)]
    keys = {
        key for row in rows for key in row if not _numbers_entries(key, [row.get(key, "") for row in rows])
    }
    if len(keys) != 1:
        return False
    ours, theirs = (
        [_rank(entry.fields.get(key, "")) for entry in entries for key in keys] for entries in (told, left)
    )
    numbers, others = ([one for one in each if isinstance(one, float)] for each in (ours, theirs))
    if len(numbers) < len(ours) or len(others) < len(theirs):
        return False
    return min(numbers) < min(others) and max(others) < max(numbers)


def _numbers_entries(key: str, values: Sequence[Scalar]) -> bool:
    """Tell whether a column numbers the entries: by its name, or by long numbers that all differ."""
    texts = {str(value) for value in values}
    is_unique = len(texts) == len(values) and all(one.isdigit() and len(one) > _LONGEST_YEAR for one in texts)
    return is_unique or _NUMBERS.search(key) is not None


def _misses_of_a_limit(known: Known, told: Sequence[Entry], left: Sequence[Entry]) -> bool:
    """Tell whether the answer names the entries beyond a limit of the task, but leaves a few of them out."""
    limits = figures(known.asked)
    keys = {key for entry in told for key in entry.fields if key}
    for key in keys if limits else ():
        meant = [limit.value for limit in limits if _is_limit_of(limit, key)]
        ours, theirs = ([_rank(entry.fields.get(key, "")) for entry in entries] for entries in (told, left))
        if not all(isinstance(one, float) for one in (*ours, *theirs)):
            continue
        numbers, others = ([one for one in each if isinstance(one, float)] for each in (ours, theirs))
        for is_meant in (partial(beyond, limit) for limit in meant for beyond in (lt, gt)):
            lost = [entry for entry, value in zip(left, others, strict=True) if is_meant(value)]
            if _parts(numbers, others, is_meant) and _has_twin(told, lost, key):
                return True
    return False


def _is_limit_of(figure: Figure, key: str) -> bool:
    """Tell whether a figure of the task has the unit of a column, or a word of its name beside it."""
    names = words_of(key) | words_in(key)
    return figure.unit in names or not figure.words.isdisjoint(names)


def _parts(told: Sequence[float], left: Sequence[float], is_meant: Callable[[float], bool]) -> bool:
    ours, theirs = sum(map(is_meant, told)), sum(map(is_meant, left))
    is_choice = ours >= _LEAST and len(told) - ours <= 1 and len(left) - theirs >= 2
    return is_choice and 0 < theirs * _FEW <= ours


def counts(answer: str, count: int, wanted: frozenset[str], asked: tuple[str, ...] = ()) -> bool:
    """Tell whether an answer gives a number of what some words name: ``three hosts``.

    Args:
        answer: the text.
        count: the number, which may stand as a word.
        wanted: words of which one stands after it, as ``words_of`` returns them.
        asked: languages of the task; the language of a short answer is often misread.
    """
    known = number_words((*languages_in(answer), *asked))
    return bool(wanted) and any(
        (found[1] == str(count) or known.get(found[1].casefold()) == count) and wanted & words_of(found[2])
        for found in _COUNTED.finditer(answer)
    )


def _has_twin(told: Sequence[Entry], left: Sequence[Entry], besides: str = "") -> bool:
    """Tell whether one of some entries equals one of the others in all but its name, and one more field."""
    ours = [_telling(entry, besides) for entry in told]
    return any(_telling(entry, besides) in ours for entry in left)


def _telling(entry: Entry, besides: str) -> Mapping[str, Scalar]:
    """Return the fields that may be why an entry is chosen: those that do not only name it."""
    return {
        key: value
        for key, value in entry.fields.items()
        if key != besides
        and (str(value).casefold().strip() not in entry.names or len(str(value).split()) > _LONGEST_NAME)
    }


def _rank(value: Scalar) -> float | str:
    if isinstance(value, bool | int | float):
        return float(value) if abs(value) <= LARGEST or isinstance(value, float) else str(value)
    if _NUMBER.fullmatch(value):
        return float(value.replace(",", "."))
    days = dates_in(value)
    return days[0].readings[0].order if days else value.casefold()


def _clue(known: Known, listed: Listed, named: Sequence[bool], source: int) -> Clue:
    entries = [entry for entry, is_named in zip(listed.entries, named, strict=True) if is_named]
    rest = [entry for entry, is_named in zip(listed.entries, named, strict=True) if not is_named]
    position = known.first_said(lambda text: _names_part(text, entries, rest), after=source)
    many, lost = f"{len(entries)} of the {len(named)} {listed.key or 'entries'}", rest[0].names[0][:_SHOWN]
    reason = f"named {many} that {known.giver(source)} returned, without {lost}"
    quote = known.words(position, known.reading.steps[position].output)
    return known.clue(position, ClueKind.CUT_SHORT, reason, quote)


def _names_part(text: str, told: Sequence[Entry], left: Sequence[Entry]) -> bool:
    words, small = words_in(text), text.casefold()
    return all(entry.is_named_in(words, small) for entry in told) and not any(
        entry.is_named_in(words, small) for entry in left
    )
