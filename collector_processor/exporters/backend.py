"""A backend's response, interpreted by the OTLP specification; TLS of requests, which are not traced.

Source: opentelemetry.io/docs/specs/otlp, "OTLP/gRPC Response", "OTLP/HTTP Response". By it,
``RESOURCE_EXHAUSTED`` without ``RetryInfo`` is permanent. gRPC servers also return it for a message "larger
than max"; the forwarder then bisects the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from opentelemetry import context

# Not public, but the SDK's own exporters and all instrumentation libraries use it.
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

from collector_processor.otlp import (
    Delivered,
    NoSuchService,
    Receipt,
    Rejected,
    SendOutcome,
    Signal,
    TryLater,
)
from collector_processor.otlp.answers import MediaType, RpcCode, read_reason, read_retry_delay, read_success
from collector_processor.otlp.destination import Destination, DestinationError
from collector_processor.otlp.tls import ClientFiles, ClientTls, reason_of

RETRYABLE_HTTP: Final = frozenset({429, 502, 503, 504})

RETRYABLE_GRPC: Final = frozenset(
    {
        RpcCode.CANCELLED,
        RpcCode.DEADLINE_EXCEEDED,
        RpcCode.ABORTED,
        RpcCode.OUT_OF_RANGE,
        RpcCode.UNAVAILABLE,
        RpcCode.DATA_LOSS,
    }
)

_UNREACHED: Final = ("failed to connect", "errors resolving", "DNS resolution failed", "Socket closed")
"""Prefixes of the gRPC library's messages for a backend it could not reach, or lost."""
_UNANSWERED: Final = "Deadline Exceeded"
"""The gRPC library's message for a timeout."""
_CODE_NAMES: Final[Mapping[int, str]] = {code.value: code.name for code in RpcCode}
_REASON_CHARACTERS: Final = 200
_RETRY_AFTER_DIGITS: Final = 9  # 30 years


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An HTTP response."""

    status: int
    content_type: str
    retry_after: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcFailure:
    """A gRPC status other than OK."""

    code: int
    details: str
    trailers: Mapping[str, bytes]
    """The binary trailing metadata."""


def delivered(receipt: Receipt) -> Delivered:
    """Return the outcome of a successful response."""
    return Delivered(rejected=receipt.rejected, message=_brief(receipt.message))


def http_outcome(signal: Signal, answer: HttpAnswer, now: float) -> SendOutcome:
    """Return the outcome of an HTTP response.

    Args:
        signal: what was sent.
        answer: the response.
        now: Unix seconds, to convert a ``Retry-After`` date.
    """
    media = MediaType.JSON if answer.content_type == MediaType.JSON else MediaType.PROTOBUF
    if 200 <= answer.status < 300:
        return delivered(read_success(signal, answer.body, media))
    message = read_reason(answer.body, media)
    reason = _brief(f"HTTP {answer.status}: {message}" if message else f"HTTP {answer.status}")
    if answer.status in RETRYABLE_HTTP:
        return TryLater(reason=reason, after_s=read_retry_after(answer.retry_after, now))
    if answer.status == 404:
        return NoSuchService(reason=reason)
    return Rejected(reason=reason)


def grpc_outcome(failure: GrpcFailure, place: str, timeout_s: float) -> SendOutcome:
    """Return the outcome of a gRPC failure.

    Args:
        failure: the status.
        place: host and port of the backend.
        timeout_s: seconds we waited for a response.
    """
    if failure.code == RpcCode.UNAVAILABLE and failure.details.startswith(_UNREACHED):
        return unreached(place, failure.details)
    if failure.code == RpcCode.DEADLINE_EXCEEDED and failure.details == _UNANSWERED:
        return unanswered(place, timeout_s)
    name = _CODE_NAMES.get(failure.code, f"code {failure.code}")
    reason = _brief(f"{name}: {failure.details}" if failure.details else name)
    after_s = read_retry_delay(failure.trailers)
    if failure.code in RETRYABLE_GRPC or (failure.code == RpcCode.RESOURCE_EXHAUSTED and after_s is not None):
        return TryLater(reason=reason, after_s=after_s)
    if failure.code == RpcCode.UNIMPLEMENTED:
        return NoSuchService(reason=reason)
    return Rejected(reason=reason)


def unreached(place: str, message: str) -> TryLater:
    """Return the outcome of a request that did not reach the backend.

    Args:
        place: host and port of the backend.
        message: the transport's error message.
    """
    lower = message.lower()
    if "connection refused" in lower or "connect call failed" in lower:
        reason = f"connection refused to {place}"
    elif "resolving" in lower or "dns" in lower or "name or service not known" in lower:
        reason = f"cannot resolve the host name of {place}"
    else:
        reason = f"{place}: {message}"
    return TryLater(reason=_brief(reason), is_away=True)


def unanswered(place: str, timeout_s: float) -> TryLater:
    """Return the outcome of a request without a response in time."""
    return TryLater(reason=f"no answer from {place} within {timeout_s:g} s", is_away=True)


def read_retry_after(header: str, now: float) -> float | None:
    """Return the seconds of a ``Retry-After`` header; ``None`` if it is missing or invalid.

    RFC 9110 10.2.3: whole seconds, or a date; a past date means 0.
    """
    text = header.strip()
    if text.isascii() and text.isdigit() and len(text) <= _RETRY_AFTER_DIGITS:
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # HTTP dates are in GMT.
    zoned = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, zoned.timestamp() - now)


def hide_credentials(outcome: SendOutcome, hide: Callable[[str], str]) -> SendOutcome:
    """Return the outcome with ``hide`` applied to the backend's message."""
    if isinstance(outcome, Delivered):
        return replace(outcome, message=hide(outcome.message)) if outcome.message else outcome
    return replace(outcome, reason=hide(outcome.reason))


def _brief(text: str) -> str:
    """Shorten a backend's message to one line, for logs and pages."""
    return " ".join(text[:_REASON_CHARACTERS].split())


def open_tls(destination: Destination) -> ClientTls:
    """Return the TLS identity for ``destination``, which follows changes of its files.

    Raises:
        DestinationError: a file cannot be read, or is not a valid certificate or key.
    """
    files = ClientFiles(
        authorities=destination.certificate,
        certificate=destination.client_certificate,
        key=destination.client_key,
    )
    try:
        return ClientTls(files)
    except (OSError, ValueError) as error:
        shown = ", ".join(map(str, files.paths))
        raise DestinationError(f"certificate {shown}: {reason_of(error)}") from error


@contextmanager
def untraced() -> Iterator[None]:
    """Suppress instrumentation of this process in the block: each export would create a span to export."""
    token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    try:
        yield
    finally:
        context.detach(token)
