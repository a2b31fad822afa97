"""Which steps overlap in time: parallel tools, parallel agents.

Siblings whose extents overlap form a group with all the steps below them; the
outermost group counts. Inside a group order is by start, and means nothing. A
model call counts until the first tool of its agent begins: that is what it asked
for, begun while the rest of its reply still streamed (Claude Code).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from collector_processor.trajectory.leaves import Leaf
from semconv.dialects import ActionKind

_ROOT: Final = -1
_MILLISECOND_NS: Final = 1_000_000
_TOOLS: Final = frozenset({ActionKind.TOOL, ActionKind.HANDOFF})

_Desk: TypeAlias = tuple[int, str | None]
"""The position of a span's parent, and whose the span is; nothing is said of tools that are nobody's."""


@dataclass(slots=True)
class _Extent:
    """The time that the steps at and below a span take."""

    start_ns: int
    end_ns: int

    def widen(self, other: _Extent) -> None:
        self.start_ns = min(self.start_ns, other.start_ns)
        self.end_ns = max(self.end_ns, other.end_ns)


def groups(leaves: Sequence[Leaf], parents: Sequence[int]) -> dict[int, int]:
    """Return the group number of each step that is in a group.

    Args:
        leaves: the steps, in order.
        parents: position of each span's parent, -1 of a root; parents come before children.

    Returns:
        Position of the step's span → number of its group, from 0 in order of appearance.
    """
    extents = _extents(leaves, parents)
    block_of = _blocks(extents, parents)
    outermost: dict[int, int] = {}
    for position in sorted(extents):  # parents first
        above = outermost.get(parents[position])
        own = block_of.get(position) if above is None else above
        if own is not None:
            outermost[position] = own
    numbers: dict[int, int] = {}
    found: dict[int, int] = {}
    for leaf in leaves:
        block = outermost.get(leaf.act.position)
        if block is not None:
            found[leaf.act.position] = numbers.setdefault(block, len(numbers))
    return found


def _extents(leaves: Sequence[Leaf], parents: Sequence[int]) -> dict[int, _Extent]:
    extents: dict[int, _Extent] = {}
    tool_starts = _tool_starts(leaves, parents)
    for leaf in leaves:
        start_ns = leaf.at_ns if leaf.is_closing else leaf.act.span.start_ns
        end_ns = _end(leaf, tool_starts.get(_desk(leaf, parents), ()))
        _widen(extents, leaf.act.position, _Extent(start_ns, max(start_ns, end_ns)))
    for position in range(len(parents) - 1, -1, -1):  # children first
        extent = extents.get(position)
        if extent is not None and parents[position] != _ROOT:
            _widen(extents, parents[position], extent)
    return extents


def _tool_starts(leaves: Sequence[Leaf], parents: Sequence[int]) -> Mapping[_Desk, Sequence[int]]:
    """Return when the tools that one agent used below one span began, earliest first."""
    found: defaultdict[_Desk, list[int]] = defaultdict(list)
    for leaf in leaves:
        if leaf.act.action.kind in _TOOLS and leaf.act.agent is not None:
            found[_desk(leaf, parents)].append(leaf.act.span.start_ns)
    return {desk: sorted(starts) for desk, starts in found.items()}


def _desk(leaf: Leaf, parents: Sequence[int]) -> _Desk:
    return parents[leaf.act.position], leaf.act.agent


def _end(leaf: Leaf, tool_starts: Sequence[int]) -> int:
    """Return when a step ends; a model call at the latest when the first tool after its start begins."""
    if leaf.is_closing:
        return leaf.at_ns
    span = leaf.act.span
    if leaf.act.action.kind is not ActionKind.LLM:
        return span.end_ns
    after = bisect_right(tool_starts, span.start_ns)
    return min(span.end_ns, tool_starts[after]) if after < len(tool_starts) else span.end_ns


def _widen(extents: dict[int, _Extent], position: int, extent: _Extent) -> None:
    known = extents.get(position)
    if known is None:
        extents[position] = _Extent(extent.start_ns, extent.end_ns)
    else:
        known.widen(extent)


def _blocks(extents: dict[int, _Extent], parents: Sequence[int]) -> dict[int, int]:
    """Return, for spans that overlap a sibling, a number that the overlapping siblings share."""
    siblings: defaultdict[int, list[int]] = defaultdict(list)
    for position in extents:
        siblings[parents[position]].append(position)
    block_of: dict[int, int] = {}
    for family in siblings.values():
        family.sort(key=lambda position: (extents[position].start_ns, extents[position].end_ns, position))
        first, reach_ns = family[0], extents[family[0]].end_ns
        for position in family[1:]:
            extent = extents[position]
            if _latest_start_ns(extent) < reach_ns:
                block_of[first] = block_of[position] = first
            else:
                first = position
            reach_ns = max(reach_ns, extent.end_ns)
    return block_of


def _latest_start_ns(extent: _Extent) -> int:
    """Return when a span may have begun at the latest.

    OpenTelemetry's SDK for JavaScript cuts starts down to the millisecond, ends not: what begins as
    another ends would seem to begin before.
    """
    is_cut = extent.start_ns % _MILLISECOND_NS == 0
    return extent.start_ns + (_MILLISECOND_NS - 1 if is_cut else 0)
