"""Valid inputs from which fuzzing starts, made by the test builders."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import zstandard

from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import to_json
from collector_processor.rebuild.encode import encode
from tests.e2e.hostile import failing_run, good_request, json_span
from tests.factories import TRACE
from tests.otlp_requests import (
    as_the_collector_writes,
    log_request,
    many_spans,
    metric_request,
    record,
    request,
    span,
)
from tests.security.targets import replies_seed

_EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "files"
"""One file of each format that is read."""
_JAEGER: Final = {
    "data": [
        {
            "traceID": TRACE,
            "spans": [
                {
                    "traceID": TRACE,
                    "spanID": "b7ad6b7169203331",
                    "operationName": "invoke_agent planner",
                    "references": [{"refType": "CHILD_OF", "traceID": TRACE, "spanID": "b7ad6b7169203332"}],
                    "startTime": 1_700_000_000_000_000,
                    "duration": 5,
                    "tags": [{"key": "error", "type": "bool", "value": True}],
                    "logs": [{"timestamp": 1_700_000_000_000_000, "fields": []}],
                    "processID": "p1",
                }
            ],
            "processes": {"p1": {"serviceName": "shop", "tags": []}},
        }
    ]
}
_CONVERSATION: Final = {
    "question": "How much?",
    "ground_truth": "480",
    "history": [
        {"role": "user", "name": "planner", "content": "Look it up."},
        {"role": "assistant", "name": "analyst", "content": "FINAL ANSWER: 450"},
    ],
}


def seeds(target: str) -> tuple[bytes, ...]:
    """Return the valid inputs of one target."""
    return _SEEDS[target]


def _protobuf() -> tuple[bytes, ...]:
    marked = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    agent = request(
        span(1, attributes=marked), span(2, parent=1, attributes={"a": True, "n": 5}, flags=0x301)
    )
    return (agent, as_the_collector_writes(agent), many_spans(8, traces=3), good_request())


def _of_all_signals() -> tuple[bytes, ...]:
    logs = log_request(record(name="gen_ai.evaluation.result"), record(trace=None))
    told = {Signal.TRACES: _protobuf(), Signal.LOGS: (logs,), Signal.METRICS: (metric_request([1, 0, 3]),)}
    return tuple(bytes((place,)) + body for place, signal in enumerate(Signal) for body in told[signal])


def _json() -> tuple[bytes, ...]:
    return (json_span(), to_json(Signal.TRACES, good_request()))


def _packed() -> tuple[bytes, ...]:
    body = good_request()
    packed = (gzip.compress(body), zlib.compress(body), zstandard.compress(body), body)
    return tuple(bytes((place,)) + one for place, one in enumerate(packed))


_TEXTS: Final = (
    b"use sk-proj-abcdefghijklmnop1234, mail ann@example.org, card 4111 1111 1111 1111",
    "\x1b]8;;https://x\x07here\x1b[0m \u202egnol\u2066 \ue0001 \x9b31m".encode(),
)
_LOGGED: Final = json.dumps(_CONVERSATION).encode()
_SEEDS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "scan": _of_all_signals(),
    "wire": _of_all_signals(),
    "decode": _protobuf(),
    "slow-lane": (*_protobuf(), encode(failing_run(TRACE))),
    "from-json": tuple(b"\0" + one for one in _json()),
    "recordings": (
        *_json(),
        json.dumps(_JAEGER).encode(),
        _LOGGED,
        gzip.compress(_LOGGED),
        good_request(),
        *(path.read_bytes() for path in sorted(_EXAMPLES.iterdir())),
    ),
    "replies": (replies_seed(), b"Agent Name: B\nStep Number: 1\nReason for Mistake: r"),
    "unpack": _packed(),
    "text": _TEXTS,
}
