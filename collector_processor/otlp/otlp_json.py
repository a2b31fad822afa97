"""Conversion of whole OTLP requests: between OTLP/JSON and protobuf, and to other times.

Received JSON is converted to protobuf once, in the receiver. The other direction, and shifting all times so
that a recorded run is sent as if it happened now, are for ``replay`` and are never used for forwarding.

OTLP/JSON is protobuf's JSON mapping with three differences: ids are hex, not base64; enums are numbers;
unknown fields are ignored. 64-bit integers are strings in both. See ``json_spellings`` for the other
spellings that are accepted.
Source: opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding".
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, EncodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.json_spellings import use_parser_spelling
from semconv.json_text import written_in_turns

ExportRequest: TypeAlias = ExportTraceServiceRequest | ExportLogsServiceRequest | ExportMetricsServiceRequest
REQUESTS: Final[Mapping[Signal, Callable[[], ExportRequest]]] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
}
_MAX_DEPTH: Final = 100
"""Levels of nested messages; protobuf's parsers, used later, take no more."""
_LEVELS_ABOVE_SPANS: Final = 6
"""A request, its resources, a resource, its scopes, a scope, its spans."""
_MAX_REASON: Final = 200
_NOT_READ: Final = (
    ParseError, EncodeError, ValueError, TypeError, AttributeError, RecursionError, OverflowError
)  # fmt: skip
"""Errors of ``ParseDict`` for a wrong form; ``OverflowError`` for 1e400, which is infinite, as an integer."""
_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
# Attributes never clash with these: their names are values of "key", not keys.
_HEX_FIELDS: Final = ("traceId", "spanId", "parentSpanId")


def to_protobuf(signal: Signal, body: bytes) -> bytes:
    """Return an OTLP/JSON request (or ``TracesData`` and the like, which have the same form) as protobuf.

    Spans whose ids cannot be read have none afterwards, so that only they are rejected later.

    Raises:
        MalformedRequestError: it is not such a request; the message says what was expected.
    """
    document = _load(body)
    use_parser_spelling(signal, document)
    message = REQUESTS[signal]()
    try:
        ParseDict(document, message, ignore_unknown_fields=True, max_recursion_depth=_MAX_DEPTH)
        return message.SerializeToString()
    except _NOT_READ as error:
        reason = " ".join(str(error).split())[:_MAX_REASON]
        raise MalformedRequestError(f"expected OTLP/JSON {signal.value}: {reason}") from None


def _load(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except RecursionError:
        raise MalformedRequestError("the JSON is nested too deeply") from None
    except ValueError as error:
        reason = str(error)[:_MAX_REASON]
        raise MalformedRequestError(f"expected a JSON document: {reason}") from None
    if not isinstance(document, dict):
        raise MalformedRequestError("expected a JSON object, such as one with resourceSpans")
    if _LONE_SURROGATE.search(body):
        _mend_surrogates(document)
    return document


def _mend_surrogates(document: dict[str, Any]) -> None:
    """Replace lone surrogates, which UTF-8 cannot encode, as Go's parser does."""
    stack: list[Any] = [document]
    while stack:
        node = stack.pop()
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            if isinstance(value, str):
                node[key] = _whole_characters(value)
            elif isinstance(value, dict | list):
                stack.append(value)
            if isinstance(key, str) and not key.isascii():
                node[_whole_characters(key)] = node.pop(key)


def _whole_characters(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def to_json(signal: Signal, body: bytes) -> bytes:
    """Return the request as OTLP/JSON, in UTF-8.

    Raises:
        MalformedRequestError: ``body`` is not such a request.
    """
    request = REQUESTS[signal]()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise MalformedRequestError(str(error)) from error
    document = MessageToDict(request, use_integers_for_enums=True)
    _ids_to_hex(document)
    return "".join(written_in_turns(document, _LEVELS_ABOVE_SPANS)).encode()


def _ids_to_hex(document: dict[str, Any]) -> None:
    todo: list[Any] = [document]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            node.update({name: base64.b64decode(node[name]).hex() for name in _HEX_FIELDS if name in node})
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)


_TIME: Final = "time_unix_nano"
"""Suffix of every time field's name, in spans, events, records, points and exemplars."""
_VALUES: Final = frozenset({"KeyValue", "AnyValue"})
"""Attributes and bodies are skipped: they have no time fields and may be deeply nested."""
_LATEST_NS: Final = 2**64 - 1


def newest_ns(signal: Signal, body: bytes) -> int:
    """Return the latest time in a request, Unix ns; 0 if it has none or the request cannot be read."""
    request = _read(signal, body)
    return max((value for _, _, value in _times(request)), default=0) if request is not None else 0


def shift_times(signal: Signal, body: bytes, by_ns: int) -> bytes:
    """Return the request with every set time shifted by ``by_ns``; unchanged if it cannot be read."""
    request = _read(signal, body)
    if request is None:
        return body
    for message, name, value in list(_times(request)):
        setattr(message, name, min(max(value + by_ns, 1), _LATEST_NS))
    return request.SerializeToString()


def _read(signal: Signal, body: bytes) -> ExportRequest | None:
    request = REQUESTS[signal]()
    try:
        request.ParseFromString(body)
    except DecodeError:
        return None
    return request


def _times(request: Message) -> Iterator[tuple[Any, str, int]]:
    """Yield every set time: its message, field name and value."""
    todo: list[Message] = [request]
    while todo:
        message = todo.pop()
        for descriptor, value in message.ListFields():
            if descriptor.name.endswith(_TIME):
                yield message, descriptor.name, value
            elif descriptor.message_type is not None and descriptor.message_type.name not in _VALUES:
                todo.extend([value] if isinstance(value, Message) else value)
