"""Reader of OTLP/JSON: one request, or one a line as the Collector's file exporter writes them. Pure.

Jaeger's API version 3 puts each request under ``result``. Source: opentelemetry-proto, JSON encoding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.conversation_log import label_of
from analyzer.recordings.recording import FileFormat, Recording, Records
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import protobuf_of, to_json, to_protobuf
from collector_processor.rebuild.stages import rebuild
from semconv.dialects import USUAL, Reader

_LISTS: Final = {
    Signal.TRACES: ("resourceSpans", "resource_spans"),
    Signal.LOGS: ("resourceLogs", "resource_logs"),
    Signal.METRICS: ("resourceMetrics", "resource_metrics"),
}
_SCOPES: Final = frozenset({"scopeSpans", "scope_spans", "instrumentationLibrarySpans"})


def is_otlp(records: Records) -> bool:
    """Tell whether all records are export requests."""
    return all(isinstance(record, dict) and any(_signals(_request(record))) for record in records)


def read_otlp(records: Records) -> Recording:
    """Read export requests, of several signals too."""
    requests = [
        (signal, otlp_request(signal, _request(one))) for one in records for signal in _signals(_request(one))
    ]
    return Recording(requests=tuple(requests))


def _request(document: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = document.get("result")
    if "resource" in document and not _SCOPES.isdisjoint(document):  # of a list of them, without its request
        return {"resourceSpans": [document]}
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


# --- labelled traces ---
#
# Labelled trace: a document of a data set with a run's spans and logs as OTLP/JSON, and its label.


_LISTED: Final[Mapping[Signal, str]] = {Signal.TRACES: "resourceSpans", Signal.LOGS: "resourceLogs"}


def read_labelled_trace(document: Mapping[str, Any], reader: Reader = USUAL) -> Conversation:
    """Read one labelled trace.

    Raises:
        UnreadableInput: it does not hold the spans of one run.
    """
    try:
        runs = rebuild(*trace_requests(document), reader=reader)
    except MalformedRequestError as error:
        raise UnreadableInput(f"a labelled trace that cannot be read: {error}") from error
    if len(runs) != 1:
        raise UnreadableInput(f"a labelled trace with {len(runs)} runs: expected the spans of one")
    source, subset = (str(document.get(name) or "") for name in ("source", "subset"))
    return Conversation(trajectory=runs[0].trajectory, label=label_of(document), source=source, subset=subset)


def trace_requests(document: Mapping[str, Any]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the export requests of a document's spans, and those of its logs.

    Raises:
        MalformedRequestError: it is not such a document.
    """
    return _labelled_request(document, Signal.TRACES), _labelled_request(document, Signal.LOGS)


def _labelled_request(document: Mapping[str, Any], signal: Signal) -> tuple[bytes, ...]:
    name = _LISTED[signal]
    return (to_protobuf(signal, json.dumps({name: document[name]}).encode()),) if name in document else ()


def trace_document(spans: Sequence[bytes], logs: Sequence[bytes]) -> dict[str, Any]:
    """Return the spans and logs of a labelled trace.

    Args:
        spans: ``ExportTraceServiceRequest`` bodies.
        logs: ``ExportLogsServiceRequest`` bodies.

    Raises:
        MalformedRequestError: a body is not such a request.
    """
    document: dict[str, Any] = {}
    for signal, bodies in ((Signal.TRACES, spans), (Signal.LOGS, logs)):
        name = _LISTED[signal]
        parts = [json.loads(to_json(signal, body)).get(name, []) for body in bodies]
        if parts:
            document[name] = [each for part in parts for each in part]
    return document
