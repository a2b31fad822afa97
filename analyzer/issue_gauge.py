"""How many recurring failures are in each state, for ``/metrics``: read now and then, shown at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from collector_processor.stores import StoreError

logger = logging.getLogger(__name__)

EVERY_S: Final = 15.0
"""As often as the shipped Prometheus asks."""


@dataclass(slots=True, kw_only=True)
class IssueGauge:
    """The counts as they were read last; none before the first time."""

    read: Callable[[], Awaitable[Mapping[str, int]]]
    every_s: float = EVERY_S
    _counts: Mapping[str, int] = field(default_factory=dict)

    def counts(self) -> Mapping[str, int]:
        """Return how many issues are in each state."""
        return self._counts

    async def run(self) -> None:
        """Read until cancelled; while the store refuses, what was read before stands."""
        while True:
            try:
                self._counts = await self.read()
            except StoreError as error:
                logger.warning("issues cannot be counted", extra={"reason": str(error)})
            await asyncio.sleep(self.every_s)
