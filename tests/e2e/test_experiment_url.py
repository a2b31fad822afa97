"""``blamespan experiment --url``: a workflow behind HTTP gets each trial in the request's body."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from semconv.attributes import SCOPE_INSTRUMENT
from tests.e2e.line import environment
from tests.e2e.test_experiment import RUN, attribute, model, ran_experiment, span

TASK: Final = "12 tickets at 35 and 30 at 14"
SERVICE: Final = '''
"""A workflow behind HTTP, of the standard library; `mode` is what is wrong with it."""
import json, os, sys, time, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from semconv.instrument import rerun, tool

mode, folder = sys.argv[1:]
asked = []

@tool("book")
def book(seats: int) -> str:
    open(os.path.join(folder, "booked"), "a").write("really\\n")
    return "ref 7"

def chat(base, system, text):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    request = urllib.request.Request(base + "/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]

def work(task, environment):
    base = os.environ["OPENAI_BASE_URL"] if mode == "ignores" else environment["OPENAI_BASE_URL"]
    clerk = chat(base, "You are the clerk", task)
    said = [task, *([book(seats=12)] if "tool" in mode else []), clerk]
    answer = chat(base, "You are the writer", " ".join(said))
    if mode == "sleeps when wrong" and "840" not in answer and len(asked) > 1:
        time.sleep(600)
    return answer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked.append(body)
        if mode == "hangs":
            time.sleep(600)
        if mode == "dies" and len(asked) > 1:
            os._exit(3)
        if mode == "redirects":
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            return
        if mode == "tool":
            with rerun(body["environment"]):
                text = work(body["task"], body["environment"])
        else:
            text = work(body["task"], body["environment"])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
'''


def recorded(folder: Path, *, with_tool: bool = False) -> Path:
    wrong, begin = "It is 820.", f"{TASK} ref 7" if with_tool else TASK
    spans = [span(1, "clerk", TASK, wrong), span(3, "writer", f"{begin} {wrong}", "Pay 820.")]
    scopes: list[dict[str, Any]] = [{"spans": spans}]
    if with_tool:
        scopes.append({"scope": {"name": SCOPE_INSTRUMENT}, "spans": [executed()]})
    place = folder / "trace.json"
    place.write_text(json.dumps({"resourceSpans": [{"scopeSpans": scopes}]}))
    return place


def executed() -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "book",
        "gen_ai.tool.call.arguments": '{"seats": 12}',
        "gen_ai.tool.call.result": "ref 7",
    }
    return {
        "traceId": RUN,
        "spanId": f"{2:016x}",
        "name": "execute_tool book",
        "startTimeUnixNano": str(2 * 10**9),
        "endTimeUnixNano": str(2 * 10**9 + 10**8),
        "attributes": [attribute(key, value) for key, value in attributes.items()],
    }


@asynccontextmanager
async def service(mode: str, folder: Path, upstream: str) -> AsyncIterator[str]:
    """The workflow in its own process, which uses the real model's address as in production."""
    program = folder / "service.py"
    program.write_text(SERVICE)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        mode,
        str(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment(data_dir=str(folder), OPENAI_BASE_URL=f"{upstream}/v1"),
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}/run"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def experimented(mode: str, folder: Path, *options: str) -> tuple[int | None, dict[str, Any], str]:
    place = recorded(folder, with_tool="tool" in mode)
    async with model() as upstream, service(mode, folder, upstream) as url:
        known = ["--expect", "840", "--upstream", upstream, "--max-calls", "300", "--format", "json"]
        code, out, err = await ran_experiment(folder, str(place), *known, "--url", url, *options)
    lines = out.splitlines()
    return code, json.loads(lines[-1]) if lines else {}, err


@pytest.mark.parametrize("mode", ["plain", "tool"])
async def test_a_step_of_a_workflow_behind_http_is_proved_and_its_tools_do_not_run(
    tmp_path: Path, mode: str
) -> None:
    code, final, err = await experimented(mode, tmp_path, "--step", "0", "--parallel", "4")
    assert (code, final["decision"], final["agent"]) == (0, "proved", "clerk"), err
    assert final["fidelity"]["served"] == 2
    assert not (tmp_path / "booked").exists()


async def test_a_service_whose_tools_do_not_know_of_the_trial_is_answered_nothing(tmp_path: Path) -> None:
    code, final, _ = await experimented("tool without rerun", tmp_path)
    assert (code, final["decision"], final["calls"]) == (1, "not_replayable", 0)
    assert "with rerun(environment)" in final["reason"]
    assert not (tmp_path / "booked").exists()


async def test_a_service_that_ignores_the_trial_is_stopped_before_the_first_change(tmp_path: Path) -> None:
    code, final, _ = await experimented("ignores", tmp_path)
    assert (code, final["decision"], final["calls"]) == (1, "not_replayable", 0)
    assert "2 of 2 recorded calls never arrived: they bypass the gateway" in final["reason"]


async def test_a_service_that_hangs_ends_at_the_time_limit(tmp_path: Path) -> None:
    code, final, _ = await experimented("hangs", tmp_path, "--timeout", "2")
    assert (code, final["decision"]) == (1, "not_replayable")
    assert "the workflow ran into the time limit" in final["reason"]


async def test_a_time_limit_while_the_model_answers_is_a_failure_of_the_workflow(tmp_path: Path) -> None:
    options = ["--step", "0", "--timeout", "30", "--parallel", "8"]
    code, final, err = await experimented("sleeps when wrong", tmp_path, *options)
    assert (code, final["decision"], final["control"]["successes"]) == (0, "proved", 0), (final, err)
    assert final["control"]["invalid"] == 0


async def test_a_service_that_dies_ends_the_experiment_with_what_was_learned(tmp_path: Path) -> None:
    code, final, _ = await experimented("dies", tmp_path)
    assert (code, final["decision"], final["fidelity"]["served"]) == (1, "undecided", 2)
    assert "6 invalid trials in a row: the workflow cannot be started" in final["reason"]


async def test_a_redirect_is_not_followed_with_the_trials_address(tmp_path: Path) -> None:
    code, final, _ = await experimented("redirects", tmp_path)
    assert (code, final["decision"]) == (1, "not_replayable")
    assert "HTTP 307 to http://127.0.0.1:9/elsewhere" in final["reason"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("http://127.0.0.1:9/run", "cannot be started", id="nothing listens"),
        pytest.param("ftp://127.0.0.1/run", "expected a URL that begins with http", id="another scheme"),
    ],
)
async def test_an_invalid_address_is_refused(tmp_path: Path, url: str, expected: str) -> None:
    code, _, err = await ran_experiment(
        tmp_path, str(recorded(tmp_path)), "--expect", "1", "--max-calls", "9", "--url", url
    )
    assert (code, expected in err) == (2 if url.startswith("ftp") else 1, True), err
