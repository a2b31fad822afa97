"""OTLP over gRPC: raw request bytes in, answer bytes out; no request is parsed here.

Callers without the token are turned away by their headers alone. A request's size
limit is gRPC core's own: it stops reading, or inflating, at the limit and answers
``RESOURCE_EXHAUSTED`` without ``RetryInfo`` before our code runs. What all requests
take together is ours: each call is handled as a stream of one message, of which
nothing is read before it is asked for (``reading.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

from collector_processor.otlp import (
    CollectorError,
    MalformedRequestError,
    Receipt,
    RefusedError,
    Signal,
    Sink,
)
from collector_processor.otlp.answers import (
    RETRY_INFO_KEY,
    STATUS_DETAILS_KEY,
    failure,
    retry_info,
    success,
)
from collector_processor.otlp.services import EXPORT, FRAME_BYTES, SERVICES
from collector_processor.receivers.admission import DoorRules, admit, hand_over
from collector_processor.receivers.listening import ListenError
from collector_processor.receivers.reading import ReadingRoom, ReadingRules
from collector_processor.receivers.refusal import BROKEN, Refusal, TurnedAwayError, refusal_of, unauthorized
from collector_processor.receivers.room import DEFAULT_ROOM_BYTES, Room
from collector_processor.receivers.trimming import AfterRefusal, leave_memory
from collector_processor.settings import Address
from collector_processor.tls import ServerTls, TlsFiles, reason_of

logger = logging.getLogger(__name__)

Context: TypeAlias = Any  # grpc.aio.ServicerContext, which the stubs lack
Handler: TypeAlias = Callable[[Any, Context], Awaitable[bytes]]

_STATUS: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}

_OPTIONS: Final = (
    # A second process on our port would silently take half of the requests.
    ("grpc.so_reuseport", 0),
    # Dead peers are found in about 80 s; gRPC's default is two hours.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # SDKs and Collectors may ping as often as this; the default would hang up on them after 5 minutes.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # Each stream may hold a whole request; HTTP/2 (RFC 9113 6.5.2) advises at least 100.
    ("grpc.max_concurrent_streams", 100),
    # Else the core lets clients send ahead, on fast lines megabytes that nobody has asked for.
    ("grpc.http2.bdp_probe", 0),
    # What each call may send before its message is asked for; SDKs' batches of a few spans fit.
    ("grpc.http2.lookahead_bytes", 32 << 10),
    ("grpc.http2.max_frame_size", FRAME_BYTES),
    # Else the core takes up to 4 MiB for what a connection may send next, and keeps it while that is silent.
    ("grpc.experimental.tcp_max_read_chunk_size", 64 << 10),
)


class GrpcReceiver:
    """The trace, logs and metrics services on one port."""

    def __init__(
        self,
        sink: Sink,
        listen: Address,
        rules: DoorRules,
        tls: TlsFiles | None = None,
        *,
        room_bytes: int = DEFAULT_ROOM_BYTES,
        after_refusal: AfterRefusal = leave_memory,
    ) -> None:
        """Make it.

        Args:
            sink: takes the requests.
            listen: where.
            rules: who may come in.
            tls: its identity; by default it speaks plainly.
            room_bytes: what requests that were read may take, and at most once more those being read.
            after_refusal: told of each request that we are too full for.
        """
        self._room = Room(room_bytes)
        self._after_refusal = after_refusal
        self._reading = ReadingRoom(ReadingRules(slow=max(2, room_bytes // rules.max_bytes)))
        self._sink = sink
        self._listen = listen
        self._rules = rules
        self._tls = tls
        self._server: grpc.aio.Server | None = None
        self._credentials: grpc.ServerCredentials | None = None
        """Kept: gRPC's core calls back into it at every handshake."""

    async def start(self) -> int:
        """Listen, and return the bound port; inside the running loop.

        Raises:
            ListenError: the address is taken or not ours, or a TLS file cannot be read.
        """
        server = grpc.aio.server(
            handlers=[self._service(signal) for signal in Signal],
            interceptors=interceptors(self._rules),
            options=(*_OPTIONS, ("grpc.max_receive_message_length", self._rules.max_bytes)),
        )
        try:
            port = self._bind(server)
        except (RuntimeError, OSError, ValueError) as error:
            await server.stop(None)
            raise ListenError(self._listen, _why(error)) from error
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_s: float) -> None:
        """Take no more requests; those under way have ``grace_s`` seconds to end."""
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None

    def _bind(self, server: grpc.aio.Server) -> int:
        if self._tls is None:
            return server.add_insecure_port(str(self._listen))
        self._credentials = ServerTls(self._tls).credentials()
        return server.add_secure_port(str(self._listen), self._credentials)

    def _service(self, signal: Signal) -> grpc.GenericRpcHandler[bytes, bytes]:
        handler: Handler = partial(self._export, signal)
        method = grpc.stream_unary_rpc_method_handler(handler)
        return grpc.method_handlers_generic_handler(SERVICES[signal], {EXPORT: method})

    async def _export(self, signal: Signal, _messages: Any, context: Context) -> bytes:
        answer = await self._take(signal, context)
        if isinstance(answer, Receipt):
            return success(signal, answer)
        # Not by ``abort``: its exception keeps the call, with all that gRPC's core has read of it, in a
        # cycle until the garbage collector comes by, which bytes do not call.
        context.set_code(_STATUS[answer.code])
        context.set_details(answer.reason)
        context.set_trailing_metadata(_trailers(answer))
        return b""

    async def _take(self, signal: Signal, context: Context) -> Receipt | Refusal:
        try:
            caller = admit(context.invocation_metadata(), self._rules)
            body = _message(await self._reading.read(context.read))
            with self._room.lease() as lease:
                lease.hold(len(body))
                return await hand_over(self._sink, signal, body, caller)
        except CollectorError as error:
            refusal = refusal_of(error)
            if isinstance(error, RefusedError):
                self._after_refusal()
            logger.debug("request refused", extra={"signal": signal.value, "code": refusal.code.name})
            self._rules.refused(refusal.cause)
            return refusal
        except Exception:  # one work item: the request; the service lives on
            logger.exception("receiver failed", extra={"signal": signal.value})
            self._rules.refused(BROKEN.cause)
            return BROKEN


def interceptors(rules: DoorRules) -> Sequence[grpc.aio.ServerInterceptor]:  # type: ignore[type-arg] # as below
    """Return who stands before the services: nobody where no token is asked for, so that it costs nothing."""
    return () if rules.token is None else (_Doorkeeper(rules),)


class _Doorkeeper(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # generic in the stubs only
    """Turns callers without the token away before a byte of their message is read."""

    def __init__(self, rules: DoorRules) -> None:
        self._rules = rules
        # Of a stream, unlike of a single message, nothing is read before the handler asks for it.
        self._refusal = grpc.stream_unary_rpc_method_handler(_turn_away)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return who handles the call; its headers alone have arrived."""
        try:
            admit(details.invocation_metadata, self._rules)
        except TurnedAwayError as error:
            self._rules.refused(error.refusal.cause)
            return self._refusal
        except CollectorError:
            pass  # malformed, not unknown: it is answered where the words for it are
        return await continuation(details)


def _message(read: Any) -> bytes:
    """Return what was read; a call may end without any message."""
    if not isinstance(read, bytes):
        raise MalformedRequestError("expected a message")
    return read


async def _turn_away(_messages: Any, context: Context) -> bytes:
    refusal = unauthorized().refusal
    await context.abort(_STATUS[refusal.code], refusal.reason, _trailers(refusal))
    return b""  # never reached: abort raises


def _trailers(refusal: Refusal) -> tuple[tuple[str, bytes], ...]:
    details = failure(refusal.code, refusal.reason, retry_after_s=refusal.retry_after_s)
    status = ((STATUS_DETAILS_KEY, details),)
    if refusal.retry_after_s is None:
        return status
    return (*status, (RETRY_INFO_KEY, retry_info(refusal.retry_after_s)))


def _why(error: Exception) -> str:
    # gRPC says no more than "Failed to bind to address …; set GRPC_VERBOSITY=debug …".
    return (
        reason_of(error)
        if isinstance(error, OSError | ValueError)
        else "the address is in use, or not this machine's"
    )
