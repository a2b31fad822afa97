"""No request, run or reply blocks the event loop, measured with the worst inputs and a probe on the loop.

``pytest -s`` prints the longest stalls; ``watching.py`` says what counts as one.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from benchmarks.hostile.attack_requests import agents, star
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.repair import repair
from collector_processor.trajectory import order
from semconv.model import SpanStatus, Trace
from tests.backends.postgresql import postgresql
from tests.backends.supervise import wait_until
from tests.big_traces import SHAPES
from tests.e2e.model_server import Scripted, serve
from tests.e2e.test_halves import asking
from tests.e2e.test_line_model import in_background, settings_for
from tests.e2e.traffic import Way, send
from tests.e2e.watching import (
    LONG_S,
    MANY,
    SPANS,
    Found,
    every_short_word,
    get,
    in_trace,
    post,
    require,
    upload,
    watched,
)

pytestmark = pytest.mark.timeout(2_700)
WAYS: Final[tuple[Way, ...]] = ("grpc", "http", "json")
READS: Final = (
    *("/runs", "/runs?part=rows", "/api/runs?limit=500", "/api/runs?agent=solo", "/api/issues", "/issues"),
    *("/api/workflows", "/workflows", "/workflow?service=test&workflow=invoke_workflow"),
    *("/health", "/metrics", "/api/openapi.json", "/try"),
)
READS_OF_A_RUN: Final = (
    *("/api/runs/{:032x}", "/runs/{:032x}", "/runs/{:032x}/report.html", "/runs/{:032x}/run.json"),
)
REPLY: Final = json.dumps({"reason": "so", "step": 0, "evidence": [{"step": 0, "quote": "#00000"}]})


def test_nothing_stalls_the_loop(tmp_path: Path) -> None:
    require(_with_a_model, tmp_path)


def _with_a_model(folder: Path) -> Found:
    found = Found()
    model = in_background(serve(Scripted(text=REPLY)))
    with model as server, watched(folder, **settings_for(server)) as one:
        with found.during(one, "control"):
            time.sleep(3)
        for number, (name, shape) in enumerate(SHAPES.items(), start=100):
            way = WAYS[number % len(WAYS)]
            spans = [in_trace(span, number) for span in shape(SPANS.get(name, MANY))]
            with found.during(one, f"{name}, {way}"):
                send(one.line, encode(spans), way=way)
                one.verdict(number)
        with found.during(one, "every short word, to the model"):
            send(one.line, encode(every_short_word(7)), way="http")
            verdict = one.verdict(7)
        with found.during(one, "its label"):
            post(f"{one.line.web}/api/runs/{7:032x}/label", {"failed": False})
            time.sleep(1)
        with found.during(one, "its bytes, uploaded"):
            assert upload(one.line.web, encode(every_short_word(8))) == "done"
        for path in (*READS, *(path.format(number) for number in (7, 100, 105) for path in READS_OF_A_RUN)):
            with found.during(one, path, rest_s=0.05):
                get(one.line.web + path)
        assert len(server.received) >= 2
    assert (verdict["method"], verdict["fallback"]) == ("judge+signals", None)
    return found


def test_traces_by_the_thousand_stall_no_loop(tmp_path: Path) -> None:
    require(_with_many_traces, tmp_path)


def _with_many_traces(folder: Path) -> Found:
    found = Found()
    with watched(folder, write_back="hold", forward_endpoint="http://127.0.0.1:9") as one:
        send(one.line, agents(1), way="http")
        one.verdict(1)
        for first, way in zip((10_000, 20_000, 30_000), WAYS, strict=True):
            with found.during(one, f"held, {way}"):
                send(one.line, agents(2_000, first), way=way)
                one.verdict(first)
        with found.during(one, "linked"):
            send(one.line, star(2_000), way="http")
    return found


def test_a_run_stalls_no_analyzer(tmp_path: Path) -> None:
    require(_of_an_analyzer, tmp_path)


def _of_an_analyzer(folder: Path) -> Found:
    found = Found()
    with postgresql() as server, watched(folder, "analyzer", store_url=server.url()) as one:
        for name, shape in SHAPES.items():
            spans = tuple(shape(SPANS.get(name, MANY)))
            failed = replace(order(repair(Trace(spans=spans))), root_status=SpanStatus.ERROR)
            with found.during(one, name), asking(server.url(), failed) as is_answered:
                wait_until(is_answered, what="the answer", timeout_s=LONG_S)
    return found
