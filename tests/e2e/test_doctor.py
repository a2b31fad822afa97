"""``blamespan doctor`` beside the processes that it checks: its findings and its exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from collector_processor.otlp import Signal
from tests.backends.forked import ran
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import HOST, free_ports
from tests.e2e.backend import grpc_backend, http_backend
from tests.e2e.line import StartLine, environment
from tests.e2e.test_halves import StartAnalyzer, start_analyzer

__all__ = ["start_analyzer"]


def consult(folder: Path, **settings: str | int) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code, and the findings by name."""
    command = [sys.executable, "-m", "analyzer", "doctor", "--format", "json"]
    chosen = environment(**{"data_dir": str(folder / "data"), **settings})
    done = ran(command, environ=chosen, folder=folder)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {finding["check"]: finding for finding in found}


def test_all_is_well_beside_a_service_and_an_analyzer(
    server: PostgresServer, start_line: StartLine, start_analyzer: StartAnalyzer, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    settings = {"store_url": server.url(), "web_listen": f"{HOST}:{port}"}
    start_analyzer(store_url=server.url())
    start_line(half="collector", **settings)
    code, found = consult(tmp_path, **settings)
    assert code == 0, found
    names = ("service", "store", "replicas")
    assert {name: found[name]["status"] for name in names} == dict.fromkeys(names, "ok")
    assert "1 analyzer" in found["replicas"]["detail"]


def test_neighbours_that_are_away_fail_with_what_mends_it(tmp_path: Path) -> None:
    away = f"http://{HOST}:{free_ports(1)[0]}"
    code, found = consult(tmp_path, notify_url=f"{away}/secret")
    assert code == 1
    assert found["notifier webhook"]["status"] == "failed"
    assert found["links"]["status"] == "warning"
    assert "secret" not in json.dumps(found)


def test_signals_without_a_home_are_warned_of_with_what_mends_them(tmp_path: Path) -> None:
    with grpc_backend(takes=[Signal.TRACES]) as backend:
        code, found = consult(tmp_path, forward_endpoint=backend.url)
        assert (code, found["backend traces"]["status"]) == (0, "ok")
        for signal in ("logs", "metrics"):
            finding = found[f"backend {signal}"]
            assert finding["status"] == "warning"
            assert "has no such service" in finding["detail"]
            assert f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT" in finding["mend"]
        with http_backend() as logs:
            mended = {
                "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"{logs.url}/v1/logs",
                "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "none",
            }
            code, found = consult(tmp_path, forward_endpoint=backend.url, **mended)
    assert (code, {found[f"backend {one.value}"]["status"] for one in Signal}) == (0, {"ok"})
    assert f"{logs.url}/v1/logs (http/protobuf) accepts them" in found["backend logs"]["detail"]
    assert "not forwarded" in found["backend metrics"]["detail"]


def test_a_backend_that_is_away_is_called_so(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    code, found = consult(tmp_path, forward_endpoint=f"http://{HOST}:{port}")
    assert (code, found["backend traces"]["status"]) == (1, "failed")
    assert f"is unreachable: connection refused to {HOST}:{port}" in found["backend traces"]["detail"]


def test_warnings_alone_are_no_failure(tmp_path: Path) -> None:
    code, found = consult(tmp_path)
    assert (code, found["backend"]["status"]) == (0, "warning")
    assert "BLAMESPAN_FORWARD_ENDPOINT" in found["backend"]["mend"]
    assert {finding["status"] for finding in found.values()} == {"ok", "warning"}
    assert not (tmp_path / "data").exists(), "nothing is made"


def test_a_kind_of_queue_or_store_that_there_is_not_is_refused_in_words(tmp_path: Path) -> None:
    for settings, words in (
        ({"queue": "amqp://broker:5672"}, ("BLAMESPAN_QUEUE", "expected sqlite, or kafka://")),
        ({"queue": "kafka://broker:9092"}, ("BLAMESPAN_QUEUE", "expects BLAMESPAN_STORE_URL")),
        ({"store_url": "mysql://db/blame"}, ("BLAMESPAN_STORE_URL", "expected postgresql://")),
    ):
        code, found = consult(tmp_path, **settings)
        assert (code, list(found)) == (1, ["settings"])
        assert [word for word in words if word not in found["settings"]["detail"]] == []


def test_a_misspelled_variable_is_warned_of(tmp_path: Path) -> None:
    code, found = consult(tmp_path, rootgrace=5)
    assert (code, found["settings"]["status"]) == (0, "warning")
    assert found["settings"]["mend"] == "did you mean BLAMESPAN_ROOT_GRACE?"
