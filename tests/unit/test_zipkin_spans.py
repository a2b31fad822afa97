"""Zipkin's spans, as OpenTelemetry's exporters and Zipkin's own libraries write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from semconv.model import Span, SpanStatus, Status
from tests.tide_story import told_steps

EXAMPLE = Path(__file__).parents[2] / "examples" / "files" / "zipkin-spans.json"


def trace() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    return found


def spans_of(told: object) -> list[Span]:
    bodies = read_recording(json.dumps(told).encode()).bodies(Signal.TRACES)
    return [span for body in bodies for span in decode(body).spans]


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "a trace": lambda told: json.dumps(told).encode(),
    "a list of traces": lambda told: json.dumps([told]).encode(),
    "spans one a line": lambda told: "\n".join(map(json.dumps, told)).encode(),
    "batches one a line": lambda told: "\n".join(map(json.dumps, (told[:2], told[2:]))).encode(),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each_form
def test_each_form_shows_the_same_run(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    told_steps(form(trace()))


@each_form
def test_a_run_whose_tool_answers_is_right(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    told, result = trace(), "High water at Dover: 14:20 tomorrow"
    for tag in ("error", "otel.status_code"):
        del told[2]["tags"][tag]
    del told[2]["annotations"]
    told[2]["tags"]["output.value"] = result
    told[3]["tags"]["llm.input_messages.1.message.content"] = result
    verdict = attribute(form(told))
    assert (verdict.status, verdict.agent) == (Status.NO_FAILURE, None)


@pytest.mark.parametrize(
    ("tags", "status", "message"),
    [
        ({"error": "timed out"}, SpanStatus.ERROR, "timed out"),
        ({"error": "true"}, SpanStatus.ERROR, ""),
        ({"error": ""}, SpanStatus.ERROR, ""),
        ({"error": "false"}, SpanStatus.UNSET, ""),
        ({"otel.status_code": "OK"}, SpanStatus.OK, ""),
        ({"otel.status_code": "ERROR", "otel.status_description": "gone"}, SpanStatus.ERROR, "gone"),
        ({}, SpanStatus.UNSET, ""),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_the_error_tag_and_opentelemetrys_are_read(
    tags: dict[str, str], status: SpanStatus, message: str
) -> None:
    told = trace()
    told[2]["tags"] = tags
    span = spans_of(told)[2]
    assert (span.status, span.status_message) == (status, message)


@pytest.mark.parametrize(
    "value",
    [
        '{"exception": {"exception.message": "down"}}',
        '"exception": {"exception.message": "down"}',
        'exception|{"exception.message": "down"}|0',
    ],
    ids=["Python", "the specification", "the Collector"],
)
def test_an_annotation_is_an_event_with_its_attributes(value: str) -> None:
    told = trace()
    told[2]["annotations"] = [{"timestamp": 1_772_439_304_000_000, "value": value}]
    (event,) = spans_of(told)[2].events
    assert (event.name, dict(event.attributes)) == ("exception", {"exception.message": "down"})
    assert event.time_ns == 1_772_439_304_000_000_000


def test_a_short_trace_id_is_padded_as_b3_says() -> None:
    told = trace()
    for span in told:
        span["traceId"] = "a1b2c3d4e5f60708"
    assert {span.trace_id for span in spans_of(told)} == {"0000000000000000a1b2c3d4e5f60708"}


def test_the_halves_of_a_shared_span_are_one_below_the_other() -> None:
    told = trace()
    half = {**told[2], "kind": "SERVER", "shared": True, "localEndpoint": {"serviceName": "tides"}}
    client, server = [span for span in spans_of([*told, half]) if span.name == "tide_table"]
    assert server.parent_id == client.span_id
    assert server.resource.attributes == {"service.name": "tides"}


@pytest.mark.parametrize(
    ("field", "value"), [("timestamp", "soon"), ("duration", "long"), ("localEndpoint", 3)]
)
def test_a_value_of_the_wrong_type_is_named_in_one_line(field: str, value: object) -> None:
    told = trace()
    told[2][field] = value
    with pytest.raises(UnreadableInput, match="cannot be read as Zipkin spans") as raised:
        read_recording(json.dumps(told).encode())
    assert "\n" not in str(raised.value)
