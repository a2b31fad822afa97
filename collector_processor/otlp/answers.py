"""Bytes of an OTLP server's responses: written by the receivers, read by the exporters.

Knows the protobuf messages of responses, nothing of transports or of requests.

Sources: opentelemetry-proto ``collector/*/v1`` (partial success), googleapis
``google/rpc/status.proto`` and ``error_details.proto`` (errors).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Final, TypeAlias

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from collector_processor.otlp import Receipt, Signal

STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"
"""Trailing metadata in which gRPC carries a ``google.rpc.Status``."""

RETRY_INFO_KEY: Final = "google.rpc.retryinfo-bin"
"""Trailing metadata in which the Python SDK looks for a bare ``RetryInfo``."""

ExportResponse: TypeAlias = (
    ExportTraceServiceResponse | ExportLogsServiceResponse | ExportMetricsServiceResponse
)

_RESPONSES: Final[Mapping[Signal, Callable[[], ExportResponse]]] = {
    Signal.TRACES: ExportTraceServiceResponse,
    Signal.LOGS: ExportLogsServiceResponse,
    Signal.METRICS: ExportMetricsServiceResponse,
}

_REJECTED: Final[Mapping[Signal, str]] = {
    Signal.TRACES: "rejected_spans",
    Signal.LOGS: "rejected_log_records",
    Signal.METRICS: "rejected_data_points",
}


class MediaType(StrEnum):
    """The encodings of OTLP/HTTP; a response uses that of its request."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"


class RpcCode(IntEnum):
    """The codes of ``google.rpc.Code``; gRPC's status codes have the same numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


def success(signal: Signal, receipt: Receipt, media: MediaType = MediaType.PROTOBUF) -> bytes:
    """Return the ``Export…ServiceResponse`` for ``receipt``; empty if everything was accepted."""
    if not receipt.rejected and not receipt.message:
        return b"{}" if media is MediaType.JSON else b""
    response = _RESPONSES[signal]()
    setattr(response.partial_success, _REJECTED[signal], receipt.rejected)
    response.partial_success.error_message = receipt.message
    return _serialize(response, media)


def failure(
    code: RpcCode, reason: str, *, retry_after_s: float | None = None, media: MediaType = MediaType.PROTOBUF
) -> bytes:
    """Return a ``google.rpc.Status``, with ``RetryInfo`` if ``retry_after_s`` is given."""
    status = Status(code=code, message=reason)
    if retry_after_s is not None:
        status.details.add().Pack(_retry_info(retry_after_s))
    return _serialize(status, media)


def retry_info(retry_after_s: float) -> bytes:
    """Return a bare ``google.rpc.RetryInfo``."""
    return _serialize(_retry_info(retry_after_s), MediaType.PROTOBUF)


def read_success(signal: Signal, body: bytes, media: MediaType = MediaType.PROTOBUF) -> Receipt:
    """Return a backend's receipt from the body of its successful response.

    An unreadable body is still a success; the receipt's message says so.
    """
    if not body:
        return Receipt()
    response = _RESPONSES[signal]()
    if not _parse(response, body, media):
        return Receipt(message="the backend reported success with a body that is not an OTLP response")
    partial = response.partial_success
    rejected: int = getattr(partial, _REJECTED[signal])
    return Receipt(rejected=max(0, rejected), message=partial.error_message)


def read_reason(body: bytes, media: MediaType = MediaType.PROTOBUF) -> str:
    """Return the message of a ``google.rpc.Status``; empty if ``body`` is not one."""
    status = Status()
    return str(status.message) if _parse(status, body, media) else ""


def read_retry_delay(trailers: Mapping[str, bytes]) -> float | None:
    """Return the retry delay of gRPC trailing metadata, in seconds; ``None`` if there is none."""
    found = RetryInfo()
    if RETRY_INFO_KEY in trailers and _parse(found, trailers[RETRY_INFO_KEY], MediaType.PROTOBUF):
        return _seconds(found)
    status = Status()
    if not _parse(status, trailers.get(STATUS_DETAILS_KEY, b""), MediaType.PROTOBUF):
        return None
    return next((_seconds(found) for detail in status.details if _unpack(detail, found)), None)


def _retry_info(retry_after_s: float) -> RetryInfo:
    info = RetryInfo()
    info.retry_delay.FromMilliseconds(max(0, round(retry_after_s * 1000)))
    return info


def _seconds(info: RetryInfo) -> float:
    # Not ToSeconds, which drops the fraction, nor ToTimedelta, which raises beyond its range.
    return max(0.0, float(info.retry_delay.seconds) + float(info.retry_delay.nanos) / 1e9)


def _unpack(detail: Any, into: RetryInfo) -> bool:
    try:
        return bool(detail.Unpack(into))
    except DecodeError:
        return False


def _parse(message: Message, body: bytes, media: MediaType) -> bool:
    """Fill ``message`` from ``body``; return whether it could be parsed."""
    try:
        if media is MediaType.JSON:
            json_format.Parse(body, message, ignore_unknown_fields=True)
        else:
            message.ParseFromString(body)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError):
        return False
    return True


def _serialize(message: Message, media: MediaType) -> bytes:
    if media is MediaType.JSON:
        return json_format.MessageToJson(message, indent=None).encode()
    return message.SerializeToString()
