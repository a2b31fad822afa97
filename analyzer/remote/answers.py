"""The same analysis asked twice is made once: answers under way are shared, recent ones kept.

A collector half asks again where an answer got lost on its way, and after a restart.
What it asks about is the same to the byte, so the hash of the request is the key; the
settings of a process do not change, so they need not be part of it. An analysis goes
on when whoever asked hangs up: it is being paid for. An answer in which something
failed is not kept: the next one to ask may have more luck.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from semconv.model import Attribution, Status

MAX_KEPT: Final = 1_000
"""Answers of some KiB each."""

Analyse = Callable[[], Awaitable[Attribution]]


class BusyError(Exception):
    """As many analyses are under way as there may be."""


def key_of(body: bytes) -> bytes:
    """Return what two requests share only if they ask the same."""
    return hashlib.blake2b(body, digest_size=16).digest()


@dataclass(slots=True, kw_only=True)
class Answers:
    """Analyses under way and their recent results. Used from one event loop."""

    at_once: int
    """Analyses that may be under way; those who wait for the same one count once."""
    max_kept: int = MAX_KEPT
    shared: int = 0
    """Questions that were answered with another one's analysis."""
    _under_way: dict[bytes, asyncio.Task[Attribution]] = field(default_factory=dict)
    _kept: OrderedDict[bytes, Attribution] = field(default_factory=OrderedDict)

    @property
    def under_way(self) -> int:
        """How many analyses are being made."""
        return len(self._under_way)

    def ask(self, key: bytes, analyse: Analyse) -> asyncio.Future[Attribution]:
        """Return the future answer; whoever waits for it does so behind a shield.

        Raises:
            BusyError: there is no room for another analysis.
        """
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            self.shared += 1
            known: asyncio.Future[Attribution] = asyncio.get_running_loop().create_future()
            known.set_result(kept)
            return known
        if (task := self._under_way.get(key)) is not None:
            self.shared += 1
            return task
        if len(self._under_way) >= self.at_once:
            raise BusyError
        task = asyncio.create_task(self._made(key, analyse))
        # A failure that nobody waits for any more is no news to the loop: ``analyse`` has logged it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._under_way[key] = task
        return task

    async def drain(self, within_s: float) -> None:
        """Wait for what is under way, and end what is not done in time."""
        tasks = list(self._under_way.values())
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=within_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _made(self, key: bytes, analyse: Analyse) -> Attribution:
        try:
            attribution = await analyse()
        finally:
            del self._under_way[key]
        if attribution.status is not Status.ERROR and attribution.fallback is None:
            self._kept[key] = attribution
            if len(self._kept) > self.max_kept:
                self._kept.popitem(last=False)
        return attribution
