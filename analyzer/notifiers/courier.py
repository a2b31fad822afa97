"""Brings what is owed to one receiver: in order, at least once, not too often, again after a failure.

What is owed, how often it was tried and how much was told lately are in the store, so
that a restart neither forgets nor floods. Where more is owed than an hour may hold, the
last message of the hour stands for all the rest.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from analyzer.issues.rows import Owed
from analyzer.issues.store import IssueStore
from analyzer.notifiers.links import Links
from analyzer.notifiers.sending import Answer, Fate, Poster
from analyzer.notifiers.tally import NoticeTally
from analyzer.recurrence.notice import Notice, NoticeKind
from collector_processor.stores import StoreError

logger = logging.getLogger(__name__)

_SECOND_NS: Final = 10**9
_HOUR_NS: Final = 3600 * _SECOND_NS
_TOO_OLD_NS: Final = 24 * _HOUR_NS
"""After so long in vain a notice is news to nobody; the issue is on the page all the same."""
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 900.0
_MOST_DOUBLINGS: Final = 12
_STORE_PAUSE_S: Final = 30.0
_TITLES: Final = 20
"""Named one by one in a message that stands for many."""

Write = Callable[[Notice, Links], bytes]
InDb = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CourierRules:
    """How one receiver is told."""

    name: str
    """Under which it is owed notices."""
    write: Write
    links: Links
    per_hour: int = 20


class Courier:
    """Tells one receiver until cancelled."""

    def __init__(
        self,
        rules: CourierRules,
        poster: Poster,
        store: IssueStore,
        in_db: InDb,
        now_ns: Callable[[], int],
        *,
        tally: NoticeTally | None = None,
    ) -> None:
        """Make it.

        Args:
            rules: how the receiver is told.
            poster: how it is reached.
            store: what it is owed.
            in_db: makes a call on the store's thread.
            now_ns: the time of day.
            tally: counts what becomes of notices; by default one of its own.
        """
        self._rules: Final = rules
        self._poster: Final = poster
        self._store: Final = store
        self._in_db: Final = in_db
        self._now_ns: Final = now_ns
        self._wake: Final = asyncio.Event()
        self.tally: Final = tally or NoticeTally(receiver=rules.name)

    def wake(self) -> None:
        """Say that there may be something to tell."""
        self._wake.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            self._wake.clear()
            try:
                wait_s = await self.tell_some()
            except StoreError as error:
                logger.warning("notices wait for the store", extra={"reason": str(error)})
                await asyncio.sleep(_STORE_PAUSE_S)
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def tell_some(self) -> float | None:
        """Tell what may be told now; return the seconds until more may be, ``None`` where nothing is owed."""
        name = self._rules.name
        while True:
            now_ns = self._now_ns()
            attempts, next_ns = cast("tuple[int, int]", await self._in_db(self._store.put_off_until, name))
            if now_ns < next_ns:
                return (next_ns - now_ns) / _SECOND_NS
            owed: list[Owed] = await self._in_db(self._store.owed, name)
            stale = [one.id for one in owed if now_ns - one.notice.at_ns > _TOO_OLD_NS]
            if stale:
                await self._give_up(stale, "older than a day", now_ns)
                continue
            if not owed:
                return None
            told: list[int] = await self._in_db(self._store.told_since, name, now_ns - _HOUR_NS)
            allowance = self._rules.per_hour - len(told)
            if allowance <= 0:
                return (told[0] + _HOUR_NS - now_ns) / _SECOND_NS
            batch = owed if allowance == 1 else owed[:1]
            answer = await self._poster.post(
                self._rules.write(merged(batch), self._rules.links), f"{name}-{batch[0].id}-{batch[-1].id}"
            )
            if answer.fate is Fate.LATER:
                return await self._put_off(answer, attempts)
            # Noted though we are cancelled now: what the receiver has shall not be told anew.
            await asyncio.shield(self._done(batch, answer))

    async def _done(self, batch: list[Owed], answer: Answer) -> None:
        ids = [one.id for one in batch]
        if answer.fate is Fate.REFUSED:
            await self._give_up(ids, answer.reason, self._now_ns())
            return
        self.tally.sent += 1
        self.tally.merged += len(batch) - 1
        await self._in_db(lambda: self._store.told(self._rules.name, ids, self._now_ns(), is_taken=True))

    async def _give_up(self, ids: list[int], reason: str, now_ns: int) -> None:
        self.tally.dropped += len(ids)
        logger.warning(
            "notices are given up", extra={"receiver": self._rules.name, "count": len(ids), "reason": reason}
        )
        await self._in_db(lambda: self._store.told(self._rules.name, ids, now_ns, is_taken=False))

    async def _put_off(self, answer: Answer, attempts: int) -> float:
        self.tally.failed += 1
        longest_s = min(_FIRST_WAIT_S * (1 << min(attempts, _MOST_DOUBLINGS)), _LONGEST_WAIT_S)
        wait_s = longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        wait_s = max(wait_s, answer.after_s or 0.0)
        logger.warning(
            "receiver cannot be told now",
            extra={"receiver": self._rules.name, "reason": answer.reason, "again_in_s": round(wait_s, 1)},
        )
        next_ns = self._now_ns() + int(wait_s * _SECOND_NS)
        await self._in_db(self._store.put_off, self._rules.name, attempts + 1, next_ns)
        return wait_s


def merged(batch: list[Owed]) -> Notice:
    """Return the one notice, or one that stands for all of them."""
    if len(batch) == 1:
        return batch[0].notice
    last = batch[-1].notice
    titles = list(dict.fromkeys(one.notice.title for one in batch))
    more = f"; and {len(titles) - _TITLES} more" if len(titles) > _TITLES else ""
    tenants = {one.notice.tenant for one in batch}
    return Notice(
        kind=NoticeKind.MORE,
        tenant=tenants.pop() if len(tenants) == 1 else "",
        at_ns=last.at_ns,
        title=f"{len(batch)} more notices, of what there is too much to tell one by one",
        text="; ".join(titles[:_TITLES]) + more,
        count=len(batch),
    )
