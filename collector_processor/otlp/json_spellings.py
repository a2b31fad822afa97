"""Spellings of OTLP/JSON that protobuf's JSON parser would refuse, or drop silently.

``use_parser_spelling`` changes a document in place to what the parser reads:

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
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector_processor.otlp import MalformedRequestError, Signal

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
