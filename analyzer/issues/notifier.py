"""Sends notices of issues and alarms to their receivers; with Prometheus use its alert rules instead.

Each receiver has a notifier: it sends in order and at least once, at a limited rate, and retries failures.
Telemetry never waits for a receiver: unsent notices, failed attempts and the times of recent messages are
in the store, so that a restart neither loses notices nor sends too many. If there are more notices than the
hourly limit allows, the last message of the hour summarises the rest.

``receivers.py`` says which receivers there are. Requests of ours are signed, bounded in time, and follow no
redirect.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import Any, Final, TypeAlias, cast

import aiohttp

from analyzer.issues.issue_store import IssueStore, UnsentNotice
from analyzer.issues.recurrence import Notice, NoticeKind
from collector_processor.core.disk import StoreError


@dataclass(slots=True, kw_only=True)
class DeliveryCounters:
    """The counts of one receiver; they only grow."""

    receiver: str
    sent: int = 0
    """Messages that the receiver accepted."""
    failed: int = 0
    """Messages that did not reach it, and are sent again."""
    merged: int = 0
    """Notices sent as part of another notice's message."""
    dropped: int = 0
    """Notices that were given up."""


TIMEOUT_S: Final = 10.0
MOST_WAIT_S: Final = 3600.0
"""Bound on the wait that a receiver can request."""
_BUSY: Final = frozenset({408, 425, 429})


class Fate(Enum):
    """Outcome of sending a message."""

    TAKEN = "taken"
    REFUSED = "refused"
    """Refused permanently; sending it again would not help."""
    LATER = "later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A receiver's answer."""

    fate: Fate
    reason: str = ""
    """For the log: a status or a kind of error, never the receiver's text or address."""
    after_s: float | None = None
    """Requested time of the next attempt, if the receiver gives one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poster:
    """Posts JSON to one address."""

    url: str = field(repr=False)
    session: aiohttp.ClientSession = field(repr=False)
    secret: str | None = field(repr=False)
    wall_s: Callable[[], float] = time.time

    async def post(self, body: bytes, delivery: str) -> Answer:
        """Send one message.

        Args:
            body: JSON.
            delivery: id of the message, the same at each attempt, so that a receiver can recognise
            duplicates.
        """
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "blamespan",
            "X-Blamespan-Delivery": delivery,
        }
        if self.secret:
            stamp = str(int(self.wall_s()))
            headers |= {
                "X-Blamespan-Timestamp": stamp,
                "X-Blamespan-Signature": signature(self.secret, stamp, body),
            }
        try:
            async with self.session.post(
                self.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                return _answer(response.status, response.headers.get("Retry-After", ""))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return Answer(fate=Fate.LATER, reason=type(error).__name__)


def signature(secret: str, stamp: str, body: bytes) -> str:
    """Return the signature that a receiver checks: HMAC-SHA256 over time, a full stop, and the body."""
    return "v1=" + hmac.new(secret.encode(), stamp.encode() + b"." + body, sha256).hexdigest()


@asynccontextmanager
async def opened_session() -> AsyncIterator[aiohttp.ClientSession]:
    """Open the HTTP session: no cookies, no proxy from the environment, short timeouts."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session


def _answer(status: int, retry_after: str) -> Answer:
    if 200 <= status < 300:
        return Answer(fate=Fate.TAKEN)
    after_s = (
        min(float(retry_after), MOST_WAIT_S) if retry_after.isascii() and retry_after.isdigit() else None
    )
    if status in _BUSY or status >= 500:
        return Answer(fate=Fate.LATER, reason=f"HTTP {status}", after_s=after_s)
    return Answer(fate=Fate.REFUSED, reason=f"HTTP {status}")


logger = logging.getLogger(__name__)

_SECOND_NS: Final = 10**9
_HOUR_NS: Final = 3600 * _SECOND_NS
_TOO_OLD_NS: Final = 24 * _HOUR_NS
"""Age at which an undelivered notice is dropped as outdated; the page still shows the issue."""
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 900.0
_MOST_DOUBLINGS: Final = 12
_STORE_PAUSE_S: Final = 30.0
_TITLES: Final = 20
"""Bound on notices named individually in a summary message."""

Send: TypeAlias = Callable[[Notice, str], Awaitable[Answer]]
"""Sends one notice to a receiver. The text is the message's id, the same at each attempt."""
InDb: TypeAlias = Callable[..., Awaitable[Any]]
"""Makes a call on the store's thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifierRules:
    """Rules for notifying one receiver."""

    name: str
    """The receiver's name, under which its notices are stored."""
    per_hour: int = 20


class Notifier:
    """Notifies one receiver until cancelled."""

    def __init__(
        self,
        rules: NotifierRules,
        send: Send,
        store: IssueStore,
        in_db: InDb,
        now_ns: Callable[[], int],
        *,
        counters: DeliveryCounters | None = None,
    ) -> None:
        """Create a notifier from its parts."""
        self._rules: Final = rules
        self._send: Final = send
        self._store: Final = store
        self._in_db: Final = in_db
        self._now_ns: Final = now_ns
        self._wake: Final = asyncio.Event()
        self.counters: Final = counters or DeliveryCounters(receiver=rules.name)

    def wake(self) -> None:
        """Wake the notifier: there may be notices to send."""
        self._wake.set()

    async def run(self) -> None:
        """Send notices until cancelled."""
        while True:
            self._wake.clear()
            try:
                wait_s = await self.send_due()
            except StoreError as error:
                logger.warning("notices wait for the store", extra={"reason": str(error)})
                await asyncio.sleep(_STORE_PAUSE_S)
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def send_due(self) -> float | None:
        """Send the notices that are due; return the seconds until the next, ``None`` if there are none."""
        name = self._rules.name
        while True:
            now_ns = self._now_ns()
            attempts, next_ns = cast("tuple[int, int]", await self._in_db(self._store.next_attempt, name))
            if now_ns < next_ns:
                return (next_ns - now_ns) / _SECOND_NS
            unsent: list[UnsentNotice] = await self._in_db(self._store.unsent, name)
            stale = [notice.id for notice in unsent if now_ns - notice.notice.at_ns > _TOO_OLD_NS]
            if stale:
                await self._give_up(stale, "older than a day", now_ns)
                continue
            if not unsent:
                return None
            sent: list[int] = await self._in_db(self._store.sent_since, name, now_ns - _HOUR_NS)
            allowance = self._rules.per_hour - len(sent)
            if allowance <= 0:
                return (sent[0] + _HOUR_NS - now_ns) / _SECOND_NS
            batch = unsent if allowance == 1 else unsent[:1]
            answer = await self._send(merged(batch), f"{name}-{batch[0].id}-{batch[-1].id}")
            if answer.fate is Fate.LATER:
                return await self._put_off(answer, attempts)
            # Recorded even if we are being cancelled: delivered notices must not be sent again.
            await asyncio.shield(self._done(batch, answer))

    async def _done(self, batch: list[UnsentNotice], answer: Answer) -> None:
        ids = [notice.id for notice in batch]
        if answer.fate is Fate.REFUSED:
            await self._give_up(ids, answer.reason, self._now_ns())
            return
        self.counters.sent += 1
        self.counters.merged += len(batch) - 1
        name, now_ns = self._rules.name, self._now_ns()
        await self._in_db(lambda: self._store.forget_notices(name, ids, now_ns, is_taken=True))

    async def _give_up(self, ids: list[int], reason: str, now_ns: int) -> None:
        self.counters.dropped += len(ids)
        logger.warning(
            "notices dropped", extra={"receiver": self._rules.name, "count": len(ids), "reason": reason}
        )
        await self._in_db(lambda: self._store.forget_notices(self._rules.name, ids, now_ns, is_taken=False))

    async def _put_off(self, answer: Answer, attempts: int) -> float:
        self.counters.failed += 1
        longest_s = min(_FIRST_WAIT_S * (1 << min(attempts, _MOST_DOUBLINGS)), _LONGEST_WAIT_S)
        wait_s = longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        wait_s = max(wait_s, answer.after_s or 0.0)
        logger.warning(
            "receiver cannot be notified: retried later",
            extra={"receiver": self._rules.name, "reason": answer.reason, "again_in_s": round(wait_s, 1)},
        )
        next_ns = self._now_ns() + int(wait_s * _SECOND_NS)
        await self._in_db(self._store.postpone, self._rules.name, attempts + 1, next_ns)
        return wait_s


def merged(batch: list[UnsentNotice]) -> Notice:
    """Return the notice if there is only one, else one that summarises all."""
    if len(batch) == 1:
        return batch[0].notice
    last = batch[-1].notice
    titles = list(dict.fromkeys(notice.notice.title for notice in batch))
    more = f"; and {len(titles) - _TITLES} more" if len(titles) > _TITLES else ""
    tenants = {notice.notice.tenant for notice in batch}
    return Notice(
        kind=NoticeKind.MORE,
        tenant=tenants.pop() if len(tenants) == 1 else "",
        at_ns=last.at_ns,
        title=f"{len(batch)} more notices, too many to send one by one",
        text="; ".join(titles[:_TITLES]) + more,
        count=len(batch),
    )
