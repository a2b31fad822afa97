"""Conversion of whole OTLP requests: between OTLP/JSON and protobuf, and to other times.

Received JSON is converted to protobuf once, in the receiver. The other direction, and shifting all times so
that a recorded run is sent as if it happened now, are for ``replay`` and are never used for forwarding.

OTLP/JSON is protobuf's JSON mapping with three differences: ids are hex, not base64; enums are numbers (names
are accepted); unknown fields are ignored. 64-bit integers are strings in both. Requests whose ids are base64
are accepted too: ``MessageToJson`` and Grafana's download write them.
Source: opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding".
"""

from __future__ import annotations

import base64
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, EncodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.otlp import MalformedRequestError, Signal
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
# Names are accepted in the spelling of the specification and in that of the .proto files.
_SPANS: Final = (("resourceSpans", "resource_spans"), ("scopeSpans", "scope_spans"), ("spans",))
_RECORDS: Final = (
    ("resourceLogs", "resource_logs"),
    ("scopeLogs", "scope_logs"),
    ("logRecords", "log_records"),
)
_METRICS: Final = (("resourceMetrics", "resource_metrics"), ("scopeMetrics", "scope_metrics"), ("metrics",))
_LINKS: Final = (("links",),)
_EXEMPLARS: Final = (
    ("gauge", "sum", "histogram", "exponentialHistogram", "exponential_histogram"),
    ("dataPoints", "data_points"),
    ("exemplars",),
)
_IDS: Final = ("traceId", "trace_id", "spanId", "span_id", "parentSpanId", "parent_span_id")
_HEX_ID: Final = re.compile(r"(?:[0-9a-fA-F]{16}){1,2}")
_BASE64_ID: Final = re.compile(r"[A-Za-z0-9+/]{22}==|[A-Za-z0-9+/]{11}=")
"""16 or 8 bytes. The padding, which every writer of protobuf's JSON adds, is in no hex id."""
# Attributes never clash with these: their names are values of "key", not keys.
_HEX_FIELDS: Final = ("traceId", "spanId", "parentSpanId")


def to_protobuf(signal: Signal, body: bytes) -> bytes:
    """Return an OTLP/JSON request (or ``TracesData`` and the like, which have the same form) as protobuf.

    Ids are hex or base64, whichever the first readable id of the request is. If an id of a span or of its
    links is not in this form, all ids of the span are dropped, so that only this span is rejected later.

    Raises:
        MalformedRequestError: it is not such a request; the message says what was expected.
    """
    document = _load(body)
    if signal is Signal.TRACES:
        _convert_spans(document)
    else:
        records = _RECORDS if signal is Signal.LOGS else (*_METRICS, *_EXEMPLARS)
        read_id = _id_reader(document, records)
        for record in _nodes(document, records):
            _convert_ids(record, read_id)
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


def _convert_spans(document: dict[str, Any]) -> None:
    read_id = _id_reader(document, _SPANS)
    for span in _nodes(document, _SPANS):
        try:
            _convert_ids(span, read_id)
            for link in _nodes(span, _LINKS):
                _convert_ids(link, read_id)
        except MalformedRequestError:
            for name in (*_IDS, "links"):
                span.pop(name, None)


def _nodes(root: dict[str, Any], path: tuple[tuple[str, ...], ...]) -> Iterator[dict[str, Any]]:
    """Iterate over the objects at ``path``, whose steps are alternative names.

    Raises:
        MalformedRequestError: a value on the path is not an object.
    """
    nodes = [root]
    for names in path:
        nodes = [child for node in nodes for name in names for child in _objects(node.get(name))]
    yield from nodes


def _objects(value: object) -> Iterator[dict[str, Any]]:
    for child in value if isinstance(value, list) else (value,):
        if isinstance(child, dict):
            yield child
        elif child is not None:  # protobuf's parser would accept text as an object without fields
            raise MalformedRequestError(f"expected an object, not {type(child).__name__}, in the request")


def _id_reader(document: dict[str, Any], path: tuple[tuple[str, ...], ...]) -> Callable[[str], bytes]:
    """Return the reader of the request's ids, whose form its first readable id shows."""
    ids = (node[name] for node in _nodes(document, path) for name in _IDS if isinstance(node.get(name), str))
    first = next((text for text in ids if _HEX_ID.fullmatch(text) or _BASE64_ID.fullmatch(text)), "")
    return _from_base64 if _BASE64_ID.fullmatch(first) else bytes.fromhex


def _from_base64(text: str) -> bytes:
    if text and not _BASE64_ID.fullmatch(text):
        raise ValueError(text)
    return base64.b64decode(text)


def _convert_ids(node: dict[str, Any], read_id: Callable[[str], bytes]) -> None:
    """Turn ids into the base64 that protobuf's JSON mapping expects.

    Raises:
        MalformedRequestError: an id cannot be read; the ids before it are already converted.
    """
    for name in _IDS:
        value = node.get(name)
        if value is None:
            continue
        try:
            node[name] = b64encode(read_id(value)).decode("ascii")
        except (ValueError, TypeError):
            raise MalformedRequestError(
                f"expected {name} to be hex, such as 5b8efff798038103, or base64 as all others"
            ) from None


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
