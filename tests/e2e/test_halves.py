"""``collector`` and ``analyzer`` as separate processes act as one service, even if some of them die."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from analyzer.analyses.codec import write_run
from analyzer.analyses.job_client import NO_ANALYZER, job_id
from collector_processor.otlp import Signal
from collector_processor.store.database.connection import open_database
from collector_processor.store.jobs import JobRows
from semconv.attributes import FAILURE_AGENT_NAME, FAILURE_FALLBACK, FAILURE_METHOD, FAILURE_MODEL
from semconv.model import Trajectory
from tests.backends.forked import fork, ran
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import Server, running, wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import StartLine, environment
from tests.e2e.model_server import Scripted, serve
from tests.e2e.spans import by_id, carriers, originals, placed
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


@contextmanager
def asking(url: str, *runs: Trajectory) -> Iterator[Callable[[], bool]]:
    """Put runs into the store as jobs, in place of a collector, and withdraw them in the end.

    Yields a function that returns whether all are answered.
    """
    with closing(open_database(url)) as database, closing(database.connect()) as db:
        jobs, bodies = JobRows(db), [write_run(run) for run in runs]
        ids = [job_id(body, None) for body in bodies]
        for id_, body in zip(ids, bodies, strict=True):
            jobs.ask(id_, {}, body)
        try:
            yield lambda: len(jobs.answered(ids)) == len(ids)
        finally:
            for id_ in ids:
                jobs.forget(id_)


def announced(log: Path) -> dict[str, Any] | None:
    lines = log.read_text(errors="replace").split("\n")[:-1] if log.exists() else []
    found = (json.loads(line) for line in lines if line.startswith("{"))
    return next((line for line in found if "web" in line), None)


def test_an_analyzer_says_who_broke_the_run_and_is_not_asked_about_one_that_went_well(
    server: PostgresServer, start_line: StartLine, start_analyzer: StartAnalyzer
) -> None:
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as model:
        analyzer = start_analyzer(**settings_for(model), store_url=server.url())
        line = start_line(half="collector", forward_endpoint=backend.url, store_url=server.url())
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
        assert analyzer.count("blamespan_analyzer_analyses_total") == 1
        assert analyzer.count('blamespan_analyzer_analyses_total{status="attributed"}') == 1
        assert originals(spans) == by_id(placed(played.body))


def test_where_no_analyzer_is_signals_answer_and_say_so_and_telemetry_passes(
    server: PostgresServer, start_line: StartLine
) -> None:
    with grpc_backend() as backend:
        line = start_line(half="collector", forward_endpoint=backend.url, store_url=server.url())
        played = play_demo()
        send(line, played.body)

        spans = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)

        carrier = told_by(spans)
        assert carrier[FAILURE_METHOD] == "signals"
        assert carrier[FAILURE_FALLBACK] == "signals, because the analyzer failed"
        assert NO_ANALYZER in line.verdict(played.trace_id)["fallback"]
        assert originals(spans) == by_id(placed(played.body))

        assert label_over_http(line, played.trace_id, "label", {"failed": False})["trace_follows"]
        assert line.verdict(played.trace_id, version=2)["status"] == "no_failure"
        corrected = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS + 3)
        assert [one.span.name for one in carriers(corrected)[CARRIERS:]] == [
            "no failure found, replaces verdict 1",
            *["withdrawn: calculator"] * 2,
        ]


def test_without_the_token_an_analyzer_answers_only_probes(
    server: PostgresServer, start_analyzer: StartAnalyzer
) -> None:
    analyzer = start_analyzer(token=TOKEN, web_listen="0.0.0.0:0", store_url=server.url())
    local = Asked(server=analyzer.server, address=analyzer.address.replace("0.0.0.0", "127.0.0.1"))
    assert local.get("/healthz") == "ok\n"
    assert local.get("/readyz") == "ready\n"
    with pytest.raises(HTTPError, match="401"):
        local.get("/metrics")
    assert "blamespan_analyzer_under_way" in local.get("/metrics", Authorization=f"Bearer {TOKEN}")


@pytest.mark.parametrize(
    ("half", "settings", "told"),
    [
        ("collector", {}, "BLAMESPAN_STORE_URL is not set"),
        ("analyzer", {}, "BLAMESPAN_STORE_URL is not set"),
        ("analyzer", {"web_listen": "0.0.0.0:0"}, "set BLAMESPAN_TOKEN"),
    ],
    ids=["a collector without a store", "an analyzer without one", "open without a token"],
)
def test_contradicting_settings_are_refused_at_the_start(
    half: str, settings: dict[str, str], told: str, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "analyzer", "serve", half]
    done = ran(words, environ=environment(**settings), folder=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr


def test_an_analyzer_that_is_killed_in_an_analysis_has_spent_it_and_sends_its_metrics(
    server: PostgresServer, start_line: StartLine, start_analyzer: StartAnalyzer
) -> None:
    with grpc_backend() as backend, in_background(serve(NEVER)) as model:
        settings = settings_for(model) | {
            "model": PRICED,
            "store_url": server.url(),
            "forward_endpoint": backend.url,
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }
        first = start_analyzer(**settings)
        line = start_line(half="collector", forward_endpoint=backend.url, store_url=server.url())
        send(line, play_demo().body)
        wait_until(lambda: bool(model.received), what="a question")
        first.server.kill()
        second = start_analyzer(**settings)
        assert second.count("blamespan_budget_spent_usd") > 0
        wait_until(lambda: _gauge(backend, "blamespan.budget.spent") > 0, what="it in the backend")
        line.server.kill()


def _gauge(backend: Backend, name: str) -> float:
    """Return the metrics of the last request that has any."""
    bodies = [request.body for request in backend.of(Signal.METRICS)]
    if not bodies:
        return 0
    sent = ExportMetricsServiceRequest.FromString(bodies[-1])
    metrics = [one for of in sent.resource_metrics for scope in of.scope_metrics for one in scope.metrics]
    return sum(point.as_double for one in metrics if one.name == name for point in one.gauge.data_points)
