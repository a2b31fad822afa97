"""The process itself: one or two signals to end, and a clock that is set forward and back."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

import grpc
import pytest

from analyzer.service import durable as files
from analyzer.service.all_in_one import Running, running_service
from collector_processor.rebuild.encode import encode
from collector_processor.settings import load_settings
from tests.backends.supervise import wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.line import Line, StartLine, environment
from tests.e2e.proxy import alias
from tests.e2e.traffic import Doors, send
from tests.factories import TRACE, agent, chat, span, workflow

TEN_YEARS_NS = 10 * 365 * 24 * 3600 * 10**9
NOWHERE = "http://127.0.0.1:9"
WORK = encode([agent(2, "writer"), chat(3, parent=2, answer="5")])
END = encode([workflow(1, task="add", error="wrong sum")])


def status(line: Line, path: str) -> int | None:
    """Return the answer's status; ``None`` without an answer."""
    try:
        with build_opener(ProxyHandler({})).open(line.web + path, timeout=300) as answer:
            return int(answer.status)
    except HTTPError as refusal:
        with refusal:
            return refusal.code
    except (URLError, OSError):
        return None


def test_while_it_drains_it_is_alive_not_ready_and_takes_nothing_more(start_line: StartLine) -> None:
    """Readiness ends first, so that clients stop sending; what remains is there after the restart."""
    with alias() as door, grpc_backend() as backend:
        line = start_line(forward_endpoint=door.url, shutdown_s=120)
        assert status(line, "/readyz") == 200
        send(line, encode([span(1)]))
        line.server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: status(line, "/readyz") == 503, what="not ready")
        assert status(line, "/healthz") == 200
        assert line.balance() == {"received": 1, "acknowledged": 1, "held": 1}
        wait_until(lambda: _is_refused(line), what="closed doors")
        assert status(line, "/readyz") == 503
        door.target = backend.url  # what it drains for
        assert line.server.process.wait(timeout=300) == 0
        assert [one.span.name for one in backend.spans(TRACE)] == [span(1).name]


def _is_refused(line: Line) -> bool:
    """Send nothing: were it taken, it would not be missed."""
    try:
        send(line, encode([]))
    except grpc.RpcError:
        return True
    return False


def test_a_second_sigterm_ends_a_drain_that_takes_its_time(start_line: StartLine) -> None:
    line = start_line(forward_endpoint=NOWHERE, shutdown_s=60)
    send(line, encode([span(1)]))
    line.server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: status(line, "/readyz") == 503, what="not ready", timeout_s=300)
    line.server.process.send_signal(signal.SIGTERM)
    assert line.server.process.wait(timeout=300) == 130
    assert line.said("second signal: ending at once; the next start resumes unfinished work")


@pytest.mark.parametrize("jump_ns", [TEN_YEARS_NS, -TEN_YEARS_NS], ids=["forward", "back"])
async def test_a_clock_that_jumps_evicts_no_open_trace_and_delays_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_ns: int
) -> None:
    monkeypatch.setattr(files, "_EXPIRE_EVERY_S", 0.05)
    settings = load_settings(environment(), data_dir=tmp_path)
    real_ns, real_s = time.time_ns, time.time
    async with running_service(settings) as running:
        doors = Doors(grpc=f"http://{running.grpc}", http=f"http://{running.http}")
        await asyncio.to_thread(send, doors, WORK, way="http")
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + jump_ns)
        monkeypatch.setattr(time, "time", lambda: real_s() + jump_ns / 1e9)
        await asyncio.sleep(0.3)  # some rounds of eviction
        await asyncio.to_thread(send, doors, END, way="http")
        assert await _status(running) == "attributed"


async def _status(running: Running) -> str:
    async with asyncio.timeout(300):
        while True:
            for verdict in await running.find(TRACE):
                if not verdict.is_provisional:
                    return verdict.status
            await asyncio.sleep(0.05)
