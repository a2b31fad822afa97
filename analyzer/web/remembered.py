"""Results kept in memory, bounded in number and size. Safe for several threads."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Generic, TypeVar, cast

from markupsafe import Markup

from analyzer.inquiry.whole_run import WholeRun

V = TypeVar("V")
MOST_PARTS: Final = 64
MOST_CHARACTERS: Final = 16_000_000
"""Characters of HTML; what it was made from takes about as much memory again."""
MOST_ROWS: Final = 2_000
"""Rows of the list of runs: those of 40 pages."""
MOST_ROWS_CHARACTERS: Final = 8_000_000
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


@dataclass(frozen=True, slots=True)
class _Made:
    """A result, with the runs whose object identity is in its key: they live as long as the result."""

    result: Any
    runs: tuple[WholeRun, ...]


class PreparedParts:
    """The long parts of pages, prepared once: lists of steps and of runs, two runs side by side.

    A list of a thousand steps takes 50 ms to make, and most requests ask for one that was made before: people
    come back from a step, open the link that a colleague sent, answer and reload.
    """

    def __init__(self, render: Callable[..., str]) -> None:
        """``render`` returns a template's text, from its name and values."""
        self.render: Final = render
        self._made: Final[Remembered[_Made]] = Remembered(MOST_PARTS, MOST_CHARACTERS)
        self.rows: Final[Remembered[Markup]] = Remembered(MOST_ROWS, MOST_ROWS_CHARACTERS)
        """Rows of the list of runs."""

    def clear(self) -> None:
        """Drop all parts in memory."""
        self._made.clear()
        self.rows.clear()

    async def of(
        self, key: tuple[Hashable, ...], runs: tuple[WholeRun, ...], make: Callable[[], tuple[V, int]]
    ) -> V:
        """Return a part, made in a thread unless it is kept.

        Args:
            key: all that the part depends on; of a kept run the object's id, which changes with the run.
            runs: the runs whose ids are in the key.
            make: returns the part and its size in characters.
        """
        made = self._made.get(key)
        if made is not None:
            return cast("V", made.result)  # the key determines the type that ``make`` returned
        result, size = await asyncio.to_thread(make)
        self._made.put(key, _Made(result, runs), size)
        return result
