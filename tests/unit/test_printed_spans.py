"""Spans that SDKs print are read whole: ids, parents, times, attributes, events, links and status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, StatusCode

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from semconv.model import Span, SpanStatus, Status

EXAMPLES = Path(__file__).parents[2] / "examples" / "files"


def spans_of(text: str) -> list[Span]:
    bodies = read_recording(text.encode()).bodies(Signal.TRACES)
    return [span for body in bodies for span in decode(body).spans]


@pytest.fixture
def printed() -> list[ReadableSpan]:
    """Spans as the real SDK makes them: a failed call inside an agent, linked to an earlier span."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "harbour", "replicas": 2}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("harbour")
    with tracer.start_as_current_span("earlier") as earlier:
        pass
    link = Link(earlier.get_span_context(), {"why": "retry"})
    with (
        tracer.start_as_current_span("desk", attributes={"tags": ["a", "b"], "ratio": 0.5, "ok": True}),
        tracer.start_as_current_span("tide_table", kind=SpanKind.CLIENT, links=[link]) as called,
    ):
        called.add_event("waited", {"seconds": 3})
        called.record_exception(ConnectionError("down"))
        called.set_status(StatusCode.ERROR, "no tides")
    provider.shutdown()
    return list(kept.get_finished_spans())


def test_what_pythons_sdk_prints_is_read_whole(printed: list[ReadableSpan]) -> None:
    earlier, call, desk = spans_of("\n".join(span.to_json() for span in printed))
    assert call.parent_id == desk.span_id
    assert (call.trace_id, desk.parent_id) == (desk.trace_id, None)
    assert int(call.span_id, 16) == printed[1].context.span_id
    assert call.kind == 3
    assert (call.status, call.status_message) == (SpanStatus.ERROR, "no tides")
    assert desk.attributes == {"tags": ("a", "b"), "ratio": 0.5, "ok": True}
    waited, exception = call.events
    assert waited.attributes == {"seconds": 3}
    assert exception.attributes["exception.message"] == "down"
    (link,) = call.links
    assert (link.span_id, link.attributes) == (earlier.span_id, {"why": "retry"})
    assert call.resource.attributes == {"service.name": "harbour", "replicas": 2}
    assert abs(call.start_ns - (printed[1].start_time or 0)) <= 1_000  # printed in microseconds
    assert desk.start_ns <= call.start_ns <= call.end_ns <= desk.end_ns


@pytest.mark.parametrize("indent", [None, 4], ids=["one a line", "several lines each"])
def test_each_way_of_printing_gives_the_same_spans(printed: list[ReadableSpan], indent: int | None) -> None:
    one_by_one = "\n".join(span.to_json(indent=indent) for span in printed)
    as_list = json.dumps([json.loads(span.to_json()) for span in printed])
    assert spans_of(one_by_one) == spans_of(as_list)


def documents(name: str) -> list[Any]:
    return list(_each(json.JSONDecoder(), (EXAMPLES / name).read_text(encoding="utf-8").strip()))


def _each(decoder: json.JSONDecoder, text: str) -> Iterator[Any]:
    while text:
        found, end = decoder.raw_decode(text)
        yield found
        text = text[end:].strip()


def test_go_prints_zeros_for_no_parent() -> None:
    desk, *others = spans_of("\n".join(map(json.dumps, documents("go-stdouttrace.json"))))
    assert desk.parent_id is None
    assert {span.parent_id for span in others} == {desk.span_id}
    (failed,) = [span for span in others if span.status is SpanStatus.ERROR]
    assert (
        failed.events[0].attributes["exception.message"]
        == "ConnectionError: the tide service cannot be reached"
    )
    assert failed.scope.name == "harbour"
    assert failed.resource.attributes == {"service.name": "harbour"}


def test_a_run_whose_tool_answers_is_right() -> None:
    told = documents("console-spans.json")
    result = "High water at Dover: 14:20 tomorrow"
    told[2] |= {"status": {"status_code": "OK"}, "events": []}
    told[2]["attributes"]["output.value"] = result
    told[3]["attributes"]["llm.input_messages.1.message.content"] = result
    verdict = attribute("\n".join(map(json.dumps, told)).encode())
    assert (verdict.status, verdict.agent) == (Status.NO_FAILURE, None)


def test_messages_in_log_records_among_the_spans_are_joined_to_them() -> None:
    """``opentelemetry.instrumentation.openai_v2`` records messages as log records."""
    told = documents("console-spans.json")
    call = told[1]
    call["attributes"] = {"gen_ai.operation.name": "chat", "gen_ai.agent.name": "harbour_desk"}
    bodies = {
        "gen_ai.user.message": {"content": "When?"},
        "gen_ai.choice": {"message": {"content": "At 14:20."}},
    }
    logs = [
        {
            "body": body,
            "severity_number": 9,
            "severity_text": "INFO",
            "attributes": {"event.name": name},
            "timestamp": call["end_time"],
            "trace_id": call["context"]["trace_id"],
            "span_id": call["context"]["span_id"],
            "resource": call["resource"],
        }
        for name, body in bodies.items()
    ]
    (run,) = read_runs("\n".join(json.dumps(one, indent=4) for one in (*logs, *told)).encode())
    (step,) = [step for step in run.trajectory.steps if step.output == "At 14:20."]
    assert "When?" in step.input


@pytest.mark.parametrize(
    ("field", "value"),
    [("attributes", 3), ("events", "none"), ("start_time", "yesterday"), ("status", "OK"), ("resource", [1])],
)
def test_a_value_of_the_wrong_type_is_named_in_one_line(field: str, value: object) -> None:
    told = documents("console-spans.json")
    told[1][field] = value
    with pytest.raises(UnreadableInput, match="cannot be read as spans printed by OpenTelemetry") as raised:
        read_recording(json.dumps(told).encode())
    assert "\n" not in str(raised.value)
