"""Answers from the call for something else: for sample S12 with what was returned for S21. Pure.

Two calls of a tool that differ in one name, one of which is asked for: an answer that names it, gives figures
that only the other call returned, and none that only the right one did, answers for the wrong thing. Nothing
may lead from the right one to the other: a result that names it, people who do, or an order in the task.

Nor has an answer a source for the second of two things that the task names side by side ("plots A and B") if
calls and results have the first alone, and a figure that nothing gives stands beside the second.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, Final

from analyzer.lineage.claims import judged
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.entries import fields_in
from analyzer.lineage.figures import Figure, figures, prose_of
from analyzer.lineage.known import Known, words_in
from analyzer.lineage.sources import Source
from analyzer.texts.run_view import HEAD
from analyzer.texts.tool_results import Fault
from analyzer.texts.vocabulary import worded
from semconv.model import Step, StepKind
from semconv.record import record

_TOKEN: Final = re.compile(r"[^\W_]+")
_DIGIT: Final = re.compile(r"\d")
_ORDER: Final = r"\b{neighbour}\b|{dense_neighbour}"
"""Words by which a task asks for the neighbour of what it names."""
_LEAST_WORD: Final = 4
"""Letters of a word that tells two files apart."""
_LEAST_SHARED: Final = 3
_MOST_OTHERS: Final = 2
"""Words that the names of two versions of a file share, and words in which they differ."""
_LONGEST_SIDE: Final = 24
_START: Final = r"(?<!\w)"
_AND: Final = r"\s(?:and|or|und|oder|et|ou|y|e|o|ed|og|och|en|i|a|ja|ve|и|та|și|và|dan)\s"
_SPACED_NAME: Final = r"[^\W_][\w.-]*"
_DENSE_NAME: Final = r"[\u3400-\u9fff]{1,8}|[\u30a0-\u30ff]{2,12}"
_DENSE_AND: Final = r"(?:と|や|および|及び|和|与|與|、)"
_HUNDRED: Final = 100
_ROUND_DIGITS: Final = 2
_PART_END: Final = re.compile(r"[.;,!?\n](?=\s|$)|[。；、，]")  # noqa: RUF001 - other scripts
_MOST_CALLS: Final = 12
"""Latest calls of a tool that are compared with each other."""


@record
class _Look:
    """A call that returned figures, and the things that its arguments name."""

    position: int
    arguments: Mapping[str, Any]
    names: frozenset[str]
    values: frozenset[float]
    result: str


def figures_of_siblings(known: Known) -> Iterator[Clue]:
    """Yield the answers with figures of a call for a sibling of what was asked for; at most one."""
    answer = known.answer
    stated = frozenset(one.value for one in figures(answer) if not one.is_small and not one.is_label)
    looks = list(_looks(known)) if stated else []
    if not looks or worded(_ORDER).search(known.asked):
        return  # "the quarter before Q3"
    asked = _names(known.asked) | words_in(known.asked)
    said = _names(answer) | words_in(answer)
    pairs = (pair for each in looks for pair in permutations(each, 2))
    spoken = _names(f"{known.asked}\n{answer}") | words_in(f"{known.asked}\n{answer}")
    for right, other in pairs:
        name, instead = _difference(right, other, asked)
        if not name or name not in said or instead in spoken:
            continue
        own = right.values - other.values
        taken = (other.values - right.values) & stated
        is_led = instead in _names(right.result) or name in _names(other.result)
        if own and taken and not own & stated and not is_led and not _has_other_source(known, other, taken):
            yield _clue(known, right, other, (name, instead), min(taken))
            return


def figures_of_unasked(known: Known) -> Iterator[Clue]:
    """Yield the first figure from nowhere beside a thing that no call asked for, but its neighbour."""
    answer = prose_of(known.answer)
    lone = judged(known.reading, answer).lone if answer and not known.is_blind else ()
    if not lone or known.admits_fault:
        return
    texts = [text for _, text in known.results()]
    seen = " ".join([*texts, *(one.input[:HEAD] for one in known.reading.steps if one.kind is StepKind.TOOL)])
    for asked, other in _side_by_side(known):
        if other in seen or asked not in seen:
            continue
        figure = next(
            (one for one in lone if _stands_beside(answer, other, one) and not _is_round(one)), None
        )
        if figure is not None:
            position = known.first_with(figure.literal)
            reason = f"gave {figure.shown} for {other}, for which there was no call, as there was for {asked}"
            quote = known.quote(position, figure.literal)
            yield known.clue(position, ClueKind.INVENTED, reason, quote, value=figure.value, sign="figures")
            return


def _side_by_side(known: Known) -> Iterator[tuple[str, str]]:
    """Yield the arguments of calls that the task names beside another name of their form, with that name."""
    task = known.reading.trajectory.task[:HEAD]
    values = {
        value
        for step in known.reading.steps
        if step.kind is StepKind.TOOL and known.reading.faults[step.index] is Fault.NONE
        for value in fields_in(step.input[:HEAD]).values()
        if isinstance(value, str) and 0 < len(value) <= _LONGEST_SIDE
    }
    for value in sorted(one for one in values if one in task):
        dense = not value.isascii() and all(map(_is_dense, value))
        joint = _DENSE_AND if dense else _AND
        name = _DENSE_NAME if dense else _SPACED_NAME
        found = re.search(rf"{'' if dense else _START}{re.escape(value)}{joint}({name})", task)
        other = found[1].rstrip(".") if found is not None else ""
        is_alike = dense or (_form(other) == _form(value) != (False, False))
        if other and other != value and is_alike:
            yield value, other


def _is_dense(letter: str) -> bool:
    return "\u3040" <= letter <= "\u9fff"


def _form(name: str) -> tuple[bool, bool]:
    """Return whether a name begins with a capital, and whether it has a digit."""
    return name[:1].isupper(), any(map(str.isdigit, name))


def _is_round(figure: Figure) -> bool:
    """Tell whether a figure has two digits before its zeros: what everybody knows, said as such."""
    return figure.value >= _HUNDRED and len(str(int(figure.value)).rstrip("0")) <= _ROUND_DIGITS


def _stands_beside(text: str, name: str, figure: Figure) -> bool:
    """Tell whether a figure is the first one after a name, in its clause."""
    at = text.rfind(name, 0, figure.start)
    between = text[at + len(name) : figure.start] if at >= 0 else "\n"
    return not any(map(str.isdigit, between)) and _PART_END.search(between) is None


def _difference(right: _Look, other: _Look, asked: frozenset[str]) -> tuple[str, str]:
    """Return the name of the right call that was asked for, and that of the other one in its place.

    Both are empty if the calls differ in anything else than a name with digits, or a word of a file's name.
    """
    ours, theirs = right.names - other.names, other.names - right.names
    if len(ours) == len(theirs) == 1:
        (name,), (instead,) = ours, theirs
        if name in asked and _DIGIT.sub("0", name) == _DIGIT.sub("0", instead):
            return name, instead
    changed = [key for key in right.arguments if right.arguments[key] != other.arguments.get(key)]
    if right.arguments.keys() != other.arguments.keys() or len(changed) != 1:
        return "", ""
    return _file_name(*(str(one.arguments[changed[0]]) for one in (right, other)), asked=asked)


def _file_name(right: str, other: str, *, asked: frozenset[str]) -> tuple[str, str]:
    """Return the words in which the names of two versions of a file differ, if the first was asked for."""
    ours, theirs = (_TOKEN.findall(one.casefold()) for one in (right, other))
    shared = frozenset(ours) & frozenset(theirs)
    if " " in right + other or ours[-1:] != theirs[-1:] or len(shared) < _LEAST_SHARED:
        return "", ""
    told = [one for one in ours if one not in shared and one in asked and len(one) >= _LEAST_WORD]
    others = [one for one in theirs if one not in shared]
    return (told[0], others[0]) if told and 0 < len(others) <= _MOST_OTHERS else ("", "")


def _looks(known: Known) -> Iterator[Sequence[_Look]]:
    """Yield the calls of each tool that returned figures more than once, at most ``_MOST_CALLS`` of each."""
    found: defaultdict[str, list[tuple[int, Source]]] = defaultdict(list)
    for source in known.sources:
        step = known.reading.steps[source.step] if source.is_result and source.step is not None else None
        if step is None or source.step is None or step.kind is not StepKind.TOOL:
            continue
        has_values = any(not figure.is_small for figure in source.figures)
        if has_values and known.reading.faults[source.step] is Fault.NONE:
            found[step.target or ""].append((source.step, source))
    for calls in found.values():
        if len(calls) > 1:
            yield [_look(known.reading.steps[place], place, source) for place, source in calls[-_MOST_CALLS:]]


def _look(call: Step, position: int, source: Source) -> _Look:
    return _Look(
        position=position,
        arguments=fields_in(call.input[:HEAD]),
        names=_names(call.input),
        values=frozenset(figure.value for figure in source.figures if not figure.is_small),
        result=source.text,
    )


def _names(text: str) -> frozenset[str]:
    """Return the names with digits in a text, in lower case: ``s12``, and ``flores 12`` with its word."""
    tokens = _TOKEN.findall(text[:HEAD].casefold())
    return frozenset(
        f"{before} {one}" if one.isdigit() else one
        for before, one in zip(["", *tokens], tokens, strict=False)
        if _DIGIT.search(one) and not (one.isdigit() and not before[:1].isalpha())
    )


def _has_other_source(known: Known, other: _Look, taken: frozenset[float]) -> bool:
    """Tell whether another text from outside gives one of the figures as well."""
    return any(
        not taken.isdisjoint(figure.value for figure in source.figures)
        for source in known.sources
        if source.step != other.position
    )


def _clue(known: Known, right: _Look, other: _Look, names: tuple[str, str], value: float) -> Clue:
    def says_it(text: str) -> bool:
        said = {figure.value for figure in figures(text)}
        return value in said and said.isdisjoint(right.values - other.values)

    position = known.first_said(says_it, after=other.position)
    name, instead = (_as_written(one, known) for one in names)
    literal = next((figure.literal for figure in figures(other.result) if figure.value == value), "")
    quotes = (known.quote(other.position, literal), known.quote(position, literal))
    reason = f"answered for {name} with what {known.giver(other.position)} returned for {instead}"
    return known.clue(position, ClueKind.CHANGED, reason, *quotes, value=value)


def _as_written(name: str, known: Known) -> str:
    """Return a name with the capitals that the calls have."""
    inputs = (step.input for step in known.reading.steps if step.kind is StepKind.TOOL)
    matches = (re.search(re.escape(name), text, re.IGNORECASE) for text in inputs)
    return next((one[0] for one in matches if one is not None), name)
