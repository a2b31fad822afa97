"""``collector`` and ``analyzer`` as separate processes act as one service, even if some of them die."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from collector_processor.otlp import Signal
from semconv.attributes import FAILURE_AGENT_NAME, FAILURE_FALLBACK, FAILURE_METHOD, FAILURE_MODEL
from tests.backends.forked import fork
from tests.backends.supervise import BackendError, Server, free_ports, running, wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import StartLine, environment
from tests.e2e.model_server import Scripted, serve
from tests.e2e.rotation import round_robin
from tests.e2e.spans import by_id, carriers, originals, placed
from tests.e2e.test_damaged_files import DAMAGES
from tests.e2e.test_faults_model import PRICED
from tests.e2e.test_labels import label_over_http
from tests.e2e.test_line_model import MODEL, VERDICT, in_background, settings_for, told_by
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, play_demo, send, without_mistake

TOKEN: Final = "a-token-for-both"
NEVER: Final = Scripted(text=VERDICT, delay_s=60)
"""A model that takes longer than the test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A running analyzer."""

    server: Server
    address: str

    def get(self, path: str, **headers: str) -> str:
        request = Request(f"http://{self.address}{path}", headers=headers)
        with build_opener(ProxyHandler({})).open(request, timeout=300) as answer:
            return str(answer.read().decode())

    def count(self, sample: str) -> float:
        lines = self.get("/metrics").splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(sample))


StartAnalyzer: TypeAlias = Callable[..., Asked]


@contextmanager
def analyzers(folder: Path) -> Iterator[StartAnalyzer]:
    """Yield a function that starts analyzers; they end with the block."""
    with ExitStack() as stack:
        count = 0

        def start(**settings: str) -> Asked:
            nonlocal count
            count += 1
            log = folder / f"analyzer-{count}.log"
            command = [sys.executable, "-m", "analyzer", "serve", "analyzer", "--format", "json"]
            server = stack.enter_context(
                running(
                    "analyzer",
                    command,
                    log=log,
                    is_ready=lambda: announced(log) is not None,
                    environ=environment(**settings),
                    start=fork,
                )
            )
            said = announced(log)
            assert said is not None
            return Asked(server=server, address=said["web"])

        yield start


@pytest.fixture
def start_analyzer(tmp_path: Path) -> Iterator[StartAnalyzer]:
    with analyzers(tmp_path) as start:
        yield start


def announced(log: Path) -> dict[str, Any] | None:
    lines = log.read_text(errors="replace").split("\n")[:-1] if log.exists() else []
    found = (json.loads(line) for line in lines if line.startswith("{"))
    return next((line for line in found if "web" in line), None)


def test_an_analyzer_says_who_broke_the_run_and_is_not_asked_about_one_that_went_well(
    start_line: StartLine, start_analyzer: StartAnalyzer
) -> None:
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as model:
        analyzer = start_analyzer(**settings_for(model))
        line = start_line(
            half="collector", forward_endpoint=backend.url, analyzer_endpoint=f"http://{analyzer.address}"
        )
        well, played = play_demo(without_mistake), play_demo()
        send(line, well.body)
        send(line, played.body)

        spans = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)

        carrier = told_by(spans)
        assert (carrier[FAILURE_METHOD], carrier[FAILURE_MODEL], carrier[FAILURE_FALLBACK]) == (
            "judge+signals",
            MODEL,
            "none",
        )
        assert carrier[FAILURE_AGENT_NAME] == "calculator"
        assert line.verdict(well.trace_id)["status"] == "no_failure"
        assert analyzer.count("blamespan_analyzer_questions_total") == 1
        assert analyzer.count('blamespan_analyzer_analyses_total{status="attributed"}') == 1
        assert originals(spans) == by_id(placed(played.body))


def test_an_analyzer_that_dies_over_a_run_costs_a_try_and_the_verdict_comes_once(
    start_line: StartLine, start_analyzer: StartAnalyzer
) -> None:
    with (
        grpc_backend() as backend,
        in_background(serve(NEVER, Scripted(text=VERDICT))) as model,
    ):
        analyzers = {one.address: one for one in (start_analyzer(**settings_for(model)) for _ in range(2))}
        with in_background(round_robin(*analyzers)) as service:
            line = start_line(half="collector", forward_endpoint=backend.url, analyzer_endpoint=service.url)
            played = play_demo()
            send(line, played.body)
            wait_until(lambda: len(model.received) == 1, what="the first analyzer to ask the model")

            analyzers[service.taken[0]].server.kill()
            spans = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)

            assert told_by(spans)[FAILURE_FALLBACK] == "none"
            assert line.verdict(played.trace_id)["version"] == 1
            assert len(line.runs()) == 1
            assert len(model.received) == 2
            assert analyzers[service.taken[1]].count("blamespan_analyzer_analyses_total") == 1
            assert len(set(service.taken)) == 2
            line.await_balance(received=DEMO_SPANS, acknowledged=DEMO_SPANS, forwarded=DEMO_SPANS)


def test_where_no_analyzer_is_signals_answer_and_say_so_and_telemetry_passes(
    start_line: StartLine, start_analyzer: StartAnalyzer
) -> None:
    with grpc_backend() as backend:
        gone = start_analyzer()
        gone.server.kill()
        line = start_line(
            half="collector",
            forward_endpoint=backend.url,
            analyzer_endpoint=f"http://{gone.address}",
            model_timeout=2000,
        )
        played = play_demo()
        send(line, played.body)

        spans = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)

        carrier = told_by(spans)
        assert carrier[FAILURE_METHOD] == "signals"
        assert carrier[FAILURE_FALLBACK] == "signals, because the analyzer failed"
        assert "ClientConnectorError" in line.verdict(played.trace_id)["fallback"]
        assert originals(spans) == by_id(placed(played.body))

        assert label_over_http(line, played.trace_id, "label", {"failed": False})["trace_follows"]
        assert line.verdict(played.trace_id, version=2)["status"] == "no_failure"
        corrected = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS + 3)
        assert [one.span.name for one in carriers(corrected)[CARRIERS:]] == [
            "no failure found, replaces verdict 1",
            *["withdrawn: calculator"] * 2,
        ]


def test_a_collectors_page_has_runs_analysed_again_by_an_analyzer_and_says_when_there_is_none(
    start_line: StartLine, start_analyzer: StartAnalyzer
) -> None:
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as model:
        analyzer = start_analyzer(**settings_for(model))
        line = start_line(
            half="collector", forward_endpoint=backend.url, analyzer_endpoint=f"http://{analyzer.address}"
        )
        played = play_demo()
        send(line, played.body)
        backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)
        browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))

        def page(path: str, form: bytes | None = None) -> tuple[str, str]:
            asked = Request(line.web + path, data=form, headers={"Sec-Fetch-Site": "same-origin"})
            with browser.open(asked, timeout=300) as answer:
                return answer.url, answer.read().decode()

        run = f"/runs/{line.runs()[0]['run_id']}"
        assert "<option>judge</option>" in page(run)[1]
        address, _ = page(f"{run}/again", b"method=verify&model=")
        job = address.removeprefix(line.web)
        wait_until(lambda: json.loads(page(f"{job}/state")[1])["over"], what="the analysis to end")
        shown = page(job)[1]
        assert "method verify" in shown
        assert "<article>" in shown
        assert analyzer.count("blamespan_analyzer_analyses_total") == 2

        analyzer.server.kill()
        wait_until(lambda: "No analyzer answers" in page("/try")[1], what="the page to notice", timeout_s=300)
        assert "No analyzer answers" in page(run)[1]


def test_an_analyzer_answers_nobody_without_the_token_but_probes(start_analyzer: StartAnalyzer) -> None:
    analyzer = start_analyzer(token=TOKEN, web_listen="0.0.0.0:0")
    local = Asked(server=analyzer.server, address=analyzer.address.replace("0.0.0.0", "127.0.0.1"))
    assert local.get("/healthz") == "ok\n"
    assert local.get("/readyz") == "ready\n"
    with pytest.raises(HTTPError, match="401"):
        local.get("/metrics")
    assert "blamespan_analyzer_under_way" in local.get("/metrics", Authorization=f"Bearer {TOKEN}")


@pytest.mark.parametrize(
    ("half", "settings", "told"),
    [
        ("collector", {}, "BLAMESPAN_ANALYZER_ENDPOINT is not set"),
        ("all", {"analyzer_endpoint": "http://127.0.0.1:1"}, "expected blamespan serve collector"),
        ("collector", {"analyzer_endpoint": "ftp://x"}, "expected http://host:port"),
        ("analyzer", {"web_listen": "0.0.0.0:0"}, "set BLAMESPAN_TOKEN"),
    ],
    ids=["no endpoint", "an endpoint for the whole", "no address", "open without a token"],
)
def test_what_does_not_fit_together_is_said_at_the_start(
    half: str, settings: dict[str, str], told: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "analyzer", "serve", half],
        env=environment(data_dir=str(tmp_path), **settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 2
    assert told in done.stderr


def test_an_analyzer_that_is_killed_in_an_analysis_has_spent_it_and_sends_its_metrics(
    start_line: StartLine, start_analyzer: StartAnalyzer, tmp_path: Path
) -> None:
    with grpc_backend() as backend, in_background(serve(NEVER)) as model:
        settings = settings_for(model) | {
            "model": PRICED,
            "data_dir": str(tmp_path / "analyzer"),
            "forward_endpoint": backend.url,
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }
        first = start_analyzer(**settings)
        line = start_line(
            half="collector", forward_endpoint=backend.url, analyzer_endpoint=f"http://{first.address}"
        )
        send(line, play_demo().body)
        wait_until(lambda: bool(model.received), what="a question")
        first.server.kill()
        second = start_analyzer(**settings)
        assert second.count("blamespan_budget_spent_usd") > 0
        wait_until(lambda: _gauge(backend, "blamespan.budget.spent") > 0, what="it in the backend")
        line.server.kill()


@pytest.mark.parametrize("kills", [False, True], ids=["stopped", "killed"])
def test_over_a_damaged_store_an_analyzer_answers_or_names_the_file(
    start_line: StartLine, start_analyzer: StartAnalyzer, tmp_path: Path, *, kills: bool
) -> None:
    """Whatever happens to its file, nothing hangs, spans flow on, and verdicts arrive."""
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as model:
        listens = {"web_listen": f"127.0.0.1:{free_ports(1)[0]}"}
        settings = settings_for(model) | {"model": PRICED, "data_dir": str(tmp_path / "sound")} | listens
        first = start_analyzer(**settings)
        endpoint = {"analyzer_endpoint": f"http://{first.address}"}
        line = start_line(half="collector", forward_endpoint=backend.url, **endpoint)
        played = play_demo()
        send(line, played.body)
        assert line.verdict(played.trace_id)["method"] == "judge+signals"
        if kills:
            first.server.kill()
        else:
            first.server.stop()
        outcomes = set()
        for name, damage in DAMAGES.items():
            folder = tmp_path / name
            shutil.copytree(tmp_path / "sound", folder)
            for path in (folder / "analyzer").glob("store.sqlite" + "-wal" * kills):
                path.write_bytes(damage(path.read_bytes()))
            try:
                again = start_analyzer(**settings | {"data_dir": str(folder)})
            except BackendError as error:
                said = str(error)
                is_named = "Traceback" not in said and str(folder / "analyzer" / "store.sqlite") in said
                outcomes.add("named" if is_named else said)
                continue
            played = play_demo()
            send(line, played.body)
            assert line.verdict(played.trace_id)["method"] in {"judge+signals", "signals"}
            again.server.stop()
            assert again.server.process.returncode == 0
            assert "Traceback" not in again.server.log.read_text(errors="replace")
            outcomes.add("answers")
        assert outcomes == ({"answers"} if kills else {"answers", "named"})
        assert line.items("lost") == 0


def test_over_a_store_that_is_damaged_while_it_runs_an_analyzer_answers(
    start_line: StartLine, start_analyzer: StartAnalyzer, tmp_path: Path
) -> None:
    """But for the ``-shm`` file, which SQLite maps into memory: see docs/threat-model.md."""
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as model:
        listens = {"web_listen": f"127.0.0.1:{free_ports(1)[0]}"}
        line = start_line(
            half="collector",
            forward_endpoint=backend.url,
            analyzer_endpoint=f"http://{listens['web_listen']}",
            root_grace=100,
        )
        for name in ("inside", "truncated", "emptied"):
            folder = tmp_path / name
            analyzer = start_analyzer(
                **settings_for(model) | {"model": PRICED, "data_dir": str(folder)} | listens
            )
            methods = []
            for is_damaged in (False, True):
                for path in (folder / "analyzer").glob("store.sqlite*") if is_damaged else ():
                    if not path.name.endswith("-shm"):
                        path.write_bytes(DAMAGES[name](path.read_bytes()))
                played = play_demo()
                send(line, played.body)
                methods.append(line.verdict(played.trace_id)["method"])
            assert methods[0] == "judge+signals"
            assert methods[1] in {"judge+signals", "signals"}
            assert analyzer.get("/healthz").startswith("ok")
            analyzer.server.stop()
            assert analyzer.server.process.returncode == 0
            assert "Traceback" not in analyzer.server.log.read_text(errors="replace")
        assert line.items("lost") == 0


def _gauge(backend: Backend, name: str) -> float:
    """Return the metrics of the last request that has any."""
    bodies = [request.body for request in backend.of(Signal.METRICS)]
    if not bodies:
        return 0
    sent = ExportMetricsServiceRequest.FromString(bodies[-1])
    metrics = [one for of in sent.resource_metrics for scope in of.scope_metrics for one in scope.metrics]
    return sum(point.as_double for one in metrics if one.name == name for point in one.gauge.data_points)
