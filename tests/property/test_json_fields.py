"""The fast reader of OTLP/JSON fills what protobuf's own parser would, or leaves the document to it."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from collector_processor.otlp import Signal
from collector_processor.otlp.json_fields import forget_fields, is_filled
from collector_processor.otlp.otlp_json import REQUESTS, use_parser_spelling
from tests.security.mutations import mutate_json
from tests.unit.test_otlp_json import CAPTURES, FULL, traces

RECORD: dict[str, Any] = {
    "timeUnixNano": "5",
    "severityNumber": 17,
    "severityText": None,
    "body": {"kvlistValue": {"values": [{"key": "k", "value": {}}]}},
    "eventName": "e",
}
SCOPED = {"scope": {"name": "s", "unknown": [1]}, "logRecords": [RECORD]}
RESOURCE = {"attributes": [{"key": "n", "value": {"doubleValue": 7}}], "entityRefs": []}
LOGS: dict[str, Any] = {"resourceLogs": [{"resource": RESOURCE, "scopeLogs": [SCOPED]}]}
POINTS = [
    {"timeUnixNano": "5", "asInt": "7", "attributes": []},
    {"timeUnixNano": "6", "asDouble": 1.5, "flags": 0},
]
TOKENS = {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": POINTS}
DELAY = {"dataPoints": [{"startTimeUnixNano": "1", "asInt": "-3"}]}
SUMS = [{"name": "tokens", "unit": "1", "sum": TOKENS}, {"name": "delay", "gauge": DELAY}]
METRICS: dict[str, Any] = {"resourceMetrics": [{"scopeMetrics": [{"metrics": SUMS}]}]}


def parsed(signal: Signal, document: Any) -> Message | None:
    message = REQUESTS[signal]()
    try:
        ParseDict(document, message, ignore_unknown_fields=True)
    except (ParseError, ValueError, TypeError, AttributeError, OverflowError):
        return None
    return message


def spelled(signal: Signal, document: Any) -> Any:
    use_parser_spelling(signal, document)
    return document


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("signal", list(Signal))
def test_an_accepted_document_is_read_as_protobufs_parser_reads_it(signal: Signal, seed: int) -> None:
    whole = {Signal.TRACES: json.loads(traces(FULL)), Signal.LOGS: LOGS, Signal.METRICS: METRICS}[signal]
    chance, text = Random(seed), json.dumps(spelled(signal, whole)).encode()
    read = 0
    for _ in range(400):
        document = json.loads(mutate_json(text, chance))
        message = REQUESTS[signal]()
        if isinstance(document, dict) and is_filled(message, document):
            read += 1
            assert message == parsed(signal, document)
    assert read


@pytest.mark.parametrize(
    ("signal", "document"),
    [(Signal.TRACES, json.loads(traces(FULL))), (Signal.LOGS, LOGS), (Signal.METRICS, METRICS)],
    ids=["traces", "logs", "metrics"],
)
def test_the_usual_spelling_is_read_whole(signal: Signal, document: Any) -> None:
    message = REQUESTS[signal]()
    assert is_filled(message, spelled(signal, document))
    assert message == parsed(signal, document)


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.json")), ids=lambda path: path.stem)
def test_requests_of_frameworks_are_read_whole(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    signal = Signal.LOGS if "resourceLogs" in document else Signal.TRACES
    if "resourceLogs" not in document and "resourceSpans" not in document:
        pytest.skip("not an export request")
    message = REQUESTS[signal]()
    assert is_filled(message, spelled(signal, document))
    assert message == parsed(signal, document)


def test_two_values_of_one_metric_are_left_to_protobufs_parser() -> None:
    point = {"timeUnixNano": "5", "asInt": "7", "asDouble": 7.0}
    metric = {"name": "m", "gauge": {"dataPoints": [point]}}
    document = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    assert not is_filled(REQUESTS[Signal.METRICS](), document)


def test_threads_that_read_the_first_requests_at_once_read_them_whole() -> None:
    """The tables of fields are made by the first request; a half-made one would skip fields silently."""
    document = spelled(Signal.TRACES, json.loads(traces(FULL)))
    expected = parsed(Signal.TRACES, document)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(60):
            forget_fields()
            messages = [REQUESTS[Signal.TRACES]() for _ in range(4)]
            with ThreadPoolExecutor(len(messages)) as pool:
                assert all(pool.map(is_filled, messages, [document] * len(messages)))
            assert messages == [expected] * len(messages)
    finally:
        sys.setswitchinterval(interval)
