"""Results kept in memory, bounded in number and size. Safe for several threads."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final, Generic, TypeVar

V = TypeVar("V")

_KEPT: Final = 1_000
"""Times the duration of a reading for which its result is kept: a client that asks for one result again and
again takes a thousandth of a core."""


class Remembered(Generic[V]):
    """Results by key; beyond the bounds, those not used for the longest time are dropped."""

    def __init__(self, most: int, most_size: int) -> None:
        """Keep at most ``most`` results, of at most ``most_size`` together."""
        self._most: Final = most
        self._most_size: Final = most_size
        self._known: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._size = 0
        self._lock: Final = Lock()

    def get(self, key: Hashable) -> V | None:
        """Return a result; ``None`` if it is not kept."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return None
            self._known.move_to_end(key)
            return found[0]

    def clear(self) -> None:
        """Drop all results, one after the other: on a thread, other threads run in between."""
        with self._lock:
            dropped, self._known = self._known, OrderedDict()
            self._size = 0
        while dropped:
            dropped.popitem()

    def put(self, key: Hashable, result: V, size: int) -> None:
        """Keep a result of a size."""
        with self._lock:
            _, before = self._known.pop(key, (None, 0))
            self._known[key] = (result, size)
            self._size += size - before
            while len(self._known) > self._most or self._size > self._most_size:
                _, (_, dropped) = self._known.popitem(last=False)
                self._size -= dropped


class CostlyReads(Generic[V]):
    """Results that take long to read, each kept for a time in proportion; for one thread."""

    def __init__(
        self, most: int, most_size: int, most_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Keep at most ``most`` results, of at most ``most_size`` together, each for at most ``most_s``."""
        self._known: Final[Remembered[tuple[float, V]]] = Remembered(most, most_size)
        self._most_s: Final = most_s
        self._clock: Final = clock

    def of(
        self,
        key: Hashable,
        read: Callable[[], V],
        size: Callable[[V], int],
        is_current: Callable[[V], bool] = lambda _result: True,
    ) -> V:
        """Return a result, read anew unless it is kept.

        Args:
            key: its name.
            read: reads it.
            size: returns its size; a result of size 0 is not kept.
            is_current: whether a kept result still holds.
        """
        found = self._known.get(key)
        began_s = self._clock()
        if found is not None and began_s < found[0] and is_current(found[1]):
            return found[1]
        result = read()
        ended_s = self._clock()
        if size(result):
            until_s = ended_s + min(self._most_s, _KEPT * (ended_s - began_s))
            self._known.put(key, (until_s, result), size(result))
        return result
