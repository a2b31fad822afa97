"""Conversion of whole OTLP requests: between OTLP/JSON and protobuf, and to other times.

Received JSON is converted to protobuf once, in the receiver. The other direction, and shifting all times so
that a recorded run is sent as if it happened now, are for ``replay`` and are never used for forwarding.

OTLP/JSON is protobuf's JSON mapping with three differences: ids are hex, not base64; enums are numbers;
unknown fields are ignored. 64-bit integers are strings in both.
Source: opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding".

``use_parser_spelling`` changes a document in place from spellings that protobuf's JSON parser would refuse,
or drop silently, to what it reads:

- Ids, hex in OTLP/JSON, become base64. Hex with dashes (UUIDs) or ``0x``, and 64-bit trace ids, as Zipkin and
  Jaeger wrote them, are accepted too. Requests whose ids are base64 already are accepted: ``MessageToJson``
  and Grafana's download write them.
- Enums become numbers, from names in full or short, in any case: ``STATUS_CODE_ERROR``, ``StatusCode.ERROR``,
  ``StatusCodeError``, ``error``. The parser drops names it does not know, so that a failed span looks well.
- Instrumentation libraries, the scopes of OTLP before 0.15, become scopes. In protobuf they had the numbers
  that scopes have now.
Source: opentelemetry-proto 0.14 to 0.19, ``trace/v1``, ``logs/v1`` and ``metrics/v1``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, EncodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.json_fields import is_filled
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
    return protobuf_of(signal, _load(body))


def protobuf_of(signal: Signal, document: dict[str, Any]) -> bytes:
    """Return a parsed OTLP/JSON request, which is changed in place, as protobuf.

    Raises:
        MalformedRequestError: as ``to_protobuf``.
    """
    use_parser_spelling(signal, document)
    message = REQUESTS[signal]()
    try:
        if not is_filled(message, document):
            message.Clear()
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


Path: TypeAlias = tuple[tuple[str, ...], ...]
"""The fields from a message to another, each under its alternative names."""


class _OddValueError(Exception):
    """A field's value is not what was expected; the field's place is added where it is known."""

    def __init__(self, field: str, expected: str, value: object) -> None:
        super().__init__(field, expected, value)
        self.field: Final = field
        self.expected: Final = expected
        self.value: Final = value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Enum:
    """Fields of an enum, and its numbers by short name."""

    fields: tuple[str, ...]
    prefix: str
    numbers: Mapping[str, int]
    example: str


def _enum(fields: tuple[str, ...], prefix: str, values: Iterable[tuple[str, int]], example: str) -> _Enum:
    numbers = {name.removeprefix(prefix): number for name, number in values}
    return _Enum(fields=fields, prefix=prefix, numbers=numbers, example=example)


_KIND: Final = _enum(("kind",), "SPAN_KIND_", Span.SpanKind.items(), "SPAN_KIND_CLIENT")
_CODE: Final = _enum(("code",), "STATUS_CODE_", Status.StatusCode.items(), "STATUS_CODE_ERROR")
_SEVERITY: Final = _enum(
    ("severityNumber", "severity_number"),
    "SEVERITY_NUMBER_",
    SeverityNumber.items(),
    "SEVERITY_NUMBER_ERROR",
)
_TEMPORALITY: Final = _enum(
    ("aggregationTemporality", "aggregation_temporality"),
    "AGGREGATION_TEMPORALITY_",
    AggregationTemporality.items(),
    "AGGREGATION_TEMPORALITY_DELTA",
)
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")
_LONGEST_QUOTE: Final = 40

# Names are accepted in the spelling of the specification and in that of the .proto files.
_ITEMS: Final[Mapping[Signal, Path]] = {
    Signal.TRACES: (("resourceSpans", "resource_spans"), ("scopeSpans", "scope_spans"), ("spans",)),
    Signal.LOGS: (
        ("resourceLogs", "resource_logs"),
        ("scopeLogs", "scope_logs"),
        ("logRecords", "log_records"),
    ),
    Signal.METRICS: (
        ("resourceMetrics", "resource_metrics"),
        ("scopeMetrics", "scope_metrics"),
        ("metrics",),
    ),
}
_LIBRARY_LISTS: Final[Mapping[Signal, tuple[str, ...]]] = {
    Signal.TRACES: ("instrumentationLibrarySpans", "instrumentation_library_spans"),
    Signal.LOGS: ("instrumentationLibraryLogs", "instrumentation_library_logs"),
    Signal.METRICS: ("instrumentationLibraryMetrics", "instrumentation_library_metrics"),
}
_OLD_NAMES: Final[Mapping[str, str]] = {
    "instrumentationLibrary": "scope",
    "instrumentation_library": "scope",
    "logs": "logRecords",
}
"""Fields of an instrumentation library's group, with their names today."""
_LINKS: Final[Path] = (("links",),)
_SUMS: Final[Path] = (("sum", "histogram", "exponentialHistogram", "exponential_histogram"),)
_EXEMPLARS: Final[Path] = (
    ("gauge", *_SUMS[0]),
    ("dataPoints", "data_points"),
    ("exemplars",),
)

_ID_BYTES: Final[Mapping[str, int]] = {
    "traceId": 16,
    "trace_id": 16,
    "spanId": 8,
    "span_id": 8,
    "parentSpanId": 8,
    "parent_span_id": 8,
}
_SHORT_ID_BYTES: Final = 8
_HEX_ID: Final = re.compile(r"(?:0[xX])?(?:(?:[0-9a-fA-F]-?){16}){1,2}")
_BASE64_ID: Final = re.compile(r"[A-Za-z0-9+/]{22}==|[A-Za-z0-9+/]{11}=")
"""16 or 8 bytes. The padding, which every writer of protobuf's JSON adds, is in no hex id."""
_ReadId: TypeAlias = Callable[[str, int], bytes]


def use_parser_spelling(signal: Signal, document: dict[str, Any]) -> None:
    """Change a request in place to the spelling of protobuf's JSON parser.

    Ids are hex or base64, whichever the first readable id of the request is. If an id of a span or of its
    links is not in this form, all ids of the span are dropped, so that only this span is rejected later.

    Raises:
        MalformedRequestError: it holds nothing of this signal, an enum has an unknown name, an id of a log
            record or exemplar cannot be read, or something is not an object; the message says where.
    """
    _require_signal(signal, document)
    _use_scopes(signal, document)
    items = _ITEMS[signal]
    if signal is Signal.TRACES:
        read_id = _id_reader(document, items)
        _mend_each(document, items, lambda span: _mend_span(span, read_id))
    elif signal is Signal.LOGS:
        read_id = _id_reader(document, items)
        _mend_each(document, items, lambda record: _mend_record(record, read_id))
    else:
        exemplars = (*items, *_EXEMPLARS)
        read_id = _id_reader(document, exemplars)
        _mend_each(document, (*items, *_SUMS), lambda points: _mend_enum(points, _TEMPORALITY))
        _mend_each(document, exemplars, lambda exemplar: _mend_ids(exemplar, read_id))


def _require_signal(signal: Signal, document: dict[str, Any]) -> None:
    """Refuse another signal's request, or another format: the parser would read it as an empty request."""
    names = _ITEMS[signal][0]
    if document and not any(name in document for name in names):
        found = ", ".join(_quoted(name) for name in list(document)[:3])
        raise MalformedRequestError(f"expected {names[0]}, found {found}")


def _use_scopes(signal: Signal, document: dict[str, Any]) -> None:
    """Turn instrumentation libraries into scopes; senders that write both write the same data twice."""
    groups, scopes, _ = _ITEMS[signal]
    for group in _nodes(document, (groups,)):
        libraries = [group.pop(name) for name in _LIBRARY_LISTS[signal] if name in group]
        if libraries and not any(group.get(name) for name in scopes):
            for name in scopes:
                group.pop(name, None)
            group[scopes[0]] = libraries[0]
            for library in _nodes(group, (scopes,)):
                for old in _OLD_NAMES.keys() & library.keys():
                    library[_OLD_NAMES[old]] = library.pop(old)


def _mend_each(root: dict[str, Any], path: Path, mend: Callable[[dict[str, Any]], None]) -> None:
    """Call ``mend`` with each object at ``path``, and say where it found an odd value."""
    for node in _nodes(root, path):
        try:
            mend(node)
        except _OddValueError as odd:
            raise MalformedRequestError(
                f"{_place(root, path, node)}.{odd.field}: expected {odd.expected}, not {_quoted(odd.value)}"
            ) from None


def _mend_span(span: dict[str, Any], read_id: _ReadId) -> None:
    _mend_enum(span, _KIND)
    status = span.get("status")
    if status is not None:
        if not isinstance(status, dict):  # protobuf's parser would accept text as an object without fields
            raise _OddValueError("status", 'an object, such as {"code": 2}', status)
        try:
            _mend_enum(status, _CODE)
        except _OddValueError as odd:
            raise _OddValueError(f"status.{odd.field}", odd.expected, odd.value) from None
    try:
        _mend_ids(span, read_id)
        for link in _nodes(span, _LINKS):
            _mend_ids(link, read_id)
    except (_OddValueError, MalformedRequestError):
        for name in (*_ID_BYTES, "links"):
            span.pop(name, None)


def _mend_record(record: dict[str, Any], read_id: _ReadId) -> None:
    _mend_enum(record, _SEVERITY)
    _mend_ids(record, read_id)


def _mend_enum(node: dict[str, Any], enum: _Enum) -> None:
    for name in enum.fields:
        value = node.get(name)
        if value is not None and value.__class__ is not int:
            node[name] = _number_of(name, value, enum)


def _number_of(field: str, value: object, enum: _Enum) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        text = value.strip()
        if not text or _NUMBER.fullmatch(text):
            return int(text or 0)
        name = _plain(text.rpartition(".")[2]).removeprefix(_plain(enum.prefix))
        if name in enum.numbers:
            return enum.numbers[name]
    raise _OddValueError(field, f"a number or a name such as {enum.example}", value)


def _plain(name: str) -> str:
    return name.replace("_", "").upper()


def _id_reader(document: dict[str, Any], path: Path) -> _ReadId:
    """Return the reader of the request's ids, whose form its first readable id shows."""
    ids = (
        node[name] for node in _nodes(document, path) for name in _ID_BYTES if isinstance(node.get(name), str)
    )
    first = next((text for text in ids if _HEX_ID.fullmatch(text) or _BASE64_ID.fullmatch(text)), "")
    return _from_base64 if _BASE64_ID.fullmatch(first) else _from_hex


def _from_base64(text: str, _: int) -> bytes:
    if text and not _BASE64_ID.fullmatch(text):
        raise ValueError(text)
    return base64.b64decode(text)


def _from_hex(text: str, size: int) -> bytes:
    try:
        read = bytes.fromhex(text)
    except ValueError:
        read = bytes.fromhex(text.lower().removeprefix("0x").replace("-", ""))
    return read.rjust(size, b"\0") if len(read) == _SHORT_ID_BYTES else read


def _mend_ids(node: dict[str, Any], read_id: _ReadId) -> None:
    """Turn ids into the base64 that protobuf's JSON mapping expects.

    Raises:
        _OddValueError: an id cannot be read; the ids before it are already converted.
    """
    for name, size in _ID_BYTES.items():
        value = node.get(name)
        if value is None:
            continue
        try:
            node[name] = base64.b64encode(read_id(value, size)).decode("ascii")
        except (ValueError, TypeError):
            raise _OddValueError(
                name, "hex, such as 5b8efff798038103, or base64 as all others", value
            ) from None


def _nodes(root: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """Iterate over the objects at ``path``.

    Raises:
        MalformedRequestError: a value on the path is not an object.
    """
    nodes = [root]
    for names in path:
        nodes = [child for node in nodes for name in names for child in _objects(name, node.get(name))]
    yield from nodes


def _objects(name: str, value: object) -> Iterator[dict[str, Any]]:
    for child in value if isinstance(value, list) else (value,):
        if isinstance(child, dict):
            yield child
        elif child is not None:  # protobuf's parser would accept text as an object without fields
            raise MalformedRequestError(f"expected objects in {name}, not {_quoted(child)}")


def _place(root: dict[str, Any], path: Path, wanted: dict[str, Any]) -> str:
    """Return the place of an object at ``path``, such as ``resourceSpans[0].scopeSpans[2].spans[1]``."""
    places: Iterable[tuple[str, dict[str, Any]]] = [("", root)]
    for names in path:
        places = _children(places, names)
    return next(place for place, node in places if node is wanted).removeprefix(".")


def _children(
    places: Iterable[tuple[str, dict[str, Any]]], names: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for place, node in places:
        for name in names:
            value = node.get(name)
            if isinstance(value, dict):
                yield f"{place}.{name}", value
            elif isinstance(value, list):
                for number, child in enumerate(value):
                    if child is not None:
                        yield f"{place}.{name}[{number}]", child


def _quoted(value: object) -> str:
    """Return a value for a message: short texts and numbers as they are, others by their type."""
    if isinstance(value, bool | int | float):
        return f"{value!r:.{_LONGEST_QUOTE}}"
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST_QUOTE else f"{value[:_LONGEST_QUOTE]}…")
    return type(value).__name__
