"""Open traces that spans link together: they are complete together. Pure.

A link says that two traces are one run; which of them comes first is chance. A trace may
link to one that has not come yet, and to traces that never come here at all: what a queue's
producer or a cron job sends is no agent's trace, and traces that link to the same one of those
are not thereby one run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from collector_processor.notes import TraceKey

MAX_GROUP: Final = 256
"""Traces joined at most; further ones are runs by themselves."""


class LinkedTraces:
    """Which open traces belong together."""

    def __init__(self) -> None:
        self._groups: Final[dict[TraceKey, set[TraceKey]]] = {}
        """Members share one set; a trace by itself has none."""
        self._awaited: Final[defaultdict[TraceKey, set[TraceKey]]] = defaultdict(set)
        """Traces that are not open, and the open ones that link to them."""
        self._awaits: Final[defaultdict[TraceKey, set[TraceKey]]] = defaultdict(set)
        """The same the other way round."""

    def link(self, key: TraceKey, target: TraceKey, *, is_open: bool) -> None:
        """Note that a trace links to another, which is open or not."""
        if is_open:
            self._union(key, target)
        else:
            self._awaited[target].add(key)
            self._awaits[key].add(target)

    def opened(self, key: TraceKey) -> Iterable[TraceKey]:
        """Join a trace that opens to those that wait for it, and return these."""
        sources = self._awaited.pop(key, set())
        for source in sources:
            self._awaits[source].discard(key)
            self._union(source, key)
        return sources

    def company(self, key: TraceKey) -> Iterator[TraceKey]:
        """Iterate over the other open traces that it is linked with."""
        return (other for other in self._groups.get(key, ()) if other != key)

    def awaits(self, key: TraceKey) -> Iterable[TraceKey]:
        """Return the traces that it links to and that have not come."""
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
