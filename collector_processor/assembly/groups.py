"""Groups of open traces joined by span links; a group is released together. Pure.

A link joins two traces into one run, in whichever order they arrive. A trace may link to one that
has not arrived yet, or to one that never arrives here: the trace of a queue's producer or a cron
job holds no agents' spans. Traces that link to the same such trace are separate runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from collector_processor.notes import TraceKey

MAX_GROUP: Final = 256
"""Most traces in a group; further ones are treated as separate runs."""


class LinkedTraces:
    """Tracks which open traces belong together."""

    def __init__(self) -> None:
        self._groups: Final[dict[TraceKey, set[TraceKey]]] = {}
        """The group of each trace; members share one set, and a trace without links has none."""
        self._awaited: Final[defaultdict[TraceKey, set[TraceKey]]] = defaultdict(set)
        """For each trace that is not open, the open traces that link to it."""
        self._awaits: Final[defaultdict[TraceKey, set[TraceKey]]] = defaultdict(set)
        """For each open trace, the traces that it links to and that are not open."""

    def link(self, key: TraceKey, target: TraceKey, *, is_open: bool) -> None:
        """Record a link from an open trace to another, open or not."""
        if is_open:
            self._union(key, target)
        else:
            self._awaited[target].add(key)
            self._awaits[key].add(target)

    def opened(self, key: TraceKey) -> Iterable[TraceKey]:
        """Join a newly opened trace with those that wait for it, and return them."""
        sources = self._awaited.pop(key, set())
        for source in sources:
            self._awaits[source].discard(key)
            self._union(source, key)
        return sources

    def company(self, key: TraceKey) -> Iterator[TraceKey]:
        """Iterate over the other open traces of its group."""
        return (other for other in self._groups.get(key, ()) if other != key)

    def awaits(self, key: TraceKey) -> Iterable[TraceKey]:
        """Return the traces that it links to and that have not arrived."""
        return self._awaits.get(key, ())

    def closed(self, key: TraceKey) -> None:
        """Forget a trace."""
        group = self._groups.pop(key, None)
        if group is not None:
            group.discard(key)
        for target in self._awaits.pop(key, ()):
            sources = self._awaited[target]
            sources.discard(key)
            if not sources:
                del self._awaited[target]

    def _union(self, one: TraceKey, other: TraceKey) -> None:
        small, large = sorted((self._group(one), self._group(other)), key=len)
        if small is large or len(small) + len(large) > MAX_GROUP:
            return
        large |= small
        for key in small:
            self._groups[key] = large

    def _group(self, key: TraceKey) -> set[TraceKey]:
        return self._groups.setdefault(key, {key})
