"""Relations between steps: which steps overlap in time, and to which earlier steps the spans tie each one.

Overlap. Siblings whose extents overlap form a group with all the steps below them; the outermost group
counts. Inside a group, order is by start and has no meaning. A model call counts until the first tool of its
agent begins: the model requested that tool, and it began while the rest of the reply was still streamed
(Claude Code).

Ties. A step is tied to the step that encloses it (or, if that one is placed at its end, the enclosed steps to
the enclosing one); to the step whose span it, or a container around it, links to; to the model call that
requested a tool; to the call whose reply held a handoff without a span of its own. Text is not compared.
Everything is linear in the spans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from collector_processor.trajectory.acts import LLM, TOOL_KINDS, Act, Ordering
from semconv.record import replace

_ROOT: Final = -1
_MILLISECOND_NS: Final = 1_000_000

_Extent: TypeAlias = tuple[int, int]
"""Start and end, in nanoseconds, of the time taken by the steps at and below a span."""
_User: TypeAlias = tuple[int, str | None]
"""The position of a span's parent, and the agent; tools without an agent are left out."""


def group_parallel_steps(ordering: Ordering) -> Ordering:
    """Number the groups of steps that overlap in time, from 0 in order of appearance."""
    parents = ordering.parents
    extents = _extents(ordering)
    block_of = _blocks(extents, parents)
    if not block_of:
        return ordering
    outermost: dict[int, int] = {}
    for position in sorted(extents):  # parents first
        above = outermost.get(parents[position])
        own = block_of.get(position) if above is None else above
        if own is not None:
            outermost[position] = own
    numbers: dict[int, int] = {}
    groups: dict[int, int] = {}
    for act in ordering.chosen():
        block = outermost.get(act.position)
        if block is not None:
            groups[act.position] = numbers.setdefault(block, len(numbers))
    return replace(ordering, groups=groups)


def _extents(ordering: Ordering) -> dict[int, _Extent]:
    parents, steps = ordering.parents, ordering.chosen()
    extents: dict[int, _Extent] = {}
    tool_starts = _tool_starts(steps, parents)
    for act in steps:
        closing_ns = ordering.closing_ns.get(act.index)
        if closing_ns is not None:
            _widen(extents, act.position, (closing_ns, closing_ns))
        else:
            start_ns = act.span.start_ns
            end_ns = _end_ns(act, tool_starts.get((parents[act.position], act.agent), ()))
            _widen(extents, act.position, (start_ns, max(start_ns, end_ns)))
    for position in range(len(parents) - 1, -1, -1):  # children first
        extent = extents.get(position)
        if extent is not None and parents[position] != _ROOT:
            _widen(extents, parents[position], extent)
    return extents


def _tool_starts(steps: Sequence[Act], parents: Sequence[int]) -> Mapping[_User, Sequence[int]]:
    """Return the start times of the tools that one agent used below one span, earliest first."""
    found: defaultdict[_User, list[int]] = defaultdict(list)
    for act in steps:
        if act.action.kind in TOOL_KINDS and act.agent is not None:
            found[parents[act.position], act.agent].append(act.span.start_ns)
    return {user: sorted(starts) for user, starts in found.items()}


def _end_ns(act: Act, tool_starts: Sequence[int]) -> int:
    """Return the end of a step; for a model call, no later than the start of the first tool after it."""
    span = act.span
    if not tool_starts or act.action.kind is not LLM:
        return span.end_ns
    after = bisect_right(tool_starts, span.start_ns)
    return min(span.end_ns, tool_starts[after]) if after < len(tool_starts) else span.end_ns


def _widen(extents: dict[int, _Extent], position: int, extent: _Extent) -> None:
    known = extents.get(position)
    if known is None:
        extents[position] = extent
    elif extent[0] < known[0] or extent[1] > known[1]:
        extents[position] = min(known[0], extent[0]), max(known[1], extent[1])


def _blocks(extents: dict[int, _Extent], parents: Sequence[int]) -> dict[int, int]:
    """Return, for spans that overlap a sibling, a number that the overlapping siblings share."""
    siblings: defaultdict[int, list[int]] = defaultdict(list)
    for position in extents:
        siblings[parents[position]].append(position)
    block_of: dict[int, int] = {}
    for family in siblings.values():
        if len(family) == 1:
            continue
        first, reach_ns = _ROOT, 0
        for (start_ns, end_ns), position in sorted([(extents[each], each) for each in family]):
            if first != _ROOT and _latest_start_ns(start_ns) < reach_ns:
                block_of[first] = block_of[position] = first
            else:
                first = position
            reach_ns = max(reach_ns, end_ns)
    return block_of


def _latest_start_ns(start_ns: int) -> int:
    """Return the latest possible start of a span that reports ``start_ns``.

    OpenTelemetry's SDK for JavaScript truncates starts to the millisecond but not ends: a span that begins as
    another ends would seem to begin before.
    """
    is_cut = start_ns % _MILLISECOND_NS == 0
    return start_ns + (_MILLISECOND_NS - 1 if is_cut else 0)


def causes_of(ordering: Ordering, steps: Sequence[Act]) -> list[tuple[int, ...]]:
    """Return, for each step in order, the indices of the earlier steps it is tied to, ascending."""
    tied: defaultdict[int, set[int]] = defaultdict(set)
    _tie_enclosed(ordering, steps, tied)
    _tie_linked(ordering, steps, tied)
    _tie_asked(steps, tied)
    return [
        tuple(sorted([cause for cause in tied[index] if cause < index])) if index in tied else ()
        for index in range(len(steps))
    ]


def _tie_enclosed(ordering: Ordering, steps: Sequence[Act], tied: defaultdict[int, set[int]]) -> None:
    index_of: dict[int, int] = {}
    for index, act in enumerate(steps):
        if act.position in index_of:
            tied[index].add(index_of[act.position])  # a handoff on the span of the call that requested it
        else:
            index_of[act.position] = index
    nearest: dict[int, int] = {}
    for act in ordering.acts:  # parents first, so the enclosing acts are known
        if act.above is None:
            continue
        enclosing = ordering.acts[act.above].position
        above = index_of.get(enclosing, nearest.get(enclosing, -1))
        if above < 0:
            continue
        nearest[act.position] = above
        inner = index_of.get(act.position)
        if inner is not None:
            later, earlier = max(above, inner), min(above, inner)
            tied[later].add(earlier)


def _tie_linked(ordering: Ordering, steps: Sequence[Act], tied: defaultdict[int, set[int]]) -> None:
    if not any(span.links for span in ordering.spans):
        return
    position_of = {
        (span.trace_id, span.span_id): position
        for position, span in enumerate(ordering.spans)
        if span.span_id
    }
    last_within = _last_within(ordering, steps)
    linking = [-1] * len(ordering.spans)
    for position, span in enumerate(ordering.spans):
        parent = ordering.parents[position]
        linking[position] = position if span.links else linking[parent] if parent >= 0 else -1
    seen: set[int] = set()
    for index, act in enumerate(steps):
        holder = linking[act.position]
        if holder < 0 or holder in seen:
            continue  # a container's link belongs to the first step inside it
        seen.add(holder)
        for link in ordering.spans[holder].links:
            target = last_within.get(position_of.get((link.trace_id, link.span_id), -1))
            if target is not None:
                tied[index].add(target)


def _last_within(ordering: Ordering, steps: Sequence[Act]) -> dict[int, int]:
    """Return the last step at or below each span, by the span's position."""
    last: dict[int, int] = {}
    for index in range(len(steps) - 1, -1, -1):
        position = steps[index].position
        while position >= 0 and position not in last:
            last[position] = index
            position = ordering.parents[position]
    return last


def _tie_asked(steps: Sequence[Act], tied: defaultdict[int, set[int]]) -> None:
    """Tie tools to the call that requested them, by call id; without an id, to the agent's latest request."""
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
