"""Entries chosen by a condition: one of five payees is a company, where all are to be clubs. Pure.

The condition is a value that the named entries of a list have in one column, in words that were asked for. An
entry that has another value there was taken by mistake, unless a call looked into it alone. An entry that is
left out and meets all of these conditions was forgotten, if all were asked for and no other column tells it
from those that are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import dates_in
from analyzer.lineage.entries import Entry, Listed, Scalar, fields_in, lists_in
from analyzer.lineage.known import Known, beginnings_in, counts_in, words_in
from analyzer.lineage.other_calls import asked_before, ids_of
from analyzer.texts.commands import call_name
from analyzer.texts.run_view import HEAD
from analyzer.texts.tool_names import looks_up
from analyzer.texts.vocabulary import denies
from semconv.model import StepKind
from semconv.record import record

_LEAST: Final = 3
"""Entries that must be named, of which all or all but one meet a condition."""
_MOST_VALUES: Final = 6
"""Different values of a column that divides a list into kinds."""
_LEAST_WORD: Final = 4


@record
class _Condition:
    """A value of a column that entries are to have."""

    key: str
    value: Scalar

    def is_met(self, entry: Entry) -> bool:
        """Tell whether an entry has the value."""
        return entry.fields.get(self.key) == self.value


def wrongly_selected(known: Known) -> Iterator[Clue]:
    """Yield the first list of which the answer names an entry that breaks a condition, or lacks one."""
    answer = known.answer
    words, small = words_in(answer), answer.casefold()
    for source, text in known.results() if answer else ():
        for listed in lists_in(text):
            told = [entry for entry in listed.entries if entry.is_named_in(words, small)]
            if not _LEAST <= len(told) < len(listed.entries):
                continue
            conditions = list(_conditions(known, listed, told, source))
            found = _odd(known, told, conditions, source) or _lost(known, listed, told, conditions, source)
            if found is not None:
                yield found
                return


def _conditions(known: Known, listed: Listed, told: Sequence[Entry], source: int) -> Iterator[_Condition]:
    asked = ""
    for key in listed.entries[0].fields:
        values = Counter(entry.fields.get(key) for entry in listed.entries)
        if not 1 < len(values) <= min(_MOST_VALUES, len(listed.entries) // 2) or None in values:
            continue
        value, often = Counter(one.fields[key] for one in told).most_common(1)[0]
        if often < max(len(told) - 1, _LEAST - 1) or not (isinstance(value, str) or value is True):
            continue
        asked = asked or asked_before(known, source + 1)
        if _is_asked(key if value is True else str(value), asked):
            yield _Condition(key=key, value=value)


def _is_asked(words: str, asked: str) -> bool:
    wanted = beginnings_in(words.replace("_", " "), _LEAST_WORD)
    return bool(wanted) and wanted <= beginnings_in(asked, _LEAST_WORD)


def _odd(known: Known, told: Sequence[Entry], conditions: Sequence[_Condition], source: int) -> Clue | None:
    for condition in conditions:
        odd = [one for one in told if not condition.is_met(one)]
        others = [one for one in told if one is not odd[0]] if len(odd) == 1 else []
        if not others or not all(each.is_met(one) for each in conditions for one in others):
            continue
        (one,) = odd
        other = str(one.fields.get(condition.key, "")).casefold()
        position = known.first_said(lambda text: _names_all(text, told), after=source)
        said = f"{known.answer}\n{known.reading.steps[position].output}"
        is_told = isinstance(condition.value, str) and other in said.casefold()
        if not is_told and not denies(said) and not _is_looked_into(known, one, others):
            wanted = f"{condition.key} {other}, not {str(condition.value).casefold()}"
            reason = f"chose {_shown(one)}, for which {known.giver(source)} has {wanted}"
            return known.clue(position, ClueKind.CONSTRAINT, reason, known.words(position, said), sign="list")
    return None


def _is_looked_into(known: Known, entry: Entry, others: Sequence[Entry]) -> bool:
    """Tell whether a look-up was about an entry and none of the others: it may have shown why to take it."""
    calls = (step for step in known.reading.steps if step.kind is StepKind.TOOL and looks_up(call_name(step)))
    given = [{str(value) for value in fields_in(call.input[:HEAD]).values()} for call in calls]
    used = {str(value) for each in others for value in each.fields.values()}
    own = {str(value) for value in entry.fields.values()} - used
    return any(own & each and not used & each for each in given)


def _names(text: str, entry: Entry) -> bool:
    return entry.is_named_in(words_in(text), text.casefold())


def _names_all(text: str, told: Sequence[Entry]) -> bool:
    return all(map(partial(_names, text), told))


def _lost(
    known: Known, listed: Listed, told: Sequence[Entry], conditions: Sequence[_Condition], source: int
) -> Clue | None:
    meeting = [entry for entry in listed.entries if all(condition.is_met(entry) for condition in conditions)]
    left = [one for one in meeting if all(one is not each for each in told)]
    if not conditions or not 0 < len(left) <= len(told) or _is_apart(left[0], told):
        return None
    counted = counts_in(known.answer)
    is_whole = len(told) in counted or known.asks_for("every")
    if not is_whole or len(meeting) in counted or len(told) in counts_in(known.asked):
        return None
    if _speaks_of_any(known, listed, left, source):
        return None
    position = known.first_said(
        lambda text: _names_all(text, told) and not any(map(partial(_names, text), left)), after=source
    )
    wanted = f"{conditions[0].key} {str(conditions[0].value).casefold()}"
    whole = f"the {len(meeting)} entries that {known.giver(source)} has with {wanted}"
    reason = f"named {len(told)} of {whole}, without {_shown(left[0])}"
    said = known.reading.steps[position].output
    return known.clue(position, ClueKind.CUT_SHORT, reason, known.words(position, said))


def _speaks_of_any(known: Known, listed: Listed, left: Sequence[Entry], source: int) -> bool:
    """Tell whether another text from outside, or a call, has the id of an entry that is left out."""
    ids = {str(one.fields[key]).casefold() for one in left for key in ids_of(listed) if key in one.fields}
    names = {name for one in left for name in one.names} & ids
    return any(known.is_elsewhere(name, source) or name in known.in_calls for name in names)


def _shown(entry: Entry) -> str:
    """Return the first name of an entry, as the list has it."""
    texts = (str(value) for value in entry.fields.values())
    return next((text for text in texts if text.casefold().strip() in entry.names), entry.names[0])


def _is_apart(one: Entry, told: Sequence[Entry]) -> bool:
    """Tell whether a column tells an entry from all others: its value lies outside theirs."""
    return any(
        _is_outside(value, [each.fields.get(key) for each in told]) for key, value in one.fields.items()
    )


def _is_outside(value: Scalar, others: Sequence[Scalar | None]) -> bool:
    if isinstance(value, bool) or (isinstance(value, str) and not dates_in(value)):
        return len({*others}) < len(others) and value not in others
    ranks = [_rank(one) for one in others if one is not None]
    return not ranks or not min(ranks) <= _rank(value) <= max(ranks)


def _rank(value: Scalar) -> float:
    if isinstance(value, str):
        days = dates_in(value)
        return days[0].readings[0].order if days else 0.0
    return float(value)
