"""Stories played in real time by OpenTelemetry's own SDK, with its defaults: providers, batches, OTLP/gRPC.

Every service of a deployment is a ``TracerProvider`` of its own; if work continues in another service, the
parent is passed as a remote context, as by HTTP headers.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    format_span_id,
    format_trace_id,
)

from benchmarks.completion.counting import Truth
from benchmarks.completion.stories import Story
from semconv.model import Span, SpanId, SpanStatus, TraceId
from tests.factories import ORIGIN_NS

_DELAY_S: Final = 5.0
"""Seconds between batches, the SDKs' default; deployments begin at different times within it."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The services of one application, by number."""

    services: tuple[TracerProvider, ...]

    def shut_down(self) -> None:
        for service in self.services:
            service.shutdown()


class _Exporter(OTLPSpanExporter):
    """The SDK's exporter, which also reports dropped spans: it retries for 10 s."""

    def __init__(self, endpoint: str, dropped: set[SpanId]) -> None:
        super().__init__(endpoint=endpoint, insecure=True)
        self._dropped: Final = dropped

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        if result is not SpanExportResult.SUCCESS:
            contexts = [span.get_span_context() for span in spans]
            self._dropped.update(SpanId(format_span_id(one.span_id)) for one in contexts if one)
        return result


@contextmanager
def deployed(sizes: Sequence[int], endpoint: str, dropped: set[SpanId]) -> Iterator[list[Deployment]]:
    """Start deployments; they end with the block.

    Args:
        sizes: number of services of each.
        endpoint: destination of their spans.
        dropped: receives the ids of spans that the SDK dropped.
    """
    found: list[Deployment] = []
    try:
        for number, size in enumerate(sizes):
            names = [f"app-{number}-service-{place}" for place in range(size)]
            found.append(Deployment(tuple(_service(name, _Exporter(endpoint, dropped)) for name in names)))
            time.sleep(_DELAY_S / len(sizes))
        yield found
    finally:
        for one in found:
            one.shut_down()


def _service(name: str, exporter: SpanExporter) -> TracerProvider:
    provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


@dataclass(slots=True, kw_only=True)
class Run:
    """A story being played."""

    group: str
    story: Story
    begin_s: float
    """Start in seconds after the beginning."""
    deployment: Deployment
    end_s: float = 0.0
    """End of its last span so far, in seconds since 1970."""
    live: dict[SpanId, trace.Span] = field(default_factory=dict)
    """Its spans so far, by their ids in the story."""
    _traces: dict[TraceId, TraceId] = field(default_factory=dict)

    @property
    def truth(self) -> Truth:
        """The truth to compare verdicts with."""
        return Truth(culprit=self.story.culprit, traces=frozenset(self._traces.values()), end_s=self.end_s)

    @property
    def spans(self) -> frozenset[SpanId]:
        """Trace and span ids of its spans, as sent."""
        return frozenset(SpanId(format_span_id(one.get_span_context().span_id)) for one in self.live.values())

    def begin(self, span: Span) -> None:
        """Start a span now."""
        tracer = self._service(span).get_tracer(span.scope.name)
        live = tracer.start_span(
            span.name,
            context=self._parent(span),
            kind=SpanKind(span.kind - 1),
            attributes={**span.attributes},
            links=[trace.Link(self.live[link.span_id].get_span_context()) for link in span.links],
        )
        self.live[span.span_id] = live
        self._traces[span.trace_id] = TraceId(format_trace_id(live.get_span_context().trace_id))

    def end(self, span: Span) -> None:
        """End it now."""
        live = self.live[span.span_id]
        if span.status is SpanStatus.ERROR:
            live.set_status(Status(StatusCode.ERROR, span.status_message))
        live.end()
        self.end_s = time.time()

    def _service(self, span: Span) -> TracerProvider:
        number = int(str(span.resource.attributes["service.name"]).rpartition("-")[2])
        return self.deployment.services[number]

    def _parent(self, span: Span) -> Context:
        if span.parent_id is None:
            return Context()
        parent = self.live[span.parent_id]
        known = parent.get_span_context()
        if parent.resource is not self._service(span).resource:  # type: ignore[attr-defined]
            parent = NonRecordingSpan(
                SpanContext(known.trace_id, known.span_id, is_remote=True, trace_flags=known.trace_flags)
            )
        return trace.set_span_in_context(parent, Context())


def play(runs: Sequence[Run]) -> None:
    """Play all runs, each from its start time; return when the last has ended."""
    moments: list[tuple[float, int, bool, Run, Span]] = []
    for run in runs:
        for span in run.story.spans:
            for is_end, at_ns in ((False, span.start_ns), (True, span.end_ns)):
                moments.append((run.begin_s + (at_ns - ORIGIN_NS) / 1e9, len(moments), is_end, run, span))
    heapq.heapify(moments)
    began = time.monotonic()
    while moments:
        at, _, is_end, run, span = heapq.heappop(moments)
        time.sleep(max(0.0, began + at - time.monotonic()))
        if is_end:
            run.end(span)
        else:
            run.begin(span)
