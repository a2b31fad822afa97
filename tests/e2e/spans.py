"""Spans as protobuf with their scope and Resource, so that one comparison shows whether anything changed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from semconv.attributes import CARRIER, FAILURE_DECISIVE

_IDS: Final = frozenset({"traceId", "spanId", "parentSpanId"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A span in its scope and Resource; two are equal if every field of all three is."""

    span: Span
    scope: InstrumentationScope
    resource: Resource
    schema_urls: tuple[str, str]

    @property
    def id(self) -> str:
        return self.span.span_id.hex()

    @property
    def parent_id(self) -> str:
        return self.span.parent_span_id.hex()

    @property
    def attributes(self) -> dict[str, Any]:
        """Return its attributes of simple types."""
        return {
            pair.key: getattr(pair.value, kind)
            for pair in self.span.attributes
            if (kind := pair.value.WhichOneof("value"))
        }

    @property
    def is_carrier(self) -> bool:
        return self.attributes.get(CARRIER) is True

    @property
    def is_decisive(self) -> bool:
        return self.attributes.get(FAILURE_DECISIVE) is True


def placed(*bodies: bytes) -> list[Placed]:
    """Return the spans of export requests, in order."""
    return [one for body in bodies for one in _placed(ExportTraceServiceRequest.FromString(body))]


def placed_in_json(document: Mapping[str, Any]) -> list[Placed]:
    """Return the spans of OTLP/JSON, which has ids in hex."""
    return _placed(ParseDict(_with_base64_ids(document), ExportTraceServiceRequest()))


def by_id(spans: Iterable[Placed]) -> dict[str, Placed]:
    """Return spans by id; raises ``ValueError`` if an id occurs twice."""
    found: dict[str, Placed] = {}
    for one in spans:
        if found.setdefault(one.id, one) is not one:
            raise ValueError(f"two spans have the id {one.id}")
    return found


def originals(spans: Iterable[Placed]) -> dict[str, Placed]:
    """Return the spans that are not ours, by id."""
    return by_id(one for one in spans if not one.is_carrier)


def carriers(spans: Iterable[Placed]) -> list[Placed]:
    return [one for one in spans if one.is_carrier]


def _placed(request: ExportTraceServiceRequest) -> list[Placed]:
    return [
        Placed(
            span=span,
            scope=scope.scope,
            resource=group.resource,
            schema_urls=(group.schema_url, scope.schema_url),
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _with_base64_ids(document: Any) -> Any:
    """Convert hex ids to the form that protobuf's JSON mapping requires; OTLP documents are a few levels
    deep."""
    if isinstance(document, list):
        return [_with_base64_ids(one) for one in document]
    if not isinstance(document, dict):
        return document
    return {
        key: b64encode(bytes.fromhex(value)).decode()
        if key in _IDS and isinstance(value, str)
        else _with_base64_ids(value)
        for key, value in document.items()
    }
