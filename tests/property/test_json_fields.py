"""The fast reader of OTLP/JSON fills what protobuf's own parser would, or leaves the document to it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from collector_processor.otlp import Signal
from collector_processor.otlp.json_fields import is_filled
from collector_processor.otlp.otlp_json import REQUESTS, use_parser_spelling
from tests.security.mutations import mutate_json
from tests.unit.test_otlp_json import CAPTURES, FULL, traces

LOGS: dict[str, Any] = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "n", "value": {"doubleValue": 7}}], "entityRefs": []},
            "scopeLogs": [
                {
                    "scope": {"name": "s", "unknown": [1]},
                    "logRecords": [
                        {
                            "timeUnixNano": "5",
                            "severityNumber": 17,
                            "severityText": None,
                            "body": {"kvlistValue": {"values": [{"key": "k", "value": {}}]}},
                            "eventName": "e",
                        }
                    ],
                }
            ],
        }
    ]
}


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
@pytest.mark.parametrize("signal", [Signal.TRACES, Signal.LOGS])
def test_every_document_that_it_reads_is_read_as_protobufs_parser_does(signal: Signal, seed: int) -> None:
    whole = json.loads(traces(FULL)) if signal is Signal.TRACES else LOGS
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
    [(Signal.TRACES, json.loads(traces(FULL))), (Signal.LOGS, LOGS)],
    ids=["traces", "logs"],
)
def test_the_usual_spelling_is_read_whole(signal: Signal, document: Any) -> None:
    message = REQUESTS[signal]()
    assert is_filled(message, spelled(signal, document))
    assert message == parsed(signal, document)


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.json")), ids=lambda path: path.stem)
def test_what_frameworks_send_is_read_whole(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    signal = Signal.LOGS if "resourceLogs" in document else Signal.TRACES
    if "resourceLogs" not in document and "resourceSpans" not in document:
        pytest.skip("not an export request")
    message = REQUESTS[signal]()
    assert is_filled(message, spelled(signal, document))
    assert message == parsed(signal, document)
