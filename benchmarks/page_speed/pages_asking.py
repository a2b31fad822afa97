"""Open-loop page requests: sent at a steady pace, with the latency or timeout of each.

Sequential requests would hide a stall: while one waits, those that others would have sent meanwhile are not
counted. So each is sent at its time, whether or not earlier ones are answered. A person gives up after a
while: such a request counts as having taken at least that long.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import ClientSession, ClientTimeout, TCPConnector

_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Took:
    """Latency of one request; requests that timed out sort above all answered ones."""

    is_given_up: bool = False
    """Whether it timed out: then its latency is a lower bound."""
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Pace of requests for a page."""

    seconds: float
    every_s: float
    patience_s: float
    """Timeout of each request."""


async def asked(addresses: Sequence[str], pace: Pace) -> list[list[Took]]:
    """Request each address in turn; return the latencies of each."""
    timeout = ClientTimeout(total=pace.patience_s)
    async with ClientSession(timeout=timeout, connector=TCPConnector(limit=0)) as session:
        began = time.monotonic()
        tasks: list[asyncio.Task[Took]] = []
        for number in range(math.ceil(pace.seconds / pace.every_s)):
            await asyncio.sleep(began + number * pace.every_s - time.monotonic())
            address = addresses[number % len(addresses)]
            tasks.append(asyncio.create_task(_took(session, address, pace.patience_s)))
        took = await asyncio.gather(*tasks)
    return [took[place :: len(addresses)] for place in range(len(addresses))]


async def _took(session: ClientSession, address: str, patience_s: float) -> Took:
    began = time.perf_counter()
    try:
        async with session.get(address) as answer:
            await answer.read()
            assert answer.status == 200, address
    except TimeoutError:
        return Took(ms=patience_s * _MS, is_given_up=True)
    return Took(ms=(time.perf_counter() - began) * _MS)


def told(took: Sequence[Took]) -> dict[str, Any]:
    """Return a summary of requests: how many were answered, their median and p99."""
    return {
        "n": len(took),
        "answered": sum(not one.is_given_up for one in took),
        "median_ms": shown(quantile(took, 0.5).at),
        "p99": interval(quantile(took, 0.99)),
        "slowest_ms": shown(max(took)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """An order statistic with its 95 % interval by ranks; ``None`` if n is too small for a bound."""

    at: Took
    low: Took | None
    high: Took | None


def quantile(took: Sequence[Took], share: float) -> Quantile:
    """Return the quantile of the latencies for a share."""
    ordered, n = sorted(took), len(took)
    spread = 1.96 * math.sqrt(n * share * (1 - share))
    low, high = math.floor(n * share - spread) - 1, math.ceil(n * share + spread)
    return Quantile(
        at=ordered[min(n - 1, math.ceil(n * share) - 1)],
        low=ordered[low] if low >= 0 else None,
        high=ordered[high] if high < n else None,
    )


def interval(found: Quantile) -> dict[str, Any]:
    """Return a quantile in printed form."""
    return {"ms": shown(found.at), "low": shown(found.low), "high": shown(found.high)}


def shown(took: Took | None) -> float | str | None:
    """Return milliseconds, preceded by ``>=`` for a request that timed out."""
    if took is None:
        return None
    return f">={took.ms:.0f}" if took.is_given_up else round(took.ms, 1)
