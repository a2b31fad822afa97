"""Outcome that a run, or an evaluation of it, states; and the evaluations that a step failed.

An evaluation on the run's root or on a turn of it, or of the trace or session, speaks about the run. One on a
step speaks about that step: it neither acquits nor condemns the run. What a person says outranks programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from collector_processor.trajectory.acts import MODEL_KINDS, Act, Ordering
from semconv.dialects import Action, ActionKind, Judgement
from semconv.dialects.reading.guardrails import read_judgements
from semconv.model import Outcome, OutcomeSource
from semconv.record import record

# Source of the tables: the evaluators of Phoenix, MLflow, openevals, Ragas, DeepEval and Azure AI, and the
# feedback in Langfuse's and LangSmith's guides.
_OUTCOME_WORDS: Final = (
    "correct", "success", "outcome", "task", "accuracy", "goal", "resolv", "resolution", "answer", "quality",
    "feedback", "thumb", "user score", "user rating", "satisf", "overall",
)  # fmt: skip
"""An evaluation whose name contains one of these judges the outcome."""
_MANNER: Final = re.compile(
    r"\b(?:latenc|duration|speed|costs?\b|tokens?\b|tone\b|polite|formal|style|tox|bias|harm|safe|pii\b|fluen"
    r"|coheren|concis|verbos|length|readab|sentiment)"
)
"""An evaluation with such a name is about how an answer was given: a right one may fail it."""
_PART: Final = re.compile(r"\b(?:relevan|context|retriev|chunks?\b|recall\b|precision|tools?\b)")
"""An evaluation with such a name is about what was done or found on the way, not about the answer."""
_NAME: Final = 100
"""Characters kept of an evaluation's name."""
_BETWEEN_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|[\W_]+")


@record
class Stated:
    """The outcome that the run, or an evaluation of it, states."""

    outcome: Outcome | None = None
    source: OutcomeSource | None = None
    reference: str | None = None


def stated_outcome(ordering: Ordering) -> Stated:
    """Return the outcome that the run states, else the outcome by evaluations of it.

    What stands on a part of the run, such as a sub-agent or a step, speaks about that part: it neither
    acquits nor condemns the run. Only a wrong answer of the last model call is a wrong answer of the run.
    """
    actions = [action for action in ordering.actions if action is not None]
    reference = next((action.reference for action in actions if action.reference is not None), None)
    heads, tops = _heads(ordering)
    stating = [action for _, action in (*heads, *tops) if action.outcome is not None]
    outcome = _together([[one.outcome] for _, one in heads], [[one.outcome] for _, one in tops])
    if outcome is not None:
        source = next(one.outcome_source for one in stating if one.outcome is outcome)
        return Stated(outcome=outcome, source=source, reference=reference)
    places = {place for place, _ in heads}, [place for place, _ in tops]
    found = _judgements(ordering)
    for source in (OutcomeSource.USER, OutcomeSource.EVALUATOR):
        theirs = [(at, each) for at, each in found if each.is_by_person is (source is OutcomeSource.USER)]
        outcome = _evaluated(ordering, theirs, *places)
        if outcome is not None:
            return Stated(outcome=outcome, source=source, reference=reference)
    return Stated(reference=reference)


def _heads(ordering: Ordering) -> tuple[list[tuple[int, Action]], list[tuple[int, Action]]]:
    """Return the actions that enclose or are the whole run, and its several turns, each with its place."""
    own = {(span.trace_id, span.span_id) for span, _ in ordering.tops}
    tops = [(span.trace_id, span.span_id) in own for span in ordering.spans]
    enclosed = [*map(int, tops)]
    for place in reversed(range(len(enclosed))):  # children come after their parents
        if (parent := ordering.parents[place]) >= 0:
            enclosed[parent] += enclosed[place]
    heads, turns = list[tuple[int, Action]](), list[tuple[int, Action]]()
    for place, action in enumerate(ordering.actions):
        if action is None:
            continue
        if enclosed[place] == len(own) and (own or ordering.parents[place] < 0):
            heads.append((place, action))
        elif tops[place]:
            turns.append((place, action))
    return heads, turns


def _judgements(ordering: Ordering) -> list[tuple[int, Judgement]]:
    """Return all evaluations, each with the place of its span; also those on spans of no dialect."""
    return [
        (place, judgement)
        for place, action in enumerate(ordering.actions)
        for judgement in (read_judgements(ordering.spans[place]) if action is None else action.judgements)
    ]


def _evaluated(
    ordering: Ordering, found: Sequence[tuple[int, Judgement]], heads: set[int], turns: Sequence[int]
) -> Outcome | None:
    whole, by_turn = list[Outcome](), dict[int, list[Outcome]]({turn: [] for turn in turns})
    for place, judgement in found:
        parent = ordering.parents[place]
        is_evaluator = _is_evaluator(ordering, place)
        about = parent if is_evaluator else place
        outcome = _of_answer(judgement) if is_evaluator else _of_run(judgement)
        if outcome is None:
            continue
        if judgement.is_of_run or about < 0 or about in heads or _is_plain_root(ordering, about):
            whole.append(outcome)
        elif about in by_turn:
            by_turn[about].append(outcome)
    outcome = _together([whole], by_turn.values())
    return outcome or _failed_answer(ordering, found)


def _is_evaluator(ordering: Ordering, place: int) -> bool:
    action = ordering.actions[place]
    return action is not None and action.kind is ActionKind.EVALUATION


def _is_plain_root(ordering: Ordering, place: int) -> bool:
    """Tell whether a span is the root of a trace and of no dialect, such as a web request's."""
    return ordering.parents[place] < 0 and ordering.actions[place] is None


def _failed_answer(ordering: Ordering, found: Sequence[tuple[int, Judgement]]) -> Outcome | None:
    """Return failure if the last model call fails: its words are the run's answer, or should have been."""
    last = _last_model(ordering)
    said = {_of_answer(judgement) for place, judgement in found if last and place == last.position}
    return Outcome.FAILURE if Outcome.FAILURE in said else None


def _last_model(ordering: Ordering) -> Act | None:
    return next((act for act in reversed(ordering.chosen()) if act.action.kind in MODEL_KINDS), None)


def _together(
    whole: Iterable[Iterable[Outcome | None]], turns: Iterable[Iterable[Outcome | None]]
) -> Outcome | None:
    """Return the outcome of a run: a failure of any turn is the run's, a success only that of all turns."""
    said = {outcome for each in whole for outcome in each} - {None}
    each_turn = [set(each) - {None} for each in turns]
    if Outcome.FAILURE in said.union(*each_turn):
        return Outcome.FAILURE
    return Outcome.SUCCESS if said or (each_turn and all(each_turn)) else None


def _of_run(judgement: Judgement) -> Outcome | None:
    """Return what an evaluation on the run says of its outcome.

    Who evaluates a run for a property of their own wants it to hold: without it the run failed. That it holds
    is no proof of the rest, so only an evaluation of the outcome acquits.
    """
    name = _plain(judgement.name)
    if judgement.outcome is Outcome.FAILURE and not _MANNER.search(name) and not _PART.search(name):
        return Outcome.FAILURE
    return _of_answer(judgement)


def _of_answer(judgement: Judgement) -> Outcome | None:
    name = _plain(judgement.name)
    is_other = _MANNER.search(name) or _PART.search(name)
    is_outcome = not name or any(word in name for word in _OUTCOME_WORDS)
    return judgement.outcome if is_outcome and not is_other else None


def _plain(name: str) -> str:
    """Return a name in snake case or camel case as words."""
    return _BETWEEN_WORDS.sub(" ", name).strip().lower()


def failed_evaluations(ordering: Ordering) -> Mapping[int, tuple[str, ...]]:
    """Return the names of the evaluations that a span failed, by its place.

    An evaluation of the last model call's answer is of the run's answer, whoever spoiled that; manners are no
    fault.
    """
    last = _last_model(ordering)
    failed: dict[int, list[str]] = {}
    for place, judgement in _failures(ordering):
        is_of_answer = last is not None and place == last.position and _of_answer(judgement) is not None
        if not is_of_answer and not judgement.is_of_run and not _MANNER.search(_plain(judgement.name)):
            failed.setdefault(place, []).append(judgement.name[:_NAME] or "evaluation")
    return {place: tuple(dict.fromkeys(names)) for place, names in failed.items()}


def _failures(ordering: Ordering) -> Iterator[tuple[int, Judgement]]:
    for place, judgement in _judgements(ordering):
        if judgement.outcome is Outcome.FAILURE:
            yield (ordering.parents[place] if _is_evaluator(ordering, place) else place), judgement
