"""Results kept in memory, bounded in number and size. Safe for several threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Final, Generic, TypeVar

V = TypeVar("V")


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
