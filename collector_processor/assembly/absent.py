"""Learns which kinds of spans have parents that never arrive. Pure; bounded.

A missing parent means that more spans are coming, because a parent ends after its children. But some
parents never arrive: an unsampled web request, a span dropped by a filter. One trace cannot tell the
two apart, but the same line of code behaves the same way again: after waiting in vain for the parent of
a kind of span (``notes.kind_of``), the assembler does not wait for such parents again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MAX_KINDS: Final = 10_000
"""Bound on kinds, about 2 MB; those unseen for longest are dropped and learned again."""
_MISSES: Final = 3
"""Consecutive misses after which the parents of a kind are given up."""


@dataclass(slots=True)
class _Seen:
    misses: int = 0
    """Misses since a parent last arrived."""
    has_arrived: bool = False


class AbsentParents(Generic[K]):
    """Counts, for each kind of span, how often the parent arrived or was missed."""

    def __init__(self) -> None:
        self._seen: Final[OrderedDict[K, _Seen]] = OrderedDict()

    def arrived(self, kind: K) -> bool:
        """Note that the parent of such a span arrived; return whether it had been given up."""
        was_never = self.is_never(kind)
        seen = self._touch(kind)
        seen.misses, seen.has_arrived = 0, True
        return was_never

    def missed(self, kind: K, *, is_sure: bool) -> bool:
        """Note that the parent of such a span did not arrive; return whether it is now given up.

        Args:
            kind: kind of the child span.
            is_sure: the run seems to be over, so one miss is enough, unless the parent of
                such a span has arrived before.
        """
        was_never = self.is_never(kind)
        seen = self._touch(kind)
        seen.misses += _MISSES if is_sure and not seen.has_arrived else 1
        return self.is_never(kind) and not was_never

    def is_never(self, kind: K) -> bool:
        """Whether the parent of such a span has been given up."""
        seen = self._seen.get(kind)
        return seen is not None and seen.misses >= _MISSES

    def has_arrived(self, kind: K) -> bool:
        """Whether the parent of such a span has ever arrived."""
        seen = self._seen.get(kind)
        return seen is not None and seen.has_arrived

    def _touch(self, kind: K) -> _Seen:
        seen = self._seen.pop(kind, None) or _Seen()
        self._seen[kind] = seen
        if len(self._seen) > MAX_KINDS:
            self._seen.popitem(last=False)
        return seen
