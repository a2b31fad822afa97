"""OTLP receiver over HTTP: protobuf or JSON, compressed or not; the sink gets protobuf.

Uses aiohttp's low-level server: a few fixed paths need no router, and bodies are decompressed here, with a
limit.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiohttp import HttpVersion11, web

from collector_processor.core.headers import WRONG_TOKEN_S
from collector_processor.core.http_server import DEFAULT_CONNECTIONS, ProtocolLogger, listening
from collector_processor.otlp import (
    Address,
    CollectorError,
    MalformedRequestError,
    RefusedError,
    Signal,
    Sink,
    http_path,
)
from collector_processor.otlp.answers import MediaType, RpcCode, failure, success
from collector_processor.otlp.tls import TlsFiles
from collector_processor.receivers.admission import (
    BROKEN,
    AdmissionRules,
    Refusal,
    TurnedAwayError,
    admit,
    hand_over,
    refusal_of,
    require_local,
    too_large,
)
from collector_processor.receivers.decompression import IDENTITY, Unpacking
from collector_processor.receivers.overload import (
    DEFAULT_BUFFER_BYTES,
    BufferBudget,
    Lease,
    WhenFull,
    keep_memory,
)

logger = logging.getLogger(__name__)
_SIGNALS: Final[Mapping[str, Signal]] = {http_path(signal): signal for signal in Signal}
_PATHS: Final = ", ".join(_SIGNALS)
Beside: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
NOTHING_BESIDE: Final[Mapping[str, Beside]] = {}
_CHARSETS: Final = frozenset({"", "utf-8", "utf8", "us-ascii"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTimeouts:
    """Timeouts for clients, in seconds."""

    body_s: float = 60.0
    """Time limit for the whole body: allows 20 MiB at 3 Mbit/s."""
    idle_s: float = 120.0
    """Between requests, and for a request's head; longer than Go's client keeps connections (90 s)."""
    lingering_s: float = 5.0
    """Time to keep reading after a refusal, so that the client can read the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits over all clients together."""

    bytes: int = DEFAULT_BUFFER_BYTES
    """Bytes of buffered bodies, compressed and decompressed."""
    connections: int = DEFAULT_CONNECTIONS


class HttpReceiver:
    """``/v1/traces``, ``/v1/logs`` and ``/v1/metrics`` on one port."""

    def __init__(
        self,
        sink: Sink,
        listen: Address,
        rules: AdmissionRules,
        tls: TlsFiles | None = None,
        *,
        timeouts: HttpTimeouts | None = None,
        limits: HttpLimits | None = None,
        when_full: WhenFull = keep_memory,
        beside: Mapping[str, Beside] = NOTHING_BESIDE,
    ) -> None:
        """Create it; ``start`` listens.

        Args:
            sink: takes the requests.
            listen: the address to listen on.
            rules: conditions for requests.
            tls: server certificate; without it the connection is not encrypted.
            timeouts: for slow clients.
            limits: over all clients together.
            when_full: called for each request refused because we are full.
            beside: answers GET requests of further paths, such as health; it decides who may ask.
        """
        self._sink = sink
        self._listen = listen
        self._rules = rules
        self._tls = tls
        self._timeouts = timeouts or HttpTimeouts()
        self._max_connections = (limits or HttpLimits()).connections
        self._budget = BufferBudget((limits or HttpLimits()).bytes)
        self._when_full = when_full
        self._beside = beside
        self._unpacking = Unpacking(rules.max_bytes)
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen, and return the bound port; inside the running loop.

        Raises:
            ListenError: the address is in use or not this machine's, or a TLS file cannot be read.
        """
        server = web.Server(
            self._answer,
            auto_decompress=False,
            access_log=None,
            logger=ProtocolLogger(f"{__name__}.protocol"),
            keepalive_timeout=self._timeouts.idle_s,
            lingering_time=self._timeouts.lingering_s,
        )
        self._listener = await listening(
            server, self._listen, self._tls, ssl.CERT_REQUIRED, most=self._max_connections, backlog=1024
        )
        self._server = server
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        """Accept no more requests; running requests have ``grace_s`` seconds to end."""
        if self._listener is None or self._server is None:
            return
        self._listener.close()
        self._server.pre_shutdown()
        # aiohttp waits this long twice, for the handler and then its connection; 0 would mean forever.
        await self._server.shutdown(max(grace_s / 2, 0.01))
        self._listener = self._server = None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path in self._beside and request.method in {"GET", "HEAD"}:
            return await self._beside[request.path](request)
        response = await self._answer_without_cors(request)
        response.headers.update(self._rules.cors.answer(request.headers))
        return response

    async def _answer_without_cors(self, request: web.BaseRequest) -> web.Response:
        try:
            return await self._take(request)
        except CollectorError as error:
            refusal = refusal_of(error)
            if isinstance(error, RefusedError):
                self._when_full()
        except Exception:  # the error is contained in one request; the service lives on
            logger.exception(
                "internal error: the request was answered with 500", extra={"path": request.path[:40]}
            )
            refusal = BROKEN
        if refusal.code is RpcCode.UNAUTHENTICATED:
            await asyncio.sleep(WRONG_TOKEN_S)
        logger.debug("request refused", extra={"path": request.path[:40], "status": refusal.http_status})
        self._rules.refused(refusal.cause)
        return _refused(refusal, _media_type(request) or MediaType.JSON)

    async def _take(self, request: web.BaseRequest) -> web.Response:
        require_local(request.headers.get("Host", ""), self._rules)
        preflight = self._rules.cors.preflight(request.method, request.headers)
        if preflight is not None and request.path in _SIGNALS:
            return web.Response(status=204, headers=preflight)
        signal = _signal(request)
        caller = admit(request.headers.items(), self._rules, request.remote or "")
        media = _media_type(request)
        if media is None:
            raise _unsupported_type(request)
        with self._budget.lease(caller.client) as lease:
            body = await self._protobuf(request, signal, media, lease)
            receipt = await hand_over(self._sink, signal, body, caller)
        return web.Response(body=success(signal, receipt, media), content_type=media.value)

    async def _protobuf(
        self, request: web.BaseRequest, signal: Signal, media: MediaType, lease: Lease
    ) -> bytes:
        """Return the request's body as protobuf: read, decompressed, converted."""
        body = await self._read(request, lease)
        encoding = request.headers.get("Content-Encoding", "")
        if encoding.strip().lower() not in {"", IDENTITY}:
            body = await self._unpacking.decompress(body, encoding, request.remote or "")
            lease.hold(len(body))
        if media is MediaType.JSON and body:
            body = await self._unpacking.convert(signal, body, request.remote or "")
        return body

    async def _read(self, request: web.BaseRequest, lease: Lease) -> bytes:
        limit = self._rules.max_bytes
        if (request.content_length or 0) > limit:
            raise too_large(limit)
        if request.version == HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # as aiohttp's own handler does: the response has not begun
        try:
            if request.content.is_eof():  # a small body is here already: no wait, and a timeout costs time
                return await _read_bounded(request, limit, lease)
            async with asyncio.timeout(self._timeouts.body_s):
                return await _read_bounded(request, limit, lease)
        except TimeoutError as error:
            raise _too_slow(self._timeouts.body_s) from error
        except (ConnectionError, web.RequestPayloadError) as error:
            # The client disconnected or sent invalid HTTP; the response is for the latter.
            raise MalformedRequestError(f"the body is incomplete: {type(error).__name__}") from error


async def _read_bounded(request: web.BaseRequest, limit: int, lease: Lease) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := await request.content.readany():
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        lease.hold(size)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _signal(request: web.BaseRequest) -> Signal:
    signal = _SIGNALS.get(request.path)
    if signal is None:
        reason = f"no such path: expected one of {_PATHS}"
        raise TurnedAwayError(Refusal(code=RpcCode.NOT_FOUND, http_status=404, reason=reason))
    if request.method != "POST":
        raise TurnedAwayError(
            Refusal(
                code=RpcCode.UNIMPLEMENTED,
                http_status=405,
                reason="expected POST",
                http_headers={"Allow": "POST"},
            )
        )
    return signal


def _media_type(request: web.BaseRequest) -> MediaType | None:
    """Return the media type of the request and its response; ``None`` if it is not one of OTLP's."""
    try:
        media = MediaType(request.content_type)
    except ValueError:
        return None
    return media if (request.charset or "").lower() in _CHARSETS else None


def _unsupported_type(request: web.BaseRequest) -> TurnedAwayError:
    given = request.headers.get("Content-Type", "none")[:80]
    known = ", ".join(MediaType)
    return TurnedAwayError(
        Refusal(
            code=RpcCode.INVALID_ARGUMENT,
            http_status=415,
            reason=f"Content-Type {given!r}: expected one of {known}, in UTF-8",
            http_headers={"Accept": known},
        )
    )


def _too_slow(limit_s: float) -> TurnedAwayError:
    reason = f"expected the whole body within {limit_s:g} s"
    return TurnedAwayError(
        Refusal(
            code=RpcCode.DEADLINE_EXCEEDED,
            http_status=408,
            reason=reason,
            http_headers={"Connection": "close"},
        )
    )


def _refused(refusal: Refusal, media: MediaType) -> web.Response:
    body = failure(refusal.code, refusal.reason, retry_after_s=refusal.retry_after_s, media=media)
    headers = {**refusal.http_headers, **refusal.retry_after_header}
    return web.Response(status=refusal.http_status, body=body, content_type=media.value, headers=headers)
