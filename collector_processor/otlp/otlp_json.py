"""OTLP/JSON → protobuf, once, at the door; everything behind it knows one shape.

OTLP/JSON is protobuf's JSON mapping with three differences: ids are hex, not
base64; enums are numbers (names are tolerated); unknown fields are ignored.
Source: opentelemetry-proto, ``docs/specification.md``, "JSON Protobuf Encoding".
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import EncodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.otlp import MalformedRequestError, Signal

_REQUESTS: Final[Mapping[Signal, type[Message]]] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
}
_MAX_DEPTH: Final = 100
"""Messages in messages; protobuf's own parsers, behind us, take no more."""
_MAX_REASON: Final = 200
_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")

# Each name is accepted as the specification writes it and as the .proto file does.
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


def to_protobuf(signal: Signal, body: bytes) -> bytes:
    """Return an OTLP/JSON request (or ``TracesData`` and its like: the same shape) as protobuf.

    A span with an id that is no hex, its own or a link's, comes out with no ids at
    all, so that it alone is rejected.

    Raises:
        MalformedRequestError: it is no such request; the message says what was expected.
    """
    document = _load(body)
    if signal is Signal.TRACES:
        _convert_spans(document)
    else:
        records = _RECORDS if signal is Signal.LOGS else (*_METRICS, *_EXEMPLARS)
        for record in _nodes(document, records):
            _convert_ids(record)
    message = _REQUESTS[signal]()
    try:
        ParseDict(document, message, ignore_unknown_fields=True, max_recursion_depth=_MAX_DEPTH)
        return message.SerializeToString()
    except (ParseError, EncodeError, ValueError, TypeError, AttributeError, RecursionError) as error:
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
    """Replace half surrogate pairs, which no UTF-8 can carry, as Go's parser does."""
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
    for span in _nodes(document, _SPANS):
        try:
            _convert_ids(span)
            for link in _nodes(span, _LINKS):
                _convert_ids(link)
        except MalformedRequestError:
            for name in (*_IDS, "links"):
                span.pop(name, None)


def _nodes(root: dict[str, Any], path: tuple[tuple[str, ...], ...]) -> Iterator[dict[str, Any]]:
    """Iterate over the objects at ``path``; each of its steps is a set of names.

    Raises:
        MalformedRequestError: there is something else.
    """
    nodes = [root]
    for names in path:
        nodes = [child for node in nodes for name in names for child in _objects(node.get(name))]
    yield from nodes


def _objects(value: object) -> Iterator[dict[str, Any]]:
    for child in value if isinstance(value, list) else (value,):
        if isinstance(child, dict):
            yield child
        elif child is not None:  # protobuf's parser takes text for an object without fields
            raise MalformedRequestError(f"expected an object, not {type(child).__name__}, in the request")


def _convert_ids(node: dict[str, Any]) -> None:
    """Turn hex ids into the base64 that protobuf's JSON mapping expects.

    Raises:
        MalformedRequestError: an id is no hex; those before it are converted.
    """
    for name in _IDS:
        value = node.get(name)
        if value is None:
            continue
        try:
            node[name] = b64encode(bytes.fromhex(value)).decode("ascii")
        except (ValueError, TypeError):
            raise MalformedRequestError(f"expected {name} to be hex, such as 5b8efff798038103") from None
