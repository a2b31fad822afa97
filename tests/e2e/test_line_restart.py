"""A stop answers what has arrived, and a start behind a Collector loses nothing of a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from collector_processor.otlp import Signal
from tests.backends.fixtures import CollectorFactory
from tests.backends.processes import Forwarding
from tests.backends.supervise import free_ports, wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.line import StartLine, environment
from tests.e2e.spans import by_id, carriers, originals, placed
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, Doors, Way, play_demo, request, send
from tests.otlp_requests import log_request, record

SLOW_DISK: Final = """
import os, pathlib, time

folder, flush = pathlib.Path(__file__).parent, os.fdatasync


def flush_slowly(file):
    if (folder / "is_slow").exists():
        (folder / "has_begun").touch()
        time.sleep(3)
    flush(file)


os.fdatasync = flush_slowly
"""


@pytest.mark.parametrize("way", ["grpc", "http"])
def test_a_request_that_waits_for_the_disk_at_the_shutdown_is_answered(
    start_line: StartLine, tmp_path: Path, way: Way
) -> None:
    """It is stored: without an answer, its sender would send it again, and its spans would come twice."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_DISK)
    line = start_line(PYTHONPATH=f"{tmp_path}{os.pathsep}{Path.cwd()}")
    send(line, log_request(record()), signal=Signal.LOGS)  # the first request waits for new files, too
    with ThreadPoolExecutor() as pool:
        (tmp_path / "is_slow").touch()
        sent = pool.submit(send, line, play_demo().body, way=way)
        wait_until((tmp_path / "has_begun").exists, what="the flush")
        assert line.terminate() == 0
        sent.result()


def test_a_restart_behind_a_collector_loses_nothing_of_a_run(
    start_line: StartLine, collector_factory: CollectorFactory
) -> None:
    (port,) = free_ports(1)
    listen = f"127.0.0.1:{port}"
    with grpc_backend() as backend:
        collector = collector_factory(Forwarding(endpoint=f"http://{listen}"))
        doors = Doors(grpc=collector.otlp_grpc_endpoint, http=collector.otlp_http_endpoint)
        played = play_demo()
        first = start_line(forward_endpoint=backend.url, otlp_grpc_listen=listen)
        # The Collector batches: what it has acknowledged may reach either process.
        for one in played.spans[:6]:
            send(doors, request([one]))
        assert first.terminate() == 0
        for one in played.spans[6:]:
            send(doors, request([one]), way="http")

        # Its batches come again one by one, a second apart and more where the machine has other work.
        second = start_line(forward_endpoint=backend.url, otlp_grpc_listen=listen, root_grace=10_000)

        came = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)
        assert second.verdict(played.trace_id)["agent"] == "calculator"
        assert originals(came).keys() == by_id(placed(played.body)).keys()
        assert second.terminate() == 0
        assert len(carriers(backend.spans(played.trace_id))) == CARRIERS


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_service_started_with_closed_streams_shuts_down_in_order(closed: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "analyzer", "serve", "--data-dir", str(tmp_path), "--format", "json"]
    with subprocess.Popen(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        announced = json.loads(process.stdout.readline())
        send(Doors(grpc=f"http://{announced['grpc']}", http=""), play_demo().body)
        process.terminate()
        assert process.wait(timeout=300) == 0


def test_stdout_is_one_object_and_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "analyzer", "serve", "--data-dir", str(tmp_path), "--format", "json"]
    with subprocess.Popen(
        command,
        env=environment(forward_endpoint=nowhere),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        announced = json.loads(process.stdout.readline())
        send(Doors(grpc=f"http://{announced['grpc']}", http=""), play_demo().body)

        process.send_signal(signal.SIGTERM)
        told = (json.loads(line)["message"] for line in process.stderr)
        assert "shutting down" in told
        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=300) == 130
        assert process.stdout.read() == ""
    assert announced["backends"]["traces"] == nowhere
    assert announced["data_dir"] == str(tmp_path)
