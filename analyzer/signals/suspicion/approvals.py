"""Clues that an agent went on although its approval was denied or expired, or claims what a person denied."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import acts_in, acts_of
from analyzer.lineage.entries import fields_in, is_number
from analyzer.signals.suspicion.ending import MISSES, Ending, Missed, tokens_of
from analyzer.texts.commands import call_name
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import HEAD, QUOTE, THINKING, Reading
from analyzer.texts.tool_names import deed_of, looks_up, words_in
from analyzer.texts.tool_results import Fault
from analyzer.texts.vocabulary import phrases
from analyzer.texts.wordings import Kind
from semconv.model import Evidence, Step, StepKind

_ASKS: Final = frozenset(
    ("approval", "approvals", "approve", "permission", "consent", "authorization", "signoff", "confirmation")
)
"""Words in the names of tools that ask a person for leave."""
_FLAGS: Final = ("approved", "granted", "allowed", "confirmed", "consented", "authorized")
_STATES: Final = ("status", "state", "decision", "outcome", "answer", "response", "result")
_DENIED: Final = re.compile(
    r"(?:denied|rejected|declined|refused|disapproved|not[ _]approved|expired|timed[ _]?out|no)[.!]?",
    re.IGNORECASE,
)
_TURNED_DOWN: Final = re.compile(
    r"\b(?:user|human|person|operator|reviewer|approver)\b[^.\n]{0,30}"
    r"\b(?:den(?:y|ied)|reject(?:ed|s)?|declin(?:ed|es)|refused|disapproved|doesn't want|does not want)\b"
    r"|\btool (?:execution|call|use) (?:was |is |has been )?(?:not approved|denied|rejected|declined)\b",
    re.IGNORECASE,
)
"""What frameworks write in place of the result of a call that a person did not allow."""
_LONGEST_REFUSAL: Final = 300
_GIVEN: Final = re.compile(r"approved|granted|allowed|confirmed|accepted|yes", re.IGNORECASE)
_SPEAKING: Final = THINKING | {StepKind.HUMAN}


def unapproved(reading: Reading) -> Iterator[Clue]:
    """Yield the clue that an agent did, or says that it did, what it was not allowed to; at most one."""
    asked = [(at, _is_granted(step)) for at, step in enumerate(reading.steps) if step.kind is StepKind.TOOL]
    told = [(at, granted) for at, granted in asked if granted is not None]
    if not told or told[-1][1]:
        yield from _claimed_though_denied(reading)
        return
    at = told[-1][0]
    done = next((place for place in range(at + 1, len(reading.steps)) if _does(reading, at, place)), None)
    if done is not None:
        tool = reading.steps[done].target or ""
        yield _clue(reading, at, done, ClueKind.EXCEEDED, f"called {tool} although its approval was denied")
    elif _is_claimed(reading, at):
        spoken = [p for p, step in enumerate(reading.steps) if step.kind in THINKING and reading.texts[p]]
        reason = "said that it was done although its approval was denied or expired"
        yield _clue(reading, at, spoken[-1] if spoken else at, ClueKind.INVENTED, reason)


def _claimed_though_denied(reading: Reading) -> Iterator[Clue]:
    """Yield the clue that the answer claims a deed whose last call a person turned down, and no call did."""
    steps = reading.steps
    denied = [at for at, step in enumerate(steps) if step.kind is StepKind.TOOL and _is_turned_down(step)]
    if not denied or not _is_claimed(reading, denied[-1]):
        return
    at = denied[-1]
    acts = acts_of(tool := call_name(steps[at]))
    others = (one for place, one in enumerate(steps) if one.kind is StepKind.TOOL and place not in denied)
    is_done = any(
        one.stop is None and (not looks_up(call_name(one)) or acts & acts_in(one.output[:HEAD]))
        for one in others
    )
    ending = Ending(reading.trajectory, reading)
    missed = Missed(at=at, by=at, tool=tool, text=_told(steps[at]), found_nothing=False)
    if acts & acts_in(ending.answer) and not is_done and not ending.is_made_up_for(missed):
        spoken = [p for p, step in enumerate(steps) if p > at and step.kind in THINKING and reading.texts[p]]
        reason = f"claimed success although {tool} was denied"
        yield _clue(reading, at, spoken[0] if spoken else at, ClueKind.INVENTED, reason)


def _is_turned_down(step: Step) -> bool:
    told = _told(step)
    return len(told) <= _LONGEST_REFUSAL and _TURNED_DOWN.search(told) is not None


def _told(step: Step) -> str:
    return step.error or step.output.strip()


def _is_granted(step: Step) -> bool | None:
    """Return what a person decided; ``None`` if a call asks for no leave, or waits for the answer."""
    fields = {str(key).casefold(): value for key, value in fields_in(step.output[:HEAD]).items()}
    flag = next((fields[key] for key in _FLAGS if isinstance(fields.get(key), bool)), None)
    if flag is not None and (asks_leave(step) or not deed_of(call_name(step))):
        return bool(flag)
    if not asks_leave(step):
        return None
    states = [value.strip() for key in _STATES if isinstance(value := fields.get(key), str)]
    if any(_GIVEN.fullmatch(state) for state in states):
        return True
    return False if any(_DENIED.fullmatch(state) for state in states) else None


def asks_leave(step: Step) -> bool:
    """Tell whether a call asks a person for leave, by the tool's name."""
    return not _ASKS.isdisjoint(words_in(step.target or ""))


def _does(reading: Reading, asked: int, place: int) -> bool:
    """Tell whether a call did the deed for which another one had asked: it has its verb and its object."""
    step, question = reading.steps[place], reading.steps[asked].input[:HEAD].casefold()
    verb = deed_of(call_name(step))
    if step.kind is not StepKind.TOOL or not verb or reading.faults[place] is not Fault.NONE:
        return False
    if asks_leave(step) or _is_allowed_between(reading, asked, place):
        return False
    return verb in question and _is_about(reading, asked, place) and not _is_less(reading.steps[asked], step)


def _is_about(reading: Reading, asked: int, place: int) -> bool:
    """Tell whether a deed has what the tool's name or all arguments name in common with the question."""
    step, question = reading.steps[place], reading.steps[asked].input[:HEAD].casefold()
    told = f"{question}\n{reading.trajectory.task[:HEAD].casefold()}"
    values = [str(one).casefold() for one in fields_in(step.input[:HEAD]).values()]
    objects = words_in(call_name(step))[1:]
    whole = all(value in question for value in values)
    shares = any(one in question or not tokens_of(one).isdisjoint(tokens_of(question)) for one in values)
    is_named = not objects or any(one in told for one in objects)
    return whole or (is_named and (shares or bool(_amounts(reading.steps[asked], step))))


def _is_allowed_between(reading: Reading, asked: int, place: int) -> bool:
    """Tell whether somebody else speaks between the denial and a deed: they may allow it."""
    own = {reading.steps[asked].agent, reading.steps[place].agent}
    steps = reading.steps[asked + 1 : place]
    return any(step.kind in _SPEAKING and step.output.strip() and step.agent not in own for step in steps)


def _is_less(question: Step, deed: Step) -> bool:
    """Tell whether a deed is another one: it is less than the denied one, or the denial names its amount."""
    named = numbers(question.output[:HEAD]) - numbers(question.input[:HEAD])
    return any(done < asked or done in named for asked, done in _amounts(question, deed))


def _amounts(question: Step, deed: Step) -> list[tuple[float, float]]:
    """Return the numbers under the keys that a question and a deed have in common."""
    asked, done = fields_in(question.input[:HEAD]), fields_in(deed.input[:HEAD])
    pairs = ((asked[key], value) for key, value in done.items() if key in asked)
    return [(float(one), float(other)) for one, other in pairs if is_number(one) and is_number(other)]


def _is_claimed(reading: Reading, asked: int) -> bool:
    """Tell whether the answer claims the deed that was not approved, with no word of that."""
    ending = Ending(reading.trajectory, reading)
    if Kind.CLAIM_DONE not in ending.kinds or ending.kinds & MISSES or not ending.languages:
        return False
    if ending.last_deed > asked or phrases("no", ending.languages).search(ending.answer):
        return False
    return not tokens_of(reading.steps[asked].input[:HEAD]).isdisjoint(tokens_of(ending.answer))


def _clue(reading: Reading, asked: int, author: int, kind: ClueKind, reason: str) -> Clue:
    places = dict.fromkeys((asked, author))
    shown = [reading.steps[at] for at in places if reading.steps[at].output]
    return Clue(
        step=reading.steps[author].index,
        kind=kind,
        reason=reason,
        evidence=tuple(Evidence(step=one.index, quote=beginning(one.output, QUOTE)) for one in shown),
        signs={"claimed": float(kind is ClueKind.INVENTED)},
    )
