"""Spans that would circulate forever are stopped at the first round, kept, and explained."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collector_processor.rebuild.encode import encode
from semconv.model import SpanId, TraceId
from tests.backends.supervise import wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.line import Line, StartLine, starting
from tests.e2e.model_server import Scripted, serve
from tests.e2e.proxy import Alias, alias
from tests.e2e.test_line_model import VERDICT, in_background, settings_for
from tests.e2e.traffic import play_demo, send
from tests.factories import agent, chat, span, workflow

RUN = encode([workflow(1, task="add", error="wrong sum"), agent(2, "writer"), chat(3, parent=2, answer="5")])
CIRCLE = "forwarding loop: requests are refused until the endpoint is corrected"


@pytest.fixture
def door() -> Iterator[Alias]:
    with alias() as found:
        yield found


def watch(line: Line, for_s: float) -> None:
    """Wait for the first round, and give spans time to pass."""
    wait_until(lambda: line.said(CIRCLE), what="a circle to be noticed")
    time.sleep(for_s)
    assert line.server.process.poll() is None


def at_rest(line: Line) -> dict[str, int] | None:
    """Return the balance, unless a request is just being answered."""
    found = line.balance()
    return found if found["received"] == found["acknowledged"] + found["refused"] else None


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_an_endpoint_that_is_ourselves_by_another_name_loses_nothing(
    start_line: StartLine, door: Alias, protocol: str
) -> None:
    """The loop cannot be seen at the start, only when the first request returns. The corrected endpoint gets
    everything."""
    line = start_line(forward_endpoint=door.url, forward_protocol=protocol, shutdown_s=1)
    door.target = line.grpc if protocol == "grpc" else line.http
    send(line, encode([span(number) for number in range(10, 20)]))
    send(line, RUN)
    line.verdict("0af7651916cd43dd8448eb211c80319c")
    watch(line, 1.0)
    balance = wait_until(lambda: at_rest(line), what="nothing under way")
    assert (balance["acknowledged"], balance["held"]) == (13, 13)
    assert balance["refused"] < 60  # it is not tried again and again
    assert len(line.said(CIRCLE)) == 1
    assert line.terminate() == 0
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        spans = backend.await_spans("0af7651916cd43dd8448eb211c80319c", 15)
        line.await_items("forwarded", 13)
        assert sum(one.is_carrier for one in spans) == 2
        assert sorted(one.id for one in spans if not one.is_carrier) == sorted(
            {one.id for one in spans if not one.is_carrier}
        )


def test_two_services_in_a_ring_stop_at_the_first_round_and_keep_the_spans(
    tmp_path: Path, door: Alias
) -> None:
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
    with starting(tmp_path / "near") as start_near, starting(tmp_path / "far") as start_far:
        far = start_far(forward_endpoint=door.url, shutdown_s=1)
        near = start_near(forward_endpoint=far.grpc, shutdown_s=1)
        door.target = near.grpc
        send(near, encode([span(number) for number in range(1, 6)]))
        near.await_items("forwarded", 5)
        far.await_items("held", 5)
        watch(near, 1.0)
        assert len(near.said(CIRCLE)) == 1
        assert (near.items("acknowledged"), far.items("acknowledged")) == (5, 5)
        assert far.items("rejected") == 0
        assert far.terminate() == 0
        with grpc_backend() as backend:
            far = start_far(forward_endpoint=backend.url)
            assert len(backend.await_spans("0af7651916cd43dd8448eb211c80319c", 5)) == 5


def test_spans_of_a_traced_model_proxy_behind_the_judge_are_forwarded_without_model_calls(
    start_line: StartLine,
) -> None:
    """It continues our own call's trace with an agent's attributes; we must not analyse our own spans."""
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as model:
        line = start_line(forward_endpoint=backend.url, **settings_for(model))
        played = play_demo()
        send(line, played.body)
        line.verdict(played.trace_id)
        (asked,) = model.received
        _, trace_id, parent, flags = asked.headers["traceparent"].split("-")
        spans = [
            workflow(7, task="judge", error="wrong sum", trace_id=TraceId(trace_id)),
            agent(8, "proxy", parent=7, trace_id=TraceId(trace_id)),
            chat(9, parent=8, answer="5", trace_id=TraceId(trace_id)),
        ]
        send(line, encode([replace(spans[0], parent_id=SpanId(parent)), *spans[1:]]))
        backend.await_spans(trace_id, len(spans))
        after = play_demo()  # what comes later is judged, so that the proxy's spans have had their time
        send(line, after.body)
        line.verdict(after.trace_id)
        assert flags == "00"
        assert len(model.received) == 2
        assert {run["run_id"] for run in line.runs()} == {played.trace_id, after.trace_id}
        assert len(backend.spans(trace_id)) == len(spans)
