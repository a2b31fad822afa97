"""Which steps overlap in time: parallel tools, parallel agents.

Siblings whose extents overlap form a group with all the steps below them; the
outermost group counts. Inside a group order is by start, and means nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from collector_processor.trajectory.leaves import Leaf

_ROOT: Final = -1


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
    for leaf in leaves:
        span = leaf.act.span
        start_ns = leaf.at_ns if leaf.is_closing else span.start_ns
        _widen(extents, leaf.act.position, _Extent(start_ns, max(start_ns, span.end_ns)))
    for position in range(len(parents) - 1, -1, -1):  # children first
        extent = extents.get(position)
        if extent is not None and parents[position] != _ROOT:
            _widen(extents, parents[position], extent)
    return extents


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
            if extent.start_ns < reach_ns:
                block_of[first] = block_of[position] = first
            else:
                first = position
            reach_ns = max(reach_ns, extent.end_ns)
    return block_of
