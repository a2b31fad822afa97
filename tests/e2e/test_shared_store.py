"""Several processes on one PostgreSQL: analyzers that take jobs, one budget, any number of pages."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, Final
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import duckdb
import psycopg

from analyzer.cli.demo_run import RIGHT_ANSWER, TASK
from semconv.attributes import FAILURE_FALLBACK, FAILURE_METHOD
from tests.backends.forked import ran
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import running, wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.line import StartLine, environment
from tests.e2e.model_server import Scripted, serve
from tests.e2e.rotation import round_robin
from tests.e2e.test_faults_model import PRICED
from tests.e2e.test_halves import StartAnalyzer, announced, start_analyzer
from tests.e2e.test_line_model import VERDICT, in_background, settings_for, told_by
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, play_demo, send

__all__ = ["start_analyzer"]

RUNS: Final = 12


def count(server: PostgresServer, statement: str) -> int:
    with psycopg.connect(host=str(server.folder), user="postgres", autocommit=True) as db:
        row = db.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


def test_the_jobs_of_an_analyzer_that_is_killed_are_taken_over_and_each_run_is_answered_once(
    server: PostgresServer, start_line: StartLine, start_analyzer: StartAnalyzer
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
            assert (carrier[FAILURE_METHOD], carrier[FAILURE_FALLBACK]) == ("judge+signals", "none")
            assert line.verdict(run.trace_id)["version"] == 1
        assert second.count("blamespan_analyzer_analyses_total") == RUNS
        assert len(model.received) == RUNS + 3, "the model is asked again only by the heir of the dead one"
        assert count(server, "SELECT count(*) FROM job WHERE answer IS NULL") == 0
        assert count(server, "SELECT max(length(body)) FROM job") == 0, "no run's text is kept"
        assert len(line.runs()) == RUNS
        line.await_balance(
            received=RUNS * DEMO_SPANS, acknowledged=RUNS * DEMO_SPANS, forwarded=RUNS * DEMO_SPANS
        )


def test_a_page_tells_the_calls_of_an_analysis_while_an_analyzer_works_on_its_job(
    server: PostgresServer, start_line: StartLine, start_analyzer: StartAnalyzer
) -> None:
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as model:
        start_analyzer(**settings_for(model) | {"store_url": server.url()})
        line = start_line(half="collector", forward_endpoint=backend.url, store_url=server.url())
        played = play_demo()
        send(line, played.body)
        backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)
        browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))

        def page(path: str, form: bytes | None = None) -> tuple[str, str]:
            asked = Request(line.web + path, data=form, headers={"Sec-Fetch-Site": "same-origin"})
            with browser.open(asked, timeout=300) as answer:
                return answer.url, answer.read().decode()

        model.may_answer.clear()
        address, _ = page(f"/runs/{line.runs()[0]['run_id']}/again", b"method=judge&reference=no&model=")
        path = address.removeprefix(line.web)
        state: dict[str, Any] = {}

        def is_told() -> bool:
            state.update(json.loads(page(f"{path}/state")[1]))
            return bool(state["calls"])

        wait_until(is_told, what="the page to tell a call")
        assert (state["over"], state["calls"], "1 model call" in page(path)[1]) == (False, 1, True)
        assert state["elapsed_s"] > 0
        model.may_answer.set()
        wait_until(lambda: json.loads(page(f"{path}/state")[1])["over"], what="the analysis to end")


def test_one_hours_budget_holds_over_all_analyzers_of_a_store(
    server: PostgresServer, start_line: StartLine, start_analyzer: StartAnalyzer
) -> None:
    """The model does not answer, so each call counts with its maximum cost."""
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as model:
        settings = settings_for(model) | {"model": PRICED, "store_url": server.url()}
        line_settings = {"forward_endpoint": backend.url, "store_url": server.url()}
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

        limited = settings | {"budget_usd_per_hour": str(3.5 * one_call)}
        analyzers = [start_analyzer(**limited) for _ in range(2)]
        measuring.server.kill()  # not before: without any analyzer the collector answers the job itself
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


TOKEN: Final = "a-token-for-all-pages"


@contextmanager
def pages(folder: Path, url: str, count: int) -> Iterator[list[str]]:
    """Run ``blamespan serve pages`` this many times; yields their addresses."""
    with ExitStack() as stack:
        found = []
        for number in range(count):
            log = folder / f"web-{number}.log"
            stack.enter_context(
                running(
                    "web",
                    [sys.executable, "-m", "analyzer", "serve", "pages", "--format", "json"],
                    log=log,
                    is_ready=partial(is_announced, log),
                    environ=environment(store_url=url, token=TOKEN),
                )
            )
            said = announced(log)
            assert said is not None
            found.append(said["web"])
        yield found


def is_announced(log: Path) -> bool:
    return announced(log) is not None


def asked(url: str, body: dict[str, object] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    with build_opener(ProxyHandler({})).open(Request(url, data=data, headers=headers), timeout=60) as answer:
        return json.loads(answer.read())


def next_event(url: str) -> str:
    """Wait for the next event of a page's stream, at most five minutes."""
    request = Request(f"{url}/events", headers={"Authorization": f"Bearer {TOKEN}"})
    with build_opener(ProxyHandler({})).open(request, timeout=300) as stream:
        return next(str(line.decode().strip()) for line in stream if line.startswith(b"event:"))


def test_every_page_shows_every_run_live_and_a_browser_signs_in_once_behind_a_load_balancer(
    server: PostgresServer, start_line: StartLine, tmp_path: Path
) -> None:
    with (
        grpc_backend() as backend,
        ThreadPoolExecutor(2) as pool,
        pages(tmp_path, server.url(), 2) as (one, two),
    ):
        line = start_line(forward_endpoint=backend.url, store_url=server.url())
        events = [pool.submit(next_event, f"http://{address}") for address in (one, two)]
        played = play_demo()
        wait_until(lambda: count(server, "SELECT count(*) FROM replica WHERE kind = 'web'") == 2, what="both")
        send(line, played.body)
        line.verdict(played.trace_id)
        for address in (one, two):
            (run,) = asked(f"http://{address}/api/runs")["runs"]
            assert run["run_id"] == played.trace_id

        asked(f"http://{one}/api/runs/{played.trace_id}/label", {"failed": False})
        assert line.verdict(played.trace_id, version=2)["status"] == "no_failure"
        assert asked(f"http://{two}/api/runs/{played.trace_id}")["status"] == "no_failure"
        assert [event.result(timeout=300) for event in events] == ["event: runs"] * 2

        with in_background(round_robin(one, two)) as service:
            browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
            origin = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
            form = Request(
                f"{service.url}/sign-in", data=f"token={TOKEN}&next=/runs".encode(), headers=origin
            )
            for request in (form, *(Request(f"{service.url}/runs", headers=origin) for _ in range(4))):
                with browser.open(request, timeout=60) as answer:
                    assert answer.url == f"{service.url}/runs", "not sent back to the sign-in"
                    assert played.trace_id[:8] in answer.read().decode()
            assert set(service.taken) == {one, two}


def signed_in(url: str) -> Callable[..., Any]:
    """Sign a browser in; returns its ``open``: path and, to post, a document."""
    browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
    origin = {"Sec-Fetch-Site": "same-origin", "Accept": "*/*"}
    form = Request(f"{url}/sign-in", data=f"token={TOKEN}&next=/runs".encode(), headers=origin)
    browser.open(form, timeout=60).close()

    def opened(path: str, body: dict[str, object] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = origin | ({} if body is None else {"Content-Type": "application/json"})
        return browser.open(Request(f"{url}{path}", data=data, headers=headers), timeout=300)

    return opened


def test_the_queue_and_live_updates_are_the_same_whichever_page_answers_a_signed_in_browser(
    server: PostgresServer, start_line: StartLine, tmp_path: Path
) -> None:
    with grpc_backend() as backend, pages(tmp_path, server.url(), 2) as (one, two):
        line = start_line(forward_endpoint=backend.url, store_url=server.url())
        played = [play_demo() for _ in range(3)]
        for run in played:
            send(line, run.body)
        for run in played:
            line.verdict(run.trace_id)
        with in_background(round_robin(one, two)) as service:
            browse = signed_in(service.url)

            def queues() -> list[Any]:
                """Return the queue as each of the two pages shows it."""
                before = len(service.taken)
                found = []
                for _ in range(2):
                    with browse("/api/queue") as answer:
                        found.append(json.loads(answer.read()))
                assert set(service.taken[before:]) == {one, two}
                return found

            first, second = queues()
            assert first == second
            assert {each["run_id"] for each in first["questions"]} == {run.trace_id for run in played}
            asked_about = first["questions"][0]["run_id"]
            for _ in range(2):
                with browse("/queue") as page:
                    assert asked_about in page.read().decode()

            with browse("/events") as stream, browse("/events") as other:
                with browse(f"/api/runs/{asked_about}/label", {"failed": False}) as answer:
                    assert answer.status == 200
                for live in (stream, other):
                    assert b"event: runs\n" in iter(live.readline, b"")
            assert line.verdict(asked_about, version=2)["status"] == "no_failure"
            for queue in queues():
                assert asked_about not in {each["run_id"] for each in queue["questions"]}
                assert len(queue["questions"]) == 2


def test_the_history_of_a_store_in_postgresql_is_exported_by_tenant(
    server: PostgresServer, start_line: StartLine, tmp_path: Path
) -> None:
    environ = environment(store_url=server.url(), PYTHONPATH=str(Path.cwd()))

    def command(*arguments: str) -> list[dict[str, Any]]:
        words = [sys.executable, "-m", "analyzer", *arguments, "--format", "json"]
        said = ran(words, environ=environ, folder=tmp_path)
        return [json.loads(line) for line in said.stdout.splitlines()]

    def rows(asked: str, table: str) -> list[tuple[Any, ...]]:
        files = tmp_path / "history" / table / "*" / "*" / "*.parquet"
        with duckdb.connect() as db:
            return db.sql(f"{asked} FROM read_parquet('{files}') GROUP BY ALL ORDER BY ALL").fetchall()

    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, store_url=server.url())
        played = [play_demo() for _ in range(3)]
        for number, run in enumerate(played):
            send(line, run.body, headers={"x-scope-orgid": "acme" if number else "other"})
        for run in played:
            line.verdict(run.trace_id)
        (written,) = command("runs", "export", "--parquet", "history")
        assert (written["verdicts"], written["partitions"]) == (3, 2)
        assert written["steps"] == 3 * len(rows("SELECT step", "steps"))
        (again,) = command("runs", "export", "--parquet", "history")
        assert (again["verdicts"], again["steps"]) == (0, 0)
    assert rows("SELECT tenant, count(*), any_value(agent)", "verdicts") == [
        ("x-scope-orgid=acme", 2, "calculator"),
        ("x-scope-orgid=other", 1, "calculator"),
    ]
    everything = [rows("SELECT *", table) for table in ("verdicts", "steps", "spectra")]
    for text in ("Freiburg", "community hall", RIGHT_ANSWER, "You are the"):
        assert text not in str(everything)
    assert "Freiburg" in TASK


def test_pages_without_a_shared_store_are_refused_with_words(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "analyzer", "serve", "pages"]
    environ = environment(data_dir=str(tmp_path))
    done = ran(command, environ=environ)
    assert done.returncode == 2
    assert "BLAMESPAN_STORE_URL is not set" in done.stderr
