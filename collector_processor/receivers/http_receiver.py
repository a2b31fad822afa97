"""OTLP over HTTP: protobuf and JSON, compressed or not, as protobuf to the sink.

Stands on aiohttp's low-level server: three fixed paths need no router, and the
bodies are decompressed here, with a limit.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import HttpVersion11, web

from collector_processor.otlp import CollectorError, MalformedRequestError, RefusedError, Signal, Sink
from collector_processor.otlp.answers import MediaType, RpcCode, failure, success
from collector_processor.otlp.from_json import to_protobuf
from collector_processor.otlp.services import http_path
from collector_processor.receivers.admission import DoorRules, admit, hand_over, require_local
from collector_processor.receivers.decompression import IDENTITY, decompress
from collector_processor.receivers.listening import ListenError
from collector_processor.receivers.protocol_log import ProtocolLogger
from collector_processor.receivers.refusal import BROKEN, Refusal, TurnedAwayError, refusal_of, too_large
from collector_processor.receivers.room import (
    DEFAULT_CONNECTIONS,
    DEFAULT_ROOM_BYTES,
    Lease,
    Room,
    with_room,
)
from collector_processor.receivers.trimming import AfterRefusal, leave_memory
from collector_processor.settings import Address
from collector_processor.tls import ServerTls, TlsFiles, reason_of

logger = logging.getLogger(__name__)

_SIGNALS: Final[Mapping[str, Signal]] = {http_path(signal): signal for signal in Signal}
_PATHS: Final = ", ".join(_SIGNALS)
_CHARSETS: Final = frozenset({"", "utf-8", "utf8", "us-ascii"})
# Below this, decompressing or converting takes less time than a thread's hand-over.
_INLINE_BYTES: Final = 64 << 10
# Large bodies being unpacked or converted at once: each may take several times its size meanwhile.
_UNPACKING: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPatience:
    """How long a client may take, in seconds."""

    body_s: float = 60.0
    """For a whole body: 20 MiB at 3 Mbit/s."""
    idle_s: float = 120.0
    """Between requests, and for a request's head. Longer than Go's client keeps connections (90 s)."""
    lingering_s: float = 5.0
    """Reading on after a refusal, so that the client gets to read the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRoom:
    """How much is taken at once, of all clients together."""

    bytes: int = DEFAULT_ROOM_BYTES
    """Of bodies, as they come and unpacked."""
    connections: int = DEFAULT_CONNECTIONS


class HttpReceiver:
    """``/v1/traces``, ``/v1/logs`` and ``/v1/metrics`` on one port."""

    def __init__(
        self,
        sink: Sink,
        listen: Address,
        rules: DoorRules,
        tls: TlsFiles | None = None,
        *,
        patience: HttpPatience | None = None,
        room: HttpRoom | None = None,
        after_refusal: AfterRefusal = leave_memory,
    ) -> None:
        """Make it.

        Args:
            sink: takes the requests.
            listen: where.
            rules: who may come in.
            tls: its identity; by default it speaks plainly.
            patience: how long a client may take.
            room: how much is taken at once.
            after_refusal: told of each request that we are too full for.
        """
        self._sink = sink
        self._listen = listen
        self._rules = rules
        self._tls = tls
        self._patience = patience or HttpPatience()
        self._most_connections = (room or HttpRoom()).connections
        self._room = Room((room or HttpRoom()).bytes)
        self._after_refusal = after_refusal
        self._unpacking = asyncio.Semaphore(_UNPACKING)
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen, and return the bound port; inside the running loop.

        Raises:
            ListenError: the address is taken or not ours, or a TLS file cannot be read.
        """
        server = web.Server(
            self._answer,
            auto_decompress=False,
            access_log=None,
            logger=ProtocolLogger(f"{__name__}.protocol"),
            keepalive_timeout=self._patience.idle_s,
            lingering_time=self._patience.lingering_s,
        )
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                with_room(server, self._most_connections),
                self._listen.host,
                self._listen.port,
                ssl=self._ssl_context(),
                backlog=1024,
            )
        except (OSError, ValueError) as error:
            raise ListenError(self._listen, reason_of(error)) from error
        self._server = server
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        """Take no more requests; those under way have ``grace_s`` seconds to end."""
        if self._listener is None or self._server is None:
            return
        self._listener.close()
        self._server.pre_shutdown()
        # aiohttp waits this long twice, for the handler and then for its connection; 0 would be for ever.
        await self._server.shutdown(max(grace_s / 2, 0.01))
        self._listener = self._server = None

    def _ssl_context(self) -> ssl.SSLContext | None:
        return None if self._tls is None else ServerTls(self._tls).context()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        response = await self._answer_anybody(request)
        response.headers.update(self._rules.cors.answer(request.headers))
        return response

    async def _answer_anybody(self, request: web.BaseRequest) -> web.Response:
        try:
            return await self._take(request)
        except CollectorError as error:
            refusal = refusal_of(error)
            if isinstance(error, RefusedError):
                self._after_refusal()
        except Exception:  # one work item: the request; the service lives on
            logger.exception("receiver failed", extra={"path": request.path[:40]})
            refusal = BROKEN
        logger.debug("request refused", extra={"path": request.path[:40], "status": refusal.http_status})
        self._rules.refused(refusal.cause)
        return _refused(refusal, _media_type(request) or MediaType.JSON)

    async def _take(self, request: web.BaseRequest) -> web.Response:
        require_local(request.headers.get("Host", ""), self._rules)
        leave = self._rules.cors.preflight(request.method, request.headers)
        if leave is not None and request.path in _SIGNALS:
            return web.Response(status=204, headers=leave)
        signal = _signal(request)
        caller = admit(request.headers.items(), self._rules)
        media = _media_type(request)
        if media is None:
            raise _unsupported_type(request)
        with self._room.lease() as lease:
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
            body = await self._apart(body, lambda: decompress(body, encoding, self._rules.max_bytes))
            lease.hold(len(body))
        if media is MediaType.JSON and body:
            plain = body
            body = await self._apart(plain, lambda: to_protobuf(signal, plain))
        return body

    async def _apart(self, body: bytes, work: Callable[[], bytes]) -> bytes:
        """Do what takes long for large bodies beside the event loop, few at once."""
        if len(body) < _INLINE_BYTES:
            return work()
        async with self._unpacking:
            return await asyncio.to_thread(work)

    async def _read(self, request: web.BaseRequest, lease: Lease) -> bytes:
        limit = self._rules.max_bytes
        if (request.content_length or 0) > limit:
            raise too_large(limit)
        if request.version == HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # what aiohttp's own handler does: the answer is still to come
        try:
            async with asyncio.timeout(self._patience.body_s):
                return await _read_bounded(request, limit, lease)
        except TimeoutError as error:
            raise _too_slow(self._patience.body_s) from error
        except (ConnectionError, web.RequestPayloadError) as error:
            # The client is gone, or broke its own framing; the answer is for the latter.
            raise MalformedRequestError(f"the body broke off: {type(error).__name__}") from error


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
    """Return the request's type, which is the answer's too; ``None`` if it is not OTLP's."""
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
