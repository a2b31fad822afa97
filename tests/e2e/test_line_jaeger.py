"""Agents → a real Collector → blamespan → a real Jaeger, and what people see there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from analyzer.cli.demo_run import DemoExpectation, play
from semconv.attributes import (
    ERROR,
    FAILURE_AGENT_NAME,
    FAILURE_CONFIDENCE,
    FAILURE_DECISIVE,
    FAILURE_ID,
    FAILURE_METHOD,
    FAILURE_STATUS,
    FAILURE_STEP_INDEX,
    FAILURE_STEP_SPAN_ID,
    FAILURE_VERSION,
    RUN_AGENTS,
    RUN_ID,
    RUN_STEP_COUNT,
    STEP_AGENT_NAME,
    STEP_INDEX,
)
from tests.backends.fixtures import CollectorFactory
from tests.backends.processes import Compression, Forwarding, Protocol, RunningJaeger
from tests.e2e.in_jaeger import Seen, as_stored, look, references, tags, trace_ids
from tests.e2e.line import Line, StartLine
from tests.e2e.spans import by_id, originals, placed
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, Played, span_id


@contextmanager
def agents(service: str, endpoint: str) -> Iterator[tuple[TracerProvider, InMemorySpanExporter]]:
    """An agent process; its exported spans are also kept in memory. Sent when the block ends."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    memory = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True)))
    try:
        yield provider, memory
    finally:
        assert provider.force_flush()
        provider.shutdown()


def play_through(service: str, endpoint: str) -> Played:
    """Let the demo program's agents run and send their spans to ``endpoint``."""
    with agents(service, endpoint) as (provider, memory):
        expected: DemoExpectation = play(provider, latency_s=0.002)
    spans: tuple[ReadableSpan, ...] = memory.get_finished_spans()
    return Played(spans=spans, expected=expected)


def endpoint_of(server: RunningJaeger | Line, protocol: Protocol) -> str:
    if isinstance(server, Line):
        return server.grpc if protocol == "grpc" else server.http
    return server.otlp_grpc_endpoint if protocol == "grpc" else server.otlp_http_endpoint


def settings_for(jaeger: RunningJaeger, protocol: Protocol) -> dict[str, str]:
    """OpenTelemetry's variables as an SDK's user sets them."""
    endpoint = endpoint_of(jaeger, protocol)
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}


def found_by(jaeger: RunningJaeger, service: str, **asked: str) -> list[str]:
    return trace_ids(jaeger.query.find_traces(service, tags=asked))


def assert_found(jaeger: RunningJaeger, service: str, played: Played) -> None:
    """The three ways in which people look for a blamed trace."""
    mine = [played.trace_id]
    assert service in jaeger.query.services()
    assert found_by(jaeger, service) == mine
    assert found_by(jaeger, service, **{FAILURE_DECISIVE: "true"}) == mine
    assert found_by(jaeger, service, **{FAILURE_AGENT_NAME: "calculator"}) == mine
    assert found_by(jaeger, service, **{FAILURE_AGENT_NAME: "writer"}) == []


def assert_blames_the_calculator(seen: Seen, played: Played) -> None:
    """One span is decisive; it gives the agent, the step and the evidence."""
    (decisive,) = seen.decisive()
    found = tags(decisive)
    assert found[FAILURE_AGENT_NAME] == found[STEP_AGENT_NAME] == played.expected.agent
    assert found[FAILURE_STEP_INDEX] == found[STEP_INDEX] == played.expected.step
    assert found[FAILURE_STEP_SPAN_ID] == span_id(played.decisive)
    assert (found[FAILURE_STATUS], found[FAILURE_METHOD]) == ("attributed", "signals")
    assert (found[FAILURE_VERSION], found[RUN_ID]) == (1, played.trace_id)
    assert 0 < found[FAILURE_CONFIDENCE] <= 1


@pytest.mark.parametrize(
    ("protocol", "compression"),
    [pytest.param("grpc", "gzip", id="grpc, gzip"), pytest.param("http/protobuf", "zstd", id="http, zstd")],
)
def test_late_the_blame_hangs_under_the_decisive_span_and_originals_are_untouched(
    jaeger: RunningJaeger,
    collector_factory: CollectorFactory,
    start_line: StartLine,
    protocol: Protocol,
    compression: Compression,
) -> None:
    service = f"solar-{uuid4().hex}"
    line = start_line(**settings_for(jaeger, protocol))
    collector = collector_factory(
        Forwarding(endpoint=endpoint_of(line, protocol), protocol=protocol, compression=compression)
    )
    played = play_through(service, collector.otlp_grpc_endpoint)

    seen = look(jaeger, played.trace_id, spans=DEMO_SPANS + CARRIERS)

    assert_found(jaeger, service, played)
    assert_blames_the_calculator(seen, played)
    (decisive,) = seen.decisive()
    (of_root,) = (span for span in seen.carriers() if span["spanID"] != decisive["spanID"])
    # Children of what they speak of; only the root's points at the decisive span.
    assert references(decisive) == [("CHILD_OF", span_id(played.decisive))]
    assert references(of_root) == [
        ("CHILD_OF", span_id(played.root)),
        ("FOLLOWS_FROM", span_id(played.decisive)),
    ]
    assert seen.warnings() == []
    assert originals(seen.stored) == by_id(as_stored(placed(played.body)))
    # As a waterfall shows them: first under the parent, 1 µs, red, no error in status.
    for carrier, parent in ((decisive, span_id(played.decisive)), (of_root, span_id(played.root))):
        assert (carrier["startTime"], carrier["duration"]) == (seen.spans[parent]["startTime"], 1)
        assert "otel.status_code" not in tags(carrier)
        assert seen.trace["processes"][carrier["processID"]]["serviceName"] == service
    assert tags(decisive)[ERROR] is True
    assert decisive["operationName"] == "calculator: wrong computation"
    assert of_root["operationName"] == "failure: calculator (wrong computation)"
    root = tags(of_root)
    assert root[ERROR] is True
    assert root[FAILURE_ID] == tags(decisive)[FAILURE_ID]
    assert (root[RUN_STEP_COUNT], root[RUN_AGENTS]) == (
        played.expected.step_count,
        '["planner","researcher","calculator","writer"]',
    )
    assert FAILURE_DECISIVE not in root


def test_hold_the_blame_stands_on_the_originals_and_nothing_else_changed(
    jaeger: RunningJaeger, collector_factory: CollectorFactory, start_line: StartLine
) -> None:
    service = f"solar-{uuid4().hex}"
    line = start_line(write_back="hold", **settings_for(jaeger, "grpc"))
    collector = collector_factory(Forwarding(endpoint=line.grpc))
    played = play_through(service, collector.otlp_grpc_endpoint)

    seen = look(jaeger, played.trace_id, spans=DEMO_SPANS)

    assert_found(jaeger, service, played)
    assert_blames_the_calculator(seen, played)
    assert [span["spanID"] for span in seen.decisive()] == [span_id(played.decisive)]
    assert seen.carriers() == []
    assert seen.warnings() == []
    assert_only_attributes_were_added(seen, played)
    # Red in the waterfall: the researcher's time-out, which it made good, by its own status; and the culprit.
    red = {span["spanID"]: tags(span) for span in seen.trace["spans"] if tags(span).get(ERROR) is True}
    by_status = {name for name, own in red.items() if own.get("otel.status_code") == "ERROR"}
    assert by_status
    assert red.keys() - by_status == {span_id(played.decisive)}
    root = tags(seen.spans[span_id(played.root)])
    assert ERROR not in root
    assert (root[RUN_ID], root[FAILURE_AGENT_NAME]) == (played.trace_id, "calculator")
    assert line.verdicts("sent") == 0, "no carrier was sent beside"


def assert_only_attributes_were_added(seen: Seen, played: Played) -> None:
    """The decisive span and the root have added attributes; every other field is unchanged."""
    sent, stored = by_id(as_stored(placed(played.body))), by_id(seen.stored)
    changed = {name for name, one in sent.items() if stored[name] != one}
    assert changed == {span_id(played.decisive), span_id(played.root)}
    assert stored.keys() == sent.keys()
    for name in changed:
        own = len(sent[name].span.attributes)
        added = [pair.key for pair in stored[name].span.attributes[own:]]
        assert added
        mark = {ERROR} if name == span_id(played.decisive) else set()
        assert {key for key in added if not key.startswith(("blamespan.", "annotations."))} == mark
        del stored[name].span.attributes[own:]
    assert stored == sent
