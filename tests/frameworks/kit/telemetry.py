"""OTLP export from a run script, by OpenTelemetry's own SDK and environment variables.

Imported by the run scripts inside their own environments. ``python -m
tests.frameworks.record`` and the live test set ``OTEL_EXPORTER_OTLP_ENDPOINT``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


@contextmanager
def traces() -> Iterator[TracerProvider]:
    """Yield the global provider, which has sent all its spans when the block ends."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield provider
    finally:
        provider.shutdown()


@contextmanager
def logs() -> Iterator[None]:
    """Send OpenTelemetry's log events too, for frameworks that put content there."""
    # Where the SDK keeps its logs has an underscore until the signal is stable in Python.
    from opentelemetry._logs import set_logger_provider  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415
    from opentelemetry.sdk._logs import LoggerProvider  # noqa: PLC0415
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor  # noqa: PLC0415

    provider = LoggerProvider()
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    set_logger_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()
