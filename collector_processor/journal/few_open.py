"""Files that are kept open while they are used: the last few, whatever their number. A shell.

A light load fills a segment every five minutes, a heavy one every few seconds, and each stays for as long
as it holds spans of a run that may be analysed again: a day. A connection to each would take three file
descriptors and some 0.4 MiB. One owner, one thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

MOST: Final = 8
"""More than are in use at a time: new rows, what is forwarded late, what is analysed, the oldest evicted."""


class Closable(Protocol):
    """What is open."""

    def close(self) -> None:
        """Close it."""
        ...


F = TypeVar("F", bound=Closable)


class FewOpen(Generic[F]):
    """Opens files by their number, and closes those that were not used for longest."""

    def __init__(
        self,
        opened: Callable[[int], F],
        closing: Callable[[int, F], None] | None = None,
        *,
        most: int = MOST,
    ) -> None:
        """Begin with none.

        Args:
            opened: opens one.
            closing: told of one before it is closed to make room for another; must not raise.
            most: how many stay open.
        """
        self._opened: Final = opened
        self._closing: Final = closing
        self._most: Final = most
        self._files: Final[OrderedDict[int, F]] = OrderedDict()

    def get(self, number: int) -> F:
        """Return a file, opened if need be; raises what opening raises."""
        file = self._files.pop(number, None)
        self.put(number, self._opened(number) if file is None else file)
        return self._files[number]

    def put(self, number: int, file: F) -> None:
        """Take over a file that is open."""
        self._files[number] = file
        while len(self._files) > self._most:
            oldest, unused = self._files.popitem(last=False)
            if self._closing is not None:
                self._closing(oldest, unused)
            unused.close()

    def take(self, number: int) -> F | None:
        """Hand over a file; ``None`` where it is not open."""
        return self._files.pop(number, None)

    def close(self) -> None:
        """Close all."""
        while self._files:
            _, file = self._files.popitem()
            file.close()
