"""What a raw request holds, without decoding it: how many items, and of which agents' traces. Pure."""

from __future__ import annotations

from collections.abc import Container

from collector_processor.otlp import Signal
from collector_processor.survey.found import Survey
from collector_processor.survey.records import survey_logs, survey_metrics
from collector_processor.survey.spans import survey
from collector_processor.wire import member_count
from semconv.model import TraceId

__all__ = ["Survey", "item_count", "survey", "survey_logs", "survey_metrics", "survey_signal"]


def survey_signal(signal: Signal, body: bytes, known: Container[TraceId] = ()) -> Survey:
    """Look through a request of any signal.

    Raises:
        MalformedRequestError: the framing is broken.
    """
    if signal is Signal.TRACES:
        return survey(body, known)
    return survey_logs(body, known) if signal is Signal.LOGS else survey_metrics(body)


def item_count(signal: Signal, body: bytes) -> int:
    """Return how many spans, log records or data points a request holds.

    Raises:
        MalformedRequestError: the framing is broken.
    """
    return survey_metrics(body).item_count if signal is Signal.METRICS else member_count(body)
