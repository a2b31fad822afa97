"""Turns of one conversation in one trace, and the turn that crashed while the conversation went on.

Turns are runs of one agent that follow each other, side by side under a session's or a server's span. A turn
that ends in an error failed its user, whatever the next turn does, unless a later turn answers the same
request: then it was retried. Different agents that follow each other are no turns: they are one run, in which
another may make up for the failed one. Pure, and linear in the spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from collector_processor.trajectory.acts import MODEL_KINDS, Act, Ordering
from semconv.dialects import Action, ActionKind
from semconv.dialects.reading.messages import last_request
from semconv.model import Span
from semconv.record import record

_RUNS: Final = frozenset({ActionKind.AGENT, ActionKind.WORKFLOW})
_COMPARED: Final = 2_000
"""Characters of a request that tell it from another."""


@record
class Turn:
    """One turn and its steps."""

    span: Span
    action: Action
    steps: Sequence[int]
    """Indices of its steps, in order."""
    request: str
    """The person's request, for comparison; empty if it is not recorded."""


def turns_of(ordering: Ordering, steps: Sequence[Act]) -> tuple[Turn, ...]:
    """Return the run's turns, in order; empty if it is not a conversation of several turns."""
    top_of = _top_of(ordering)
    inside: dict[int, list[int]] = {place: [] for place in top_of if place >= 0}
    for index, act in enumerate(steps):
        if (top := top_of[act.position]) >= 0:
            inside[top].append(index)
    turns = [
        _turn(ordering.spans[place], action, of_turn, steps)
        for place, of_turn in inside.items()
        if (action := ordering.actions[place]) is not None
    ]
    turns.sort(key=lambda turn: (turn.span.start_ns, turn.span.span_id))
    follow = all(before.span.end_ns <= after.span.start_ns for before, after in pairwise(turns))
    speakers = {(turn.action.kind, turn.action.agent or turn.span.name) for turn in turns}
    return tuple(turns) if len(turns) > 1 and follow and len(speakers) == 1 else ()


def failed_turn(turns: Sequence[Turn]) -> Turn | None:
    """Return the first turn before the last that failed and was not retried with success.

    If its request is not recorded, any later success may be its retry.
    """
    answered = [turn for turn in turns if not turn.action.failed]
    last = answered[-1].span.start_ns if answered else 0
    latest = {turn.request: turn.span.start_ns for turn in answered}
    for turn in turns[:-1]:
        retried = latest.get(turn.request, 0) if turn.request else last
        if turn.action.failed and turn.steps and retried < turn.span.end_ns:
            return turn
    return None


def _top_of(ordering: Ordering) -> list[int]:
    """Return the place of the topmost agent or workflow around each span, or -1.

    A single workflow around everything, without a task or an answer of its own, is a session: looked through.
    """
    session = None
    if len(ordering.tops) == 1:
        span, top = ordering.tops[0]
        is_bare = top.kind is ActionKind.WORKFLOW and not top.task and not top.answer
        session = span if is_bare else None
    found: list[int] = []
    for place, action in enumerate(ordering.actions):
        parent = ordering.parents[place]
        above = found[parent] if parent >= 0 else -1
        is_run = action is not None and action.kind in _RUNS and ordering.spans[place] is not session
        found.append(place if above < 0 and is_run else above)
    return found


def _turn(span: Span, action: Action, inside: Sequence[int], steps: Sequence[Act]) -> Turn:
    first = next((steps[index].action for index in inside if steps[index].action.kind in MODEL_KINDS), None)
    asked = (last_request(first.input_messages) or first.input) if first else ""
    request = " ".join((action.task or asked)[:_COMPARED].casefold().split())
    return Turn(span=span, action=action, steps=inside, request=request)
