"""Reader of OTLP/JSON: one request, or one a line as the Collector's file exporter writes them. Pure.

Jaeger's API version 3 puts each request under ``result``. Source: opentelemetry-proto, JSON encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_format import FileFormat, Recording, Records
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import protobuf_of

_LISTS: Final = {
    Signal.TRACES: ("resourceSpans", "resource_spans"),
    Signal.LOGS: ("resourceLogs", "resource_logs"),
    Signal.METRICS: ("resourceMetrics", "resource_metrics"),
}


def is_otlp(records: Records) -> bool:
    """Tell whether all records are export requests."""
    return all(isinstance(one, dict) and any(_signals(_request(one))) for one in records)


def read_otlp(records: Records) -> Recording:
    """Read export requests, of several signals too."""
    requests = [
        (signal, otlp_request(signal, _request(one))) for one in records for signal in _signals(_request(one))
    ]
    return Recording(requests=tuple(requests))


def _request(document: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = document.get("result")
    return inner if isinstance(inner, dict) else document


def _signals(request: Mapping[str, Any]) -> Iterator[Signal]:
    return (signal for signal, names in _LISTS.items() if any(name in request for name in names))


def otlp_request(signal: Signal, document: Mapping[str, Any]) -> bytes:
    """Return an OTLP/JSON document, which is changed in place, as protobuf.

    Raises:
        UnreadableInput: a value has a type that OTLP does not allow.
    """
    only = {name: document[name] for name in _LISTS[signal] if name in document}
    try:
        return protobuf_of(signal, only)
    except MalformedRequestError as error:
        raise UnreadableInput(f"OTLP/JSON that cannot be read: {error}") from error


def of_documents(*documents: Mapping[str, Any]) -> Recording:
    """Return the recording that holds the ``resourceSpans`` of OTLP/JSON documents."""
    return Recording(requests=tuple((Signal.TRACES, otlp_request(Signal.TRACES, one)) for one in documents))


OTLP: Final = FileFormat(
    name="OTLP/JSON",
    example="otlp.jsonl",
    source="opentelemetry-proto, JSON encoding",
    how=(
        "The Collector's `file` exporter writes it, and Jaeger's API: `curl "
        "http://HOST:16686/api/v3/traces/TRACE_ID`"
    ),
    recognizes=is_otlp,
    read=read_otlp,
)
