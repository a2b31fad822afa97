"""Deeds that the answer reports as done although their result says that they are not: a draft, unsent. Pure.

``{"status": "draft"}``, ``"pending approval"``, ``"sent": false``, ``"deleted": 0``: the call succeeded and
the deed is not done. An answer that says so, in any of the languages, is right; one that only claims the deed
is not. A state denies some deeds and not others: an invoice that is not paid has been made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import acts_in, acts_of, claims_in, spaced
from analyzer.lineage.entries import fields_in
from analyzer.lineage.known import Known
from analyzer.texts.run_view import HEAD
from analyzer.texts.tool_names import looks_up
from analyzer.texts.tool_results import Fault
from analyzer.texts.vocabulary import worded
from semconv.model import Evidence, StepKind
from semconv.record import record

_STATE: Final = "{status_key}$"
_DONE_KEY: Final = re.compile(
    r"(?:is_?|was_?)?(?:sent|submitted|published|committed|applied|executed|completed|booked|paid|cancelled)$",
    re.IGNORECASE,
)
_OTHERWISE: Final = re.compile(
    r"fail|error|skip|pending|reject|would|duplicate|invalid|(?:^|[^a-z])(?:not|un|non)", re.IGNORECASE
)
"""Keys that count what was not done; none of these is good news."""
_ACCEPTED: Final = "{accepted_key}"
"""Keys that count what a service has taken on and will do: who asked for it has done it."""
_LONGEST: Final = 80
_MOST_FIELDS: Final = 40
_MOST_LATER: Final = 200
_DRAFT: Final = "{draft}"
_UNDONE: Final = (
    r"\bnot[ _-](?:yet[ _-])?(?!required|needed|changed)(?:\w+ed|sent|paid|made|done)\b"
    r"|\bun(?:sent|confirmed)\b"
    r"|\bnicht (?:\w{1,20} )?\w{0,12}ge\w{1,20}(?:t|en)\b"
    r"|\b(?:non|pas|no|não) (?:\w+ )?\w+(?:[aiu]d[oa]|[aiu]t[oa]|ée?s?)\b"
    r"|\bне \w+н[оаы]?\b|未|değil"  # noqa: RUF001 - Russian
)
_LIST: Final = (
    r"wait(?:ing)?[ _-]?list|warteliste|liste d.attente|lista d[ei] (?:espera|attesa)"
    r"|лист ожидания|候补|대기자"
)
_TRIAL: Final = r"dry[ _-]?run|simulat|simulier|sandbox|probelauf"
_FINAL: Final = frozenset({"send", "pay", "publish", "submit", "order", "book", "refund"})
_AGREED: Final = _FINAL - {"send", "submit"} | {"cancel", "approve", "delete", "restart"}


@record
class _State:
    """A state in which a deed is not done."""

    says: str
    """A pattern of the state in a result (see ``worded``)."""
    tells: str
    """A pattern of an answer that passes the state on."""
    denies: frozenset[str] | None = None
    """The deeds that are not done; ``None`` for those that the words of the state name."""


def _state(says: str, tells: str, denies: frozenset[str] | None = None) -> _State:
    return _State(says=says, tells=tells, denies=denies)


_STATES: Final = (
    _state(_DRAFT, _DRAFT, _FINAL),
    _state(_UNDONE, rf"{_UNDONE}|{_DRAFT}"),
    _state(
        "{outstanding}.{0,20}{agreement}|{agreement}.{0,20}{outstanding}",
        "{agreement}|{confirm}",
        _AGREED,
    ),
    _state(_LIST, _LIST, frozenset({"book", "submit"})),
    _state(_TRIAL, rf"{_TRIAL}|test", _FINAL | _AGREED),
)


def overstated_deeds(known: Known) -> Iterator[Clue]:
    """Yield the deeds that the answer claims while the last call of their tool says that they are not."""
    answer = known.answer
    claims = claims_in(answer) if answer else ()
    done = acts_in(answer) if claims else frozenset()
    claimed = frozenset[str]().union(*(acts for _, acts in claims))
    does = {tool: acts_of(tool or "") for tool in known.last_calls} if claims else {}
    times = Counter(act for acts in does.values() for act in acts)
    for tool, acts_here in does.items():
        place = known.last_calls[tool]
        step = known.reading.steps[place]
        if looks_up(step.target or "") or known.reading.faults[place] is not Fault.NONE:
            continue
        row = fields_in(step.output[:HEAD])
        for key, value, said in _not_done(row, f"{known.asked}\n{answer}", claimed):
            denied = frozenset(act for act in said if act in acts_here or not times[act])  # others did these
            claim = next((sentence for sentence, acts in claims if acts & denied), claims[0][0])
            if not done.isdisjoint(denied) and not _goes_on(known, place, row, denied):
                yield _clue(known, place, key, value, claim)
                break


def _not_done(
    row: Mapping[str, Any], answer: str, claimed: frozenset[str]
) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield the fields that deny deeds, and these, unless the answer or the task says so.

    A count of nothing denies only what a sentence claims: an answer may say in many ways that there was
    nothing to do.
    """
    fields = list(islice(row.items(), _MOST_FIELDS))
    counts = [(str(key), value) for key, value in fields if type(value) is int]
    done = {act for key, value in counts if value > 0 for act in _counted(key)}
    is_under_way = any(value > 0 and worded(_ACCEPTED).search(key) for key, value in counts)
    for key, value in fields:
        if type(value) is int and value == 0 and not is_under_way:
            denied = _counted(str(key))
            if denied & claimed and denied.isdisjoint(done):
                yield str(key), "0", denied
        elif value is False and _DONE_KEY.match(str(key)):
            if not re.search(_UNDONE, answer, re.IGNORECASE):
                yield str(key), "false", acts_in(spaced(str(key)))
        elif isinstance(value, str) and len(value) <= _LONGEST and worded(_STATE).search(str(key)):
            state = next((one for one in _STATES if worded(one.says).search(value)), None)
            if state is not None and not worded(state.tells).search(answer):
                yield str(key), value, acts_in(spaced(value)) if state.denies is None else state.denies


def _counted(key: str) -> frozenset[str]:
    """Return the deeds whose things a key counts: ``deleted``, ``messages_sent``."""
    return frozenset() if _OTHERWISE.search(key) else acts_in(spaced(key))


def _goes_on(known: Known, place: int, row: Mapping[str, Any], denied: frozenset[str]) -> bool:
    """Tell whether a later call finishes what a result left open: it does a denied deed, or takes its id."""
    call = known.reading.steps[place]
    values = (*row.items(), *fields_in(call.input[:HEAD]).items())
    own = {str(value) for key, value in values if isinstance(value, str | int) and _is_id(str(key), value)}
    steps = known.reading.steps[place + 1 : place + 1 + _MOST_LATER]
    later = [step for step in steps if step.kind is StepKind.TOOL and not looks_up(step.target or "")]
    if any(acts_of(step.target or "") & denied for step in later):
        return True
    return any(str(value) in own for step in later for value in fields_in(step.input[:HEAD]).values())


def _is_id(key: str, value: str | int) -> bool:
    return len(str(value)) > 1 or key.casefold().endswith("id")


def _clue(known: Known, place: int, key: str, value: str, claim: str) -> Clue:
    call = known.reading.steps[place]
    position = known.first_said(lambda _text: True, after=place)
    step = known.reading.steps[position].index
    quotes = (known.quote(place, key), Evidence(step=step, quote=claim[:200]))
    reason = f"claimed what {call.target or 'a tool'} had not done: {key} is {value}"
    return known.clue(position, ClueKind.CLAIMED, reason, *quotes)
