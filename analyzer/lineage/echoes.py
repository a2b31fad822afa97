"""Results about something else than was asked: week 12 was looked up, the result is of week 10. Pure.

Many tools repeat what they were asked for. Where a result has another number, date or code under the key of
an argument, and the answer states the one that was asked for but never the other, it gives one thing's values
as another's. Names tell nothing: Köln is returned as Cologne.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import agree, dates_in
from analyzer.lineage.figures import figures
from analyzer.lineage.known import Known, around, words_in
from analyzer.signals.run_view import HEAD, final_answer
from analyzer.signals.tool_names import deed_of
from analyzer.signals.tool_results import Fault
from semconv.dialects.reading.values import mapping
from semconv.model import Evidence, StepKind

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_LONGEST: Final = 40
_HOW: Final = frozenset(
    """
    page limit offset cursor q query search sort order format lang language locale unit units fields size
    count top n max min per_page depth mode type status id_type
    """.split()  # noqa: SIM905 - readable in this form
)
"""Keys that say how to look, not at what."""


def answers_to_other_questions(known: Known) -> Iterator[Clue]:
    """Yield the results of something else that the answer gives for what was asked."""
    reading = known.reading
    answer = final_answer(reading.trajectory)[:HEAD]
    for position, step in enumerate(reading.steps):
        if step.kind is not StepKind.TOOL or reading.faults[position] is not Fault.NONE:
            continue
        if deed_of(step.target or "") or _is_asked_again(known, position):
            continue
        for key, asked, given in _differing(mapping(step.input[:HEAD]), mapping(step.output[:HEAD])):
            if _states(answer, asked) and not any(_states(text, given) for text in _said(known, position)):
                yield _clue(known, position, key, asked, given)


def _is_asked_again(known: Known, position: int) -> bool:
    steps = known.reading.steps
    return any(step.target == steps[position].target for step in steps[position + 1 :])


def _said(known: Known, position: int) -> Iterator[str]:
    """Yield what agents say after a call."""
    steps = known.reading.steps
    return (step.output[:HEAD] for step in steps[position + 1 :] if step.kind is not StepKind.TOOL)


def _differing(arguments: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    given = {str(key).casefold(): value for key, value in result.items()}
    for key, value in arguments.items():
        name = str(key).casefold()
        other = given.get(name)
        if name in _HOW or not (_is_plain(value) and _is_plain(other)):
            continue
        if not _same(str(value), str(other)):
            yield str(key), str(value), str(other)


def _is_plain(value: Any) -> bool:
    is_scalar = isinstance(value, str | int | float) and not isinstance(value, bool)
    return is_scalar and 0 < len(str(value)) <= _LONGEST


def _same(one: str, other: str) -> bool:
    a, b = one.casefold().strip(), other.casefold().strip()
    if a in b or b in a:
        return True
    days, others = dates_in(one), dates_in(other)
    if days and others:
        return agree(days[0], others[0])
    numbers = [each.value for each in (*figures(one)[:1], *figures(other)[:1])]
    if len(numbers) == 2:
        return numbers[0] == numbers[1]
    return _code_of(a) is None or _code_of(a) != _code_of(b)  # names are written in many ways


def _code_of(text: str) -> str | None:
    """Return the shape of a code, such as ``ab-000``; ``None`` if a text is none."""
    is_code = " " not in text and any(map(str.isdigit, text))
    return re.sub(r"\d", "0", text) if is_code else None


def _states(text: str, value: str) -> bool:
    days = dates_in(value)
    if days:
        return any(agree(days[0], each) for each in dates_in(text))
    if _NUMBER.fullmatch(value):
        return re.search(rf"(?<![\d.,]){re.escape(value)}(?!\d|[.,]\d)", text) is not None
    words = words_in(value)
    return bool(words) and words <= words_in(text)


def _clue(known: Known, position: int, key: str, asked: str, given: str) -> Clue:
    place = known.first_said(lambda text: _states(text, asked), after=position)
    step = known.reading.steps[place]
    return Clue(
        step=step.index,
        kind=ClueKind.OUT_OF_DATE,
        reason=f"answered for {key} {asked} with what {known.giver(position)} returned for {key} {given},"
        " and did not say so",
        evidence=(Evidence(step=step.index, quote=around(step.output, asked, reach=60)),),
    )
