"""Labelled trace: a document of a data set with a run's spans and logs as OTLP/JSON, and its label."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.conversation_log import label_of
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_json, to_protobuf
from collector_processor.rebuild.stages import rebuild
from semconv.dialects import USUAL, Reader

_LISTS: Final[Mapping[Signal, str]] = {Signal.TRACES: "resourceSpans", Signal.LOGS: "resourceLogs"}


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
    return _request(document, Signal.TRACES), _request(document, Signal.LOGS)


def _request(document: Mapping[str, Any], signal: Signal) -> tuple[bytes, ...]:
    name = _LISTS[signal]
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
        name = _LISTS[signal]
        parts = [json.loads(to_json(signal, body)).get(name, []) for body in bodies]
        if parts:
            document[name] = [each for part in parts for each in part]
    return document
