"""A protobuf OTLP request as OTLP/JSON: what ``replay --protocol http/json`` sends.

The counterpart of ``otlp_json``, and not on any path that passes traffic on.
Source: opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding": ids are hex
where protobuf's own JSON has base64, enums are numbers, 64-bit integers strings.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.otlp import MalformedRequestError, Signal

ExportRequest: TypeAlias = ExportTraceServiceRequest | ExportLogsServiceRequest | ExportMetricsServiceRequest

REQUESTS: Final[Mapping[Signal, Callable[[], ExportRequest]]] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
}

# Attributes never clash with these: their names stand under "key", not as keys.
_HEX_FIELDS: Final = ("traceId", "spanId", "parentSpanId")


def to_json(signal: Signal, body: bytes) -> bytes:
    """Return the request as OTLP/JSON, in UTF-8.

    Raises:
        MalformedRequestError: ``body`` is no such request.
    """
    request = REQUESTS[signal]()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise MalformedRequestError(str(error)) from error
    document = MessageToDict(request, use_integers_for_enums=True)
    _ids_to_hex(document)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _ids_to_hex(document: dict[str, Any]) -> None:
    todo: list[Any] = [document]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            node.update({name: base64.b64decode(node[name]).hex() for name in _HEX_FIELDS if name in node})
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)
