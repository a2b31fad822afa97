"""Where every span, log record and data point is: the conservation law as numbers. Pure.

    received     = refused + acknowledged
    acknowledged = forwarded + rejected + unsupported + lost + kept + held

``held`` is the journal's own count, all else is counted here as it happens; so
the law is a check and not a definition. Both change together on one event loop,
and a snapshot reads them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from collector_processor.otlp import Setback, Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """One signal's items since the start."""

    received: int = 0
    """Of requests that could be read; with those found in the journal at the start."""
    refused: int = 0
    """Never acknowledged: we were full, or they were invalid, too large, or came round a loop."""
    acknowledged: int = 0
    """With those found in the journal at the start."""
    forwarded: int = 0
    """Accepted by the backend."""
    rejected: int = 0
    """Refused by the backend for good."""
    unsupported: int = 0
    """Acknowledged items dropped because the backend has no service for their signal."""
    lost: int = 0
    """Acknowledged, and damaged in the journal, or gone from it."""
    kept: int = 0
    """Acknowledged, with no backend to send them to."""
    held: int = 0
    """In the journal, to be forwarded."""

    @property
    def is_balanced(self) -> bool:
        """Whether every item is somewhere, once."""
        settled = self.forwarded + self.rejected + self.unsupported + self.lost + self.kept
        return self.received == self.refused + self.acknowledged and self.acknowledged == settled + self.held


class Ledger:
    """Counts items; lives on one event loop."""

    def __init__(
        self, held: Callable[[Signal], int], lost: Mapping[Signal, int] = MappingProxyType({})
    ) -> None:
        """Start with what the journal holds already.

        Args:
            held: the journal's count of a signal's items that are not forwarded yet.
            lost: what it should hold too, and does not.
        """
        self._held: Final = held
        self._counts: Final = {signal: _found(held(signal), lost.get(signal, 0)) for signal in Signal}
        self.malformed_requests: int = 0
        """Requests that could not be read; nobody knows what was in them."""
        self.setbacks: Final[Counter[tuple[Signal, Setback]]] = Counter()
        """Failed sends, counting every try, by cause."""

    def refuse(self, signal: Signal, items: int) -> None:
        """Count items that were received and not taken."""
        counts = self._counts[signal]
        self._counts[signal] = replace(
            counts, received=counts.received + items, refused=counts.refused + items
        )

    def acknowledge(self, signal: Signal, items: int) -> None:
        """Count items that were received and are durable; the journal holds them now."""
        counts = self._counts[signal]
        self._counts[signal] = replace(
            counts, received=counts.received + items, acknowledged=counts.acknowledged + items
        )

    def settle(
        self,
        signal: Signal,
        *,
        forwarded: int = 0,
        rejected: int = 0,
        unsupported: int = 0,
        lost: int = 0,
        kept: int = 0,
    ) -> None:
        """Count items that the journal no longer holds."""
        counts = self._counts[signal]
        self._counts[signal] = replace(
            counts,
            forwarded=counts.forwarded + forwarded,
            rejected=counts.rejected + rejected,
            unsupported=counts.unsupported + unsupported,
            lost=counts.lost + lost,
            kept=counts.kept + kept,
        )

    def snapshot(self) -> Mapping[Signal, Counts]:
        """Return all counts of one moment."""
        return {signal: replace(counts, held=self._held(signal)) for signal, counts in self._counts.items()}


def _found(held: int, lost: int) -> Counts:
    """Return the counts of a start."""
    return Counts(received=held + lost, acknowledged=held + lost, lost=lost)
