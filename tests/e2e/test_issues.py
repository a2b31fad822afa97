"""From a failing run to an alert: issues by command and over HTTP, and messages to receivers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from analyzer.cli.main import run
from collector_processor.rebuild.encode import encode
from collector_processor.settings.fields import PRECISION
from semconv.attributes import ERROR, FAILURE_AGENT_NAME, FAILURE_DECISIVE
from semconv.model import Span, TraceId
from tests.backends.supervise import wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.line import Line, StartLine
from tests.e2e.spans import carriers
from tests.e2e.traffic import send
from tests.factories import agent, chat, tool, workflow
from tests.loopback import serve_http


def trace_id(number: int) -> TraceId:
    return TraceId(f"{number + 0xA0:02x}" * 16)


def failing(number: int) -> list[Span]:
    spans = [
        chat(3, parent=2, answer="First look it up, then write it down."),
        agent(2, "planner", end=40),
        chat(5, parent=4, answer="I will look it up."),
        tool(6, "lookup", parent=4, arguments="{}", error="ValueError: no such page"),
        agent(4, "researcher", start=45, end=70),
        workflow(1, task="Write", error="the reader was not content"),
    ]
    return [replace(span, trace_id=trace_id(number)) for span in spans]


def fail(line: Line, number: int) -> None:
    send(line, encode(failing(number)))
    line.verdict(trace_id(number))


def asked(url: str, said: object = None, method: str = "GET") -> Any:
    body = None if said is None else json.dumps(said).encode()
    request = Request(url, data=body, method=method, headers={"Content-Type": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=300) as answer:
        return json.load(answer)


def issues(line: Line) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked(f"{line.web}/api/issues")["issues"]
    return found


def await_count(line: Line, count: int) -> dict[str, Any]:
    def counted() -> dict[str, Any] | None:
        found = issues(line)
        return found[0] if found and found[0]["count"] == count else None

    return wait_until(counted, what=f"an issue of {count}; the log ends:\n{line.server.tail()}")


@pytest.fixture
def pager() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the address of a web hook, and the alerts that it receives, in order."""
    told: list[dict[str, Any]] = []

    class Pager(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.extend(body.get("alerts", [body]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    with serve_http(Pager) as address:
        yield f"{address}/", told


def test_a_recurring_failure_is_listed_resolved_and_comes_back(
    start_line: StartLine,
    tmp_path: Path,
    pager: tuple[str, list[dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    url, told = pager
    line = start_line(notify_url=url, web_url="https://blame.example")
    fail(line, 0)
    fail(line, 1)
    issue = await_count(line, 2)
    assert (issue["agent"], issue["state"], issue["error"], issue["tool"]) == (
        "researcher",
        "new",
        "ValueError",
        "lookup",
    )
    assert issue["examples"] == [trace_id(1), trace_id(0)]
    assert issue["share"]["runs"] == 2

    with build_opener(ProxyHandler({})).open(f"{line.web}/issues", timeout=300) as page:
        assert "researcher: ValueError in lookup" in page.read().decode()

    # At the command line, while the service runs.
    data = str(tmp_path / "data")
    assert run(["issues", "--data-dir", data, "--format", "json"]) == 0
    (listed,) = capsys.readouterr().out.splitlines()
    assert json.loads(listed)["id"] == issue["id"]
    assert run(["issues", "resolve", issue["id"][:6], "--data-dir", data, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "resolved"
    fail(line, 2)
    assert await_count(line, 3)["state"] == "regressed"
    wait_until(lambda: len(told) == 2, what="two notices")
    assert [(one["kind"], one["agent"]) for one in told] == [
        ("new", "researcher"),
        ("regressed", "researcher"),
    ]
    assert told[0]["run_url"] == f"https://blame.example/runs/{trace_id(0)}"
    assert told[0]["text"] == ""

    # Over HTTP, with the guard that labels have.
    muted = asked(f"{line.web}/api/issues/{issue['id']}/mute", {"for_s": 3600}, "POST")
    assert muted["muted_until_ns"] > 0
    assert issues(line)[0]["muted"] is True
    asked(f"{line.web}/api/issues/{issue['id']}/resolve", {}, "POST")
    assert issues(line)[0]["state"] == "resolved"
    for path, said, code in (
        ("0000000000000000/resolve", {}, 404),
        (f"{issue['id']}/mute", {"for_s": "long"}, 400),
        (f"{issue['id']}/mute", {"for_s": float("inf")}, 400),
    ):
        with pytest.raises(HTTPError) as refused:
            asked(f"{line.web}/api/issues/{path}", said, "POST")
        with refused.value:
            assert refused.value.code == code
    foreign = Request(f"{line.web}/api/issues/{issue['id']}/resolve", data=b"", method="POST")
    with pytest.raises(HTTPError) as refused, build_opener(ProxyHandler({})).open(foreign, timeout=300):
        pass
    with refused.value:
        assert refused.value.code == 415

    # A label takes a run back, and a crash costs nothing.
    assert run(["label", trace_id(2), "wrong", "--data-dir", data]) == 0
    await_count(line, 2)
    line.server.process.kill()
    line.server.process.wait(timeout=300)
    capsys.readouterr()
    assert run(["issues", "--data-dir", data, "--agent", "Researcher", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["count"] == 2
    assert run(["issues", "--data-dir", data, "--state", "new", "--format", "json"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["issues", "--data-dir", data]) == 0
    assert "researcher: ValueError in lookup (test)" in capsys.readouterr().out
    again = start_line()
    assert issues(again)[0]["count"] == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["resolve"], 2),
        (["mute", "ab", "--for", "soon"], 2),
        (["mute", "ab", "--for", "9999w"], 2),
        (["resolve", "zz"], 1),
        (["remove", "ab"], 2),
    ],
)
def test_invalid_input_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    from tests.issues import Bench  # noqa: PLC0415 - stores only this test makes by hand

    bench = Bench(folder=tmp_path)
    bench.judge(1, "clerk")
    ids = [issue.fingerprint.id for issue in bench.all()]
    bench.close()
    arguments = [ids[0] if argument == "ab" else argument for argument in arguments]
    assert run(["issues", *arguments, "--data-dir", str(tmp_path)]) == code
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_without_a_store_it_says_what_was_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["issues", "--data-dir", str(tmp_path)]) == 1
    assert "expected the data directory of `blamespan serve`" in capsys.readouterr().err


def test_a_receiver_that_never_answers_holds_nothing_up(start_line: StartLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections, and says nothing
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        line = start_line(notify_url=f"{address},{address}/2")
        for number in range(3):
            fail(line, number)
        await_count(line, 3)
        assert line.terminate() == 0, "a receiver is not waited for"


def test_a_service_behind_apprise_gets_notices_of_a_running_service(
    start_line: StartLine, pager: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """The service is apprise's ``json://`` at a local server; no real one is tested."""
    pytest.importorskip("apprise", reason="the extra `notify` is not installed")
    url, told = pager
    line = start_line(notify_url=f"{url.replace('http', 'json')}T0k3nHidden")
    fail(line, 0)
    wait_until(lambda: len(told) == 1, what="the notice")
    assert (told[0]["title"], told[0]["type"]) == ("blamespan: New issue", "warning")
    wait_until(lambda: line.labelled("blamespan_notices_sent", "receiver") == {"json": 1}, what="the count")
    assert line.terminate() == 0
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert logs
    assert "T0k3nHidden" not in logs


def test_a_verdict_below_the_least_confidence_accuses_no_agent(start_line: StartLine) -> None:
    """This run's texts were not recorded; only its failure is known."""
    spans = [
        agent(2, "planner", start=5, end=20),
        chat(3, parent=2),
        agent(4, "writer", start=30, end=70),
        chat(5, parent=4),
        workflow(1, task="Write", error="the answer is wrong"),
    ]
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        send(line, encode([replace(span, trace_id=trace_id(9)) for span in spans]))
        verdict = line.verdict(trace_id(9))
        assert (verdict["status"], verdict["agent"], verdict["step"]) == ("undetermined", None, None)
        assert {one["agent"] for one in verdict["ranking"]} == {"planner", "writer"}
        assert all(0 < one["probability"] < PRECISION for one in verdict["ranking"])
        (carrier,) = carriers(backend.await_spans(trace_id(9), len(spans) + 1))
        assert carrier.span.name == "failure: undetermined"
        assert {FAILURE_DECISIVE, FAILURE_AGENT_NAME, ERROR}.isdisjoint(carrier.attributes)
        assert carrier.span.status.code == carrier.span.status.STATUS_CODE_UNSET
        assert issues(line) == []
        with build_opener(ProxyHandler({})).open(f"{line.web}/runs/{trace_id(9)}", timeout=300) as page:
            told = page.read().decode()
        assert "No agent can be blamed with confidence" in told
        assert "Candidates" in told
        assert "a verdict needs 19%" in told
        assert "2 of 2 steps cannot be read" in told
        assert line.terminate() == 0
        (evaluated,) = backend.records()
        assert {"task_success", "unknown"} <= {one.value.string_value for one in evaluated.attributes}
