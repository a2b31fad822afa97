"""Deeds that the answer reports as done although their result says that they are not: a draft, unsent. Pure.

``{"status": "draft"}``, ``"pending approval"``, ``"sent": false``: the call succeeded and the deed is not
done. An answer that says so, in any of the languages, is right; one that only claims the deed is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import claims_in
from analyzer.lineage.known import Known
from analyzer.signals.run_view import HEAD, final_answer
from analyzer.signals.tool_names import looks_up
from analyzer.signals.tool_results import Fault
from semconv.dialects.reading.values import mapping
from semconv.model import Evidence, StepKind

_STATE: Final = re.compile(
    r"(?:status|state|outcome|zustand|statut|état|etat|estado|stato|статус|состояние|状态|状態|상태)$",
    re.IGNORECASE,
)
_DONE_KEY: Final = re.compile(
    r"(?:is_?|was_?)?(?:sent|submitted|delivered|published|confirmed|committed|applied|executed|completed|booked)$",
    re.IGNORECASE,
)
_LONGEST: Final = 80
_DRAFT: Final = (
    r"draft|entwurf|brouillon|borrador|bozza|rascunho|szkic|чернов|草稿|下書|taslak|مسودة|मसौदा|초안"
)
_UNDONE: Final = (
    r"\bnot[ _-](?:yet[ _-])?(?!required|needed|changed)(?:\w+ed|sent|paid|made|done)\b"
    r"|\bun(?:sent|confirmed)\b"
    r"|\bnicht (?:\w+ )?\w*ge\w+(?:t|en)\b|\b(?:non|pas|no|não) (?:\w+ )?\w+(?:[aiu]d[oa]|[aiu]t[oa]|ée?s?)\b"
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
_STATES: Final = (
    (re.compile(rf"(?:{_DRAFT})", re.IGNORECASE),) * 2,
    (re.compile(_UNDONE, re.IGNORECASE), re.compile(rf"{_UNDONE}|{_DRAFT}", re.IGNORECASE)),
    (
        re.compile(
            rf"(?:{_OPEN}).{{0,20}}(?:{_AGREEMENT})|(?:{_AGREEMENT}).{{0,20}}(?:{_OPEN})", re.IGNORECASE
        ),
        re.compile(_AGREEMENT, re.IGNORECASE),
    ),
    (re.compile(rf"(?:{_LIST})", re.IGNORECASE),) * 2,
    (re.compile(rf"(?:{_TRIAL})", re.IGNORECASE), re.compile(rf"{_TRIAL}|test", re.IGNORECASE)),
)
"""What a state says of a deed that is not done, and what an answer says that tells it."""


def overstated_deeds(known: Known) -> Iterator[Clue]:
    """Yield the deeds that the answer claims while the last call of their tool says that they are not."""
    answer = final_answer(known.reading.trajectory)[:HEAD]
    claims = [sentence for sentence, _ in claims_in(answer)] if answer else []
    last = {
        step.target: place for place, step in enumerate(known.reading.steps) if step.kind is StepKind.TOOL
    }
    for place in last.values() if claims else ():
        step = known.reading.steps[place]
        if looks_up(step.target or "") or known.reading.faults[place] is not Fault.NONE:
            continue
        found = _not_done(mapping(step.output[:HEAD]), f"{known.asked}\n{answer}")
        if found is not None:
            yield _clue(known, place, *found, claims[0])


def _not_done(row: Mapping[str, Any], answer: str) -> tuple[str, str] | None:
    """Return the field that says that a deed is not done, if neither the answer nor the task says so."""
    for key, value in row.items():
        if value is False and _DONE_KEY.match(str(key)):
            return None if re.search(_UNDONE, answer, re.IGNORECASE) else (str(key), "false")
        if isinstance(value, str) and len(value) <= _LONGEST and _STATE.search(str(key)):
            told = next((tells for state, tells in _STATES if state.search(value)), None)
            if told is not None and not told.search(answer):
                return str(key), value
    return None


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
