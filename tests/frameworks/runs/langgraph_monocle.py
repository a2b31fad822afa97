"""LangGraph, instrumented by Monocle."""

from monocle_apptrace.instrumentation import setup_monocle_telemetry
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

# Each span is sent as it ends, so there is nothing to flush.
setup_monocle_telemetry(
    workflow_name="ferry-office", span_processors=[SimpleSpanProcessor(OTLPSpanExporter())]
)

from langgraph_story import answer  # noqa: E402 (Monocle wraps what is imported after it)

print(answer())
