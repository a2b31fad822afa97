"""Conditions of the task that a column of a list tells of each entry: organic, refundable, a gearbox. Pure.

The task names a column of yes and no, a call takes an entry that says no where another one says yes, and the
answer leaves the column out. Of a column with a few words that repeat, the task may order one: "book a car
with an automatic", where the call takes a manual. That a task says "without children" is no evidence: so may
the guests travel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import VERB_LETTERS, acts_of, spaced
from analyzer.lineage.entries import Entry, Listed, Scalar, lists_in
from analyzer.lineage.figures import words_of
from analyzer.lineage.known import Known, beginnings_in, words_in
from analyzer.texts.vocabulary import has_alternative, worded
from semconv.model import StepKind

_NO: Final = r"{no_field}(?!\w)"
"""How a field begins that denies something: ``not included``, ``não``."""
_YES: Final = r"{yes_field}(?!\w)"
_NEGATED: Final = r"(?:\b{without}\b|n't)\W(?:\w+\W){0,2}$"
_FREE: Final = re.compile(r"[\s-]?(?:free|frei|freie[nrsm]?|vrij|vrije)\b", re.IGNORECASE)
"""What follows a word of what is not wanted: ``gluten free``, ``glutenfrei``."""
_ONE_SUCH: Final = r"\b{with}\s(?:\w{1,24}\s)?$"
"""What stands before a word that says what kind of thing is asked for: ``with an automatic``."""
_ORDER_END: Final = re.compile(r"(?<!\d)[.;:!?\n,](?=\s|$)|\s(?:but|aber|mais|pero|mas|ma)\s")
_TAKES: Final = frozenset({"book", "order"})
_LONG_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_LEAST_CATEGORY: Final = 4
_LONGEST_CATEGORY: Final = 24
_LEAST: Final = 5
"""Letters of a word of the task that may name a column."""
_WORD: Final = re.compile(rf"[^\W\d_]{{{_LEAST},}}")


def unmet_flags(known: Known) -> Iterator[Clue]:
    """Yield the entries that the answer chose although they lack what the task asks for."""
    every = [one for _, text in known.results() for one in lists_in(text)] if known.answer else []
    found = [*_unmet(known, every)] if every else []
    if found and not known.admits_fault and not has_alternative(known.asked):
        yield from found


def _unmet(known: Known, every: Sequence[Listed]) -> Iterator[Clue]:
    answer = known.answer
    yield from (clue for listed in every for clue in _other_words(known, listed))
    lists = [(one, keys) for one in every if (keys := _flags(one))]
    wanted, told = _wanted(known.asked), beginnings_in(answer, _LEAST)
    small, words = answer.casefold(), words_in(answer)
    for listed, keys in lists:
        asked = [key for key in keys if beginnings_in(key, _LEAST) & wanted]
        meant = [key for key in asked if beginnings_in(key, _LEAST).isdisjoint(told)]
        named = [entry for entry in listed.entries if meant and entry.is_named_in(words, small)]
        is_taken = len(named) == 1 and _is_taken(known, named[0])
        if is_taken and any(_is_yes(named[0].fields.get(key, "")) for key in asked):
            continue  # a pool or a gym
        for key in meant if is_taken else ():
            if _is_no(named[0].fields[key]):
                yield _clue(known, named[0], key, small)


def _other_words(known: Known, listed: Listed) -> Iterator[Clue]:
    """Yield the taken entry with another word in a column than the one that the task names."""
    asked, words = known.asked.casefold(), words_in(known.answer)
    for key in _categories(listed):
        values = {str(entry.fields[key]).casefold() for entry in listed.entries}
        named = [value for value in values if value in asked and _has_word(asked, value)]
        if len(named) != 1 or not _is_ordered(known, named[0]) or _is_negated(asked, named[0]):
            continue
        entry = _only_taken(known, listed)
        if entry is None:
            continue
        chosen = str(entry.fields[key]).casefold()
        others = [one for one in listed.entries if str(one.fields[key]).casefold() == named[0]]
        is_told = not words.isdisjoint(words_in(chosen)) or not words.isdisjoint(words_in(key))
        if chosen != named[0] and not is_told and any(_is_as_good(one, entry) for one in others):
            shown = next(str(one.fields[key]) for one in others)
            yield _clue(known, entry, key, known.answer.casefold(), f"where the task asks for {shown}")


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _categories(listed: Listed) -> list[str]:
    """Return the columns with a word or two in each entry, of which some repeat."""
    rows = [entry.fields for entry in listed.entries]
    keys = [key for key in rows[0] if key and all(_is_category(row.get(key, "")) for row in rows)]
    return [key for key in keys if 1 < len({row[key] for row in rows}) < len(rows)]


def _is_category(value: Scalar) -> bool:
    if not isinstance(value, str) or _is_no(value) or _is_yes(value):
        return False
    return _LEAST_CATEGORY <= len(value) <= _LONGEST_CATEGORY and value.replace(" ", "").isalpha()


def _is_as_good(entry: Entry, chosen: Entry) -> bool:
    """Tell whether an entry says yes wherever the chosen one does: it is not sold out."""
    return all(_is_yes(entry.fields.get(key, "")) for key, value in chosen.fields.items() if _is_yes(value))


def _only_taken(known: Known, listed: Listed) -> Entry | None:
    """Return the only entry that the answer names, if a call takes it and the answer names no other."""
    small, words = known.answer.casefold(), words_in(known.answer)
    named = [entry for entry in listed.entries if entry.is_named_in(words, small)]
    return named[0] if len(named) == 1 and _is_taken(known, named[0]) else None


def _is_ordered(known: Known, word: str) -> bool:
    """Tell whether a clause that begins with the verb of a called tool orders one with such a thing.

    A task also names what is there ("the network team is busy") and what somebody has ("I drive a diesel").
    """
    targets = (step.target or "" for step in known.reading.steps if step.kind is StepKind.TOOL)
    verbs = {
        part[:VERB_LETTERS]
        for target in targets
        if acts_of(target) & _TAKES
        for part in words_of(spaced(target))
    }
    for clause in _ORDER_END.split(known.asked.casefold()) if verbs else ():
        first = [one[0][:VERB_LETTERS] for one in islice(_LONG_WORD.finditer(clause), 2)]
        at = clause.find(word)
        if at >= 0 and not verbs.isdisjoint(first) and worded(_ONE_SUCH).search(clause[max(0, at - 40) : at]):
            return True
    return False


def _is_negated(asked: str, word: str) -> bool:
    places = (one.start() for one in re.finditer(re.escape(word), asked))
    return any(worded(_NEGATED).search(asked[max(0, at - 30) : at]) for at in places)


def _is_taken(known: Known, entry: Entry) -> bool:
    """Tell whether a call takes an entry; an answer may name one only to say that it does not fit."""
    values = (str(value).casefold() for value in entry.fields.values() if not isinstance(value, bool))
    return any(words_in(value) <= known.in_calls for value in values if len(value) > 1)


def _wanted(asked: str) -> frozenset[str]:
    """Return the beginnings of the words of the task that nothing negates."""
    found = ((one, asked[max(0, one.start() - 30) : one.start()]) for one in _WORD.finditer(asked))
    return frozenset(
        each
        for one, before in found
        if not (worded(_NEGATED).search(before) or _FREE.match(asked, one.end()) or _FREE.search(one[0]))
        for each in beginnings_in(one[0], _LEAST)
    )


def _flags(listed: Listed) -> list[str]:
    """Return the columns in which some entries say yes and some say no."""
    first = listed.entries[0].fields
    return [
        key for key, value in first.items() if (_is_no(value) or _is_yes(value)) and _is_flag(listed, key)
    ]


def _is_flag(listed: Listed, key: str) -> bool:
    values = [entry.fields.get(key, "") for entry in listed.entries]
    return 0 < sum(map(_is_no, values)) < len(values) and all(_is_no(one) or _is_yes(one) for one in values)


def _is_no(value: Scalar) -> bool:
    return value is False or (isinstance(value, str) and worded(_NO).match(value) is not None)


def _is_yes(value: Scalar) -> bool:
    return value is True or (isinstance(value, str) and worded(_YES).match(value) is not None)


def _clue(known: Known, entry: Entry, key: str, answer: str, why: str = "which the task asks for") -> Clue:
    name = next((one for one in entry.names if one in answer), entry.names[0])
    position = known.first_said(lambda text: name in text.casefold())
    said = known.reading.steps[position].output
    at = max(0, said.casefold().find(name))
    shown = said[at : at + len(name)] or name
    reason = f"chose {shown[:60]} ({key[:40]}: {str(entry.fields[key])[:40]}), {why}"
    quote = known.quote(position, shown)
    return known.clue(position, ClueKind.CONSTRAINT, reason, quote, sign="limit", most=0.8)
