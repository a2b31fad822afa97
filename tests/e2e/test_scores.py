"""Verdicts as scores in a real Phoenix and a real MLflow: written, corrected, delivered again, deleted."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, count
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Thread
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from collector_processor.core.disk import RUNS
from collector_processor.core.records import PERSON
from collector_processor.rebuild.encode import encode
from collector_processor.writeback.evaluations import FAILURE_ATTRIBUTION, IDENTIFIER, NO_MODE, TASK_SUCCESS
from semconv import attributes as names
from semconv.model import Span, SpanId, Status, TraceId
from tests.backends.supervise import BackendError, wait_until
from tests.e2e.line import Line, starting
from tests.e2e.test_labels import failing, label_over_http, trace_id
from tests.e2e.test_pull import mlflow, phoenix, posted
from tests.e2e.traffic import send
from tests.factories import span_id

RUN: Final = trace_id(1)
ACME: Final = {"x-scope-orgid": "acme"}
KILLS: Final = int(os.environ.get("SCORE_KILLS", "4"))
PHOENIX_KEY: Final = "a-made-up-key-of-32-characters-0"
Found = dict[tuple[str, str], tuple[str, float | None, str]]
"""What a backend shows: label, score and kind, by name and the id of what has it."""
Shown = tuple[str, str, str, float | None, str]
"""A score's name, span, label, score and kind."""


def asked(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    direct = build_opener(ProxyHandler({}))
    request = Request(url, method=method, data=body, headers={"Content-Type": "application/json", **headers})
    try:
        with direct.open(request, timeout=60) as answer:
            return answer.status, answer.read()
    except HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read()


def documented(start: str) -> str:
    """Return the filter in the documentation that begins so."""
    text = (Path(__file__).parents[2] / "docs" / "scores.md").read_text()
    return next(part for part in text.split("`") if part.startswith(start))


class PhoenixServer:
    """With authentication: a key opens REST, OTLP and GraphQL. It serves one test after the other."""

    name = "phoenix"

    writes = 4  # the first is written again, over itself
    of_failed = span_id(1)

    def __init__(self, url: str) -> None:
        self.url = url
        self.settings = {
            "forward_headers": f"authorization=Bearer%20{PHOENIX_KEY}",
            "PHOENIX_API_KEY": PHOENIX_KEY,
        }

    def shown(self, _runs: Iterable[str] = ()) -> Found:
        found: Found = {}
        for kind in ("span", "trace"):
            path = f"v1/projects/default/{kind}_annotations?identifier={IDENTIFIER}&limit=1000"
            status, body = asked(f"{self.url}/{path}", Authorization=f"Bearer {PHOENIX_KEY}")
            for one in json.loads(body)["data"] if status == 200 else ():
                place = one["name"], one[f"{kind}_id"]
                assert place not in found, "doubled"
                found[place] = one["result"]["label"], one["result"].get("score"), one["annotator_kind"]
        return found

    def annotate(self, kind: str, name: str, span: str, label: str) -> None:
        """Say something of a span, as another one than us."""
        said = {"span_id": span, "name": name, "annotator_kind": kind, "identifier": f"ada:{kind}"}
        body = json.dumps({"data": [{**said, "result": {"label": label}}]}).encode()
        path, key = "v1/span_annotations?sync=true", f"Bearer {PHOENIX_KEY}"
        status, text = asked(f"{self.url}/{path}", "POST", body, Authorization=key)
        assert status == 200, text

    def failed(self) -> list[str]:
        """Return the spans that the documented filter finds."""
        query = (
            "query($filter: String!) { projects { edges { node { spans(first: 9, filterCondition: $filter) "
            "{ edges { node { spanId } } } } } } }"
        )
        body = {"query": query, "variables": {"filter": documented("annotations[")}}
        key = f"Bearer {PHOENIX_KEY}"
        _, answer = asked(f"{self.url}/graphql", "POST", json.dumps(body).encode(), Authorization=key)
        projects = json.loads(answer)["data"]["projects"]["edges"]
        return [span["node"]["spanId"] for one in projects for span in one["node"]["spans"]["edges"]]

    def clear(self) -> None:
        """Delete all runs, with their scores."""
        always = "start_time=2000-01-01T00:00:00Z&end_time=2100-01-01T00:00:00Z"
        path, key = f"v1/projects/default/traces?{always}", f"Bearer {PHOENIX_KEY}"
        assert asked(f"{self.url}/{path}", "DELETE", Authorization=key)[0] == 204
        assert self.shown() == {}

    def expected(self, run: str, *scores: Shown) -> Found:
        """Return what is shown of a run: its evaluation stands at its trace too."""
        of_spans = {(name, span): (label, score, kind) for name, span, label, score, kind in scores}
        of_trace = {(name, run): shown for (name, _), shown in of_spans.items() if name == TASK_SUCCESS}
        return of_spans | of_trace


class MlflowServer:
    name = "mlflow"
    writes = 2  # the first is found
    of_failed = f"tr-{RUN}"

    def __init__(self, url: str) -> None:
        made = posted(
            f"{url}/api/2.0/mlflow/experiments/create", b'{"name": "scored"}', Content_Type="application/json"
        )
        self.url = url
        self.experiment = json.loads(made)["experiment_id"]
        self.settings = {"forward_headers": f"x-mlflow-experiment-id={self.experiment}"}

    def shown(self, runs: Iterable[str]) -> Found:
        found: Found = {}
        for one in chain.from_iterable(map(self._assessments, runs)):
            assert one["source"]["source_id"] == IDENTIFIER
            place = one["assessment_name"], one["span_id"]
            assert place not in found, "doubled"
            score = one["metadata"].get(names.GEN_AI_EVALUATION_SCORE_VALUE)
            kind = one["source"]["source_type"]
            found[place] = one["feedback"]["value"], None if score is None else float(score), kind
        return found

    def _assessments(self, run: str) -> list[dict[str, Any]]:
        status, body = asked(f"{self.url}/api/3.0/mlflow/traces/tr-{run}")
        found: list[dict[str, Any]] = (
            json.loads(body)["trace"]["trace_info"].get("assessments", []) if status == 200 else []
        )
        return found

    def annotate(self, kind: str, name: str, span: str, label: str) -> None:
        """Say something of a span, as another one than us."""
        source = {"source_type": {"LLM": "LLM_JUDGE"}.get(kind, kind), "source_id": "ada"}
        said = {"assessment_name": name, "span_id": span, "source": source, "feedback": {"value": label}}
        body = json.dumps({"assessment": said}).encode()
        status, text = asked(f"{self.url}/api/3.0/mlflow/traces/tr-{RUN}/assessments", "POST", body)
        assert status == 200, text

    def failed(self) -> list[str]:
        """Return the traces that the documented filter finds."""
        place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self.experiment}}
        body = {"locations": [place], "filter": documented("feedback.")}
        _, answer = asked(f"{self.url}/api/3.0/mlflow/traces/search", "POST", json.dumps(body).encode())
        return [one["trace_id"] for one in json.loads(answer).get("traces", [])]

    def clear(self) -> None:
        """Delete all runs, with their scores."""
        until_ms = time.time_ns() // 10**6 + 10**9
        body = {"experiment_id": self.experiment, "max_timestamp_millis": until_ms}
        status, text = asked(
            f"{self.url}/api/2.0/mlflow/traces/delete-traces", "POST", json.dumps(body).encode()
        )
        assert status == 200, text

    def expected(self, _run: str, *scores: Shown) -> Found:
        return {(name, span): (label, score, kind) for name, span, label, score, kind in scores}


class Relay(ThreadingHTTPServer):
    """Passes requests on to a backend; may be told to do something before it answers one that writes."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = target
        self.writes = self.reads = 0
        self.before_passing: Callable[[], object] = lambda: None
        self.before_answer: Callable[[], object] = lambda: None

    def arm(self, kill: Callable[[], object], *, at: int, is_late: bool) -> None:
        """Call ``kill`` at a write from now on, before it is passed on or before it is answered."""
        left = count(at - 1, -1)

        def kill_in_time() -> None:
            if next(left) == 0:
                kill()

        self.disarm()
        if is_late:
            self.before_answer = kill_in_time
        else:
            self.before_passing = kill_in_time

    def disarm(self) -> None:
        self.before_passing = self.before_answer = lambda: None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Passing(BaseHTTPRequestHandler):
    server: Relay

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "GET":
            self.server.reads += 1
        else:
            self.server.before_passing()
        kept = {name: text for name in ("Authorization",) if (text := self.headers.get(name))}
        status, answer = asked(self.server.target + self.path, self.command, body or None, **kept)
        if self.command == "POST" and status == 200:
            self.server.writes += 1
            self.server.before_answer()
        with suppress(OSError):  # the one who asked is dead
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = _pass  # noqa: N815 - names of http.server

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def relayed(target: str) -> Iterator[Relay]:
    with Relay(target) as relay:
        thread = Thread(target=relay.serve_forever, daemon=True)
        thread.start()
        yield relay
        relay.shutdown()
        thread.join()


@contextmanager
def guarded_phoenix(folder: Path) -> Iterator[str]:
    keys = {"PHOENIX_SECRET": f"1{PHOENIX_KEY}", "PHOENIX_ADMIN_SECRET": PHOENIX_KEY}
    with phoenix(folder, PHOENIX_ENABLE_AUTH="true", **keys) as url:
        yield url


SERVERS: Final[Mapping[str, tuple[Any, Any]]] = {
    "phoenix": (guarded_phoenix, PhoenixServer),
    "mlflow": (mlflow, MlflowServer),
}
TOOL, WRITER, ROOT = span_id(6), span_id(8), span_id(1)


@pytest.fixture(scope="module", params=[*SERVERS])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a backend for all tests of the module: Phoenix takes 14 s of CPU to start."""
    opened, server_of = SERVERS[request.param]
    with opened(tmp_path_factory.mktemp(request.param)) as url:
        yield server_of(url)


@pytest.fixture
def backend(running: Any) -> Iterator[Any]:
    """Yield a backend that has no run."""
    yield running
    running.clear()


def test_a_tenants_verdict_is_scored_once_and_its_correction_replaces_it(
    backend: Any, tmp_path: Path
) -> None:
    as_json = {"Content-Type": "application/json", **ACME}
    with starting(tmp_path) as start, relayed(backend.url) as relay:

        def serve() -> Line:
            return start(
                forward_endpoint=backend.url,
                forward_protocol="http/protobuf",
                scores=f"{backend.name}@acme={relay.url}",
                carriers="none",
                **backend.settings,
                **{
                    f"{variable}_ACME": text
                    for variable, text in backend.settings.items()
                    if variable.isupper()
                },
            )

        def shows(sent: int, *scores: Shown) -> None:
            """Wait until so many entries were sent since the restart, then look."""
            lane = f"scores:{backend.name}@x-scope-orgid=acme"
            wait_until(
                lambda: line.labelled("blamespan_verdicts_sent", "signal")[lane] == sent,
                what=f"{sent} entries; the log ends:\n{line.server.tail()}",
            )
            assert backend.shown([RUN, run_id_of(1)]) == backend.expected(RUN, *scores)

        def say(**statement: object) -> None:
            status, text = line.ask(f"/api/runs/{RUN}/label", "POST", as_json, json.dumps(statement).encode())
            assert status == 200, text

        line = serve()
        relay.before_answer = killer(line)
        send(line, encode(run_of(1)))  # nobody's: it is not scored
        line.verdict(run_id_of(1))
        send(line, encode(failing("tides", RUN)), headers=ACME)
        line.server.process.wait(timeout=120)
        relay.before_answer = lambda: None
        assert relay.writes == 1
        line = serve()
        first = (
            (TASK_SUCCESS, ROOT, "fail", 0.0, "CODE"),
            (FAILURE_ATTRIBUTION, TOOL, "unhandled_error", 0.0, "CODE"),
        )
        shows(1, *first)
        assert relay.writes == backend.writes
        assert backend.failed() == [backend.of_failed]

        say(agent="writer", step=3)
        shows(
            2,
            (TASK_SUCCESS, ROOT, "fail", 0.0, "HUMAN"),
            (FAILURE_ATTRIBUTION, WRITER, "unspecified", 0.0, "HUMAN"),
        )
        say(failed=False)
        shows(3, (TASK_SUCCESS, ROOT, "pass", 1.0, "HUMAN"))
        assert line.ask(f"/api/runs/{RUN}", "DELETE", ACME)[0] == 200
        shows(4)


def test_a_persons_score_becomes_a_label_and_a_later_label_is_kept(backend: Any, tmp_path: Path) -> None:
    with starting(tmp_path) as start, relayed(backend.url) as relay:
        line = start(
            forward_endpoint=backend.url,
            forward_protocol="http/protobuf",
            scores=f"{backend.name}+labels={relay.url}",
            score_read_s=0.5,
            carriers="none",
            **backend.settings,
        )

        def await_readings(count: int) -> None:
            before = relay.reads
            wait_until(lambda: relay.reads >= before + count, what=f"{count} requests that read")

        def said(label: str) -> dict[str, Any]:
            """Wait for the run's label to say so."""
            found: dict[str, Any] = wait_until(
                lambda: (
                    one if (one := (line.run(RUN) or {}).get("label")) and one["label"] == label else None
                ),
                what=f"the label {label}; the log ends:\n{line.server.tail()}",
            )
            return found

        send(line, encode(failing("tides", RUN)))
        assert line.verdict(RUN)["span_id"] == TOOL
        wait_until(lambda: not waiting(tmp_path), what="an empty outbox")
        backend.annotate("LLM", TASK_SUCCESS, ROOT, "pass")
        backend.annotate("HUMAN", "helpfulness", ROOT, "pass")
        await_readings(12)
        assert (line.run(RUN) or {})["label"] is None

        backend.annotate("HUMAN", FAILURE_ATTRIBUTION, WRITER, "right")
        label = said("corrected")
        assert (label["agent"], label["step"], label["span_id"]) == ("writer", 3, WRITER)
        verdict = line.verdict(RUN, version=2)
        assert (verdict["method"], verdict["agent"], verdict["span_id"]) == (PERSON, "writer", WRITER)

        label_over_http(line, RUN, "label", {"failed": False})
        await_readings(12)  # the older score, and our own ones, which now have the kind HUMAN
        assert said("not_a_failure")["verdict_version"] == 2
        assert line.verdict(RUN)["version"] == 3

        backend.annotate("HUMAN", FAILURE_ATTRIBUTION, TOOL, "hallucination")
        assert said("corrected")["span_id"] == TOOL
        assert line.verdict(RUN, version=4)["version"] == 4
        assert len(line.said("a person's score became a label")) == 2


def killer(line: Line) -> Callable[[], None]:
    """Return what kills the service from another thread; ``process.kill`` shares a pipe with ``wait``."""

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.kill(line.server.process.pid, signal.SIGKILL)

    return kill


def run_of(number: int) -> list[Span]:
    """Return a failing run whose spans have ids of their own: Phoenix knows spans by these alone."""
    own = {span_id(at): SpanId(f"{number:08x}{at:08x}") for at in range(1, 9)}
    return [
        replace(span, span_id=own[span.span_id], parent_id=own[span.parent_id] if span.parent_id else None)
        for span in failing("tides", run_id_of(number))
    ]


def run_id_of(number: int) -> TraceId:
    return TraceId(f"{number:032x}")


def standing(verdict: Mapping[str, Any], root: str) -> list[Shown]:
    """Return the scores of a run's current verdict."""
    kind = "HUMAN" if verdict["method"] == PERSON else "CODE"
    if verdict["status"] == Status.NO_FAILURE:
        return [(TASK_SUCCESS, root, "pass", 1.0, kind)]
    mode = verdict["mode"] or NO_MODE
    return [
        (TASK_SUCCESS, root, "fail", 0.0, kind),
        (FAILURE_ATTRIBUTION, verdict["span_id"], mode, 0.0, kind),
    ]


def test_every_run_has_the_scores_of_its_last_verdict_once_whenever_the_service_is_killed(
    backend: Any, tmp_path: Path
) -> None:
    seed = int(os.environ.get("BLAMESPAN_TEST_SEED", "0")) or random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance, statements = random.Random(seed), ({"agent": "writer", "step": 3}, {"failed": False})
    with starting(tmp_path) as start, relayed(backend.url) as relay:
        settings = {
            "forward_endpoint": backend.url,
            "forward_protocol": "http/protobuf",
            "scores": f"{backend.name}={relay.url}",
            "carriers": "none",
            **backend.settings,
        }
        numbers = range(1, 2 * KILLS + 1)
        accepted: set[int] = set()
        for at in range(0, 2 * KILLS, 2):
            line = start(**settings)
            for number in numbers[at : at + 2]:
                send(line, encode(run_of(number)))
            relay.arm(killer(line), at=chance.randint(1, 8), is_late=chance.random() < 0.5)
            with suppress(OSError, BackendError):  # it dies meanwhile
                line.verdict(run_id_of(at + 1))
                for number in chance.sample(numbers[: at + 1], min(2, at + 1)):
                    label_over_http(line, run_id_of(number), "label", chance.choice(statements))
                    accepted.add(number)
            with suppress(TimeoutExpired):
                line.server.process.wait(timeout=5)
            line.server.process.kill()
            line.server.process.wait(timeout=60)
        relay.disarm()
        line = start(**settings)
        line.verdict(run_id_of(1))
        label_over_http(line, run_id_of(1), "label", chance.choice(statements))
        accepted.add(1)
        wait_until(
            lambda: all(line.verdict(run_id_of(number))["method"] == PERSON for number in accepted),
            what=f"people's verdicts on the runs {accepted}",
        )
        verdicts = {number: line.verdict(run_id_of(number)) for number in numbers}
        wait_until(lambda: not waiting(tmp_path), what="an empty outbox")
        expected: Found = {}
        for number, verdict in verdicts.items():
            root = f"{number:08x}{1:08x}"
            expected |= backend.expected(run_id_of(number), *standing(verdict, root))
        assert backend.shown(map(run_id_of, numbers)) == expected
        assert {verdict["method"] for verdict in verdicts.values()} == {"signals", PERSON}


def waiting(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "data" / RUNS)) as db:
        found: int = db.execute("SELECT count(*) FROM outbox").fetchone()[0]
        return found
