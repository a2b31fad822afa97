"""Deeds done twice: two calls with the same arguments, each with an id of its own in its result. Pure.

Only payments, bookings and messages count, because each one reaches a customer; building or training again
is normal work. A repeat is right if the task asks for several, if a call in between changed something, or if
a later call cancels the first. An answer that names both ids has said so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import dates_in
from analyzer.lineage.deeds import acts_of
from analyzer.lineage.known import Known, words_in
from analyzer.texts.commands import call_name
from analyzer.texts.run_view import HEAD
from analyzer.texts.tool_names import deed_of, looks_up
from analyzer.texts.tool_results import Fault
from semconv.dialects.reading.values import mapping
from semconv.model import Step, StepKind
from semconv.record import record

_REACHING: Final = frozenset(
    {"book", "buy", "charge", "order", "pay", "purchase", "refund", "reserve", "send", "ship", "transfer"}
)
"""Verbs of deeds that reach a customer each time."""
_ID: Final = re.compile(r"(?=[^\d\s]*\d)(?=[^A-Za-z\s]*[A-Za-z])[\w-]{3,40}")


@record
class _Again:
    """Two calls with the same arguments, and an id that only the result of each has."""

    first: int
    second: int
    earlier: Mapping[str, str]
    """All ids of the first result, as written, by their lower case."""
    later: str


def repeated_deeds(known: Known) -> Iterator[Clue]:
    """Yield the second call with the arguments of one that succeeded, if each made a thing of its own."""
    pairs = list(_pairs(known))
    last_use = _last_uses(known) if pairs else {}
    spoken = words_in(f"{known.answer}\n{known.asked}") if pairs else frozenset()
    for pair in pairs:
        is_used = any(last_use.get(one, -1) > pair.second for one in pair.earlier)
        if not is_used and spoken.isdisjoint(pair.earlier) and not _has_changes(known, pair):
            yield _clue(known, pair)


def _pairs(known: Known) -> Iterator[_Again]:
    """Yield each call that repeats the first one of its kind, if the answer has the id that it made."""
    made: dict[tuple[str, str], tuple[int, Mapping[str, str]]] = {}
    answered = words_in(known.answer)
    for place, step in enumerate(known.reading.steps):
        if step.kind is not StepKind.TOOL or not step.input or not _reaches_customer(step.target or ""):
            continue
        ids = _ids(step) if known.reading.faults[place] is Fault.NONE else {}
        if not ids:
            continue
        first, earlier = made.setdefault((step.target or "", "".join(step.input.split())), (place, ids))
        told = [written for one, written in ids.items() if one in answered]
        if first != place and told and earlier.keys().isdisjoint(ids):
            yield _Again(first=first, second=place, earlier=earlier, later=told[0])


def _reaches_customer(tool: str) -> bool:
    return deed_of(tool) in _REACHING or bool(acts_of(tool) & _REACHING)


def _ids(call: Step) -> Mapping[str, str]:
    """Return the ids that a result gives and its call does not have, by their lower case."""
    values = [value for value in mapping(call.output[:HEAD]).values() if isinstance(value, str)]
    own = (value for value in values if _ID.fullmatch(value) and not dates_in(value))
    return {one.casefold(): one for one in own if one.casefold() not in call.input.casefold()}


def _last_uses(known: Known) -> Mapping[str, int]:
    """Return the position of the last call whose arguments have each word, in lower case."""
    calls = ((place, step) for place, step in enumerate(known.reading.steps) if step.kind is StepKind.TOOL)
    return {word: place for place, step in calls for word in words_in(step.input[:HEAD])}


def _has_changes(known: Known, pair: _Again) -> bool:
    """Tell whether a call of another tool between two calls may have changed something."""
    tool = known.reading.steps[pair.first].target
    return any(
        step.kind is StepKind.TOOL and step.target != tool and not looks_up(call_name(step))
        for step in known.reading.steps[pair.first + 1 : pair.second]
    )


def _clue(known: Known, pair: _Again) -> Clue:
    call, made = known.reading.steps[pair.second], next(iter(pair.earlier.values()))
    asked = (at for at in range(pair.second, -1, -1) if known.reading.steps[at].calls)
    author = next((at for at in asked if known.reading.steps[at].agent == call.agent), pair.second)
    quotes = (known.quote(pair.first, made), known.quote(pair.second, pair.later))
    reason = f"called {call.target} twice with the same arguments, which made both {made} and {pair.later}"
    return known.clue(author, ClueKind.CLAIMED, reason, *quotes)
