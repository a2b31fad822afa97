"""Values that changed on their way: a date, a path or a name that nobody gave, beside one that was given.

A value that an agent states and no text from outside has comes from nowhere. That alone says little: agents
know things. It says much if a value that was given differs from it in one place (the day, one word, the name
of a file in the same folder), and neither the agent nor the answer repeats the given one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import agree, dates_in, differ_in_one, digits_apart, follows
from analyzer.lineage.figures import prose_of
from analyzer.lineage.known import Known, Told
from analyzer.lineage.values import ValueKind, values_in
from analyzer.lineage.vocabulary import titles
from analyzer.signals.run_view import HEAD, final_answer

_MOST: Final = 40
"""Values of the answer that are looked at."""
_WORD: Final = re.compile(r"[^\W\d_][\w'’&-]*")  # noqa: RUF001 - an apostrophe
_LEAST_SHARED: Final = 4
"""Letters at the end of two names from which one may be taken for the other."""


def changed_values(known: Known) -> Iterator[Clue]:
    """Yield the answer's values that differ in one place from what was given, which the answer lacks."""
    if known.is_blind or not known.has_results:
        return
    answer = prose_of(final_answer(known.reading.trajectory)[:HEAD])
    for kind, stated, given in (
        *_dates(answer, known),
        *_paths(answer, known),
        *_names(answer, known),
    ):
        yield _clue(known, kind, stated, given)


def _dates(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    stated = dates_in(answer)[:_MOST]
    for one in stated:
        if known.has_date(one) or follows(one, known.dates, known.counts):
            continue
        others = [told for told in known.told_dates if differ_in_one(one, told.date)]
        unsaid = [told for told in others if not any(agree(told.date, other) for other in stated)]
        if unsaid:
            heard = dates_in(_heard_by_author(known, one.literal))
            closest = min(
                unsaid,
                key=lambda told: (
                    not any(agree(told.date, date) for date in heard),
                    digits_apart(one, told.date),
                ),
            )
            yield "the date", one.literal, closest.told


def _paths(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    for one in values_in(answer):
        if one.kind is not ValueKind.PATH or known.has(one.key) or "/" not in one.key:
            continue
        folder, _, name = one.key.rpartition("/")
        for told in known.told(ValueKind.PATH):
            other_folder, _, other = told.value.key.rpartition("/")
            is_sibling = folder == other_folder and name.rpartition(".")[2] == other.rpartition(".")[2]
            if is_sibling and told.value.key not in answer.casefold():
                yield "the path", one.literal, told
                break


def _names(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    small = answer.casefold()
    words = {found[0] for found in _WORD.finditer(answer)}
    capitals = {word for word in words if word[0].isupper() and word.casefold() not in titles()}
    strange = {word for word in capitals if not known.has(word.casefold())}
    for told in known.names:
        if told.value.key in small:
            continue
        parts = told.value.literal.split()
        match = (
            _one_word_away(parts, answer, strange)
            if len(parts) > 1
            else _same_ending(parts[0], answer, strange)
        )
        if match:
            yield "the name", match, told


def _one_word_away(parts: Sequence[str], answer: str, strange: set[str]) -> str:
    """Return words of the answer that are a name with one word that nobody gave; empty if there are none."""
    for place, part in enumerate(parts):
        if not part[0].isupper():
            continue
        pattern = r"\s".join(_STRANGER if at == place else re.escape(word) for at, word in enumerate(parts))
        for found in re.finditer(rf"(?<!\w){pattern}(?!\w)", answer):
            if found[1] in strange:
                return found[0]
    return ""


_STRANGER: Final = r"([^\W\d_][\w'’&-]*)"  # noqa: RUF001 - an apostrophe


def _same_ending(name: str, answer: str, strange: set[str]) -> str:
    """Return a word that nobody gave and that ends as a given name does; empty if there is none."""
    for word in sorted(strange):
        shared = _shared_end(word.casefold(), name.casefold())
        rest = (len(word) - shared, len(name) - shared)
        if shared >= _LEAST_SHARED and min(rest) >= _LEAST_DIFFERENT and not _begins_sentence(answer, word):
            return word
    return ""


_LEAST_DIFFERENT: Final = 3


def _shared_end(one: str, other: str) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count


def _begins_sentence(text: str, word: str) -> bool:
    """Tell whether a word begins a sentence or a line wherever it stands: a capital says nothing there."""
    places = [found.start() for found in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text)]
    return all(not text[:at].strip() or text[:at].rstrip(" \"'“„*_(")[-1:] in ".!?:;\n-•" for at in places)


def _heard_by_author(known: Known, literal: str) -> str:
    """Return what the agent had read that first said these words."""
    return known.reading.steps[known.first_said(lambda text: literal in text)].input[:HEAD]


def _clue(known: Known, what: str, stated: str, given: Told) -> Clue:
    step = known.first_said(lambda text: stated in text)
    source = "the task" if given.step is None else known.giver(given.step)
    evidence = [known.quote(step, stated)]
    if given.step is not None:
        evidence.insert(0, known.quote(given.step, given.value.literal))
    return Clue(
        step=known.reading.steps[step].index,
        kind=ClueKind.CHANGED,
        reason=f"gave {what} {stated}, where {source} gave {given.value.literal}",
        evidence=tuple(one for one in evidence if one.quote),
        signs={what.removeprefix("the "): 1.0},
    )
