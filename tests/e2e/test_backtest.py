"""Today's code on yesterday's failed runs: a right fix, a useless one, and one that moves the failure."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import yaml

from analyzer.analyses.composition import open_analyst, open_span_keeper
from analyzer.cli.recorded_runs import load_runs
from analyzer.inquiry.verdict import to_json
from analyzer.issues.beside_verdicts import AnalysedRun
from analyzer.issues.recurrence import IssueState
from collector_processor.core.records import Commit, RunFacts
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import NO_TENANT
from collector_processor.rebuild.encode import encode
from collector_processor.settings import load_settings
from collector_processor.store.small_tables import PackedSpans, ProofRows
from tests.e2e.test_run_command import SALES, blamespan, environment, run
from tests.issues import START, Bench
from tests.loopback import serve_http
from tests.verdicts import stored

PROGRAM = """
import json, os, urllib.request
def ask(instructions, *messages):
    asked = {"model": "m", "messages": [{"role": "system", "content": instructions}, *messages]}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-verysecret1234567890abcdef"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(asked).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]
task = {"role": "user", "content": "How many units did we sell in the north in total?"}
researcher, analyst, writer = "You are the researcher.", "You are the analyst.", "You are the writer."
wanted = ask(researcher, task)
result = {"role": "tool", "tool_call_id": "c1", "content": '{"units": [1200, 1450, 980]}'}
found = ask(researcher, task, wanted, result)
total = ask(analyst, {"role": "user", "content": found["content"]})
print(ask(writer, {"role": "user", "content": total["content"]})["content"])
"""
RIGHT, WRONG = "1,200 + 1,450 + 980 = 3,630", "1,200 + 1,450 + 980 = 3,530"
CAREFUL: Final = ("You are the analyst.", "You are the analyst. Add carefully.")
PAGE: Final = (Path(__file__).parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")
_NUMBERS = count()
Ended: TypeAlias = subprocess.CompletedProcess[str]


class Provider(BaseHTTPRequestHandler):
    """A model that adds up wrongly unless it is told to be careful; every answer is another."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = self.said(asked["messages"])
        body = json.dumps(
            {
                "id": "x", "object": "chat.completion", "created": 0, "model": asked["model"],
                "choices": [{"index": 0, "message": said, "finish_reason": "stop"}],
            }
        ).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def said(self, asked: list[Mapping[str, Any]]) -> dict[str, Any]:
        prompt, last = asked[0]["content"], asked[-1]["content"]
        if "researcher" in prompt:
            has_result = asked[-1]["role"] == "tool"
            said = {"content": "1,200, 1,450 and 980 units."} if has_result else {"tool_calls": [SALES]}
        elif "analyst" in prompt:
            total = RIGHT if "carefully" in prompt else WRONG
            said = {"content": f"{total} (answer {next(_NUMBERS)})."}
        else:
            figures = re.sub(r"3,630", "3,360", last) if "sloppy" in prompt else last
            said = {"content": f"The total: {figures}"}
        return {"role": "assistant", **said}


@contextmanager
def serving() -> Iterator[str]:
    with serve_http(Provider) as address:
        yield f"{address}/v1"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, its failed run, and a run of it that passed."""
    folder = tmp_path_factory.mktemp("recorded")
    record_runs(folder)
    return folder


def record_runs(folder: Path) -> None:
    """Write the program, ``run.json`` of a failed run, and ``good.json`` of one that passed."""
    with serving() as url:
        for name, program in (("good", PROGRAM.replace(*CAREFUL)), ("run", PROGRAM)):
            (folder / "report.py").write_text(program)
            words = ("--save", f"{name}.json", "--", sys.executable, "report.py")
            ended = run(folder, *(("--failed",) if name == "run" else ()), *words, OPENAI_BASE_URL=url)
            assert "saved in" in ended.stderr, ended.stderr


@pytest.fixture
def project(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "project"))


def change(project: Path, *pairs: tuple[str, str]) -> None:
    program = PROGRAM
    for old, new in pairs:
        assert old in program
        program = program.replace(old, new)
    (project / "report.py").write_text(program)


def backtest(project: Path, *words: str, runs: Sequence[str] = ("run.json",), data: str = "") -> Ended:
    program = ("--", sys.executable, "report.py")
    options = ("--expect", "3,630", "--allow-tool", "sales", "--max-calls", "150", "--parallel", "2")
    store = {"BLAMESPAN_DATA_DIR": data} if data else {}
    with serving() as url:
        asked = ("backtest", *runs, *options, *words, *program)
        return blamespan(project, *asked, OPENAI_BASE_URL=url, **store)


def document(ended: Ended) -> dict[str, Any]:
    assert ended.stdout, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["exit_code"] == ended.returncode
    return found


def test_a_right_fix_is_proved_and_a_passing_run_still_passes(project: Path) -> None:
    change(project, CAREFUL)
    found = document(backtest(project, "--format", "json", runs=("run.json", "good.json")))
    assert found["verdict"] == "fixed", found
    (state,) = found["runs"]
    assert (state["agent"], state["compared"], state["today"]["invalid"]) == ("analyst", True, 0)
    assert state["today"]["successes"] == state["today"]["n"] > 2
    assert state["yesterday"]["successes"] == 0
    assert (found["passing"]["held"], found["passing"]["broken"]) == (1, 0)


def test_a_useless_fix_is_not_fixed(project: Path) -> None:
    change(project, ("You are the analyst.", "You are the analyst. Be nice."))
    found = document(backtest(project, "--format", "json"))
    assert (found["verdict"], found["exit_code"]) == ("not_fixed", 1)
    (state,) = found["runs"]
    assert state["compared"]
    assert state["judged"] > 0
    assert state["moved"] == 0


def test_a_fix_that_moves_the_failure_to_another_agent_is_reported(project: Path) -> None:
    change(project, CAREFUL, ("You are the writer.", "You are the writer. Be sloppy."))
    found = document(backtest(project, "--format", "json"))
    assert (found["verdict"], found["exit_code"]) == ("moved", 1), found
    (state,) = found["runs"]
    assert state["moved"] == state["judged"] == state["today"]["n"]


def test_a_changed_prompt_of_an_earlier_agent_still_plays_and_is_counted(project: Path) -> None:
    change(project, CAREFUL, ("You are the researcher.", "You are the researcher of a large company."))
    found = document(backtest(project, "--format", "json"))
    assert found["verdict"] == "fixed", found
    assert found["runs"][0]["masked"] == 3, "two calls of the researcher, and the decisive one"


def test_another_task_is_not_replayable_and_costs_nothing(project: Path) -> None:
    change(project, ("in the north", "in the south"))
    found = document(backtest(project, "--format", "json"))
    assert (found["verdict"], found["exit_code"], found["live_calls"]) == ("not_replayable", 3, 0)
    assert "south" in found["runs"][0]["not_replayable"]


def test_without_a_visible_change_only_yesterdays_program_proves(project: Path) -> None:
    """The analyst's answer is put right by code, after the decisive request."""
    shutil.copy(project / "report.py", project / "old.py")
    change(project, ('total["content"]}', 'total["content"].replace("3,530", "3,630")}'))
    found = document(backtest(project, "--format", "json", "--trials", "8"))
    assert (found["verdict"], found["exit_code"]) == ("no_longer_fails", 3)
    assert found["runs"][0]["yesterday"] is None
    baseline = ("--baseline", f"{sys.executable} old.py")
    found = document(backtest(project, "--format", "json", *baseline))
    assert (found["verdict"], found["exit_code"]) == ("fixed", 0)


def test_a_fix_that_breaks_a_passing_run_fails_the_backtest(project: Path) -> None:
    change(project, CAREFUL, ('total["content"]}', 'total["content"].replace("3,630", "x")}'))
    ended = backtest(project, "--format", "markdown", "--trials", "3", runs=("run.json", "good.json"))
    assert ended.returncode == 1
    assert "1 passing run broke" in ended.stdout
    assert ended.stdout.startswith("### blamespan backtest: ")


def test_a_used_up_budget_ends_the_backtest_and_is_reported(project: Path) -> None:
    change(project, CAREFUL)
    ended = backtest(project, "--max-calls", "3")
    assert ended.returncode == 3
    assert "--max-calls are used up" in " ".join(ended.stdout.split())


@pytest.mark.parametrize(
    ("runs", "words", "told"),
    [
        (("good.json",), (), "expected a failed run"),
        (("none.json",), (), "none.json"),
        (("run.json",), ("--baseline", "'"), "--baseline"),
        (("run.json",), ("--passing", "3"), "--passing"),
        (("run.json",), ("--resolve",), "--resolve"),
    ],
)
def test_wrong_usage_is_refused(
    project: Path, runs: tuple[str, ...], words: tuple[str, ...], told: str
) -> None:
    ended = backtest(project, *words, runs=runs)
    assert ended.returncode == 2, ended.stderr
    assert told in ended.stderr


def kept(project: Path, names: Mapping[str, str]) -> str:
    """Keep recorded runs in a store, with how each ended, and return the id of the failed ones' issue."""
    (project / "data").mkdir()
    bench, settings = Bench(folder=project / "data"), load_settings({}, directory=project)
    analyst, keeper = open_analyst(settings), open_span_keeper(settings)
    assert keeper.redactor is not None
    for at, (name, said) in enumerate(names.items(), start=1):
        (one,) = load_runs(project / f"{name}.json", ())
        assert one.trace is not None
        found = asyncio.run(analyst.analyse(one.trajectory))
        document = to_json(found.attribution, one.trajectory)
        spans, run_id = one.trace.spans, one.trajectory.run_id
        (packed,) = keeper.pack([encode(spans)], (), [(spans, keeper.redactor.for_run())], [True])
        assert packed is not None
        verdict = stored(
            run_id=run_id, failure_id=name, status=document["status"], agent=document["agent"],
            step=document["step"], service="sales", decided_ns=START + at, document=json.dumps(document),
        )  # fmt: skip
        bench.beside.add(AnalysedRun(noted=bench.noted(NO_TENANT, one.trajectory, found), packed=None))
        bench.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
        place = (NO_TENANT, run_id)
        with bench.db.transaction():
            row = PackedSpans(tenant=NO_TENANT, run_id=run_id, is_failure=said == "failed", packed=packed)
            bench.verdicts.spans.keep_all([row], START)
            bench.verdicts.totals.total([(*place, RunTotals(workflow="report", steps=4))])
            facts = RunFacts(version="v", release="", elements=b"", invariants=b"")
            bench.verdicts.history.note([(*place, said, facts)])
    (issue,) = bench.all(START)
    bench.close()
    return issue.fingerprint.id


def test_an_issue_is_backtested_with_passing_runs_of_its_workflow(project: Path) -> None:
    issue = kept(project, {"run": "failed", "good": "passed"})
    change(project, CAREFUL)
    options = ("--format", "json", "--passing", "5", "--resolve")
    ended = backtest(project, *options, runs=(issue[:8],), data="data")
    found = document(ended)
    assert found["verdict"] == "fixed", found
    assert [state["agent"] for state in found["runs"]] == ["analyst"]
    assert (found["passing"]["held"], found["passing"]["broken"]) == (1, 0)
    bench = Bench(folder=project / "data")
    assert [one.state for one in bench.all(time.time_ns())] == [IssueState.RESOLVED]
    (proof,) = ProofRows(bench.db).of(NO_TENANT, issue)
    assert (proof.kind, proof.service) == ("backtest", "sales")
    assert proof.fields["head"].startswith("Fixed (proved)")
    assert proof.fields["command"] == [sys.executable, "report.py"]
    bench.close()


WORKFLOW: Final = yaml.load(
    re.search(r"```yaml\n(# .github/workflows/backtest.yml\n.*?)```", PAGE, re.DOTALL)[1],  # type: ignore[index]
    yaml.BaseLoader,  # YAML 1.1 reads the key `on` as true
)
REPORT = (
    PROGRAM.partition("task =")[0].replace('"m"', '"gpt-4o-mini"')
    + """
task = {"role": "user", "content": "What are 1,200, 1,450 and 980 units in total?"}
total = ask("You are the analyst.", task)
print(ask("You are the writer.", {"role": "user", "content": total["content"]})["content"])
"""
)


def steps_of(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [step for step in job["steps"] if "run" in step]


def test_the_action_of_the_page_is_one_that_github_reads() -> None:
    """Not run by GitHub: its parts are those of GitHub's reference, and forks' requests get no key."""
    assert set(WORKFLOW) == {"name", "on", "jobs"}
    assert WORKFLOW["on"] == "pull_request", "pull_request_target would give a fork's code the key"
    (job,) = WORKFLOW["jobs"].values()
    assert set(job) == {"if", "runs-on", "permissions", "steps"}
    assert "head.repo.full_name == github.repository" in job["if"]
    assert job["permissions"] == {"contents": "read", "pull-requests": "write"}
    for step in job["steps"]:
        assert set(step) <= {"uses", "with", "run", "env", "if"}
        assert ("uses" in step) != ("run" in step)
        assert "github.event" not in step.get("run", "").replace("github.event.number", ""), "only a number"
    install, tested, comment = steps_of(job)
    assert install["run"].startswith("pip install -r requirements.txt")
    assert (comment["if"], "if" in tested) == ("always()", False)
    assert "[project.optional-dependencies]" in (
        project := Path(__file__).parents[2].joinpath("pyproject.toml").read_text()
    )
    assert re.search(r"^all = ", project, re.MULTILINE)


@pytest.mark.parametrize(
    ("prompt", "code", "told"),
    [("Add carefully.", 0, "Fixed (proved)"), ("Be nice.", 1, "Not fixed")],
    ids=["a right fix", "a useless one"],
)
def test_the_steps_of_the_action_run(tmp_path: Path, prompt: str, code: int, told: str) -> None:
    """The lines run in the shell that GitHub uses, on a runner whose ``gh`` only says what it was given."""
    _, tested, comment = steps_of(WORKFLOW["jobs"]["backtest"])
    folders = {name: tmp_path / "tests" / name for name in ("failed", "passed")}
    (tmp_path / "tests" / "check.py").parent.mkdir()
    (tmp_path / "tests" / "check.py").write_text("import sys; sys.exit('3,630' not in sys.stdin.read())")
    write_commands(tmp_path / "bin")
    with serving() as url:
        for name, agent in (("failed", "analyst."), ("passed", "analyst. Add carefully.")):
            folders[name].mkdir()
            (tmp_path / "report.py").write_text(REPORT.replace("analyst.", agent))
            said = ("--failed",) if name == "failed" else ()
            words = (*said, "--save", f"tests/{name}/run.json", "--", sys.executable, "report.py")
            assert "saved in" in run(tmp_path, *words, OPENAI_BASE_URL=url).stderr
        (tmp_path / "report.py").write_text(REPORT.replace("analyst.", f"analyst. {prompt}"))
        ended = in_shell(tmp_path, tested, OPENAI_BASE_URL=url)
    report = (tmp_path / "backtest.md").read_text()
    assert ended.returncode == code, ended.stderr + report
    assert told in report
    assert in_shell(tmp_path, comment).returncode == 0
    assert (tmp_path / "gh.txt").read_text().split() == ["pr", "comment", "7", "--body-file", "backtest.md"]


def write_commands(folder: Path) -> None:
    """Write the commands that the runner has: ours, Python, and GitHub's own, which sends nothing."""
    folder.mkdir()
    lines = {
        "blamespan": f'exec {sys.executable} -m analyzer "$@"',
        "python": f'exec {sys.executable} "$@"',
        "gh": 'echo "$@" > gh.txt',
    }
    for name, line in lines.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)


def in_shell(folder: Path, step: Mapping[str, Any], **variables: str) -> Ended:
    """Run a step's lines as GitHub does, with its expressions filled in."""
    values = {"secrets.OPENAI_API_KEY": "sk-x", "github.event.number": "7", "github.token": "none"}

    def filled(text: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: values[found[1]], text)

    (folder / "step.sh").write_text(filled(step["run"]))
    own = {name: filled(text) for name, text in step.get("env", {}).items()}
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "step.sh"],
        cwd=folder, env=environment(**own, **variables, PATH=path), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
