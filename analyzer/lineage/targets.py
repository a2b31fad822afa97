"""Deeds on the wrong thing: web-eu-21 restarted, where the task names web-eu-12. Pure.

Siblings are names that differ in their digits only. A deed on one is a slip if no deed touches the one that
the task names, the answer reports on that one alone, and nothing leads from it to the other: no line of a
result, and no message, has both. A result that lists them shows only that both exist.

An agent cannot know an id that nobody told it: a deed on one is a slip if the agent was told another of the
same list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, TypeAlias

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import acts_of
from analyzer.lineage.entries import Scalar, fields_in, record_texts, stands_in, tables_in
from analyzer.lineage.known import Known, around
from analyzer.texts.commands import call_name
from analyzer.texts.run_view import HEAD, own_words
from analyzer.texts.tool_names import deed_of, looks_up
from analyzer.texts.tool_results import Fault
from semconv.model import Evidence, StepKind

NAME: Final = re.compile(r"(?<![\w.@/-])[^\W\d_](?=[\w./-]{0,60}\d)[^\W_]{0,40}(?:[-./_][^\W_]{1,40}){0,6}")
_ID: Final = re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[a-z])[\w-]{6,60}(?![\w-])")
_DIGITS: Final = re.compile(r"\d+")
_NUMBER: Final = re.compile(r"(\d{1,18})")
_MAKES: Final = frozenset({"create", "issue", "add", "register", "generate"})
"""Deeds that may give a new thing the next number."""
_LEAST_LETTERS: Final = 2
"""Letters before the first digit of a name: ``q3`` and ``v2`` have siblings everywhere."""
_Rows: TypeAlias = Mapping[str, Mapping[str, Scalar]]
"""The rows of a list by their ids in lower case."""
_MOST_COLUMNS: Final = 60
_MOST_DEEDS: Final = 60
_MOST_PAIRS: Final = 12
"""Pairs of names for which the run is searched for what leads from the one to the other."""
_MANY: Final = 3
"""Siblings on one line from which it only lists them."""


def deeds_on_siblings(known: Known) -> Iterator[Clue]:
    """Yield the first deed on a sibling of what the task names and the answer reports on."""
    said = names_in(known.answer)
    asked = names_in(known.asked)
    wanted = {_shape(one): one for one in asked if one in said}
    deeds = named_deeds(known) if wanted else {}
    touched = frozenset[str]().union(*deeds.values())
    found = (
        (position, used, given)
        for position, names in deeds.items()
        for used in sorted(names - asked - said)
        if (given := wanted.get(_shape(used))) is not None and given not in touched
        if not (deed_of(call_name(known.reading.steps[position])) in _MAKES and _distance(used, given) == 1)
    )
    for position, used, given in islice(found, _MOST_PAIRS):
        if not _is_led(known, given, used):
            yield deed_on(known, position, used, f"the task names {given}")
            return


def deeds_on_untold(known: Known) -> Iterator[Clue]:
    """Yield the first deed on an id that its agent was never told, beside the one of its list that it was.

    An id is told as well by its number ("loan 210"), by what else its row has, or as the one beside another.
    """
    steps = known.reading.steps
    is_alone = len({one.agent for one in steps}) == 1  # it has heard all results
    deeds = [] if is_alone or known.is_blind else list(islice(_ids_in_deeds(known), _MOST_DEEDS))
    columns = list(islice(_id_columns(known), _MOST_COLUMNS)) if deeds else []
    for position, value in deeds if columns else ():
        step, small = steps[position], value.casefold()
        lists = [ids for source, ids in columns if source < position and small in ids]
        heard = known.heard_by(position).casefold() if lists else small
        if _is_told(small, heard):
            continue
        told = {one for ids in lists for one in ids if stands_in(one, heard)}
        is_described = any(_is_described(ids, small, told, heard) for ids in lists)
        if is_described or any(abs(_distance(small, one)) == 1 for one in told):
            continue
        if len(told) == 1 and not _is_done(known, step.target, *told):
            own = (place for place in range(position) if steps[place].agent == step.agent)
            first = next((place for place in own if value in steps[place].output), position)
            yield deed_on(known, position, value, f"{step.agent} was told {told.pop()}", first)
            return


def _ids_in_deeds(known: Known) -> Iterator[tuple[int, str]]:
    for position, step in enumerate(known.reading.steps):
        is_done = step.kind is StepKind.TOOL and known.reading.faults[position] is Fault.NONE
        if is_done and not looks_up(call_name(step)):
            values = fields_in(step.input[:HEAD]).values()
            yield from ((position, value) for value in values if isinstance(value, str) and is_id(value))


def _is_told(name: str, heard: str) -> bool:
    """Tell whether a text in lower case has an id or, as a word, its last number of two digits and more."""
    number = next(reversed(_NUMBER.findall(name)), "")
    if name in heard or len(number) < 2 or number not in heard:
        return name in heard
    return re.search(rf"(?<![\w-]){number}(?![\w-])", heard) is not None


def _is_described(rows: _Rows, name: str, told: AbstractSet[str], heard: str) -> bool:
    """Tell whether a text in lower case has what an id's row has, and no row that it was told of."""
    others = {pair for one in told & rows.keys() for pair in rows[one].items()}
    own = (_as_said(*pair) for pair in rows[name].items() if pair not in others)
    return any(stands_in(one, heard) for one in own)


def _as_said(key: str, value: Scalar) -> str:
    """Return a value in lower case as people say it: a short one after its column's name, ``zone b``."""
    text = str(value).casefold()
    is_short = len(text) <= _LEAST_LETTERS or not isinstance(value, str)
    return f"{key.rpartition('_')[2].casefold()} {text}" if is_short else text


def _id_columns(known: Known) -> Iterator[tuple[int, _Rows]]:
    """Yield the rows of lists by each column whose values have digits or are addresses, and all differ."""
    for source, text in known.results():
        for rows in tables_in(text):
            for key in rows[0]:
                values = [row.get(key) for row in rows]
                ids = {
                    one.casefold(): row
                    for one, row in zip(values, rows, strict=True)
                    if isinstance(one, str) and is_id(one)
                }
                if len(ids) == len(values):
                    yield source, ids


def is_id(text: str) -> bool:
    """Tell whether a text has the form of an id: no blank, and a digit or the mark of an address."""
    has_mark = "@" in text or any(map(str.isdigit, text))
    return len(text) > _LEAST_LETTERS and " " not in text and has_mark


def _is_done(known: Known, tool: str | None, name: str) -> bool:
    return any(step.target == tool and name in step.input.casefold() for step in known.reading.steps)


def names_in(text: str) -> frozenset[str]:
    """Return the names with digits in a text, in lower case."""
    found = (one.casefold() for one in NAME.findall(text[:HEAD]))
    return frozenset(
        one for one in found if len(_DIGITS.split(one)[0]) >= _LEAST_LETTERS and _shape(one) != one
    )


def _shape(name: str) -> str:
    return _DIGITS.sub("0", name)


def _distance(name: str, other: str) -> int:
    """Return by how much the last number of a name is the larger one; 0 if more than that differs."""
    *before, last = _NUMBER.split(name)[:-1] or [""]
    *stem, number = _NUMBER.split(other)[:-1] or [""]
    return int(last) - int(number) if last and number and before == stem else 0


def named_deeds(known: Known) -> Mapping[int, frozenset[str]]:
    """Return the names in the arguments of each call that changed something, by position."""
    found: dict[int, frozenset[str]] = {}
    for place, step in enumerate(known.reading.steps):
        if step.kind is not StepKind.TOOL or known.reading.faults[place] is not Fault.NONE:
            continue
        name = call_name(step)
        if len(found) < _MOST_DEEDS and not looks_up(name) and (deed_of(name) or acts_of(name)):
            found[place] = names_in(step.input)
    return found


def _is_led(known: Known, given: str, used: str) -> bool:
    """Tell whether something in the run leads from the name that was given to the one that was used."""
    words = (own_words(step) for step in known.reading.steps if step.kind is not StepKind.TOOL)
    if any({given, used} <= names_in(text) for text in (known.instructions, *words)):
        return True
    return _shares_id(known, given, used) or _is_returned_for(known, given, used)


def _is_returned_for(known: Known, given: str, used: str) -> bool:
    """Tell whether a record has both names, or a call for the one returned the other and no sibling of it."""
    steps = known.reading.steps
    for place, text in known.results():
        if used not in text.casefold():
            continue
        records = map(names_in, record_texts(text))
        if any({given, used} <= names and count_siblings(names, used) < _MANY for names in records):
            return True
        is_about = steps[place].kind is StepKind.TOOL and given in names_in(steps[place].input)
        names = names_in(text) if is_about else frozenset()
        if used in names and count_siblings(names - {given}, used) == 1:
            return True
    return False


def _shares_id(known: Known, given: str, used: str) -> bool:
    """Tell whether a record of the one name and a record of the other have an id in common."""
    ids: dict[str, set[str]] = {given: set(), used: set()}
    for _, text in known.results():
        small = text.casefold()
        for words in record_texts(text) if given in small or used in small else ():
            names = names_in(words)
            for name in names & ids.keys():
                ids[name] |= set(_ID.findall(words.casefold())) - names
    return not ids[given].isdisjoint(ids[used])


def count_siblings(names: frozenset[str], used: str) -> int:
    """Count the names that are one or differ from it in their digits only."""
    return sum(_shape(name) == _shape(used) for name in names)


def deed_on(known: Known, deed: int, used: str, words: str, since: int = 0) -> Clue:
    """Return the clue against the step that first wrote the name, from ``since`` up to the deed."""
    call = known.reading.steps[deed]
    literal = next((one for one in NAME.findall(call.input) if one.casefold() == used), used)
    position = max(since, known.origin_of(literal, deed))
    reason = f"called {call.target or 'a tool'} for {literal}, where {words}"
    own = known.quote(position, literal)
    quote = own if own.quote else Evidence(step=call.index, quote=around(call.input, literal))
    return known.clue(position, ClueKind.CHANGED, reason, quote, sign="argument")
