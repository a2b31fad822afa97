"""What models cost, on the disk: an hour's money is spent, whatever becomes of the process that spent it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from collector_processor.spending import SpendingRows

HOUR_S: Final = 3600.0
_NS: Final = 1_000_000_000

InDb: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a call of the store where it may run."""


class SpendingBook(Protocol):
    """Where calls are noted before they are made."""

    async def last_hour(self) -> Sequence[tuple[float, float]]:
        """Return what was spent: how many seconds ago, 0..3600, and USD; oldest first."""
        ...

    async def reserve(self, usd: float) -> int:
        """Note the most that a call may cost, durably; return the entry.

        Raises:
            StoreError: the disk refuses.
        """
        ...

    async def settle(self, entry: int, usd: float) -> None:
        """Note what the call did cost.

        Raises:
            StoreError: the disk refuses; what was reserved stays.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSpending:
    """A ``SpendingBook`` in a store.

    Ages are told by the wall clock, which alone survives a restart: set back, an
    entry counts as spent just now; set an hour forward between two processes, it is forgotten.
    """

    rows: SpendingRows
    in_db: InDb
    wall_ns: Callable[[], int]

    async def last_hour(self) -> Sequence[tuple[float, float]]:
        """Return the entries, each with its age."""
        now = self.wall_ns()
        found: Sequence[tuple[int, float]] = await self.in_db(self.rows.spent, now - int(HOUR_S * _NS), now)
        return [((now - at_ns) / _NS, usd) for at_ns, usd in found]

    async def reserve(self, usd: float) -> int:
        """Write an entry."""
        now = self.wall_ns()
        entry: int = await self.in_db(self.rows.reserve, now, usd, now - int(HOUR_S * _NS))
        return entry

    async def settle(self, entry: int, usd: float) -> None:
        """Write what it came to."""
        await self.in_db(self.rows.settle, entry, usd)
