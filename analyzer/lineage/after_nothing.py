"""Values given after a look-up came to nothing: the date of the last service, but the log is empty. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from analyzer.lineage.claims import figures_from_nowhere
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import clocks_in, dates_in, follows
from analyzer.lineage.derivation import Derivation, converts, plain_results
from analyzer.lineage.entries import document_in, fields_in, tables_in
from analyzer.lineage.figures import Figure, figures, prose_of
from analyzer.lineage.known import Known, counts_in
from analyzer.texts.commands import call_name, commands_of
from analyzer.texts.run_view import HEAD, callers_of
from analyzer.texts.tool_names import deed_of, recalls
from analyzer.texts.tool_results import Fault
from analyzer.texts.vocabulary import begins_with_no, denies, first_sentence
from analyzer.texts.wordings import asks_whether, mentions_fault
from semconv.dialects.reading.values import structured
from semconv.model import Step, StepKind

_MOST_NODES: Final = 60
_MOST_GAPS: Final = 40
_WITH_DIGIT: Final = re.compile(r"\w*\d[\w:.,]*\b")
_LEAST_KEY: Final = 3
"""Letters of a key that a text may name."""
_MOST_DATES: Final = 100
_MOST_ASKED: Final = 8
_MOST_ROWS: Final = 300
_MOST_OF_ROW: Final = 6
"""Numbers of a row of a list that are computed with."""
_ENVELOPE: Final = frozenset({"error", "errors", "warning", "warnings", "resultType"})
"""Keys that are empty in any result, or say of what kind it is."""
_STATES: Final = frozenset({"status", "state", "ok", "success"})
_SUCCEEDED: Final = frozenset({"success", "ok", "true", "200"})
"""Values that say that the call succeeded."""
_HEADING: Final = re.compile(
    r"(?:[-=+| ]+\n)?[^\W\d][^\d\n,;|\t]{0,40}(?:[|;\t,](?! )[^\d\n,;|\t]{1,40}){1,20}(?:\n[-=+| ]+)?"
    r"(?:\n\(0 [^\W\d]{1,20}\))?"
)
"""A table that has a heading and no row. No cell has a mark that parts cells: else time is exponential."""
_COUNT: Final = re.compile(
    r"^n$|count|total|rows|hits|matches|found|size|anzahl|nombre|número|počet|nalez|liczba", re.IGNORECASE
)
"""Keys that count what was found."""
_GIVES_NOTHING: Final = frozenset({Fault.NONE, Fault.EMPTY})
_ROUND: Final = 5
"""Minutes of which a time that somebody proposes is a multiple, and a time that was recorded seldom is."""


def values_after_nothing(known: Known) -> Iterator[Clue]:
    """Yield the first value from nowhere that an agent gave after its last look-up came to nothing.

    An agent that calls nothing has only what others found: if no result has a figure, it can compute none.
    """
    answer = prose_of(known.answer)
    steps = known.reading.steps
    found = [(place, is_empty(text, steps[place].input)) for place, text in _calls(known)]
    given = {_kind(steps[place]): place for place, has_nothing in found if not has_nothing}
    empty = [
        place for place, has_nothing in found if has_nothing and given.get(_kind(steps[place]), 0) < place
    ]
    if empty and says_nothing_found(known.asked, answer):
        empty = []
    empty += _failed_at_last(known)
    if not empty or not answer or mentions_fault(answer, known.asked):
        return
    has_figures = any(found for _, found in known.figures())
    callers = {step.agent for step in steps if step.kind is StepKind.TOOL}
    for literal in _strange(known, answer):
        position = known.first_with(literal, after=empty[0])
        agent = steps[position].agent
        has_own = has_figures or agent in callers
        earlier = (place for place in empty if place < position)
        sources = [place for place in earlier if not has_own or steps[place].agent == agent]
        if sources:
            yield _clue(known, position, sources[-1], literal)
            return


def _kind(step: Step) -> tuple[str | None, tuple[str, ...]]:
    """Return what kind of call a step is: a shell's calls are told apart by their first command."""
    return step.target, commands_of(step)[:1]


def filled_gaps(known: Known) -> Iterator[Clue]:
    """Yield the values that an agent gives for a field for which its source has ``null`` or an empty text.

    A figure stands beside the field's name. A date that nothing gives needs no name, if the agent says it
    right after it looked the record up: neither it nor the answer may say that there is none.
    """
    yield from islice(_dates_in_gaps(known), 1)
    gaps = {key: position for position, text in known.results() for key in _null_keys(document_in(text))}
    for key, position in list(gaps.items())[:_MOST_GAPS]:
        if any(text for _, text in known.keyed(key)):
            continue
        name = r"[\s_-]?".join(map(re.escape, re.findall(r"[^\W_]+", key)))
        given = re.compile(rf"(?<!\w){name}(?!\w)[\s:=*|(]{{1,5}}(\d[\d.,:]{{0,12}})", re.IGNORECASE)
        for place, text in enumerate(known.reading.outputs):
            found = given.search(text) if place > position else None
            if found is None or known.reading.steps[place].kind is StepKind.TOOL:
                continue
            literal = found[1].rstrip(".,:")
            values = [figure.value for figure in figures(literal)]
            if values and not any(known.is_number_read(value, len(known.reading.steps)) for value in values):
                yield _gap_clue(known, place, position, literal, key)
            break


def _dates_in_gaps(known: Known) -> Iterator[Clue]:
    steps, answer = known.reading.steps, prose_of(known.answer)
    records = [
        (place, text)
        for place, text in known.results()
        if not deed_of(call_name(steps[place])) and _is_record_with_gap(document_in(text))
    ]
    if not records or denies(answer) or mentions_fault(answer, known.asked):
        return
    written = {one.literal for one in dates_in(answer)}
    strange = [one for one in _strange(known, answer) if one in written] if written else []
    for place, text in records if strange else ():
        after = next(
            (at for at in range(place + 1, len(steps)) if steps[at].agent == steps[place].agent), None
        )
        said = "" if after is None or steps[after].calls else known.reading.outputs[after]
        literal = next((one for one in strange if one in said), "")
        if literal and after is not None and not denies(said) and not mentions_fault(said, known.asked):
            yield _gap_clue(known, after, place, literal, _gaps(document_in(text))[0])


def _is_record_with_gap(document: Any) -> bool:
    """Tell whether a document is one record with a field for which it has nothing, and others."""
    if not isinstance(document, dict) or any(isinstance(one, dict | list) for one in document.values()):
        return False
    return 0 < len(_gaps(document)) < len(document)


def _gaps(document: Any) -> list[str]:
    """Return the fields for which a record has nothing, without those that only errors have."""
    return [key for key in _null_keys(document) if key not in _ENVELOPE]


def _null_keys(document: Any) -> Iterator[str]:
    """Yield the keys that are ``null`` or empty wherever a document has them."""
    waiting, seen, null, given = (
        [document] if isinstance(document, dict | list) else [],
        0,
        dict[str, None](),
        set[str](),
    )
    while waiting and seen < _MOST_NODES:
        one, seen = waiting.pop(), seen + 1
        waiting += [
            each for each in (one.values() if isinstance(one, dict) else one) if isinstance(each, dict | list)
        ]
        for key, value in one.items() if isinstance(one, dict) else ():
            if value is None or value == "":
                null[str(key)] = None
            else:
                given.add(str(key))
    yield from (key for key in null if key not in given and sum(map(str.isalpha, key)) >= _LEAST_KEY)


def _gap_clue(known: Known, place: int, source: int, literal: str, key: str) -> Clue:
    reason = f"gave {literal} for {key[:40]}, for which {known.giver(source)} had no value"
    return _invented(known, place, literal, reason)


def says_nothing_found(task: str, answer: str) -> bool:
    """Tell whether an answer begins with saying that there is nothing: what follows is the agent's advice.

    It denies something, counts none, or gives no figure, time or id of its own where the task asks whether
    something is there.
    """
    first = first_sentence(answer)
    stated = [figure.value for figure in figures(first)]
    has_own = any(one not in task for one in _WITH_DIGIT.findall(first))
    return begins_with_no(answer) or 0 in stated or (asks_whether(task) and not stated and not has_own)


def _calls(known: Known) -> Iterator[tuple[int, str]]:
    for place, step in enumerate(known.reading.steps):
        if (
            step.kind is StepKind.TOOL
            and not deed_of(call_name(step))  # it says nothing when it is done
            and not recalls(step.target or "")
            and known.reading.faults[place] in _GIVES_NOTHING
        ):
            yield place, step.output[:HEAD]


def _failed_at_last(known: Known) -> list[int]:
    """Return the positions of the calls that failed and after which no call returned more than a state.

    A call of another tool in the same request was made before the agent knew of the failure, so its result
    does not replace what the failed call would have returned.
    """
    steps = known.reading.steps
    asker = callers_of(steps)
    found: list[int] = []
    for place, step in enumerate(steps):
        if step.kind is StepKind.TOOL:
            if known.reading.faults[place] is Fault.FAILED and not known.reading.repaired[place]:
                found.append(place)
            elif not _only_accepts(step):
                found = [
                    one
                    for one in found
                    if asker[one] == asker[place] is not None and steps[one].target != step.target
                ]
    return found


def _only_accepts(step: Step) -> bool:
    """Tell whether a result has no figure, and only says that a deed was accepted."""
    if any(map(str.isdigit, step.output)):
        return False
    return bool(deed_of(call_name(step))) or not _STATES.isdisjoint(fields_in(step.output[:HEAD]))


@functools.lru_cache(maxsize=128)
def is_empty(result: str, arguments: str) -> bool:
    """Tell whether a result holds nothing: JSON of arguments and empty values, or the heading of a table."""
    value = structured(result)
    if not isinstance(value, dict | list):
        return _HEADING.fullmatch(result.strip()) is not None
    if isinstance(value, dict) and _counts_nothing(value):
        return True
    asked = {str(one).casefold() for one in fields_in(arguments).values() if isinstance(one, str | int)}
    waiting, seen, has_gap = [value], 0, not value
    while waiting:
        one = waiting.pop()
        seen += 1
        inner: list[Any] = (
            [each for key, each in one.items() if key not in _ENVELOPE]
            if isinstance(one, dict)
            else list(one)
        )
        for each in inner:
            if each is None or each in ("", [], {}):
                has_gap = True
            elif each == 0 or str(each).casefold() in _SUCCEEDED:
                continue  # a count of nothing; alone it may be the answer
            elif isinstance(each, dict | list):
                waiting.append(each)
            elif str(each).casefold() not in asked:
                return False
        if seen > _MOST_NODES:
            return False
    return has_gap


def _counts_nothing(record: dict[str, Any]) -> bool:
    """Tell whether a record counts nothing and has an empty list: its other fields only describe the call."""
    zero = [key for key, one in record.items() if one == 0 and type(one) is int and _COUNT.search(str(key))]
    return bool(zero) and any(one == [] for one in record.values())


def _strange(known: Known, answer: str) -> Iterator[str]:
    """Yield the dates and figures of the answer that nothing gives, as written."""
    dates = known.all_dates[:_MOST_DATES]
    counts = (*known.counts, *(counts_in(answer) if dates else ()))
    for date in dates_in(answer):
        if not known.has_date(date) and not follows(date, dates, counts, within=7):
            yield date.literal
    clocks = {one.minutes for source in known.sources for one in clocks_in(source.text)}
    for clock in clocks_in(answer):
        if clock.minutes % _ROUND and clock.minutes not in clocks:
            yield answer[clock.start : clock.end]
    strange = figures_from_nowhere(known.reading, answer)
    has_figures = any(found for _, found in known.figures())
    asked = [each.value for each in figures(known.asked)][:_MOST_ASKED]
    computed = plain_results(asked) if not has_figures else []
    for figure in figures(answer):
        if any(map(figure.is_about, computed)) or converts(figure, figures(known.asked)):
            continue
        is_read = known.is_number_read(figure.value, len(known.reading.steps))
        is_new = figure in strange if has_figures else not is_read
        if is_new and not figure.is_small and not figure.is_label and not _is_of_one_row(known, figure):
            yield figure.literal


def _is_of_one_row(known: Known, figure: Figure) -> bool:
    """Tell whether three numbers of one row of a list give one: missing pieces at their price."""
    rows = (row for _, text in known.results() for listed in tables_in(text) for row in listed)
    operands = (
        [one for one in row.values() if isinstance(one, int | float)] for row in islice(rows, _MOST_ROWS)
    )
    return any(Derivation(row[:_MOST_OF_ROW], ()).computes_in_threes(figure) for row in operands)


def _clue(known: Known, position: int, source: int, literal: str) -> Clue:
    what = "failed" if known.reading.faults[source] is Fault.FAILED else "returned nothing"
    reason = f"gave {literal}, although {known.giver(source)} had {what}"
    return _invented(known, position, literal, reason)


def _invented(known: Known, position: int, literal: str, reason: str) -> Clue:
    """Return the clue that a step made a value up."""
    quote = known.quote(position, literal, reach=60)
    return known.clue(position, ClueKind.INVENTED, reason, quote, sign="figures")
