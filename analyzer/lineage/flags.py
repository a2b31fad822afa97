"""Conditions of the task that are a yes or no of each entry: an operator, organic, refundable. Pure.

The task names the column, a call takes an entry that says no where another one says yes, and the answer
leaves the column out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.entries import Entry, Listed, Scalar, lists_in
from analyzer.lineage.known import Known, beginnings_in, words_in
from analyzer.lineage.vocabulary import has_alternative

_NO: Final = re.compile(
    r"(?:no|not|none|non|nein|nicht|kein\w*|nee|niet|geen|não|nao|nie|brak|нет|не|yok|hay\u0131r|tidak|لا"
    r"|نہیں|नहीं|না|否|无|無|なし|없음|아니\w*)(?!\w)",
    re.IGNORECASE,
)
"""How a field begins that denies something: ``not included``, ``não``."""
_YES: Final = re.compile(
    r"(?:yes|y|ja|oui|si|sí|sì|sim|tak|да|evet|ya|نعم|ہاں|हाँ|হ্যাঁ|是|有|あり|예|있음|included|inclu\w*|inbegriffen|compr\w+)(?!\w)",
    re.IGNORECASE,
)
_NEGATED: Final = re.compile(
    r"(?:\b(?:no|not|without|non|except|ohne|kein\w*|nicht|sans|pas|sin|senza|sem|zonder|geen|bez|без)\b|n't)\W(?:\w+\W){0,2}$",
    re.IGNORECASE,
)
_FREE: Final = re.compile(r"[\s-]?(?:free|frei|freie[nrsm]?|vrij|vrije)\b", re.IGNORECASE)
"""What follows a word of what is not wanted: ``gluten free``, ``glutenfrei``."""
_LEAST: Final = 5
"""Letters of a word of the task that may name a column."""
_WORD: Final = re.compile(rf"[^\W\d_]{{{_LEAST},}}")


def unmet_flags(known: Known) -> Iterator[Clue]:
    """Yield the entries that the answer chose although they lack what the task asks for."""
    answer = known.answer
    results = known.results() if answer else ()
    lists = [(one, keys) for _, text in results for one in lists_in(text) if (keys := _flags(one))]
    if not lists or known.admits_fault or has_alternative(known.asked):
        return
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
        if not (_NEGATED.search(before) or _FREE.match(asked, one.end()) or _FREE.search(one[0]))
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
    return value is False or (isinstance(value, str) and _NO.match(value) is not None)


def _is_yes(value: Scalar) -> bool:
    return value is True or (isinstance(value, str) and _YES.match(value) is not None)


def _clue(known: Known, entry: Entry, key: str, answer: str) -> Clue:
    name = next((one for one in entry.names if one in answer), entry.names[0])
    position = known.first_said(lambda text: name in text.casefold())
    said = known.reading.steps[position].output
    at = max(0, said.casefold().find(name))
    shown = said[at : at + len(name)] or name
    reason = f"chose {shown[:60]} ({key[:40]}: {str(entry.fields[key])[:40]}), which the task asks for"
    quote = known.quote(position, shown)
    return known.clue(position, ClueKind.CONSTRAINT, reason, quote, sign="limit", most=0.8)
