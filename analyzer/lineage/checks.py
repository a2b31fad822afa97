"""Deeds that a check had refused: it returned ``"accepted": false``, and the next call books all the same.

A refused check is no failure: it is there to refuse. The failure is a deed on the same thing afterwards, if
no later check of the same tool allows it and no person decides between. An answer that denies something may
pass the refusal on. A tool whose name tells nothing may only look something up, for the user or the order
that any call names; it counts if its call names all that the check was about, in two values or more, or if it
only returns that it was accepted. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import acts_of
from analyzer.lineage.entries import fields_in
from analyzer.lineage.known import Known, words_in
from analyzer.texts.run_view import HEAD
from analyzer.texts.tool_names import deed_of, looks_up
from analyzer.texts.vocabulary import denies, has_alternative, worded
from analyzer.texts.wordings import Kind, languages_in, says
from semconv.model import Step, StepKind
from semconv.record import record

_PERMITS: Final = r"(?:is_?|can_?)?(?:{permit_key}|clear(?:ed)?$)"
"""Keys whose value says whether something may be done."""
_DECIDES: Final = "{decision_key}$"
_STATES: Final = "(?:{status_key}|{result_key}|action|advice|recommendation)$"
"""Keys that say the same in the result of a tool that checks; elsewhere they tell how a thing stands."""
CHECKS: Final = r"{check_tool}|vet(?:_|$)"
"""Names of tools that check something."""
_REFUSED: Final = (
    r"\W*(?:{refused}|refer\b|no[_ -]?match|fail(?:ed|ure)?\b|hold\b|on[_ -]hold"
    r"|not[_ ](?:allowed|approved|accepted|permitted|eligible))"
)
_GRANTING: Final = frozenset(
    """
    book create pay approve transfer order buy purchase ship issue publish deploy grant confirm reserve
    register submit place apply merge enable sell charge
    """.split()  # noqa: SIM905 - readable in this form
)
"""Deeds that a check can refuse; to tell somebody, to escalate or to cancel follows from a refusal."""
_ACTS: Final = frozenset({"book", "pay", "order", "approve", "publish", "ship", "submit"})
_TELLS: Final = re.compile(
    r"mail|message|sms|notif|notice|reply|respond|chat|post|slack|teams|note|alert", re.IGNORECASE
)
"""Names of tools that tell somebody."""
_LEAST_NAME: Final = 3
_LEAST_SHARED: Final = 2
_MOST_FIELDS: Final = 40


@record
class _Refusal:
    """A check that refused something."""

    position: int
    tool: str
    key: str
    value: str
    about: frozenset[str]
    """Words of its arguments and result that name what it was about."""
    asked: Mapping[str, Any]
    """Its arguments."""
    others: frozenset[str]
    """Words of its whole result that name something else: an alternative."""

    def is_deed_on(self, deed: Step) -> bool:
        """Tell whether a call names all that was checked, in two values or more, or is only accepted."""
        values = [str(value) for value in self.asked.values() if not isinstance(value, bool)]
        accepts = fields_in(deed.output[:HEAD]).values()
        if accepts and all(one is True for one in accepts):
            return True  # it returns nothing to look up
        return len(values) >= _LEAST_SHARED and words_in(" ".join(values)) <= words_in(deed.input[:HEAD])

    def is_about(self, named: frozenset[str], deed: Step) -> bool:
        """Tell whether a deed is on what was refused: it names nothing else, nor an alternative."""
        arguments = fields_in(deed.input[:HEAD])
        is_other = any(key in self.asked and self.asked[key] != value for key, value in arguments.items())
        return bool(named & self.about) and not is_other and named.isdisjoint(self.others)


def refused_deeds(known: Known) -> Iterator[Clue]:
    """Yield the deeds on a thing that the last check of it had refused."""
    refusals: dict[str, _Refusal] = {}
    for position, step in enumerate(known.reading.steps):
        if step.kind is StepKind.HUMAN:
            refusals.clear()
        if step.kind is not StepKind.TOOL:
            continue
        tool = step.target or ""
        own = _names(step.input) if refusals else frozenset()
        found = next((one for one in refusals.values() if one.tool != tool and one.is_about(own, step)), None)
        if found is not None and (_is_granting(tool) or (_is_unknown(tool) and found.is_deed_on(step))):
            if _is_open(known.answer) or has_alternative(known.asked):
                return
            yield _clue(known, position, found)
        elif not deed_of(tool):
            refused = _refusal(known, position)
            refusals.pop(tool, None)
            if _permits(step.output):
                refusals = {name: refusal for name, refusal in refusals.items() if not own & refusal.about}
            if refused is not None:
                refusals[tool] = refused


def _is_granting(tool: str) -> bool:
    if looks_up(tool):
        return False
    return deed_of(tool) in _GRANTING or bool(acts_of(tool) & _ACTS)


def _is_unknown(tool: str) -> bool:
    """Tell whether a tool's name says neither that it reads or checks, nor what else it does."""
    if looks_up(tool) or worded(CHECKS).search(tool) or _TELLS.search(tool):
        return False
    return deed_of(tool) in {"", "send"} and acts_of(tool) <= {"send"}


def _is_open(answer: str) -> bool:
    """Tell whether an answer denies something, or says that something is amiss."""
    languages = languages_in(answer)
    return denies(answer) or any(
        says(kind, answer, languages) for kind in (Kind.EXCUSE, Kind.ADMISSION, Kind.GIVING_UP)
    )


def _refusal(known: Known, position: int) -> _Refusal | None:
    step = known.reading.steps[position]
    tool, arguments, result = step.target or "", step.input, step.output
    row = fields_in(result[:HEAD])
    is_check = worded(CHECKS).search(tool) is not None
    fields = _fields(row) if is_check else ((str(key), value) for key, value in row.items())
    found = next(
        (
            (key, value)
            for key, value in fields
            if _refuses(key, value, is_check=is_check) or _is_barred(known, key, value)
        ),
        None,
    )
    if found is None:
        return None
    about = _names(arguments) | _values(row)
    listed = (word for word in words_in(result) if len(word) >= _LEAST_NAME and any(map(str.isdigit, word)))
    return _Refusal(
        position=position,
        tool=tool,
        key=str(found[0]),
        value=str(found[1]),
        about=about,
        asked=fields_in(arguments[:HEAD]),
        others=frozenset(listed) - about,
    )


def _fields(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a result, and the verdicts in it and its lists; what is taken refuses nothing."""
    yield from ((str(key), value) for key, value in row.items())
    for value in list(row.values())[:_MOST_FIELDS]:
        for one in value[:_MOST_FIELDS] if isinstance(value, list) else ():
            fields = one.items() if isinstance(one, dict) else ()
            yield from ((str(key), each) for key, each in fields if isinstance(each, str))
        inner = value.items() if isinstance(value, dict) else ()
        yield from ((str(key), each) for key, each in inner if worded(_DECIDES).search(str(key)))


def _refuses(key: str, value: Any, *, is_check: bool) -> bool:
    if value is False:
        return worded(_PERMITS).match(key) is not None
    is_verdict = bool(worded(_DECIDES).search(key) or (is_check and worded(_STATES).search(key)))
    return isinstance(value, str) and is_verdict and worded(_REFUSED).match(value) is not None


def _is_barred(known: Known, key: str, value: Any) -> bool:
    """Tell whether the instructions forbid to go on after this verdict: ``REVIEW: do not pay``."""
    if not isinstance(value, str) or len(value) < _LEAST_NAME or not worded(_DECIDES).search(key):
        return False
    rule = re.search(
        rf"(?<!\w){re.escape(value)}(?!\w)[^.;:,\n→]{{0,40}}[:,→]\s?((?:\w+\s)?[\w']+)", known.instructions
    )
    return rule is not None and denies(rule[1])


def _permits(result: str) -> bool:
    return any(
        value is True and worded(_PERMITS).match(str(key)) for key, value in fields_in(result[:HEAD]).items()
    )


def _names(arguments: str) -> frozenset[str]:
    return _values(fields_in(arguments[:HEAD]))


def _values(row: Mapping[str, Any]) -> frozenset[str]:
    """Return the words that name things: with a digit, or the whole of a short text."""
    plain = (value for value in row.values() if not isinstance(value, bool))
    texts = [str(value) for value in plain if isinstance(value, str | int)]
    words = (word for text in texts for word in words_in(text) if any(map(str.isdigit, word)))
    return frozenset(one for one in (*words, *(text.casefold() for text in texts)) if len(one) >= _LEAST_NAME)


def _clue(known: Known, position: int, refusal: _Refusal) -> Clue:
    call = known.reading.steps[position]
    asked = [place for place in range(refusal.position + 1, position) if known.reading.steps[place].calls]
    step = asked[-1] if asked else max(known.reading.responsible_steps[position], refusal.position + 1)
    shown = "false" if refusal.value == "False" else refusal.value[:60]
    giver = known.giver(refusal.position)
    reason = f"called {call.target or 'a tool'} although {giver} returned {refusal.key}: {shown}"
    return known.clue(step, ClueKind.EXCEEDED, reason, known.quote(refusal.position, refusal.key))
