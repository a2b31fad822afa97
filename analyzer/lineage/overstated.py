"""Deeds whose results say something else than the answer: a draft, unsent, or made twice. Pure.

``{"status": "draft"}``, ``"pending approval"``, ``"sent": false``, ``"deleted": 0``: the call succeeded and
the deed is not done. An answer that says so, in any of the languages, is right; one that only claims the deed
is not. A state denies some deeds and not others: an invoice that is not paid has been made. Two results with
an id each, for the same arguments, are two things where the answer speaks of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import dates_in
from analyzer.lineage.deeds import acts_in, acts_of, claims_in, spaced
from analyzer.lineage.known import Known, words_in
from analyzer.signals.commands import call_name
from analyzer.signals.run_view import HEAD, final_answer
from analyzer.signals.tool_names import deed_of, looks_up
from analyzer.signals.tool_results import Fault
from semconv.dialects.reading.values import mapping
from semconv.model import Evidence, Step, StepKind
from semconv.record import record

_STATE: Final = re.compile(
    r"(?:status|state|outcome|zustand|statut|état|etat|estado|stato|статус|состояние|状态|状態|상태)$",
    re.IGNORECASE,
)
_DONE_KEY: Final = re.compile(
    r"(?:is_?|was_?)?(?:sent|submitted|published|committed|applied|executed|completed|booked|paid|cancelled)$",
    re.IGNORECASE,
)
_OTHERWISE: Final = re.compile(
    r"fail|error|skip|pending|reject|would|duplicate|invalid|(?:^|[^a-z])(?:not|un|non)", re.IGNORECASE
)
"""Keys that count what was not done; none of these is good news."""
_ACCEPTED: Final = re.compile(
    r"queue|accept|schedul|enqueue|in_?progress|processing|warteschlange|angenommen|geplant|en_?cola|aceptad|program"
    r"|en_?file|accept[ée]|planifi|in_?coda|accettat|na_?fila|aceit|очеред|принят|受付|受理|排队|대기",
    re.IGNORECASE,
)
"""Keys that count what a service has taken on and will do: who asked for it has done it."""
_LONGEST: Final = 80
_MOST_FIELDS: Final = 40
_MOST_LATER: Final = 200
_DRAFT: Final = (
    r"draft|entwurf|brouillon|borrador|bozza|rascunho|szkic|чернов|草稿|下書|taslak|مسودة|मसौदा|초안"
)
_UNDONE: Final = (
    r"\bnot[ _-](?:yet[ _-])?(?!required|needed|changed)(?:\w+ed|sent|paid|made|done)\b"
    r"|\bun(?:sent|confirmed)\b"
    r"|\bnicht (?:\w{1,20} )?\w{0,12}ge\w{1,20}(?:t|en)\b"
    r"|\b(?:non|pas|no|não) (?:\w+ )?\w+(?:[aiu]d[oa]|[aiu]t[oa]|ée?s?)\b"
    r"|\bне \w+н[оаы]?\b|未|değil"  # noqa: RUF001 - Russian
)
_AGREEMENT: Final = (
    r"approv|review|sign-?off|genehmig|freigabe|prüf|approb|validation|aprob|aprov|revis|onay|одобр|согласов"
    r"|承認|审批|審批|审核|승인|موافق"
)
_OPEN: Final = (
    r"pending|await|needs|requires|waiting|ausstehend|attente|pendiente|pendente|attesa|ожида|待|대기"
)
_LIST: Final = (
    r"wait(?:ing)?[ _-]?list|warteliste|liste d.attente|lista d[ei] (?:espera|attesa)"
    r"|лист ожидания|候补|대기자"
)
_TRIAL: Final = r"dry[ _-]?run|simulat|simulier|sandbox|probelauf"
_CONFIRM: Final = r"confirm|bestätig|conferma|potwierd|onaylan|подтвер|确认|確認|확인|تأكيد"
_FINAL: Final = frozenset({"send", "pay", "publish", "submit", "order", "book", "refund"})
_AGREED: Final = _FINAL - {"send", "submit"} | {"cancel", "approve", "delete", "restart"}


@record
class _State:
    """A state in which a deed is not done."""

    says: re.Pattern[str]
    """Matches the state in a result."""
    tells: re.Pattern[str]
    """Matches an answer that passes the state on."""
    denies: frozenset[str] | None = None
    """The deeds that are not done; ``None`` for those that the words of the state name."""


def _state(says: str, tells: str, denies: frozenset[str] | None = None) -> _State:
    return _State(says=re.compile(says, re.IGNORECASE), tells=re.compile(tells, re.IGNORECASE), denies=denies)


_STATES: Final = (
    _state(_DRAFT, _DRAFT, _FINAL),
    _state(_UNDONE, rf"{_UNDONE}|{_DRAFT}"),
    _state(
        rf"(?:{_OPEN}).{{0,20}}(?:{_AGREEMENT})|(?:{_AGREEMENT}).{{0,20}}(?:{_OPEN})",
        rf"{_AGREEMENT}|{_CONFIRM}",
        _AGREED,
    ),
    _state(_LIST, _LIST, frozenset({"book", "submit"})),
    _state(_TRIAL, rf"{_TRIAL}|test", _FINAL | _AGREED),
)


def overstated_deeds(known: Known) -> Iterator[Clue]:
    """Yield the deeds that the answer claims while the last call of their tool says that they are not."""
    answer = final_answer(known.reading.trajectory)[:HEAD]
    claims = list(claims_in(answer)) if answer else []
    done = acts_in(answer) if claims else frozenset()
    claimed = frozenset[str]().union(*(acts for _, acts in claims))
    for tool, place in known.last_calls.items() if claims else ():
        step = known.reading.steps[place]
        by_others = frozenset[str]().union(*(acts_of(one or "") for one in known.last_calls if one != tool))
        if looks_up(step.target or "") or known.reading.faults[place] is not Fault.NONE:
            continue
        row = mapping(step.output[:HEAD])
        for key, value, said in _not_done(row, f"{known.asked}\n{answer}", claimed):
            denied = said - (by_others - acts_of(tool or ""))
            claim = next((sentence for sentence, acts in claims if acts & denied), claims[0][0])
            if not done.isdisjoint(denied) and not _goes_on(known, place, row, denied):
                yield _clue(known, place, key, value, claim)
                break


_NAMES: Final = re.compile(r"(?=[^\d\s]*\d)(?=[^A-Za-z\s]*[A-Za-z])[\w-]{3,40}")
"""An id: letters and digits."""


def repeated_deeds(known: Known) -> Iterator[Clue]:
    """Yield the second call with the arguments of one that succeeded, if each made a thing with its own id.

    Payments, bookings and messages count: to build or to train again is the way to a better result. The task
    may ask for several, a call between may have changed what is needed, a later one may take the first one
    back, and an answer that names both is open about it.
    """
    answer = final_answer(known.reading.trajectory)[:HEAD]
    made: dict[tuple[str, str], tuple[int, Mapping[str, str]]] = {}
    for place, step in enumerate(known.reading.steps):
        if step.kind is not StepKind.TOOL or not step.input or not _is_for_good(step.target or ""):
            continue
        ids = _ids(step)
        if not ids or known.reading.faults[place] is not Fault.NONE:
            continue
        call = step.target or "", "".join(step.input.split())
        first, earlier = made.setdefault(call, (place, ids))
        told = [ids[one] for one in ids if one in words_in(answer)]
        is_new = first != place and earlier.keys().isdisjoint(ids)
        spoken = words_in(f"{answer}\n{known.asked}") | _used_after(known, place) if is_new else frozenset()
        if is_new and told and spoken.isdisjoint(earlier) and not _has_changes(known, first, place):
            yield _again(known, place, first, next(iter(earlier.values())), told[0])


def _is_for_good(tool: str) -> bool:
    """Tell whether a tool's deed reaches somebody each time that it is done."""
    return deed_of(tool) in _REACHING or bool(acts_of(tool) & _REACHING)


_REACHING: Final = frozenset(
    {"book", "buy", "charge", "order", "pay", "purchase", "refund", "reserve", "send", "ship", "transfer"}
)


def _has_changes(known: Known, first: int, place: int) -> bool:
    """Tell whether a call of another tool between two calls may have changed something."""
    between = known.reading.steps[first + 1 : place]
    tool = known.reading.steps[first].target
    return any(
        step.kind is StepKind.TOOL and step.target != tool and not looks_up(call_name(step))
        for step in between
    )


def _ids(call: Step) -> Mapping[str, str]:
    """Return the ids that a result gives and its call does not have, by their lower case."""
    values = [value for value in mapping(call.output[:HEAD]).values() if isinstance(value, str)]
    own = (one for one in values if _NAMES.fullmatch(one) and not dates_in(one))
    return {one.casefold(): one for one in own if one.casefold() not in call.input.casefold()}


def _used_after(known: Known, place: int) -> frozenset[str]:
    later = known.reading.steps[place + 1 :]
    return frozenset(
        word for step in later if step.kind is StepKind.TOOL for word in words_in(step.input[:HEAD])
    )


def _again(known: Known, place: int, first: int, earlier: str, later: str) -> Clue:
    call = known.reading.steps[place]
    asked = (at for at in range(place, -1, -1) if known.reading.steps[at].calls)
    author = next((at for at in asked if known.reading.steps[at].agent == call.agent), place)
    quotes = (known.quote(first, earlier), known.quote(place, later))
    return Clue(
        step=known.reading.steps[author].index,
        kind=ClueKind.CLAIMED,
        reason=f"called {call.target} again with the same arguments, which made {later} beside {earlier}",
        evidence=tuple(one for one in quotes if one.quote),
    )


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
    is_under_way = any(value > 0 and _ACCEPTED.search(key) for key, value in counts)
    for key, value in fields:
        if type(value) is int and value == 0 and not is_under_way:
            denied = _counted(str(key))
            if denied & claimed and denied.isdisjoint(done):
                yield str(key), "0", denied
        elif value is False and _DONE_KEY.match(str(key)):
            if not re.search(_UNDONE, answer, re.IGNORECASE):
                yield str(key), "false", acts_in(spaced(str(key)))
        elif isinstance(value, str) and len(value) <= _LONGEST and _STATE.search(str(key)):
            state = next((one for one in _STATES if one.says.search(value)), None)
            if state is not None and not state.tells.search(answer):
                yield str(key), value, acts_in(spaced(value)) if state.denies is None else state.denies


def _counted(key: str) -> frozenset[str]:
    """Return the deeds whose things a key counts: ``deleted``, ``messages_sent``."""
    return frozenset() if _OTHERWISE.search(key) else acts_in(spaced(key))


def _goes_on(known: Known, place: int, row: Mapping[str, Any], denied: frozenset[str]) -> bool:
    """Tell whether a later call finishes what a result left open: it does a denied deed, or takes its id."""
    call = known.reading.steps[place]
    values = (*row.items(), *mapping(call.input[:HEAD]).items())
    own = {str(value) for key, value in values if isinstance(value, str | int) and _is_id(str(key), value)}
    steps = known.reading.steps[place + 1 : place + 1 + _MOST_LATER]
    later = [step for step in steps if step.kind is StepKind.TOOL and not looks_up(step.target or "")]
    if any(acts_of(step.target or "") & denied for step in later):
        return True
    return any(str(value) in own for step in later for value in mapping(step.input[:HEAD]).values())


def _is_id(key: str, value: str | int) -> bool:
    return len(str(value)) > 1 or key.casefold().endswith("id")


def _clue(known: Known, place: int, key: str, value: str, claim: str) -> Clue:
    call = known.reading.steps[place]
    position = known.first_said(lambda _text: True, after=place)
    step = known.reading.steps[position].index
    quotes = (known.quote(place, key), Evidence(step=step, quote=claim[:200]))
    return Clue(
        step=step,
        kind=ClueKind.CLAIMED,
        reason=f"claimed what {call.target or 'a tool'} had not done: {key} is {value}",
        evidence=tuple(one for one in quotes if one.quote),
    )
