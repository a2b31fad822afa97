"""Ledger of every span, log record and data point: the conservation law as counters. Pure.

    received     = refused + acknowledged
    acknowledged = forwarded + rejected + unsupported + lost + kept + returned + held

``held`` is the journal's own count, and everything else is counted here as it happens, so the law is a real
check, not a definition. Both change together on one event loop, and a snapshot reads them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from collector_processor.otlp import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of one signal's items since the start of the process."""

    received: int = 0
    """Items of readable requests, plus those found in the journal at the start."""
    refused: int = 0
    """Not acknowledged: we were full, or they were invalid, too large, or in a forwarding loop."""
    acknowledged: int = 0
    """Acknowledged items, plus those found in the journal at the start."""
    forwarded: int = 0
    """Accepted by the backend."""
    rejected: int = 0
    """Permanently refused by the backend."""
    unsupported: int = 0
    """Acknowledged items dropped because the backend has no service for their signal."""
    lost: int = 0
    """Acknowledged, but damaged in or missing from the journal."""
    kept: int = 0
    """Acknowledged, but not forwarded because no endpoint is set for their signal."""
    returned: int = 0
    """Given back to Kafka with their partition; the process that has it now forwards them."""
    held: int = 0
    """Items in the journal that are not forwarded yet."""

    @property
    def is_balanced(self) -> bool:
        """Whether every item is counted exactly once."""
        settled = self.forwarded + self.rejected + self.unsupported + self.lost + self.kept + self.returned
        return self.received == self.refused + self.acknowledged and self.acknowledged == settled + self.held


class Ledger:
    """Counts items; lives on one event loop."""

    def __init__(
        self, held: Callable[[Signal], int], lost: Mapping[Signal, int] = MappingProxyType({})
    ) -> None:
        """Start with the items that the journal already holds.

        Args:
            held: returns the journal's count of a signal's items not forwarded yet.
            lost: acknowledged items that are missing from it.
        """
        self._held: Final = held
        self._counts: Final = {signal: _found(held(signal), lost.get(signal, 0)) for signal in Signal}
        """Counts by their names; not immutable records, because they change with each request."""
        self.malformed_requests: int = 0
        """Unreadable requests; the items in them cannot be counted."""

    def refuse(self, signal: Signal, items: int) -> None:
        """Count items that were received and refused."""
        counts = self._counts[signal]
        counts["received"] += items
        counts["refused"] += items

    def acknowledge(self, signal: Signal, items: int) -> None:
        """Count items that were received and are durable; the journal holds them now."""
        counts = self._counts[signal]
        counts["received"] += items
        counts["acknowledged"] += items

    def settle(
        self,
        signal: Signal,
        *,
        forwarded: int = 0,
        rejected: int = 0,
        unsupported: int = 0,
        lost: int = 0,
        kept: int = 0,
        returned: int = 0,
    ) -> None:
        """Count items that left the journal."""
        counts = self._counts[signal]
        counts["forwarded"] += forwarded
        counts["rejected"] += rejected
        counts["unsupported"] += unsupported
        counts["lost"] += lost
        counts["kept"] += kept
        counts["returned"] += returned

    def snapshot(self) -> Mapping[Signal, Counts]:
        """Return the current counts."""
        return {signal: Counts(**counts, held=self._held(signal)) for signal, counts in self._counts.items()}


def _found(held: int, lost: int) -> Counter[str]:
    """Return the counts at the start."""
    return Counter(received=held + lost, acknowledged=held + lost, lost=lost)
