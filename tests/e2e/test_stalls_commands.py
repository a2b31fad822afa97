"""The gateway, the MCP server on a port and a Kafka processor do not stall on the longest runs and requests.

``pytest -s`` prints the longest stalls.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from mcp import Client

from analyzer.cli.recorded_runs import load_runs, reader_here
from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import Tape
from benchmarks.hostile.attack_requests import agents
from collector_processor.core.runs import Run
from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import to_json
from collector_processor.rebuild.encode import encode
from tests.backends import install
from tests.backends.fixtures import insist_on
from tests.backends.kafka_broker import start_kafka
from tests.backends.postgresql import postgresql
from tests.backends.supervise import free_ports, listens
from tests.big_traces import SHAPES
from tests.e2e.traffic import send
from tests.e2e.watching import (
    LONG_S,
    Found,
    Watched,
    announced_in,
    failed,
    probed,
    require,
    watched,
)
from tests.tapes import chat_body

pytestmark = pytest.mark.timeout(2_700)
Asked: TypeAlias = tuple[str, str, bytes]
"""A request's name, the end of its path, and its body."""
CHAT: Final = "chat/completions"
TOOLS: Final = "tools"
TRIAL: Final = "a-trial-of-the-gateway-"
RUNS: Final = {shape: 100 + number for number, shape in enumerate(SHAPES)}


def test_the_mcp_server_on_a_port_stalls_on_no_run(tmp_path: Path) -> None:
    require(_of_mcp, tmp_path)


def _of_mcp(folder: Path) -> Found:
    with watched(folder, root_grace=100) as service:
        for shape, trace in RUNS.items():
            send(service.line, encode(failed(shape, trace)), way="grpc")
            service.verdict(trace)
    (port,) = free_ports(1)
    words = ["mcp", "--data-dir", str(folder / "data"), "--port", str(port)]
    with probed(folder / "log-mcp", words, lambda: {} if listens(port) else None) as one:
        found = Found()
        asyncio.run(_call_all(one, f"http://127.0.0.1:{port}/mcp", found))
    return found


async def _call_all(one: Watched, url: str, found: Found) -> None:
    for trace in RUNS.values():
        for tool, arguments in _calls(f"{trace:032x}"):
            with found.during(one, f"{tool} of {trace}", rest_s=0.05):
                async with Client(url) as client:
                    result = await client.call_tool(tool, arguments)
            assert not result.is_error, (tool, result)


def _calls(run_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "list_failed_runs", {"limit": 50, "since": "2026-01-01T00:00:00Z", "search": "no run has this"}
    yield "list_issues", {"limit": 50}
    yield "list_workflows", {"limit": 50}
    yield "get_workflow", {"service": "test", "workflow": "invoke_workflow"}
    yield "get_verdict", {"run_id": run_id}
    yield "get_steps", {"run_id": run_id, "first": 0, "limit": 20, "max_text": 50_000}


def test_a_kafka_processor_stalls_on_no_run(tmp_path: Path) -> None:
    require(_of_kafka, tmp_path)


def _of_kafka(folder: Path) -> Found:
    found = Found()
    kafka = start_kafka(insist_on("kafka", install.kafka_binary()), folder / "kafka")
    with kafka as broker, postgresql() as server:
        broker.create()
        with watched(folder, root_grace=100, queue=broker.url, store_url=server.url()) as one:
            for shape, trace in RUNS.items():
                with found.during(one, f"{shape}, through Kafka"):
                    send(one.line, encode(failed(shape, trace)), way="grpc")
                    one.verdict(trace)
            with found.during(one, "2,000 traces, through Kafka"):
                send(one.line, agents(2_000, 10_000), way="grpc")
                one.verdict(10_000)
    return found


def test_the_gateway_stalls_on_no_request(tmp_path: Path) -> None:
    require(_of_gateway, tmp_path)


def _of_gateway(folder: Path) -> Found:
    found = Found()
    for shape, worst in (("wide", ()), ("history", _worst())):
        file = folder / f"{shape}.json"
        file.write_bytes(to_json(Signal.TRACES, encode(failed(shape, RUNS[shape]))))
        _ask_each(folder / f"log-{shape}", file, worst, found)
    return found


def _ask_each(log: Path, tape: Path, worst: Iterable[Asked], found: Found) -> None:
    """Send a gateway the calls of its tape, then other requests, each of which ends a trial of its own."""
    words = ["gateway", "--tape", str(tape), "--format", "json", "--allow-tool", "search", "--trial", TRIAL]
    with probed(log, words, partial(announced_in, log, "base_url")) as one:
        own = ((TRIAL, asked) for asked in _recorded(_tape(tape)))
        others = ((f"{TRIAL}{number}", asked) for number, asked in enumerate(worst))
        for trial, (name, path, body) in (*own, *others):
            base = one.line.announced["base_url"].replace(TRIAL, trial)
            base = base.removesuffix("/v1") if path == TOOLS else base
            with found.during(one, name, rest_s=0.05):
                assert _post(f"{base}/{path}", body) < 500


def _tape(file: Path) -> Tape:
    (run,) = load_runs(file, [])
    assert run.trace is not None
    tape = read_tape(Run(trace=run.trace, trajectory=run.trajectory, reader=reader_here()))
    assert isinstance(tape, Tape)
    return tape


def _recorded(tape: Tape) -> Iterator[Asked]:
    for call in (tape.calls[0], tape.calls[len(tape.calls) // 2], tape.calls[-1]):
        yield f"{len(tape.calls)} calls: {call.index}", CHAT, json.dumps(chat_body(call.messages)).encode()


def _worst() -> Iterator[Asked]:
    turns = [{"role": "user", "content": f"turn {number}"} for number in range(2_000)]
    yield "2,000 messages", CHAT, _body(turns)
    yield "100,000 messages", CHAT, _body(turns * 50)
    yield "deep JSON", CHAT, b"[" * 1_000_000
    yield "24 MiB of text", CHAT, _body([{"role": "user", "content": "so " * (8 << 20)}])
    yield "3 MiB of times", CHAT, _body([{"role": "user", "content": "it is 12:00 now " * (3 << 16)}])
    results = [{"type": "tool_result", "tool_use_id": str(n), "content": "x"} for n in range(5_000)]
    texts = [{"type": "text", "text": str(n)} for n in range(5_000)]
    yield "5,000 results", "messages", _body([{"role": "user", "content": [*results, *texts]}])
    yield "500,000 tools", CHAT, _body([], tools=[{"n": n} for n in range(500_000)])
    for name, arguments in (
        ("24 MiB of arguments", {"q": "so " * (8 << 20)}),
        ("100,000 arguments", {str(n): n for n in range(100_000)}),
        ("deep arguments", "[" * 1_000_000),
    ):
        asked = {"name": "search", "arguments": json.dumps(arguments)}
        yield f"tool, {name}", TOOLS, json.dumps(asked).encode()


def _body(messages: list[dict[str, Any]], **more: object) -> bytes:
    return json.dumps({"model": "gpt", "messages": messages, **more}).encode()


def _post(url: str, body: bytes) -> int:
    asked = Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        with build_opener(ProxyHandler({})).open(asked, timeout=LONG_S) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
