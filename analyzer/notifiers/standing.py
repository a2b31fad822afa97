"""Keeps an Alertmanager in step with what stands: said at once when it changes, and again every minute.

Nothing is owed here: what stands is in the store, so an Alertmanager that was away, or
restarted and forgot, has all of it a minute after it is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from analyzer.notifiers.alertmanager import MAX_ALERTS, Alert, alerts_message
from analyzer.notifiers.links import Links
from analyzer.notifiers.sending import Fate, Poster
from analyzer.notifiers.tally import NoticeTally
from collector_processor.stores import StoreError

logger = logging.getLogger(__name__)

EVERY_S: Final = 60.0
_HOLD: Final = 5
"""Times that: how long an alert stands that nobody says any longer."""
_SAID_AGAIN: Final = 3
"""How often an end is said: Alertmanager may be away at the moment."""


class Standing:
    """Tells one Alertmanager until cancelled."""

    def __init__(
        self,
        poster: Poster,
        links: Links,
        read: Callable[[], Awaitable[Sequence[Alert]]],
        now_ns: Callable[[], int],
        every_s: float = EVERY_S,
        *,
        tally: NoticeTally | None = None,
    ) -> None:
        """Make it.

        Args:
            poster: how it is reached: at ``/api/v2/alerts``.
            links: to our pages.
            read: returns what stands now, the newest first.
            now_ns: the time of day.
            every_s: how often it is said again.
            tally: counts what was said and what was not; by default one of its own.
        """
        self._poster: Final = poster
        self._links: Final = links
        self._read: Final = read
        self._now_ns: Final = now_ns
        self._every_s: Final = every_s
        self.tally: Final = tally or NoticeTally(receiver="alertmanager")
        self._wake: Final = asyncio.Event()
        self._said: dict[tuple[tuple[str, str], ...], Alert] = {}
        self._ended: dict[tuple[tuple[str, str], ...], tuple[Alert, int]] = {}

    def wake(self) -> None:
        """Say that something may have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self.tell()
            except StoreError as error:
                logger.warning("alerts wait for the store", extra={"reason": str(error)})
            try:
                async with asyncio.timeout(self._every_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def tell(self) -> None:
        """Say what stands and what has ended, where there is either."""
        standing = {alert.labels: alert for alert in (await self._read())[:MAX_ALERTS]}
        for labels, alert in self._said.items():
            if labels not in standing:
                self._ended[labels] = (alert, _SAID_AGAIN)
        self._ended = {labels: one for labels, one in self._ended.items() if labels not in standing}
        self._said = standing
        if not standing and not self._ended:
            return
        body = alerts_message(
            list(standing.values()),
            [alert for alert, _ in self._ended.values()],
            self._now_ns(),
            int(_HOLD * self._every_s * 10**9),
            self._links,
        )
        answer = await self._poster.post(body)
        if answer.fate is not Fate.TAKEN:
            self.tally.failed += 1
            logger.warning("alertmanager did not take the alerts", extra={"reason": answer.reason})
            return
        self.tally.sent += 1
        self._ended = {labels: (alert, left - 1) for labels, (alert, left) in self._ended.items() if left > 1}
