"""OTLP exporters over HTTP: protobuf unchanged, or converted to JSON; one attempt.

``JsonExporter`` is for replaying recordings and for trying out a receiver; it is slower.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Callable
from io import BytesIO
from typing import Final

import aiohttp
from yarl import URL

from collector_processor.exporters.backend import (
    HttpAnswer,
    hide_credentials,
    http_outcome,
    open_tls,
    unanswered,
    unreached,
    untraced,
)
from collector_processor.otlp import MalformedRequestError, Rejected, SendOutcome, Signal, Tenant, http_path
from collector_processor.otlp.answers import MediaType
from collector_processor.otlp.destination import Compression, Destination, DestinationError, outgoing_headers
from collector_processor.otlp.otlp_json import to_json

# Responses have tens of bytes; a longer one is not read to its end.
_MAX_ANSWER_BYTES: Final = 64 << 10
# zlib's fastest level: 3.5 times as fast as its default 6, with a third more bytes (512 spans of 1.4 KB).
_GZIP_LEVEL: Final = 1
_INLINE_BYTES: Final = 64 << 10
# aiohttp writes bytes in one piece and warns above this size; a BytesIO is written in pieces.
_ONE_WRITE_BYTES: Final = 1 << 20


class HttpExporter:
    """Exporter to one HTTP backend; create it inside the running loop."""

    def __init__(
        self,
        destination: Destination,
        instance_id: str,
        *,
        clock: Callable[[], float] = time.time,
        media: MediaType = MediaType.PROTOBUF,
    ) -> None:
        """Create it; connections are opened when needed.

        Args:
            destination: the backend.
            instance_id: our id, added to the hop header.
            clock: Unix seconds, to convert a ``Retry-After`` date.
            media: media type of the bodies given to ``send``.

        Raises:
            DestinationError: the endpoint is not a URL, or the certificate cannot be read.
        """
        self.max_bytes = destination.max_bytes
        self._destination = destination
        self._instance_id = instance_id
        self._clock = clock
        self._urls = {signal: _url(destination, signal) for signal in Signal}
        self._tls = open_tls(destination)
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=destination.timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "blamespan", "Content-Type": media.value},
        )

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Send ``body`` once and return the outcome."""
        headers = outgoing_headers(self._destination, self._instance_id, tenant, hops)
        if self._destination.compression is Compression.GZIP:
            headers["content-encoding"] = "gzip"
            body = await _compressed(body)
        try:
            with untraced():
                answer = await self._post(self._urls[signal], body, headers)
        except TimeoutError:
            return unanswered(self._place(signal), self._destination.timeout_s)
        except (aiohttp.ClientError, OSError) as error:
            outcome = unreached(self._place(signal), f"{type(error).__name__}: {error}")
            return hide_credentials(outcome, self._destination.hide)
        return hide_credentials(http_outcome(signal, answer, self._clock()), self._destination.hide)

    async def close(self) -> None:
        """Release the connections."""
        await self._session.close()

    def _place(self, signal: Signal) -> str:
        url = self._urls[signal]
        return f"{url.host}:{url.port}"

    async def _post(self, url: URL, body: bytes, headers: dict[str, str]) -> HttpAnswer:
        data = BytesIO(body) if len(body) > _ONE_WRITE_BYTES else body
        # No redirects: a POST may become a GET, or send credentials to another host.
        # aiohttp pools connections by TLS context, so a renewed certificate opens new ones.
        trust = self._tls.identity().context
        async with self._session.post(
            url, data=data, headers=headers, ssl=trust, allow_redirects=False
        ) as response:
            return HttpAnswer(
                status=response.status,
                content_type=response.content_type,
                retry_after=response.headers.get("Retry-After", ""),
                body=await _read_bounded(response),
            )


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size < _MAX_ANSWER_BYTES and (piece := await response.content.readany()):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


async def _compressed(body: bytes) -> bytes:
    if len(body) < _INLINE_BYTES:
        return gzip.compress(body, _GZIP_LEVEL)
    return await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL)


def _url(destination: Destination, signal: Signal) -> URL:
    text = (
        destination.endpoint if destination.is_exact else destination.endpoint.rstrip("/") + http_path(signal)
    )
    try:
        url = URL(text)
    except ValueError as error:
        raise DestinationError(f"endpoint {destination.shown!r}: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise DestinationError(f"endpoint {destination.shown!r}: expected http://… or https://…")
    return url


class JsonExporter:
    """Exporter that converts requests to JSON; create it inside the running loop."""

    def __init__(self, destination: Destination, instance_id: str) -> None:
        self.max_bytes = destination.max_bytes
        self._http = HttpExporter(destination, instance_id, media=MediaType.JSON)

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Send ``body`` as JSON and return the outcome; ``Rejected`` if it cannot be converted."""
        try:
            text = await asyncio.to_thread(to_json, signal, body)
        except MalformedRequestError as error:
            return Rejected(reason=f"not sent: {error}")
        return await self._http.send(signal, text, tenant, hops)

    async def close(self) -> None:
        """Release the connections."""
        await self._http.close()
