"""Calls for another entry of a list: M. Okafor's account is opened where N. Okafor in 4B was asked for. Pure.

Another entry may be meant: the task names somebody whose place a colleague takes. One taken by mistake looks
like the one that was asked for: it has a word of it, or nearly its id.

What was asked for is read once for all calls that follow the same texts, and an entry is compared only by
those of its fields that were asked for: lists are long, and most of their entries nobody mentions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from analyzer.lineage.arguments import one_slip
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import agree, dates_in
from analyzer.lineage.entries import Entry, Listed, fields_in, lists_in
from analyzer.lineage.known import Known, around, words_in
from analyzer.texts.run_view import HEAD, THINKING, own_words
from analyzer.texts.tool_names import deed_of
from semconv.model import Evidence, StepKind
from semconv.record import record

_MOST_LISTS: Final = 40
_MOST_CHOICES: Final = 2_000
"""Arguments that take an entry of a list, and are compared with what was asked for."""
_DIGIT: Final = re.compile(r"\d")
_LEAST_NAME: Final = 3
_LONG_NUMBER: Final = 5
"""Digits of a number that names something."""


@record
class _Choice:
    """An argument that takes one entry of a list by its id."""

    source: int
    """The position of the step that returned the list."""
    listed: Listed
    key: str
    """The field that has the id."""
    entry: Entry

    def named(self) -> Entry:
        """Return the entry without its ids: an answer that names it so is open about what was taken."""
        return replace(self.entry, names=tuple(name for name in self.entry.names if not _DIGIT.search(name)))


@record
class _Field:
    """A field of an entry, with a text that was asked for."""

    key: str
    value: str
    words: frozenset[str]
    is_date: bool


def calls_for_other_rows(known: Known) -> Iterator[Clue]:
    """Yield the calls with the id of one entry of a list where the task names another one."""
    answer = known.answer
    words, small = words_in(answer), answer.casefold()
    before: dict[int, str] = {}
    asked: dict[str, _Asked] = {}
    for position, value, choice in islice(_chosen(known), _MOST_CHOICES):
        if position not in before:
            before[position] = asked_before(known, position)
        text = before[position]
        if text not in asked:
            asked[text] = _Asked(text)
        meant = asked[text].meant_by(choice)
        is_found = known.is_elsewhere(value.casefold(), choice.source, position)  # another result led to it
        if meant is None or is_found:
            continue
        if known.admits_fault:
            return
        if meant[0].casefold() in known.in_calls:
            deed = _deed_led_to(known, position, meant[0])
            if deed is not None:
                yield _clue(known, deed, choice, value, f"{meant[0]} ({meant[1]})")
            continue
        if not choice.named().is_named_in(words, small) and not _is_righted(
            known, position, choice, meant[0]
        ):
            yield _clue(known, position, choice, value, f"{meant[0]} ({meant[1]})")


def _chosen(known: Known) -> Iterator[tuple[int, str, _Choice]]:
    """Yield the arguments of calls that take an entry of an earlier list, with the position of the call."""
    choices = _choices(known)
    for position, step in enumerate(known.reading.steps if choices else ()):
        if step.kind in THINKING and (words := own_words(step)):
            yield from _said(position, words[:HEAD], choices)
        arguments = fields_in(step.input[:HEAD]).values() if step.kind is StepKind.TOOL else ()
        for value in arguments:
            if isinstance(value, str | int) and not isinstance(value, bool):
                found = choices.get(str(value), ())
                yield from ((position, str(value), choice) for choice in found if choice.source < position)


def _said(
    position: int, text: str, choices: Mapping[str, Sequence[_Choice]]
) -> Iterator[tuple[int, str, _Choice]]:
    """Yield the ids of the only entry of a list that an agent's words name: it passes on this one."""
    words = words_in(text)
    found = [(value, one) for value, ones in choices.items() if value.casefold() in words for one in ones]
    for value, choice in found:
        named = (entry for entry in choice.listed.entries if entry.is_named_in(words, text.casefold()))
        if choice.source < position and all(entry is choice.entry for entry in named):
            yield position, value, choice


def _is_righted(known: Known, position: int, choice: _Choice, meant: str) -> bool:
    """Tell whether an agent only spoke of the wrong entry, and one went on with the right one."""
    if known.reading.steps[position].kind not in THINKING:
        return False
    right = (entry for entry in choice.listed.entries if str(entry.fields.get(choice.key)) == meant)
    later = [words for _, words in known.words_after(position)]
    return any(entry.is_named_in(words_in(text), text.casefold()) for entry in right for text in later)


def _deed_led_to(known: Known, position: int, meant: str) -> int | None:
    """Return the deed with an id that only the call for the wrong entry had returned, if there is one.

    The right entry was looked up as well, so that the call alone is no mistake.
    """
    steps = known.reading.steps
    right = next((one for one in steps if one.kind is StepKind.TOOL and meant in one.input), None)
    look = steps[position]
    if right is None or look.kind is not StepKind.TOOL or deed_of(look.target or "") or not look.output:
        return None
    given, others = words_in(look.output), words_in(f"{right.output}\n{right.input}")
    for place, step in enumerate(steps[position + 1 :], position + 1):
        if step.kind is not StepKind.TOOL or not deed_of(step.target or ""):
            continue
        used = {str(one).casefold() for one in fields_in(step.input[:HEAD]).values() if isinstance(one, str)}
        if used & others:
            return None
        if used & given:
            return place
    return None


def _choices(known: Known) -> Mapping[str, Sequence[_Choice]]:
    """Return the entries of lists by each id that takes one: a text that stands in one of its fields only."""
    lists = ((source, one) for source, text in known.results() for one in lists_in(text))
    found: defaultdict[str, list[_Choice]] = defaultdict(list)
    for source, listed in islice(lists, _MOST_LISTS):
        ids, places = ids_of(listed), defaultdict[str, list[tuple[str, Entry]]](list)
        for entry in listed.entries:
            for key, value in entry.fields.items():
                places[str(value)].append((key, entry))
        for text, ((key, entry), *others) in places.items():
            if not others and key in ids and len(text) >= _LEAST_NAME:
                found[text].append(_Choice(source=source, listed=listed, key=key, entry=entry))
    return found


def ids_of(listed: Listed) -> frozenset[str]:
    """Return the fields in which all entries of a list differ."""
    keys = {key for entry in listed.entries for key in entry.fields}
    count = len(listed.entries)
    return frozenset(
        key for key in keys if len({str(entry.fields.get(key, "")) for entry in listed.entries}) == count
    )


def asked_before(known: Known, position: int) -> str:
    """Return what people asked for, and what other agents passed on of it before a call."""
    steps = known.reading.steps
    parts = [known.asked]
    left = HEAD - len(known.asked)
    for step in steps[:position]:
        if left <= 0:
            break
        if step.kind is not StepKind.TOOL and step.agent != steps[position].agent:
            parts.append(step.output[:left])
            left -= len(parts[-1]) + 1
    return "\n".join(parts)


class _Asked:
    """What was asked for before some calls, and the entries of lists that it names."""

    def __init__(self, text: str) -> None:
        self._words: Final = words_in(text)
        self._dates: Final = [one for one in dates_in(text) if one.readings[0].year]
        self._named: Final[dict[int, Sequence[tuple[Entry, Sequence[_Field]]]]] = {}
        """By the ``id`` of a list, which the choices keep alive."""

    def meant_by(self, choice: _Choice) -> tuple[str, str] | None:
        """Return the id and the name of the entry that was asked for, if a call takes another one."""
        meant = (
            (one, name)
            for one, own in self._named_in(choice.listed)
            if _is_free(one, choice)
            and (name := _name_of(own, choice.entry, choice.key))
            and _looks_like(choice, one, own)
        )
        better = list(islice(meant, 2))
        if len(better) != 1 or self._tells_from(choice, better[0][0]):
            return None
        entry, name = better[0]
        return (str(entry.fields[choice.key]), name) if choice.key in entry.fields else None

    def _tells_from(self, choice: _Choice, other: Entry) -> bool:
        """Tell whether the entry that a call takes was asked for as well, and not as the other one."""
        own = next((fields for entry, fields in self._named_in(choice.listed) if entry is choice.entry), ())
        return bool(_name_of(own, other, choice.key))

    def _named_in(self, listed: Listed) -> Sequence[tuple[Entry, Sequence[_Field]]]:
        """Return the entries of a list of which a text was asked for, each with these texts."""
        if id(listed) not in self._named:
            found = ((entry, self._fields_of(entry)) for entry in listed.entries)
            self._named[id(listed)] = [(entry, fields) for entry, fields in found if fields]
        return self._named[id(listed)]

    def _fields_of(self, entry: Entry) -> Sequence[_Field]:
        return [
            _Field(key=key, value=value, words=_parts(value), is_date=not is_name)
            for key, value in entry.fields.items()
            if isinstance(value, str) and ((is_name := self._has(value)) or self._has_date(value))
        ]

    def _has(self, value: str) -> bool:
        """Tell whether a name or a long number was asked for, word for word."""
        is_name = any(map(str.isalpha, value)) or (value.isdigit() and len(value) >= _LONG_NUMBER)
        is_asked = value.casefold() in self._words or _parts(value) <= self._words
        return is_name and len(value) >= _LEAST_NAME and is_asked

    def _has_date(self, value: str) -> bool:
        """Tell whether a value is a date, and was asked for."""
        days = dates_in(value) if self._dates else ()
        is_date = len(days) == 1 and days[0].literal == value.strip()
        return is_date and any(agree(days[0], date) for date in self._dates)


def _is_free(entry: Entry, choice: _Choice) -> bool:
    """Tell whether an entry is another one than a call takes, and could have been taken."""
    return entry is not choice.entry and False not in entry.fields.values()


def _looks_like(choice: _Choice, meant: Entry, fields: Sequence[_Field]) -> bool:
    """Tell whether the entry that a call takes has a word that was asked for, or nearly the right id."""
    taken = frozenset().union(*(_parts(str(value)) for value in choice.entry.fields.values()))
    words = frozenset().union(*(field.words for field in fields))
    ids = (str(entry.fields.get(choice.key, "")) for entry in (choice.entry, meant))
    return any(len(word) >= _LEAST_NAME for word in words & taken) or one_slip(*ids)


def _name_of(fields: Sequence[_Field], other: Entry, key: str) -> str:
    """Return what was asked for of an entry and tells it from another one; empty if nothing does.

    A date tells two entries apart only if they have the same name, which was asked for.
    """
    for field in fields:
        theirs = _parts(str(other.fields.get(field.key, "")))
        if field.key == key or field.words <= theirs or theirs <= field.words:
            continue
        if not field.is_date or any(one.value in other.fields.values() for one in fields if not one.is_date):
            return field.value
    return ""


def _parts(text: str) -> frozenset[str]:
    return frozenset(part for part in re.split(r"[^\w@-]+", text.casefold()) if part)


def _clue(known: Known, position: int, choice: _Choice, value: str, right: str) -> Clue:
    call = known.reading.steps[position]
    is_call = call.kind is StepKind.TOOL
    quote = call.input[:200] if is_call else around(call.output, value)
    did = f"called {call.target or 'a tool'} with" if is_call else "chose"
    giver, shown = known.giver(choice.source), f"{choice.key} {value}"[:60]
    reason = f"{did} {shown}, where {giver} has {right[:80]} for what was asked"
    evidence = Evidence(step=call.index, quote=quote)
    return known.clue(known.origin_of(value, position), ClueKind.CHANGED, reason, evidence, sign="argument")
