"""Several processes on one PostgreSQL: analyzers that take jobs, with one of them killed, and one budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import psycopg
import pytest

from semconv.attributes import FAILURE_FALLBACK, FAILURE_METHOD
from tests.backends.postgresql import PostgresServer, postgresql
from tests.backends.supervise import wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.line import StartLine
from tests.e2e.model_server import Scripted, serve
from tests.e2e.test_faults_model import PRICED
from tests.e2e.test_halves import StartAnalyzer, start_analyzer
from tests.e2e.test_line_model import VERDICT, in_background, settings_for, told_by
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, play_demo, send

__all__ = ["start_analyzer"]

RUNS: Final = 12
STORE: Final = {"analyzer_endpoint": "store"}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgresql() as running:
        yield running


def count(server: PostgresServer, statement: str) -> int:
    with psycopg.connect(host=str(server.folder), user="postgres", autocommit=True) as db:
        row = db.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


def test_the_jobs_of_an_analyzer_that_is_killed_are_taken_over_and_each_run_is_answered_once(
    start_line: StartLine, start_analyzer: StartAnalyzer, server: PostgresServer
) -> None:
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as model:
        model.may_answer.clear()
        settings = settings_for(model) | {"store_url": server.url(), "concurrency": "3"}
        first, second = start_analyzer(**settings), start_analyzer(**settings)
        line = start_line(
            half="collector",
            forward_endpoint=backend.url,
            store_url=server.url(),
            concurrency=RUNS,
            **STORE,
        )
        played = [play_demo() for _ in range(RUNS)]
        for run in played:
            send(line, run.body)
        wait_until(lambda: len(model.received) == 6, what="both analyzers to ask the model")
        wait_until(lambda: second.count("blamespan_jobs_waiting") == RUNS - 6, what="the rest to wait")
        assert second.count("blamespan_oldest_actionable_age_seconds") > 0

        first.server.kill()
        model.may_answer.set()

        for run in played:
            spans = backend.await_spans(run.trace_id, DEMO_SPANS + CARRIERS)
            carrier = told_by(spans)
            assert (carrier[FAILURE_METHOD], carrier[FAILURE_FALLBACK]) == ("judge", "none")
            assert line.verdict(run.trace_id)["version"] == 1
        assert second.count("blamespan_analyzer_analyses_total") == RUNS
        assert len(model.received) == RUNS + 3, "the model is asked again only by the heir of the dead one"
        assert count(server, "SELECT count(*) FROM job WHERE answer IS NULL") == 0
        assert count(server, "SELECT max(length(body)) FROM job") == 0, "no run's text is kept"
        assert len(line.runs()) == RUNS
        line.await_balance(
            received=RUNS * DEMO_SPANS, acknowledged=RUNS * DEMO_SPANS, forwarded=RUNS * DEMO_SPANS
        )


def test_one_hours_budget_holds_over_all_analyzers_of_a_store(
    start_line: StartLine, start_analyzer: StartAnalyzer, server: PostgresServer
) -> None:
    """The model does not answer, so each call counts with its maximum cost."""
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as model:
        settings = settings_for(model) | {"model": PRICED, "store_url": server.url()}
        line_settings = {"forward_endpoint": backend.url, "store_url": server.url(), **STORE}
        measuring = start_analyzer(**settings)
        line = start_line(half="collector", **line_settings)
        model.may_answer.clear()
        send(line, play_demo().body)
        wait_until(lambda: len(model.received) == 1, what="a call")
        with psycopg.connect(host=str(server.folder), user="postgres", autocommit=True) as db:
            row = db.execute("SELECT sum(usd) FROM spending").fetchone()
        assert row is not None
        one_call = float(row[0])
        assert one_call > 0
        measuring.server.kill()

        limited = settings | {"budget_usd_per_hour": str(3.5 * one_call)}
        analyzers = [start_analyzer(**limited) for _ in range(2)]
        played = [play_demo() for _ in range(6)]
        for run in played:
            send(line, run.body)

        def refused() -> float:
            return sum(one.count("blamespan_budget_refusals_total") for one in analyzers)

        wait_until(lambda: len(model.received) == 3 and refused() == 5, what="the budget to be used up")
        model.may_answer.set()
        for run in played:
            assert line.verdict(run.trace_id)["status"] == "attributed"
        assert len(model.received) == 3, "of the one that was killed, and two of its seven jobs"
