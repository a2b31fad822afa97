"""Parents that never arrive: which kinds of spans have them. Pure, learned, bounded.

A span whose parent is not there says that more is coming: a parent ends after its children. Some
parents never come, though: a web request that is not sampled, a span that a filter dropped.
Nothing in one trace tells the two apart, but the same line of code does it again: a kind of
span (``notes.kind_of``) whose parent was waited for in vain is not waited for next time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MAX_KINDS: Final = 10_000
"""Kinds remembered, about 2 MB; the longest unseen go first, and are learned again."""
_MISSES: Final = 3
"""In a row, until the parent of a kind is given up."""


@dataclass(slots=True)
class _Seen:
    misses: int = 0
    """Since it last arrived."""
    has_arrived: bool = False


class AbsentParents(Generic[K]):
    """What is known of the parents of each kind of span."""

    def __init__(self) -> None:
        self._seen: Final[OrderedDict[K, _Seen]] = OrderedDict()

    def arrived(self, kind: K) -> bool:
        """Note that the parent of such a span came after all; say whether it had been given up."""
        was_never = self.is_never(kind)
        seen = self._touch(kind)
        seen.misses, seen.has_arrived = 0, True
        return was_never

    def missed(self, kind: K, *, is_sure: bool) -> bool:
        """Note that the parent of such a span was waited for in vain; say whether it is given up now.

        Args:
            kind: of the span.
            is_sure: nothing suggests that the run went on: once is enough, unless the parent of
                such a span was seen to arrive before.
        """
        was_never = self.is_never(kind)
        seen = self._touch(kind)
        seen.misses += _MISSES if is_sure and not seen.has_arrived else 1
        return self.is_never(kind) and not was_never

    def is_never(self, kind: K) -> bool:
        """Whether the parent of such a span is not worth waiting for."""
        seen = self._seen.get(kind)
        return seen is not None and seen.misses >= _MISSES

    def has_arrived(self, kind: K) -> bool:
        """Whether the parent of such a span was ever seen to arrive."""
        seen = self._seen.get(kind)
        return seen is not None and seen.has_arrived

    def _touch(self, kind: K) -> _Seen:
        seen = self._seen.pop(kind, None) or _Seen()
        self._seen[kind] = seen
        if len(self._seen) > MAX_KINDS:
            self._seen.popitem(last=False)
        return seen
