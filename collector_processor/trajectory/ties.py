"""Which earlier steps the spans themselves tie a step to.

Four kinds: the step that encloses it (or, where that one stands at its end, the steps it
encloses are tied to it); the step whose span it, or a container around it, links to; the model
call that asked for a tool; the call whose reply a handoff without a span of its own was in.
Text is not looked at. Everything is linear in the spans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from collector_processor.trajectory.acts import Act, Stage


def causes(stage: Stage, steps: Sequence[Act]) -> list[tuple[int, ...]]:
    """Return, for each step in order, the indices of the earlier steps it is tied to, ascending."""
    tied: defaultdict[int, set[int]] = defaultdict(set)
    _tie_enclosed(stage, steps, tied)
    _tie_linked(stage, steps, tied)
    _tie_asked(steps, tied)
    return [
        tuple(sorted([cause for cause in tied[index] if cause < index])) if index in tied else ()
        for index in range(len(steps))
    ]


def _tie_enclosed(stage: Stage, steps: Sequence[Act], tied: defaultdict[int, set[int]]) -> None:
    index_of: dict[int, int] = {}
    for index, act in enumerate(steps):
        if act.position in index_of:
            tied[index].add(index_of[act.position])  # a handoff on the span of the call that asked
        else:
            index_of[act.position] = index
    nearest: dict[int, int] = {}
    for act in stage.acts:  # parents first, so what is above is settled
        if act.above is None:
            continue
        above = index_of.get(act.above.position, nearest.get(act.above.position, -1))
        if above < 0:
            continue
        nearest[act.position] = above
        inner = index_of.get(act.position)
        if inner is not None:
            later, earlier = max(above, inner), min(above, inner)
            tied[later].add(earlier)


def _tie_linked(stage: Stage, steps: Sequence[Act], tied: defaultdict[int, set[int]]) -> None:
    position_of = {
        (span.trace_id, span.span_id): position for position, span in enumerate(stage.spans) if span.span_id
    }
    last_within = _last_within(stage, steps)
    linking = [-1] * len(stage.spans)
    for position, span in enumerate(stage.spans):
        parent = stage.parents[position]
        linking[position] = position if span.links else linking[parent] if parent >= 0 else -1
    told: set[int] = set()
    for index, act in enumerate(steps):
        holder = linking[act.position]
        if holder < 0 or holder in told:
            continue  # a container's link belongs to the first step inside it
        told.add(holder)
        for link in stage.spans[holder].links:
            target = last_within.get(position_of.get((link.trace_id, link.span_id), -1))
            if target is not None:
                tied[index].add(target)


def _last_within(stage: Stage, steps: Sequence[Act]) -> dict[int, int]:
    """The last step at or below each span, by the span's position."""
    last: dict[int, int] = {}
    for index in range(len(steps) - 1, -1, -1):
        position = steps[index].position
        while position >= 0 and position not in last:
            last[position] = index
            position = stage.parents[position]
    return last


def _tie_asked(steps: Sequence[Act], tied: defaultdict[int, set[int]]) -> None:
    """Tie tools to the call that asked, by call id; without one, to the agent's latest call for it."""
    by_id: dict[str, int] = {}
    by_name: dict[tuple[str | None, str], int] = {}
    for index, act in enumerate(steps):
        action = act.action
        asker = by_id.get(action.call_id) if action.call_id else by_name.get((act.agent, action.tool or ""))
        if asker is not None:
            tied[index].add(asker)
        for call in action.requested:
            by_name[act.agent, call.name] = index
            if call.call_id:
                by_id[call.call_id] = index
