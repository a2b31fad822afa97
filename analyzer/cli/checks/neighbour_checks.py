"""Checks of neighbours: this service's own listener, analyzers, notification receivers, their clocks.

A check asks a neighbour for its health, or opens and closes a connection; it sends no message. Only
scheme, host and port of an address are shown: the rest of a web hook's URL is secret.

The clock check compares this machine's clock with theirs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from analyzer.cli.checks.local_checks import Finding, Health, failed, ok, warning
from analyzer.executor.codec import OFFER_PATH

Clock = Callable[[], float]

TIMEOUT_S: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}
_UNAUTHORISED: Final = frozenset({401, 403})
_OK: Final = 200
_MOST_TEXT: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Result of checking one neighbour."""

    name: str
    finding: Finding
    ahead_s: float | None = None
    """Seconds by which its clock is ahead of ours; ``None`` if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    text: str
    """The beginning of its body."""
    ahead_s: float | None


async def check_listener(url: str, clock: Clock, tls: ssl.SSLContext | None) -> Finding:
    """Check whether blamespan listens on our own address."""
    try:
        answer = await _get(f"{url}/readyz", clock, tls)
        health = await _get(f"{url}/healthz", clock, tls)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        mend = "look at its log; if it is another program, set another port"
        detail = f"{url} is taken and does not answer: {type(error).__name__}"
        return failed("service", detail, mend)
    if answer.status == _OK and health.text.startswith("degraded"):
        detail = "; ".join(health.text.split("\n")[1:]).strip("; ")
        return failed(
            "service",
            f"{url} answers, but {detail}",
            "its log says why: free or mend the disk, or start the server",
        )
    if answer.status == _OK:
        return ok("service", f"{url} answers, ready")
    detail = f"{url} answers HTTP {answer.status}: it is starting, stopping, or not blamespan"
    return warning("service", detail, "try again, then look at its log")


async def check_analyzer(
    endpoint: str, token: str | None, clock: Clock, tls: ssl.SSLContext | None
) -> Neighbour:
    """Check whether analyzers are reachable, ready, and accept our token; ``clock`` gives Unix seconds."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        ready = await _get(f"{endpoint.rstrip('/')}/readyz", clock, tls)
        known = await _get(f"{endpoint.rstrip('/')}{OFFER_PATH}", clock, tls, headers)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        detail = f"{shown(endpoint)} cannot be reached: {type(error).__name__}; signals answer instead"
        mend = "start `blamespan analyzer` there, or correct BLAMESPAN_ANALYZER_ENDPOINT"
        return Neighbour(name="analyzer", finding=failed("analyzer", detail, mend))
    if known.status in _UNAUTHORISED:
        detail = f"{shown(endpoint)} does not accept our token"
        mend = "set the same BLAMESPAN_TOKEN on both sides"
        return Neighbour(name="analyzer", finding=failed("analyzer", detail, mend), ahead_s=known.ahead_s)
    if ready.status != _OK:
        detail = f"{shown(endpoint)} is not ready: HTTP {ready.status}"
        return Neighbour(
            name="analyzer", finding=failed("analyzer", detail, "look at its log"), ahead_s=ready.ahead_s
        )
    well = ok("analyzer", f"{shown(endpoint)} answers, ready")
    return Neighbour(name="analyzer", finding=well, ahead_s=ready.ahead_s)


async def check_notifiers(receivers: Mapping[str, str]) -> list[Neighbour]:
    """Check whether each receiver of notices (name to address) can be reached; nothing is sent."""
    return [await _check_notifier(name, url) for name, url in receivers.items()]


def shown(url: str) -> str:
    """Return the part of an address that is not secret."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


async def _check_notifier(name: str, url: str) -> Neighbour:
    mend = f"correct BLAMESPAN_NOTIFY_{name.upper()}, or let us reach it"
    try:
        await _connect(url)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        detail = f"{shown(url)} cannot be reached: {type(error).__name__}"
        return Neighbour(name=name, finding=failed(f"notifier {name}", detail, mend))
    return Neighbour(
        name=name, finding=ok(f"notifier {name}", f"{shown(url)} can be reached; nothing was sent")
    )


async def _connect(url: str) -> None:
    """Connect, with TLS for ``https``, and disconnect."""
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
        return _Answer(
            status=answer.status,
            text=(await answer.content.read(_MOST_TEXT)).decode("utf-8", "replace"),
            ahead_s=_ahead_s(answer.headers.get("Date", ""), clock()),
        )


def _ahead_s(date: str, now_s: float) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - now_s
    except ValueError:
        return None


TOLERATED_S: Final = 5.0
"""Tolerated difference: HTTP dates have whole seconds, and smaller differences do no harm."""
MOST_S: Final = 120.0
"""Difference beyond which signatures are refused as old and spans look late or from the future."""


def check_clock(neighbours: Sequence[Neighbour]) -> Finding:
    """Compare this clock with the dates in the neighbours' answers."""
    known = [one for one in neighbours if one.ahead_s is not None]
    if not known:
        detail = "not compared: needs an analyzer that answers"
        return Finding(check="clock", health=Health.SKIPPED, detail=detail)
    worst = max(known, key=lambda one: abs(one.ahead_s or 0.0))
    ahead_s = worst.ahead_s or 0.0
    detail = f"agrees with {', '.join(one.name for one in known)} to {abs(ahead_s):.0f} s"
    if abs(ahead_s) <= TOLERATED_S:
        return ok("clock", detail)
    where = "behind" if ahead_s > 0 else "ahead of"
    return Finding(
        check="clock",
        health=Health.WARNING if abs(ahead_s) <= MOST_S else Health.FAILED,
        detail=f"ours is {abs(ahead_s):.0f} s {where} that of the {worst.name}",
        mend="let both machines set their clocks by NTP",
    )
