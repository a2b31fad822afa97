"""One request to one receiver: signed, bounded in time, no redirect followed. A shell."""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import Final

import aiohttp

TIMEOUT_S: Final = 10.0
MOST_WAIT_S: Final = 3600.0
"""However long a receiver asks us to wait."""
_BUSY: Final = frozenset({408, 425, 429})


class Fate(Enum):
    """What became of a message."""

    TAKEN = "taken"
    REFUSED = "refused"
    """For good: said again it would be refused again."""
    LATER = "later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a receiver answered."""

    fate: Fate
    reason: str = ""
    """For the log: a status or a kind of error, never a word of the receiver's or its address."""
    after_s: float | None = None
    """When to come again, where the receiver says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poster:
    """Posts JSON to one address."""

    url: str = field(repr=False)
    session: aiohttp.ClientSession = field(repr=False)
    secret: str | None = field(default=None, repr=False)
    wall_s: Callable[[], float] = time.time

    async def post(self, body: bytes, delivery: str = "") -> Answer:
        """Send one message.

        Args:
            body: JSON.
            delivery: the same for the same message however often it is sent, so that a
                receiver can tell; empty for none.
        """
        headers = {"Content-Type": "application/json", "User-Agent": "blamespan"}
        if delivery:
            headers["X-Blamespan-Delivery"] = delivery
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
    """Return what a receiver checks: HMAC-SHA256 over time, a full stop, and the body."""
    return "v1=" + hmac.new(secret.encode(), stamp.encode() + b"." + body, sha256).hexdigest()


@asynccontextmanager
async def opened_session() -> AsyncIterator[aiohttp.ClientSession]:
    """Open what requests are made with: no cookies, no proxy of the environment, nothing awaited for long."""
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
