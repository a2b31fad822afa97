"""OTLP receiver over gRPC: raw request bytes in, response bytes out; requests are not parsed here.

Callers without the token are refused by their headers alone. gRPC's core enforces the size limit of one
request: it stops reading or inflating at the limit and answers ``RESOURCE_EXHAUSTED`` without ``RetryInfo``
before our code runs. We bound all requests together: each call is handled as a stream of one message, which
is not read before we ask for it (``read_limits``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

from collector_processor.core.headers import MOST_HEADERS, WRONG_TOKEN_S
from collector_processor.core.http_server import ListenError
from collector_processor.otlp import (
    FRAME_BYTES,
    Address,
    CollectorError,
    MalformedRequestError,
    Receipt,
    RefusedError,
    Signal,
    Sink,
    grpc_path,
)
from collector_processor.otlp.answers import (
    RETRY_INFO_KEY,
    STATUS_DETAILS_KEY,
    RpcCode,
    failure,
    retry_info,
    success,
)
from collector_processor.otlp.tls import ServerTls, TlsFiles, reason_of
from collector_processor.receivers.admission import (
    BROKEN,
    AdmissionRules,
    Refusal,
    admit,
    hand_over,
    refusal_of,
)
from collector_processor.receivers.overload import (
    DEFAULT_BUFFER_BYTES,
    BufferBudget,
    MessageReads,
    ReadLimits,
    WhenFull,
    keep_memory,
)

logger = logging.getLogger(__name__)

_CORE: Final = "grpc._cython.cygrpc"
_CLIENT_GONE: Final = "ExecuteBatchError"
"""Name of the core's exception, which has no public one."""

Context: TypeAlias = Any  # grpc.aio.ServicerContext, which the stubs lack
Headers: TypeAlias = Sequence[tuple[str, str | bytes]]
Export: TypeAlias = Callable[[Signal, Headers, Any, Context], Awaitable[bytes]]

_SIGNALS: Final[Mapping[str, Signal]] = {grpc_path(signal): signal for signal in Signal}
_STATUS: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}

_OPTIONS: Final = (
    # With it, a second process on our port would silently receive half of the requests.
    ("grpc.so_reuseport", 0),
    # Detects dead peers in about 80 s; gRPC's default is two hours.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Lets SDKs and Collectors ping this often; by default they would be disconnected after 5 minutes.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # Each stream may hold a whole request; HTTP/2 (RFC 9113 6.5.2) advises at least 100.
    ("grpc.max_concurrent_streams", 100),
    # Off: it would let clients on fast networks send megabytes ahead that we did not ask for.
    ("grpc.http2.bdp_probe", 0),
    # Bytes each call may send before its message is read; SDKs' batches of a few spans fit.
    ("grpc.http2.lookahead_bytes", 32 << 10),
    # Identity and gzip, without deflate: the core answers UNIMPLEMENTED. It knows no zstd.
    ("grpc.compression_enabled_algorithms_bitset", 0b101),
    ("grpc.http2.max_frame_size", FRAME_BYTES),
    # By default the core allocates up to 4 MiB for a connection's next read, and keeps it while idle.
    ("grpc.experimental.tcp_max_read_chunk_size", 64 << 10),
)


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return whether a log record of gRPC's core reports more than a client that went away.

    The core writes a traceback for each answer that its client does not wait for: a client that cancels calls
    would fill the disk with them.
    """
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__name__ != _CLIENT_GONE


class GrpcReceiver:
    """The trace, logs and metrics services on one port."""

    def __init__(
        self,
        sink: Sink,
        listen: Address,
        rules: AdmissionRules,
        tls: TlsFiles | None = None,
        *,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        when_full: WhenFull = keep_memory,
    ) -> None:
        """Create it; ``start`` listens.

        Args:
            sink: takes the requests.
            listen: the address to listen on.
            rules: conditions for requests.
            tls: server certificate; without it the connection is not encrypted.
            buffer_bytes: budget for buffered requests; requests being read may use the same again.
            when_full: called for each request refused, or waiting among many, because we are full.
        """
        self._budget = BufferBudget(buffer_bytes)
        self._when_full = when_full
        self._reading = MessageReads(ReadLimits(slow=max(2, buffer_bytes // rules.max_bytes)), when_full)
        self._sink = sink
        self._listen = listen
        self._rules = rules
        self._tls = tls
        self._server: grpc.aio.Server | None = None
        self._credentials: grpc.ServerCredentials | None = None
        """Kept alive: gRPC's core calls it at every handshake."""

    async def start(self) -> int:
        """Listen, and return the bound port; inside the running loop.

        Raises:
            ListenError: the address is in use or not this machine's, or a TLS file cannot be read.
        """
        server = grpc.aio.server(
            handlers=[_Services(self._export)],
            options=(*_OPTIONS, ("grpc.max_receive_message_length", self._rules.max_bytes)),
        )
        try:
            port = self._bind(server)
        except (RuntimeError, OSError, ValueError) as error:
            await server.stop(None)
            raise ListenError(self._listen, _why(error)) from error
        logging.getLogger(_CORE).addFilter(is_worth_a_line)
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_s: float) -> None:
        """Accept no more requests; running requests have ``grace_s`` seconds to end."""
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None

    def _bind(self, server: grpc.aio.Server) -> int:
        if self._tls is None:
            return server.add_insecure_port(str(self._listen))
        self._credentials = ServerTls(self._tls).credentials()
        return server.add_secure_port(str(self._listen), self._credentials)

    async def _export(self, signal: Signal, headers: Headers, _messages: Any, context: Context) -> bytes:
        answer = await self._take(signal, headers, context)
        if isinstance(answer, Receipt):
            return success(signal, answer)
        # Not by ``abort``: its exception keeps the call, with everything that gRPC's core has read, in a
        # reference cycle until the garbage collector runs, which large byte strings do not trigger.
        context.set_code(_STATUS[answer.code])
        context.set_details(answer.reason)
        context.set_trailing_metadata(_trailers(answer))
        return b""

    async def _take(self, signal: Signal, headers: Headers, context: Context) -> Receipt | Refusal:
        try:
            client = context.peer().rpartition(":")[0]
            caller = admit(headers, self._rules, client)
            body = _message(await self._reading.read(context.read))
            with self._budget.lease(client) as lease:
                lease.hold(len(body))
                return await hand_over(self._sink, signal, body, caller)
        except CollectorError as error:
            refusal = refusal_of(error)
            if isinstance(error, RefusedError):
                self._when_full()
            if refusal.code is RpcCode.UNAUTHENTICATED:
                await asyncio.sleep(WRONG_TOKEN_S)
            logger.debug("request refused", extra={"signal": signal.value, "code": refusal.code.name})
            self._rules.refused(refusal.cause)
            return refusal
        except Exception:  # the error is contained in one request; the service lives on
            logger.exception(
                "internal error: the request was answered with INTERNAL", extra={"signal": signal.value}
            )
            self._rules.refused(BROKEN.cause)
            return BROKEN


class _Services(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic in the stubs only
    """The export method of each signal, called with the headers that gRPC has read.

    Asking the context for them would convert them once more, and a stranger may send half a million: its
    HTTP/2 settings limit a client only once it has acknowledged them.
    """

    def __init__(self, export: Export) -> None:
        self._export = export

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call whose message has not been read; ``None`` for other methods."""
        signal = _SIGNALS.get(handler_call_details.method)
        if signal is None:
            return None
        headers = tuple(islice(handler_call_details.invocation_metadata, MOST_HEADERS + 1))
        # As a stream: gRPC reads a single message before it calls the handler.
        return grpc.stream_unary_rpc_method_handler(partial(self._export, signal, headers))


def _message(read: Any) -> bytes:
    """Require a message; a call may end without one."""
    if not isinstance(read, bytes):
        raise MalformedRequestError("expected a message")
    return read


def _trailers(refusal: Refusal) -> tuple[tuple[str, bytes], ...]:
    details = failure(refusal.code, refusal.reason, retry_after_s=refusal.retry_after_s)
    status = ((STATUS_DETAILS_KEY, details),)
    if refusal.retry_after_s is None:
        return status
    return (*status, (RETRY_INFO_KEY, retry_info(refusal.retry_after_s)))


def _why(error: Exception) -> str:
    # gRPC only says "Failed to bind to address …; set GRPC_VERBOSITY=debug …".
    return (
        reason_of(error)
        if isinstance(error, OSError | ValueError)
        else "the address is in use, or not this machine's"
    )
