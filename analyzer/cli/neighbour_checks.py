"""Who is talked to besides the backend: our own doors, analyzers, and those who are told of issues.

A neighbour is asked for its health at most, or connected to and left: nobody is told anything.
Of an address only scheme, host and port are shown: the rest of a web hook's is its secret.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from analyzer.checkup.finding import Finding, Health

Clock = Callable[[], float]

TIMEOUT_S: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}
_UNAUTHORISED: Final = frozenset({401, 403})
_OK: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Somebody who answered, or did not."""

    name: str
    finding: Finding
    ahead_s: float | None = None
    """How far its clock is ahead of ours; ``None`` where it did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    ahead_s: float | None


async def check_door(url: str, clock: Clock, tls: ssl.SSLContext | None) -> Finding:
    """Say whether it is a blamespan that listens at our own address."""
    try:
        answer = await _get(f"{url}/readyz", clock, tls)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        mend = "look at its log; if it is another program, set another port"
        detail = f"{url} is taken and does not answer: {type(error).__name__}"
        return Finding(check="service", health=Health.FAILED, detail=detail, mend=mend)
    if answer.status == _OK:
        return Finding(check="service", health=Health.OK, detail=f"{url} answers, ready")
    detail = f"{url} answers HTTP {answer.status}: it starts, ends, or is not blamespan"
    return Finding(check="service", health=Health.WARNING, detail=detail, mend="ask again, look at its log")


async def check_analyzer(
    endpoint: str, token: str | None, clock: Clock, tls: ssl.SSLContext | None
) -> Neighbour:
    """Say whether analyzers are there, ready, and take our token.

    Args:
        endpoint: as the settings have it.
        token: likewise.
        clock: tells seconds since 1970.
        tls: whom we trust and what we show.
    """
    failed = partial(_failed, "analyzer")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        ready = await _get(f"{endpoint.rstrip('/')}/readyz", clock, tls)
        known = await _get(f"{endpoint.rstrip('/')}/metrics", clock, tls, headers)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        detail = f"{shown(endpoint)} cannot be reached: {type(error).__name__}; signals answer instead"
        mend = "start `blamespan analyzer` there, or correct BLAMESPAN_ANALYZER_ENDPOINT"
        return Neighbour(name="analyzer", finding=failed(detail, mend))
    if known.status in _UNAUTHORISED:
        detail = f"{shown(endpoint)} does not take our token"
        mend = "set the same BLAMESPAN_TOKEN on both sides"
        return Neighbour(name="analyzer", finding=failed(detail, mend), ahead_s=known.ahead_s)
    if ready.status != _OK:
        detail = f"{shown(endpoint)} is not ready: HTTP {ready.status}"
        return Neighbour(name="analyzer", finding=failed(detail, "look at its log"), ahead_s=ready.ahead_s)
    well = Finding(check="analyzer", health=Health.OK, detail=f"{shown(endpoint)} answers, ready")
    return Neighbour(name="analyzer", finding=well, ahead_s=ready.ahead_s)


async def check_notifiers(receivers: Mapping[str, str], clock: Clock) -> list[Neighbour]:
    """Say whether those can be reached who are told of issues: connected to, told nothing.

    Args:
        receivers: addresses by name; ``alertmanager`` is asked for its health.
        clock: tells seconds since 1970.
    """
    return [await _check_notifier(name, url, clock) for name, url in receivers.items()]


def shown(url: str) -> str:
    """Return as much of an address as may be shown."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


async def _check_notifier(name: str, url: str, clock: Clock) -> Neighbour:
    mend = f"correct BLAMESPAN_NOTIFY_{name.upper()}, or let us reach it"
    failed, answer = partial(_failed, f"notifier {name}"), None
    try:
        if name == "alertmanager":
            answer = await _get(f"{url.rstrip('/')}/-/healthy", clock, None)
        else:
            await _connect(url)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        detail = f"{shown(url)} cannot be reached: {type(error).__name__}"
        return Neighbour(name=name, finding=failed(detail, mend))
    if answer is not None and answer.status != _OK:
        detail = f"{shown(url)} answers HTTP {answer.status}: is it an Alertmanager?"
        return Neighbour(name=name, finding=failed(detail, mend))
    detail = f"{shown(url)} can be reached; nothing was sent"
    well = Finding(check=f"notifier {name}", health=Health.OK, detail=detail)
    return Neighbour(name=name, finding=well, ahead_s=answer.ahead_s if answer else None)


def _failed(check: str, detail: str, mend: str) -> Finding:
    return Finding(check=check, health=Health.FAILED, detail=detail, mend=mend)


async def _connect(url: str) -> None:
    """Connect, with TLS where the address says so, and leave."""
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    async with asyncio.timeout(TIMEOUT_S):
        _, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
        writer.close()
        await writer.wait_closed()


async def _get(
    url: str, clock: Clock, tls: ssl.SSLContext | None, headers: Mapping[str, str] | None = None
) -> _Answer:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(url, headers=headers, allow_redirects=False, ssl=tls or True) as answer,
    ):
        return _Answer(status=answer.status, ahead_s=_ahead_s(answer.headers.get("Date", ""), clock()))


def _ahead_s(date: str, now_s: float) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - now_s
    except ValueError:
        return None
