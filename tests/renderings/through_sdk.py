"""Spans replayed through a real SDK, so that its limits apply as in an agent's process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span as LiveSpan
from opentelemetry.trace import StatusCode, set_span_in_context

from semconv.model import Span, SpanId, SpanStatus

Arrange: TypeAlias = Callable[[Mapping[str, Any]], Sequence[tuple[str, Any]]]
"""Returns a span's attributes in the order in which an instrumentation sets them."""


def as_they_are(attributes: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return list(attributes.items())


def replayed(spans: Sequence[Span], limits: SpanLimits, arrange: Arrange = as_they_are) -> bytes:
    """Return an ``ExportTraceServiceRequest`` with these spans (parents before children) under new ids."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(span_limits=limits)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    live: dict[SpanId | None, LiveSpan] = {}
    for span in spans:
        tracer = provider.get_tracer(span.scope.name, span.scope.version)
        above = live.get(span.parent_id)
        context = None if above is None else set_span_in_context(above)
        started = tracer.start_span(span.name, context, start_time=span.start_ns)
        live[span.span_id] = started
        for name, value in arrange(span.attributes):
            started.set_attribute(name, value)
        if span.status is SpanStatus.ERROR:
            started.set_status(StatusCode.ERROR, span.status_message)
    for span in spans:
        live[span.span_id].end(span.end_ns)
    provider.shutdown()
    return encode_spans(exporter.get_finished_spans()).SerializeToString()
