"""Decorated tools in a rerun: recorded results and failures; undeclared tools do not run."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from semconv.attributes import TRIAL
from semconv.emit.tool_playback import TRIAL_VARIABLE, RecordedToolError, ToolRefused
from semconv.instrument import carry, rerun, run, tool

RAN: list[str] = []
"""Side effects that really happened."""


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@contextmanager
def gateway(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Iterator[list[Any]]:
    """A gateway's endpoint with one answer; yields the requests."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv(TRIAL_VARIABLE, f"http://127.0.0.1:{server.server_port}/t/trial")
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


@tool("book")
def book(seat: int) -> dict[str, Any]:
    RAN.append("booked")
    return {"seat": seat}


@tool()
def describe(seat: int) -> str:
    RAN.append("described")
    return f"seat {seat}"


@tool("book")
async def book_soon(seat: int) -> dict[str, Any]:
    RAN.append("booked")
    return {"seat": seat}


@tool("list")
def listed() -> Iterator[int]:
    RAN.append("listed")
    yield 0


@tool("list")
async def listed_soon() -> AsyncIterator[int]:
    RAN.append("listed")
    yield 0


def test_outside_a_trial_a_tool_runs() -> None:
    assert book(3) == {"seat": 3}
    assert RAN == ["booked"]


def test_in_a_trial_a_tool_returns_its_recorded_result_as_the_value_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gateway(monkeypatch, {"result": '{"seat": 7}', "failed": False}) as asked:
        assert book(3) == {"seat": 7}
        assert asyncio.run(book_soon(3)) == {"seat": 7}
        assert describe(3) == '{"seat": 7}'
    path, question = asked[0]
    assert (path, question["name"], json.loads(question["arguments"])) == (
        "/t/trial/tools",
        "book",
        {"seat": 3},
    )
    assert asked[2][1]["name"] == "describe"
    assert RAN == []


def test_a_generators_recorded_items_are_yielded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def collected() -> list[int]:
        return [item async for item in listed_soon()]

    with gateway(monkeypatch, {"result": "[1, 2]", "failed": False}):
        assert list(listed()) == [1, 2]
        assert asyncio.run(collected()) == [1, 2]
    assert RAN == []


def test_a_recorded_failure_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = {"result": "no such seat", "failed": True}
    with gateway(monkeypatch, recorded), pytest.raises(RecordedToolError, match="no such seat"):
        book(3)
    assert RAN == []


@pytest.mark.parametrize("answer", [{"refused": "not on the tape"}, {}, [], "?"])
def test_without_a_recorded_result_nothing_runs(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    with gateway(monkeypatch, answer):
        with pytest.raises(ToolRefused):
            book(3)
        with pytest.raises(ToolRefused, match="decorate a function"), tool("book"):
            RAN.append("block")
    assert RAN == []


def test_a_tool_declared_read_only_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with gateway(monkeypatch, {"run": True}):
        assert book(3) == {"seat": 3}
        with tool("book"):
            RAN.append("block")
    assert RAN == ["booked", "block"]


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/t/trial", "file:///etc/passwd"])
def test_without_a_gateway_nothing_runs(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(TRIAL_VARIABLE, address)
    with pytest.raises(ToolRefused):
        book(3)
    assert RAN == []


def environment(monkeypatch: pytest.MonkeyPatch, **more: str) -> dict[str, str]:
    """The environment of a trial as a service gets it: in a request, not in its own environment."""
    address = os.environ[TRIAL_VARIABLE]
    monkeypatch.delenv(TRIAL_VARIABLE)
    return {TRIAL_VARIABLE: address, **more}


def test_a_service_plays_a_trials_tools_beside_its_users_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    with gateway(monkeypatch, {"result": '{"seat": 4}'}) as asked:
        trial = environment(monkeypatch)
        with ThreadPoolExecutor() as pool:
            with rerun(trial):
                assert book(1) == {"seat": 4}
                assert pool.submit(carry(book), 2).result() == {"seat": 4}
                assert pool.submit(book, 3).result() == {"seat": 3}  # a thread of another request
            assert book(5) == {"seat": 5}
    assert asked[0] == ("/t/trial/tools", {"rerun": True})
    assert [body["name"] for _, body in asked[1:]] == ["book", "book"]
    assert RAN == ["booked", "booked"]


def test_a_trial_is_not_entered_if_its_gateway_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRIAL_VARIABLE, raising=False)
    with pytest.raises(ToolRefused), rerun({TRIAL_VARIABLE: "http://127.0.0.1:9/t/x"}):
        book(1)
    with rerun({}):
        assert book(1) == {"seat": 1}
    assert RAN == ["booked"]


def test_a_run_inside_a_rerun_carries_the_trials_id(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with gateway(monkeypatch, {}):
        trial = environment(monkeypatch, OTEL_RESOURCE_ATTRIBUTES="service.name=x,blamespan.trial=7f")
        with rerun(trial), run("booking", tracer_provider=provider):
            pass
        with run("booking", tracer_provider=provider):
            pass
    marks = [(span.attributes or {}).get(TRIAL) for span in exporter.get_finished_spans()]
    assert marks == ["7f", None]
