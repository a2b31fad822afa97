"""``blamespan inject`` on a passing run: honest labels in a data set that ``train`` and ``bench`` read."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from analyzer.lab.evaluation.dataset import read_dataset
from tests.backends.forked import ran
from tests.e2e.line import environment
from tests.e2e.test_experiment import RUN, WORKFLOW, span, variables
from tests.web_application import served

REPORTING: Final = """
import secrets, time
def attribute(key, value):
    return {"key": key, "value": {"stringValue": value}}
def parts(role, text):
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
trace_id, spans = secrets.token_hex(16), []
for place, role in enumerate(("clerk", "writer")):
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.agent.name": role, "gen_ai.request.model": "m",
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "You are the " + role}]),
        "gen_ai.input.messages": parts("user", " ".join(said[: place + 1])),
        "gen_ai.output.messages": parts("assistant", said[place + 1]),
    }
    spans.append({
        "traceId": trace_id, "spanId": secrets.token_hex(8), "name": "chat m",
        "startTimeUnixNano": str((place + 1) * 10**9), "endTimeUnixNano": str((place + 1) * 10**9 + 10**8),
        "attributes": [attribute(*pair) for pair in attributes.items()],
    })
resource = {"attributes": [attribute("service.name", "tickets")]}
body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}).encode()
url = os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})).read()
"""
"""Sends the run's spans, as an instrumented workflow does."""

SERVING: Final = """
import json, os, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        variables = {**os.environ, **asked["environment"]}
        ran = subprocess.run([sys.executable, sys.argv[1]], env=variables, capture_output=True)
        self.send_response(500 if ran.returncode else 200)
        self.end_headers()
        self.wfile.write(ran.stdout)
    def log_message(self, *_):
        pass
server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
"""A service around the workflow, which uses each trial's environment for this request alone."""

INJECT: Final = (sys.executable, "-m", "analyzer", "inject")


def passing(folder: Path) -> Path:
    task, right = "12 tickets at 35 and 30 at 14", "It is 840."
    spans = [span(1, "clerk", task, right), span(2, "writer", f"{task} {right}", "Pay 840.")]
    place = folder / "pass.json"
    place.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    return place


@asynccontextmanager
async def careful_model(*, notices: bool = False) -> AsyncIterator[str]:
    """A writer who repeats the clerk's number in other words, or notices a wrong one; nobody else errs."""
    coin = random.Random(2)

    async def answer(request: web.Request) -> web.Response:
        said = (await request.json())["messages"]
        number = "840" if notices else said[1]["content"].rstrip(".").split()[-1]
        text = f"{coin.choice(('Pay', 'Please pay', 'You pay'))} {coin.choice('abcdefgh')}: {number}."
        reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
        return web.json_response({"id": "x", "object": "chat.completion", "model": "m", **reply})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with served(app) as url:
        yield url


async def injected(
    folder: Path, url: str, *options: str, reports: bool = True, service: str = ""
) -> tuple[int | None, Any, str]:
    """Run the command; return its exit code, the objects that it printed, and its messages."""
    program = folder / "workflow.py"
    program.write_text(WORKFLOW + (REPORTING if reports else ""))
    last = ("--url", service) if service else ("--", sys.executable, str(program))
    words = (
        *(*INJECT, str(passing(folder)), "--out", str(folder / "faults.jsonl")),
        *("--expect", "840", "--upstream", url, "--max-calls", "500", *options),
        *("--format", "json", *last),
    )
    done = await asyncio.to_thread(ran, words, environ=variables(folder), folder=folder)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@asynccontextmanager
async def workflow_server(folder: Path) -> AsyncIterator[str]:
    """Run the workflow behind HTTP; yield its address."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVING, str(folder / "workflow.py")), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}/"
    finally:
        process.kill()
        await process.wait()


async def test_a_fault_that_always_fails_becomes_a_label_at_its_step(tmp_path: Path) -> None:
    async with careful_model() as url:
        code, (*tried, final), err = await injected(tmp_path, url, "--kind", "wrong_value", "--parallel", "2")
    assert code == 0, err
    assert sorted((each["step"], each["kind"], each["label"]) for each in tried) == [
        (0, "wrong_value", True),
        (1, "wrong_value", True),
    ]
    assert all(each["effect"][0] >= 0.5 and each["restored"]["successes"] == 5 for each in tried)
    assert (final["labels"], final["purity"]["kept"], final["final"]) == (2, 2, True)
    runs = read_dataset(tmp_path / "faults.jsonl")
    labels = {
        run.label.step: run.label for run in runs if run.label is not None and run.label.step is not None
    }
    assert {step: (label.agent, label.category) for step, label in labels.items()} == {
        0: ("clerk", "wrong_value"),
        1: ("writer", "wrong_value"),
    }
    assert [run.subset for run in runs] == ["wrong_value"] * 2
    assert {run.source for run in runs} == {"tickets"}
    assert all(run.trajectory.run_id != RUN and len(run.trajectory.steps) == 2 for run in runs)
    faulty = next(run for run in runs if run.label is not None and run.label.step == 0)
    assert "840" not in faulty.trajectory.steps[0].output


async def test_a_fault_that_a_later_agent_repairs_makes_no_label(tmp_path: Path) -> None:
    async with careful_model(notices=True) as url:
        code, (*tried, final), err = await injected(tmp_path, url, "--kind", "wrong_value")
    assert code == 0, err
    reasons = {each["step"]: each["reason"] for each in tried}
    assert reasons == {0: "the run often passes with the fault", 1: None}
    assert final["purity"]["discarded"] == [{"reason": "the run often passes with the fault", "n": 1}]


async def test_a_workflow_that_sends_no_spans_is_refused_after_one_trial(tmp_path: Path) -> None:
    async with careful_model() as url:
        code, (final,), err = await injected(tmp_path, url, reports=False)
    assert (code, final["labels"], final["calls"]) == (1, 0, 0), err
    assert "sent no spans to OTEL_EXPORTER_OTLP_ENDPOINT" in final["refused"][0]["reason"]
    assert (tmp_path / "faults.jsonl").read_text() == ""


async def test_a_workflow_over_http_gives_the_same_labels(tmp_path: Path) -> None:
    async with careful_model() as url, workflow_server(tmp_path) as service:
        code, (*tried, final), err = await injected(
            tmp_path, url, "--kind", "wrong_value", "--labels", "1", service=service
        )
    assert code == 0, err
    assert final["labels"] == 1
    assert [each["restored"]["successes"] for each in tried if each["label"]] == [5]
    (found,) = read_dataset(tmp_path / "faults.jsonl")
    assert found.source == "tickets"


async def test_a_dry_run_lists_the_faults_and_starts_and_writes_nothing(tmp_path: Path) -> None:
    async with careful_model() as url:
        code, (*faults, final), err = await injected(tmp_path, url, "--kind", "wrong_value", "--dry-run")
    assert code == 0, err
    assert {(each["step"], each["agent"], each["kind"]) for each in faults} == {
        (0, "clerk", "wrong_value"),
        (1, "writer", "wrong_value"),
    }
    assert all("840" in each["recorded"] and "840" not in each["answer"] for each in faults)
    assert (final["dry_run"], final["faults"], final["final"]) == (True, 2, True)
    assert final["live_calls"] > 0
    assert final["cost_usd"] is None  # nobody knows the price of model m
    assert not (tmp_path / "faults.jsonl").exists()


async def test_given_failures_are_compared_with_the_injected_ones(tmp_path: Path) -> None:
    failed = tmp_path / "failed.json"
    spans = [span(1, "clerk", "12 tickets", "It is 820."), span(2, "writer", "It is 820.", "Pay 820.")]
    failed.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    async with careful_model() as url:
        options = ("--kind", "wrong_value", "--labels", "1", "--organic", str(failed))
        code, (*_, final), err = await injected(tmp_path, url, *options)
    assert code == 0, err
    assert [(each["by"], each["injected"], each["organic"]) for each in final["organic"]] == [
        ("shape", 1, 1),
        ("words", 1, 1),
    ]
    assert {each["verdict"] for each in final["organic"]} == {"too few failures"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ("--url", "http://127.0.0.1:1", "--out", "x.jsonl", "--", "true"),
            "either -- COMMAND… or --url URL",
        ),
        (("--out", "x.jsonl"), "either -- COMMAND… or --url URL"),
        (("--url", "ftp://x", "--out", "x.jsonl"), "begins with http:// or https://"),
        (("--", "true"), "expected --out FILE"),
    ],
)
def test_wrong_usage_is_refused_before_anything_starts(
    options: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    words = (*INJECT, str(passing(tmp_path)), "--expect", "840", *options)
    done = ran(words, environ=environment(data_dir=str(tmp_path), COLUMNS="300"), folder=tmp_path)
    assert done.returncode == 2
    assert expected in done.stderr
    assert not (tmp_path / "x.jsonl").exists()
