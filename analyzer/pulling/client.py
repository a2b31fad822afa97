"""Client of backends' APIs. Not pure: sockets, sleeps, the proxy that the environment names.

Redirects are not followed, because they would carry the credentials along. Certificates are checked with the
system's authorities, or those of ``SSL_CERT_FILE``. ``~/.netrc`` is not read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from analyzer.inquiry.present import plain
from analyzer.pulling.backend import Ask, Backend, Found, PullFailed, Wanted

MOST_BYTES: Final = 256 << 20
"""Size limit of one answer, as of the files that are read."""
MOST_BYTES_IN_ALL: Final = 1 << 30
MOST_REQUESTS: Final = 20_000
"""Twice what the largest ``--limit`` takes with runs of a few hundred spans."""
TRIES: Final = 4
MOST_WAIT_S: Final = 30.0
"""Longest wait before a request is repeated, whatever the backend asks for."""
TIMEOUT_S: Final = 120.0
_BUSY: Final = frozenset({429, 503})
_HEAD: Final = 300


@dataclass(slots=True, kw_only=True)
class Pulled:
    """What a backend gave, complete or until an error."""

    found: list[Found] = field(default_factory=list)
    error: PullFailed | None = None
    """Why reading ended early."""


def checked_url(url: str) -> str:
    """Return a backend's URL without a slash at its end.

    Raises:
        ValueError: it is not an address of HTTP, or has a user, a query or a fragment.
    """
    try:
        parts = urlsplit(url)
        is_sound = parts.port != 0 and parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_sound = False
    if not is_sound or "@" in parts.netloc or parts.query or parts.fragment or not url.isprintable():
        shown = "…@".join(url.split("@")[1:]) or url  # a password may stand before the sign
        raise ValueError(
            f"expected http://HOST:PORT or https://HOST:PORT, credentials in variables: {shown!r}"
        )
    return url.rstrip("/")


async def pull(backend: Backend, wanted: Wanted, url: str, headers: Mapping[str, str]) -> Pulled:
    """Ask a backend for runs.

    Args:
        backend: the backend.
        wanted: which runs.
        url: a URL that ``checked_url`` returned.
        headers: with the credentials.
    """
    pulled = Pulled()
    async with _opened(url, headers) as client:
        talk = backend.pull(wanted)
        answer: Any = None
        try:
            while True:
                said = talk.send(answer)
                if isinstance(said, Found):
                    pulled.found.append(said)
                    answer = None
                else:
                    answer = await client.answer(said)
        except StopIteration:
            pass
        except PullFailed as error:
            pulled.error = error
    return pulled


@asynccontextmanager
async def _opened(url: str, headers: Mapping[str, str]) -> AsyncIterator[_Client]:
    async with aiohttp.ClientSession(
        headers={"User-Agent": "blamespan", "Accept": "application/json", **headers},
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S, sock_connect=15.0),
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield _Client(url=url, session=session, proxy=_proxy(url), has_credentials=bool(headers))


def _proxy(url: str) -> str | None:
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


@dataclass(slots=True, kw_only=True)
class _Client:
    url: str
    session: aiohttp.ClientSession = field(repr=False)
    proxy: str | None = field(repr=False)
    has_credentials: bool
    requests: int = 0
    left: int = MOST_BYTES_IN_ALL

    async def answer(self, ask: Ask) -> Any:
        """Return the JSON of an answer.

        Raises:
            PullFailed: there is none.
        """
        for tried in range(1, TRIES + 1):
            self.requests += 1
            if self.requests > MOST_REQUESTS:
                raise PullFailed(f"{self.url}: ended after {MOST_REQUESTS} requests")
            try:
                status, wait_s, body = await self._once(ask)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                reason = _reason_of(error) or f"no answer within {TIMEOUT_S:.0f} s"
                raise PullFailed(f"{self.url}: cannot be reached: {plain(reason, _HEAD)}") from error
            if status not in _BUSY:
                return self._json(status, body)
            if tried < TRIES:
                await asyncio.sleep(min(MOST_WAIT_S, 2.0**tried if wait_s is None else wait_s))
        raise PullFailed(f"{self.url}: busy: HTTP {status} {TRIES} times")

    async def _once(self, ask: Ask) -> tuple[int, float | None, bytes]:
        query = f"?{urlencode(ask.query)}" if ask.query else ""
        async with self.session.request(
            "GET" if ask.body is None else "POST",
            URL(f"{self.url}/{ask.path}{query}", encoded=True),
            json=ask.body,
            proxy=self.proxy,
            allow_redirects=False,
        ) as response:
            if 300 <= response.status < 400:
                raise PullFailed(self._moved(response.headers.get("Location", "")))
            body = await self._bounded(response)
            return response.status, _seconds(response.headers.get("Retry-After", "")), body

    async def _bounded(self, response: aiohttp.ClientResponse) -> bytes:
        most = min(MOST_BYTES, self.left)
        pieces, size = [], 0
        async for piece in response.content.iter_chunked(1 << 16):
            size += len(piece)
            if size > most:
                raise PullFailed(
                    f"{self.url}: the answers are larger than {most >> 20} MiB: ask for fewer runs"
                )
            pieces.append(piece)
        self.left -= size
        return b"".join(pieces)

    def _moved(self, place: str) -> str:
        parts = urlsplit(place) if place.isascii() else urlsplit("")
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else "another path"
        return f"{self.url}: redirects to {plain(where, _HEAD)}: expected the final address"

    def _json(self, status: int, body: bytes) -> Any:
        if status in {401, 403}:
            how = "refuses these credentials" if self.has_credentials else "asks for credentials"
            raise PullFailed(f"{self.url}: {how} (HTTP {status})")
        if status >= 400:
            raise PullFailed(f"{self.url}: HTTP {status}{_said(body)}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            what = "a web page" if body.lstrip()[:1] == b"<" else "no JSON"
            raise PullFailed(f"{self.url}: answers with {what}: is this the address of the API?") from error


def _reason_of(error: Exception) -> str:
    """Return why a request got no answer; empty if its time was up."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return "connection refused" if isinstance(cause, ConnectionRefusedError) else str(error)


def _seconds(retry_after: str) -> float | None:
    is_number = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 6
    return float(retry_after) if is_number else None


def _said(body: bytes) -> str:
    """Return what a refusal says; nothing of a web page."""
    text = body[:4_096].decode("utf-8", "replace").strip()
    if text.startswith("{"):
        try:
            document = json.loads(body)
            text = next(
                (str(document[key]) for key in ("message", "detail", "error") if document.get(key)), ""
            )
        except (ValueError, RecursionError):
            text = ""
    return f": {plain(text, _HEAD)}" if text and not text.startswith("<") else ""
