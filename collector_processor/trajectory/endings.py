"""How a run and its steps ended: what evaluations state, and what ended early on purpose. Pure.

An evaluation on the run's root or on a turn of it, or of the trace or session, speaks about the run. One on a
step speaks about that step: it neither acquits nor condemns the run. What a person says outranks programs.

Waits, transfers and tripped guardrails are never failures. A span alone says which exception it raised
(``semconv.dialects.reading.control_flow``). A cancellation needs the spans around it, since
``asyncio.wait_for`` and its like also enforce the deadline of a single call by cancelling it. The rule
follows from how a cancellation travels: it rises from the innermost open span until a span that ends
otherwise, where it was asked for.

- It rises to the top of the run: the run's caller cancelled it.
- It ends at a span that raises a timeout. If that span is around the whole run (a workflow, a request, or the
  top agent when its loop was cancelled rather than one call), this is the deadline of the run, set by its
  caller. Else it is the deadline of that call: the call failed, and stays failed unless something repairs it.
  A timeout that the innermost span raises itself is always that call's own.
- It ends at a span that raises another error: a consequence of that error (the siblings of a worker that
  crashed); the error stays a failure.
- It ends at an agent without any error. If the run went on, or answered after a tool was cancelled, the agent
  gave up on that call: the call failed. Else the run was cancelled, and its framework says nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from collector_processor.trajectory.acts import AGENT, HANDOFF, LLM, MODEL_KINDS, TOOL, Act, Ordering
from semconv.dialects import Action, ActionKind, Judgement
from semconv.dialects.reading.control_flow import STOPS, Raised, is_pending, raised_by
from semconv.dialects.reading.guardrails import read_judgements
from semconv.dialects.reading.values import error_of
from semconv.model import Outcome, OutcomeSource, Span, SpanStatus, Stop
from semconv.record import record, replace

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
    outcome = _together([[action.outcome] for _, action in heads], [[action.outcome] for _, action in tops])
    if outcome is not None:
        source = next(action.outcome_source for action in stating if action.outcome is outcome)
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
    outcomes = {_of_answer(judgement) for place, judgement in found if last and place == last.position}
    return Outcome.FAILURE if Outcome.FAILURE in outcomes else None


def _last_model(ordering: Ordering) -> Act | None:
    return next((act for act in reversed(ordering.chosen()) if act.action.kind in MODEL_KINDS), None)


def _together(
    whole: Iterable[Iterable[Outcome | None]], turns: Iterable[Iterable[Outcome | None]]
) -> Outcome | None:
    """Return the outcome of a run: a failure of any turn is the run's, a success only that of all turns."""
    said = {outcome for outcomes in whole for outcome in outcomes} - {None}
    each_turn = [set(turn) - {None} for turn in turns]
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


_CALLS: Final = frozenset({LLM, TOOL, HANDOFF})
_WORK: Final = frozenset({LLM, TOOL, HANDOFF, AGENT})
_RESUMABLE: Final = frozenset({Raised.WAIT, Raised.TRANSFER})
_CANCELLED: Final = frozenset({Raised.CANCELLATION, Raised.ABANDONED})
_NOWHERE: Final = -1


def mark_stops(ordering: Ordering) -> Ordering:
    """Mark what ended early on purpose; it has not failed. A tool that raised a transfer is a handoff."""
    raised = _raised(ordering)
    if not any(raised):
        return ordering
    stops = _Stops(ordering, raised).found()
    if not stops:
        return ordering
    changed = {
        position: _stopped(action, stops[position])
        for position, action in enumerate(ordering.actions)
        if action is not None and position in stops
    }
    actions = [changed.get(position, action) for position, action in enumerate(ordering.actions)]
    acts = [
        replace(act, action=changed[act.position]) if act.position in changed else act
        for act in ordering.acts
    ]
    whole = {ordering.spans[position].span_id: action for position, action in changed.items()}
    tops = [(span, whole.get(span.span_id, action)) for span, action in ordering.tops]
    return replace(ordering, actions=actions, acts=tuple(acts), tops=tops, stops=stops)


def _stopped(action: Action, stop: Stop) -> Action:
    is_transfer = stop is Stop.HANDED_OVER and action.kind is TOOL
    return replace(action, kind=HANDOFF if is_transfer else action.kind, failed=False, stop=stop)


def _raised(ordering: Ordering) -> list[Raised | None]:
    """Return each span's error; a group that lists no members is what the spans below it raised."""
    raised = [
        _of_tool(span, action) or raised_by(span, action)
        for span, action in zip(ordering.spans, ordering.actions, strict=True)
    ]
    if Raised.GROUP not in raised:
        return raised
    below: list[set[Raised]] = [set() for _ in raised]
    for position in reversed(range(len(raised))):
        if raised[position] is Raised.GROUP:
            inner = below[position]
            raised[position] = min(inner) if inner and inner <= _RESUMABLE else Raised.ERROR
        own, parent = raised[position], ordering.parents[position]
        if parent >= 0:
            below[parent] |= below[position] if own is None else {own}
    return raised


def _of_tool(span: Span, action: Action | None) -> Raised | None:
    return Raised.WAIT if action is not None and action.kind is TOOL and is_pending(span, action) else None


class _Stops:
    """Walks the spans, parents first, and follows each cancellation to where it was asked for."""

    def __init__(self, ordering: Ordering, raised: Sequence[Raised | None]) -> None:
        self._ordering = ordering
        self._raised = raised
        count = len(raised)
        self._above = [_NOWHERE] * count
        """Position of the nearest span above with an error."""
        self._branch = list(range(count))
        """Position of the span directly below that one, on the way down; the span itself if there is none."""
        self._passes_silent = [False] * count
        """Whether an agent or another read span without error lies between."""
        self._is_inside_work = [False] * count
        """Whether an agent or a call encloses the span."""
        self._last_start_ns = max((act.span.start_ns for act in ordering.acts), default=0)
        self._has_answer = any(action.answer and not action.failed for _, action in ordering.tops)
        self._stops: dict[int, Stop] = {}

    def found(self) -> dict[int, Stop]:
        """Return why spans ended early, by position."""
        for position, own in enumerate(self._raised):
            self._look_up(position)
            if own is Raised.CANCELLATION:
                if self._is_from_outside(position):
                    self._stops[position] = Stop.CANCELLED
            elif own is not None and own in STOPS:
                self._stops[position] = STOPS[own]
        return self._stops

    def _look_up(self, position: int) -> None:
        parent = self._ordering.parents[position]
        if parent < 0:
            return
        above = self._ordering.actions[parent]
        is_work = above is not None and above.kind in _WORK
        self._is_inside_work[position] = self._is_inside_work[parent] or is_work
        if self._raised[parent] is not None:
            self._above[position] = parent
            return
        self._above[position], self._branch[position] = self._above[parent], self._branch[parent]
        self._passes_silent[position] = self._passes_silent[parent] or above is not None

    def _is_from_outside(self, position: int) -> bool:
        """Say whether a cancellation is not the failure of the call that it ended."""
        above = self._above[position]
        if above == _NOWHERE:
            return not self._passes_silent[position] or self._ended_silently(position)
        cause = self._raised[above]
        if cause in _CANCELLED:
            return above in self._stops
        if cause is not Raised.TIMEOUT:
            return True
        if not self._is_deadline_of_run(above, position):
            return False
        while above != _NOWHERE and self._raised[above] is Raised.TIMEOUT:  # the same timeout, passed on
            self._stops[above] = Stop.CANCELLED
            above = self._above[above]
        return True

    def _is_deadline_of_run(self, timed_out: int, cancelled: int) -> bool:
        if self._is_inside_work[timed_out]:
            return False
        around = self._ordering.actions[timed_out]
        if around is None or around.kind not in _WORK:
            return True
        branch = self._ordering.actions[self._branch[cancelled]]
        return around.kind is AGENT and (branch is None or branch.kind not in _CALLS)

    def _ended_silently(self, position: int) -> bool:
        """Say whether nothing came after a cancelled call, whose agents say nothing of it."""
        if self._last_start_ns >= self._ordering.spans[position].end_ns:
            return False
        action = self._ordering.actions[position]
        is_tool = action is not None and action.kind in {TOOL, HANDOFF}
        return not (is_tool and self._has_answer)


def stop_of_run(ordering: Ordering, steps: Sequence[Act]) -> Stop | None:
    """Return why the run ended early on purpose; ``None`` if it went on, answered or failed.

    The span that ended last of those at the top speaks for the run, and a wait that another followed was
    resumed. Below a top that says nothing, only what ended after the last step began counts. An agent that
    failed as the last to act was the reason of the cancellations around it.
    """
    heads = heads_of_end(ordering, steps)
    if any(_has_failed(ordering, position) for position in heads):
        return None
    last_start_ns = max((act.span.start_ns for act in steps), default=0)
    if any(
        act.action.failed and act.action.kind is AGENT and _is_last(act.span, last_start_ns)
        for act in ordering.acts
    ):
        return None
    stops = {ordering.stops[position] for position in heads if position in ordering.stops} - {
        Stop.HANDED_OVER
    }
    if stops:
        return min(stops, key=_ORDER.index)
    if any(_is_pending(ordering, position) for position in heads):
        return Stop.WAITING
    return _stop_below(ordering, steps, last_start_ns)


_ORDER: Final = (Stop.WAITING, Stop.GUARDED, Stop.CANCELLED)
"""What explains the end best: a guardrail that trips also cancels the call beside it."""


def _stop_below(ordering: Ordering, steps: Sequence[Act], last_start_ns: int) -> Stop | None:
    ended = {
        stop for position, stop in ordering.stops.items() if _is_last(ordering.spans[position], last_start_ns)
    }
    if Stop.WAITING in ended:
        return Stop.WAITING
    has_failed = any(act.action.failed and _is_last(act.span, last_start_ns) for act in steps)
    has_answer = any(action.answer and not action.failed for _, action in ordering.tops[-1:])
    if has_failed or has_answer:
        return None
    return next((stop for stop in _ORDER if stop in ended), None)


def _is_last(span: Span, last_start_ns: int) -> bool:
    return span.end_ns >= last_start_ns


def heads_of_end(ordering: Ordering, steps: Sequence[Act]) -> list[int]:
    """Return the positions of the top that ended last and of the spans around it."""
    own = {(span.trace_id, span.span_id) for span, _ in ordering.tops}
    tops = [place for place, span in enumerate(ordering.spans) if (span.trace_id, span.span_id) in own]
    last = max(tops, key=lambda place: ordering.spans[place].end_ns, default=_NOWHERE)
    if last == _NOWHERE and steps:
        last = ordering.parents[steps[-1].position]
    return list(_upwards(ordering, last))


def _upwards(ordering: Ordering, position: int) -> Iterator[int]:
    while position >= 0:
        yield position
        position = ordering.parents[position]


def _has_failed(ordering: Ordering, position: int) -> bool:
    action = ordering.actions[position]
    is_error = ordering.spans[position].status is SpanStatus.ERROR or (action is not None and action.failed)
    return is_error and position not in ordering.stops


def _is_pending(ordering: Ordering, position: int) -> bool:
    action = ordering.actions[position]
    return action is not None and is_pending(ordering.spans[position], action)


def words_of_stop(ordering: Ordering) -> str:
    """Return the error text of the outermost span that ended early on purpose."""
    texts = (error_of(ordering.spans[position]) for position in sorted(ordering.stops))
    return next(filter(None, texts), "")
