"""``blamespan experiment`` on a recorded run starts the command once per trial and proves the step."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest
from aiohttp import web

from tests.backends.forked import ran
from tests.e2e.line import StartLine, environment
from tests.web_application import served

RUN: Final = "5" * 32
FORGED: Final = "6" * 32
LATER: Final = "8" * 32
EXPERIMENT: Final = (sys.executable, "-m", "analyzer", "experiment")
WORKFLOW: Final = """
import json, os, urllib.request
said = ["12 tickets at 35 and 30 at 14"]
for role in ("clerk", "writer"):
    system = {"role": "system", "content": "You are the " + role}
    messages = [system, {"role": "user", "content": " ".join(said)}]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        said.append(json.load(answer)["choices"][0]["message"]["content"])
print(said[-1])
"""
REPORTING: Final = """
import secrets
told = dict(pair.split("=") for pair in os.environ["OTEL_RESOURCE_ATTRIBUTES"].split(","))
resource = {"attributes": [{"key": key, "value": {"stringValue": value}} for key, value in told.items()]}
spans = json.load(open(os.environ["RECORDED"]))["resourceSpans"][0]["scopeSpans"]
trace_id = secrets.token_hex(16)
for span in spans[0]["spans"]:
    span["traceId"] = trace_id
body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": spans}]}).encode()
headers = {"Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(os.environ["SERVICE"] + "/v1/traces", body, headers)).read()
"""
"""Sends the trial's spans to the service, as an instrumented workflow does."""


def attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def span(number: int, role: str, asked: str, answered: str) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": role,
        "gen_ai.request.model": "m",
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": f"You are the {role}"}]),
        "gen_ai.input.messages": message("user", asked),
        "gen_ai.output.messages": message("assistant", answered),
    }
    return {
        "traceId": RUN,
        "spanId": f"{number:016x}",
        "name": "chat m",
        "startTimeUnixNano": str(number * 10**9),
        "endTimeUnixNano": str(number * 10**9 + 10**8),
        "attributes": [attribute(key, value) for key, value in attributes.items()],
    }


def recorded(folder: Path) -> Path:
    task, wrong = "12 tickets at 35 and 30 at 14", "It is 820."
    spans = [span(1, "clerk", task, wrong), span(2, "writer", f"{task} {wrong}", "Pay 820.")]
    place = folder / "trace.json"
    place.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    return place


@asynccontextmanager
async def model(*, hangs: bool = False) -> AsyncIterator[str]:
    """A clerk who is right 9 times in 10, and a writer who repeats the number in other words."""
    coin = random.Random(2)

    async def answer(request: web.Request) -> web.Response:
        if hangs:
            await asyncio.sleep(600)
        said = (await request.json())["messages"]
        if "clerk" in said[0]["content"]:
            text = f"{coin.choice(('It is', 'I get', 'So'))} {840 if coin.random() < 0.9 else 830}."
        else:
            number = said[1]["content"].rstrip(".").split()[-1]
            text = f"{coin.choice(('Pay', 'Please pay', 'You pay'))} {number}."
        reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
        return web.json_response({"id": "x", "object": "chat.completion", "model": "m", **reply})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with served(app) as url:
        yield url


def variables(data_dir: Path, **more: str) -> dict[str, str]:
    return environment(
        data_dir=str(data_dir), OPENAI_API_KEY="none", LITELLM_LOCAL_MODEL_COST_MAP="True", **more
    )


async def ran_experiment(
    folder: Path, *arguments: str, data_dir: Path | None = None, **more: str
) -> tuple[int, str, str]:
    """Run an experiment; return its exit code and what it printed."""
    own = variables(data_dir or folder, **more)
    done = await asyncio.to_thread(ran, [*EXPERIMENT, *arguments], environ=own, folder=folder)
    return done.returncode, done.stdout, done.stderr


def post(service: str, body: bytes) -> None:
    request = Request(f"{service}/v1/traces", body, {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        assert answer.status == 200


def command(folder: Path, *, more: str = "") -> list[str]:
    program = folder / "workflow.py"
    program.write_text(WORKFLOW + more)
    return ["--", sys.executable, str(program)]


async def test_the_decisive_step_of_a_recorded_run_is_proved(tmp_path: Path) -> None:
    async with model() as url:
        options = ["--expect", "840", "--upstream", url, "--max-calls", "300", "--parallel", "2"]
        code, out, err = await ran_experiment(
            tmp_path, str(recorded(tmp_path)), *options, "--format", "json", *command(tmp_path)
        )
    *steps, final = [json.loads(line) for line in out.splitlines()]
    assert (code, final["decision"], final["step"], final["agent"]) == (
        0,
        "proved",
        0,
        "clerk",
    ), err
    assert final["final"] is True
    assert final["healing"] == [0]
    assert final["fidelity"] == {"calls": 2, "served": 2, "masked": 0, "first_difference": None}
    assert final["control"]["successes"] == 0
    assert [step["step"] for step in steps][:1] == [0]
    assert "live calls" in err


KEPT: Final = """
import secrets
spans = json.load(open(os.environ["RECORDED"]))["resourceSpans"][0]["scopeSpans"]
trace_id = secrets.token_hex(16)
for span, text in zip(spans[0]["spans"], said[1:]):
    span["traceId"] = trace_id
    told = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])
    span["attributes"][-1]["value"]["stringValue"] = told
told = dict(pair.split("=") for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",") if pair)
resource = {"attributes": [{"key": key, "value": {"stringValue": value}} for key, value in told.items()]}
body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": spans}]}).encode()
endpoint = os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
urllib.request.urlopen(urllib.request.Request(endpoint, body, {"Content-Type": "application/json"})).read()
"""
"""Sends the trial's spans with its own answers to the endpoint in the environment."""


async def test_trials_are_kept_so_that_both_arms_can_be_compared(tmp_path: Path) -> None:
    place, trials = recorded(tmp_path), tmp_path / "trials"
    async with model() as url:
        code, out, err = await ran_experiment(
            tmp_path,
            str(place),
            *("--expect", "840", "--upstream", url, "--max-calls", "300", "--step", "0"),
            *("--keep", str(trials), "--format", "json"),
            *command(tmp_path, more=KEPT),
            RECORDED=str(place),
        )
    final = json.loads(out.splitlines()[-1])
    assert (code, final["decision"]) == (0, "proved"), err
    counted = {name: final[name] for name in ("control", "treatment")}
    files = sorted(path.name for path in trials.iterdir())
    for arm, name in (("control", "recorded"), ("treatment", "changed")):
        passed = [
            file for file in files if file.startswith(f"step-0-{name}") and file.endswith("passed.json")
        ]
        assert len(passed) == counted[arm]["successes"]
    assert "replay-1-failed.json" in files
    failed, passed = final["arms"]
    assert (Path(failed).name, Path(passed).name) == (
        "step-0-recorded-1-failed.json",
        "step-0-changed-1-passed.json",
    )
    compare = [sys.executable, "-m", "analyzer", "diff", failed, passed, "--format", "json"]
    compared = await asyncio.to_thread(ran, compare, environ=environment(), folder=tmp_path)
    assert json.loads(compared.stdout)["first_divergence"] == 0


async def test_a_proof_becomes_a_version_of_the_verdict_and_its_trials_become_no_runs(
    tmp_path: Path, start_line: StartLine
) -> None:
    line, place = start_line(), recorded(tmp_path)
    await asyncio.to_thread(post, line.http, place.read_bytes())
    before = await asyncio.to_thread(line.verdict, RUN)
    async with model() as url:
        code, out, err = await ran_experiment(
            tmp_path,
            RUN,
            *("--expect", "840", "--upstream", url, "--max-calls", "300", "--step", "0", "--parallel", "4"),
            *command(tmp_path, more=REPORTING),
            data_dir=tmp_path / "data",
            RECORDED=str(place),
            SERVICE=line.http,
        )
    assert code == 0, (out, err)
    now = await asyncio.to_thread(line.verdict, RUN, version=before["version"] + 1)
    assert (now["method"], now["agent"], now["proof"]["decision"]) == ("experiment", "clerk", "proved")
    trials = err.count("live calls") - 1  # the last line is the result's
    assert trials >= 5
    forged = json.loads(place.read_text().replace(RUN, FORGED))
    forged["resourceSpans"][0]["resource"] = {"attributes": [attribute("blamespan.trial", "7" * 32)]}
    await asyncio.to_thread(post, line.http, json.dumps(forged).encode())
    await asyncio.to_thread(line.verdict, FORGED)
    assert sorted(run["run_id"] for run in line.runs()) == [RUN, FORGED]
    assert line.items("received") >= 2 * trials


async def test_the_page_of_a_run_shows_both_arms_of_its_experiment_and_no_list_has_them(
    tmp_path: Path, start_line: StartLine
) -> None:
    line, place = start_line(), recorded(tmp_path)
    await asyncio.to_thread(post, line.http, place.read_bytes())
    before = await asyncio.to_thread(line.verdict, RUN)
    async with model() as url:
        code, out, err = await ran_experiment(
            tmp_path,
            RUN,
            *("--expect", "840", "--upstream", url, "--max-calls", "300", "--step", "0"),
            *("--keep", str(tmp_path / "trials"), "--format", "json"),
            *command(tmp_path, more=KEPT),
            data_dir=tmp_path / "data",
            RECORDED=str(place),
        )
    assert code == 0, (out, err)
    await asyncio.to_thread(line.verdict, RUN, version=before["version"] + 1)
    page = await asyncio.to_thread(page_of, f"{line.web}/runs/{RUN}")
    (address,) = re.findall(r'href="(/compare\?a=trial:[0-9a-f]{32}&amp;b=trial:[0-9a-f]{32})"', page)
    assert address.replace("&amp;", "&") in err
    assert "Last experiment: proved: step 0, clerk" in unescape(page)
    compared = await asyncio.to_thread(page_of, line.web + address.replace("&amp;", "&"))
    for text in ("Trial with the recorded answer", "Trial with the changed answer", "<del>820</del>"):
        assert text in compared, text
    assert [run["run_id"] for run in line.runs()] == [RUN]
    kept = (tmp_path / "trials" / "step-0-changed-1-passed.json").read_text()
    assert '"blamespan.trial"' in kept  # sent to the service, it is no production run either
    await asyncio.to_thread(post, line.http, kept.replace(trace_of(kept), FORGED).encode())
    await asyncio.to_thread(post, line.http, place.read_text().replace(RUN, LATER).encode())
    await asyncio.to_thread(line.verdict, LATER)
    assert sorted(run["run_id"] for run in line.runs()) == sorted([RUN, LATER])


def page_of(address: str) -> str:
    with urlopen(Request(address, headers={"Accept": "text/html"})) as answer:
        text: str = answer.read().decode()
    return text


def trace_of(document: str) -> str:
    trace: str = json.loads(document)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]
    return trace


async def test_the_command_of_the_last_time_is_shown_and_then_used_again(tmp_path: Path) -> None:
    run = str(recorded(tmp_path))
    async with model() as url:
        options = ["--expect", "840", "--upstream", url]
        limits = ["--max-calls", "300", "--trials", "3", "--format", "json"]
        code, out, err = await ran_experiment(tmp_path, run, *options, *limits, *command(tmp_path))
        assert code == 0, err
        code, out, err = await ran_experiment(tmp_path, run, *limits)
        shown = (
            f"--again uses that of the last time: blamespan experiment {run} --expect 840 --upstream {url}"
        )
        assert (code, out) == (2, "")
        assert shown in " ".join(err.replace("│", " ").split())
        code, out, err = await ran_experiment(tmp_path, run, *limits, "--again")
    final = json.loads(out.splitlines()[-1])
    assert (code, final["fidelity"]["served"]) == (0, 2)
    assert err.startswith(f"again: blamespan experiment {run} --expect 840 --upstream {url} -- ")
    code, out, err = await ran_experiment(tmp_path, run, *limits, "--again", data_dir=tmp_path / "another")
    assert code == 2
    assert "none is known" in err


async def test_a_check_that_the_recorded_run_passes_ends_the_experiment(tmp_path: Path) -> None:
    async with model() as url:
        options = ["--expect", "820", "--upstream", url, "--max-calls", "9", "--format", "json"]
        code, out, _ = await ran_experiment(tmp_path, str(recorded(tmp_path)), *options, *command(tmp_path))
    assert code == 1
    assert "no failure to explain" in json.loads(out)["reason"]


async def test_ctrl_c_ends_the_trials_and_keeps_what_was_learned(tmp_path: Path) -> None:
    async with model(hangs=True) as url:
        options = ["--expect", "840", "--upstream", url, "--max-calls", "9", "--format", "json"]
        words = [*EXPERIMENT, str(recorded(tmp_path)), *options, *command(tmp_path)]
        process = await asyncio.create_subprocess_exec(
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=variables(tmp_path),
            cwd=tmp_path,
        )
        assert process.stderr is not None
        await process.stderr.readline()  # the trial without a change has ended; the next one hangs
        await asyncio.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()
    final = json.loads(out.decode().splitlines()[-1])
    assert (process.returncode, final["decision"]) == (130, "undecided")
    assert "interrupted" in final["reason"]
    assert final["fidelity"]["served"] == 2


async def test_a_tool_that_would_really_run_keeps_the_experiment_from_starting(tmp_path: Path) -> None:
    place = recorded(tmp_path)
    with_tool(place, "book_flight")
    program = tmp_path / "workflow.py"
    program.write_text(f"open({str(tmp_path / 'started')!r}, 'w')")
    options = ["--expect", "840", "--max-calls", "9", "--format", "json", "--", sys.executable, str(program)]
    code, out, err = await ran_experiment(tmp_path, str(place), *options)
    final = json.loads(out)
    assert (code, final["decision"]) == (1, "not_replayable"), err
    assert "`book_flight` would really run" in final["reason"]
    assert not (tmp_path / "started").exists()


async def test_without_one_valid_trial_nothing_is_decided_and_the_exit_code_says_so(tmp_path: Path) -> None:
    options = ["--expect", "840", "--upstream", "http://127.0.0.1:9", "--max-calls", "99", "--format", "json"]
    code, out, _ = await ran_experiment(tmp_path, str(recorded(tmp_path)), *options, *command(tmp_path))
    final = json.loads(out.splitlines()[-1])
    assert (code, final["decision"]) == (1, "undecided")
    assert "6 invalid trials in a row: the upstream failed (unavailable: 1)" in final["reason"]
    assert final["invalid_reasons"] == [{"reason": "the upstream failed (unavailable: 1)", "n": 6}]


@pytest.mark.parametrize("options", [[], ["--max-calls", "9"]], ids=["no limit", "limit of calls"])
async def test_a_budget_of_nothing_starts_nothing(tmp_path: Path, options: list[str]) -> None:
    program = tmp_path / "workflow.py"
    program.write_text(f"open({str(tmp_path / 'started')!r}, 'w')")
    budget = ["--expect", "840", "--budget-usd", "0", *options, "--", sys.executable, str(program)]
    code, _, err = await ran_experiment(tmp_path, str(recorded(tmp_path)), *budget)
    assert (code, "--budget-usd 0 pays for no live call of m" in err) == (2, True), err
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(["--max-calls", "9", "--", "true"], "--check COMMAND or --expect TEXT", id="no check"),
        pytest.param(
            ["--expect", "840", "--step", "9", "--", "true"], "expected one of 0 (clerk)", id="no step"
        ),
        pytest.param(
            ["--check", "'grep", "--", "true"],
            "a command whose quotation marks are closed",
            id="open quotation",
        ),
    ],
)
async def test_wrong_usage_starts_nothing(tmp_path: Path, options: list[str], expected: str) -> None:
    code, _, err = await ran_experiment(tmp_path, str(recorded(tmp_path)), *options)
    assert (code, expected in err) == (2, True), err


OFFERING: Final = WORKFLOW.replace(
    'json.dumps({"model": "m", "messages": messages})',
    'json.dumps({"model": "m", "messages": messages, "tools": TOOLS[role]})',
)
"""A workflow that offers tools which the trace does not show."""


def tools_of(**names: str) -> str:
    offered = {
        role: [{"type": "function", "function": {"name": name}} for name in named.split()]
        for role, named in names.items()
    }
    return f"TOOLS = {offered!r}\n"


async def test_tools_that_a_live_model_could_call_are_all_named_after_the_first_trial(tmp_path: Path) -> None:
    program = tmp_path / "workflow.py"
    program.write_text(tools_of(clerk="wire_money", writer="wire_money transfer_to_savings") + OFFERING)
    async with model() as url:
        options = ["--expect", "840", "--upstream", url, "--max-calls", "9", "--format", "json"]
        run = [str(recorded(tmp_path)), *options, "--", sys.executable, str(program)]
        code, out, err = await ran_experiment(tmp_path, *run)
    (final,) = [json.loads(line) for line in out.splitlines()]
    assert (code, final["decision"], final["calls"]) == (1, "not_replayable", 0), err
    assert "--allow-tool wire_money --allow-tool transfer_to_savings" in final["reason"]
    assert final["fidelity"]["served"] == 2


async def test_steps_after_which_no_such_tool_is_offered_are_tried(tmp_path: Path) -> None:
    program = tmp_path / "workflow.py"
    program.write_text(tools_of(clerk="wire_money", writer="") + OFFERING)
    async with model() as url:
        options = ["--expect", "840", "--upstream", url, "--max-calls", "99", "--format", "json"]
        run = [str(recorded(tmp_path)), *options, "--", sys.executable, str(program)]
        code, out, err = await ran_experiment(tmp_path, *run)
    *_, final = [json.loads(line) for line in out.splitlines()]
    assert (code, final["decision"], final["step"]) == (0, "refuted", 1), err
    assert "not tried: step 0, because the live model may call `wire_money`" in final["reason"]


def with_tool(place: Path, name: str) -> None:
    """Add an execution of a tool to a recorded run."""
    trace = json.loads(place.read_text())
    executed = span(3, "clerk", "", "")
    told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    executed["attributes"] = [attribute(key, value) for key, value in told.items()]
    trace["resourceSpans"][0]["scopeSpans"][0]["spans"].append(executed)
    place.write_text(json.dumps(trace))


async def test_the_treatment_of_each_tool_is_shown_before_the_first_trial(tmp_path: Path) -> None:
    place = recorded(tmp_path)
    with_tool(place, "send_invoice")
    options = ["--expect", "840", "--max-calls", "9", "--http-tool", "send_invoice=INVOICE_API"]
    asked = [str(place), *options, "--format", "json"]
    code, out, err = await ran_experiment(tmp_path, *asked, "--dry-run", *command(tmp_path))
    (forecast,) = [json.loads(line) for line in out.splitlines()]
    (tool,) = forecast["tools"]
    assert (code, tool["name"], tool["certain"]) == (0, "send_invoice", False)
    assert "really runs in the first trial if the workflow takes the address from elsewhere" in tool["fate"]
    assert (forecast["dry_run"], forecast["calls"], forecast["steps"]) == (True, 2, [0, 1])
    code, out, err = await ran_experiment(tmp_path, *asked, *command(tmp_path))
    told, first = err.splitlines()[:2]
    assert told == f"tool: send_invoice {tool['fate']}"
    assert first.startswith("trial 1")
    assert code == 1


async def test_a_dry_run_says_what_would_be_called_and_sent(tmp_path: Path) -> None:
    options = ["--expect", "840", "--upstream", "http://127.0.0.1:1", "--dry-run"]
    code, out, _ = await ran_experiment(tmp_path, str(recorded(tmp_path)), *options, *command(tmp_path))
    assert code == 0
    program = str(tmp_path / "workflow.py")
    for part in ("2 model calls", "http://127.0.0.1:1", "leaves this machine", "limit $5", program):
        assert part in out
    assert "Command(" not in out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(["--expect", "840", "--", "./no-such-program"], "cannot be started", id="command"),
        pytest.param(["--check", "./no-such-check", "--", "true"], "--check ./no-such-check", id="check"),
        pytest.param(
            ["--expect", "840", "--url", "http://127.0.0.1:9/"], "cannot be started", id="unreachable"
        ),
    ],
)
async def test_programs_get_an_object_if_nothing_can_be_started(
    tmp_path: Path, options: list[str], expected: str
) -> None:
    asked = [str(recorded(tmp_path)), "--max-calls", "9", "--format", "json", *options]
    code, out, err = await ran_experiment(tmp_path, *asked)
    (final,) = [json.loads(line) for line in out.splitlines()]
    assert (code, final["decision"], final["final"]) == (1, "undecided", True), err
    assert expected in final["reason"]
    assert expected in err
