"""The Python API: one line for one trace, wherever it is called; the client tells a service's refusals."""

from __future__ import annotations

import asyncio
import http.server
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer import AsyncClient, Client, ModelNeeded, ServiceError, UnknownMethod, UnreadableInput
from analyzer.cli.main import run as blamespan
from tests.loopback import serve_http
from tests.shown import FIXTURES
from tests.web.test_try import LOG

SOUND = FIXTURES / "ag2_native-sound.json.gz"
CRASH = FIXTURES / "langgraph_openinference-crash.json.gz"


def test_one_line_attributes_a_file_its_bytes_or_its_json() -> None:
    for source in (CRASH, str(CRASH), CRASH.read_bytes()):
        verdict = analyzer.attribute(source)
        assert (verdict.status, verdict.agent, verdict.step) == ("attributed", "purser", 8)
    assert analyzer.attribute(LOG).agent == "clerk"
    assert analyzer.attribute(LOG["history"]).agent == "clerk"  # type: ignore[arg-type]


@pytest.mark.parametrize("sees", [True, False])
def test_triage_knows_the_right_answer_even_if_the_method_does_not(
    capsys: pytest.CaptureFixture[str], sees: bool
) -> None:
    assert analyzer.attribute(SOUND).status == "no_failure"
    found = analyzer.attribute(SOUND, reference="an answer that the run does not give", with_reference=sees)
    assert found.status != "no_failure"
    hidden = [] if sees else ["--without-reference"]
    assert blamespan(["attribute", str(SOUND), "--reference", "none", *hidden, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] != "no_failure"


def test_the_method_sees_a_right_answer_unless_it_is_hidden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = [
        {"role": "assistant", "name": "clerk", "content": "It is Lisbon."},
        {"role": "assistant", "name": "writer", "content": "So it is Porto."},
    ]
    file = tmp_path / "log.json"
    file.write_text(json.dumps({"question": "What is the capital of Portugal?", "history": history}))
    sure = []
    for option in ("--with-reference", "--without-reference", None):
        told = ["--reference", "Lisbon", *filter(None, [option])]
        assert blamespan(["attribute", str(file), *told, "--format", "json"]) == 0
        sure.append(json.loads(capsys.readouterr().out)["confidence"])
    assert sure[2] == sure[0] > sure[1]


async def test_it_works_where_an_event_loop_runs() -> None:
    assert analyzer.attribute(CRASH).agent == (await analyzer.attribute_async(CRASH)).agent == "purser"


def test_no_setting_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLAMESPAN_METHOD", "judge")
    monkeypatch.setenv("BLAMESPAN_PRECISION", "1")
    assert analyzer.attribute(CRASH).method == "signals"


def test_an_impossible_request_raises_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="expected OTLP"):
        analyzer.read_run(b"\0\1")
    with pytest.raises(FileNotFoundError):
        analyzer.read_run(tmp_path / "none.json")
    with pytest.raises(UnreadableInput, match="use read_runs"):
        analyzer.read_run(json.dumps([LOG, LOG]).encode())
    with pytest.raises(UnknownMethod):
        analyzer.attribute(LOG, method="guess")
    with pytest.raises(ModelNeeded):
        analyzer.attribute(LOG, method="judge")


class Answers(http.server.BaseHTTPRequestHandler):
    """Hostile answers, by path."""

    def do_GET(self) -> None:
        status, body, headers = {
            "/api/runs/redirect": (302, b"", {"Location": "/api/runs/seen"}),
            "/api/runs/refused": (404, b"no such run\n", {}),
            "/api/runs/nested": (200, b"[" * 100_000, {}),
            "/api/runs/other": (200, b'{"status": 5}', {}),
        }.get(self.path, (500, b"", {}))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hostile() -> Iterator[str]:
    with serve_http(Answers) as address:
        yield address


@pytest.mark.parametrize(
    ("run", "told", "status"),
    [("refused", "no such run", 404), ("redirect", "302", 302), ("nested", "expected JSON", None)],
)
def test_the_client_raises_refusals_and_follows_no_redirect(
    hostile: str, run: str, told: str, status: int | None
) -> None:
    client = Client(url=hostile, token="secret")
    assert "secret" not in repr(client)
    with pytest.raises(ServiceError, match=told) as refused:
        client.run(run)
    assert refused.value.status == status
    with pytest.raises(ServiceError, match=told):
        asyncio.run(AsyncClient(url=hostile).run(run))


def test_an_answer_of_another_shape_is_an_error_of_ours(hostile: str) -> None:
    with pytest.raises(ServiceError, match="expected"):
        Client(url=hostile).run("other")


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "localhost:8500", "http://user:word@host", "ftp://host"]
)
def test_a_client_speaks_http_alone(url: str) -> None:
    with pytest.raises(ValueError, match="expected http"):
        Client(url=url)


def test_a_service_that_does_not_answer_raises_an_error() -> None:
    with pytest.raises(ServiceError, match="cannot be reached"):
        Client(url="http://127.0.0.1:9").runs()
