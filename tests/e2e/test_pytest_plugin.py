"""A test suite of an agent program, with the plugin on and off: who broke it, in report, XML and files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends.forked import afresh, ran
from tests.e2e.test_run_command import INSTRUMENTED, PLAIN, serving

PYTEST = (
    *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
    *("-p", "no:schemathesis", "-p", "no:inline_snapshot"),  # they take half of the time of all imports
    *("-p", "no:randomly"),  # tests read the output in the order of the file
    # A forked process has imported our package before pytest could rewrite the asserts in its plugin.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
Ended = subprocess.CompletedProcess[str]
SUITE = """
import json, pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

@pytest.fixture(scope="session", autouse=True)
def provider():
    trace.set_tracer_provider(TracerProvider())

def call(agent, said, heard=""):
    with trace.get_tracer("desk").start_as_current_span(f"chat {agent}") as span:
        span.set_attribute("gen_ai.operation.name", "chat")
        span.set_attribute("gen_ai.agent.name", agent)
        for name, role, text in (("input", "user", heard), ("output", "assistant", said)):
            parts = [{"type": "text", "content": text}]
            span.set_attribute(f"gen_ai.{name}.messages", json.dumps([{"role": role, "parts": parts}]))
    return said

def quote(price):
    with trace.get_tracer("desk").start_as_current_span("invoke_workflow sales") as span:
        span.set_attribute("gen_ai.operation.name", "invoke_workflow")
        with trace.get_tracer("desk").start_as_current_span("execute_tool prices") as tool:
            tool.set_attribute("gen_ai.operation.name", "execute_tool")
            tool.set_attribute("gen_ai.agent.name", "researcher")
            tool.set_attribute("gen_ai.tool.name", "prices")
            tool.set_attribute("gen_ai.tool.call.result", "one seat: 121 EUR")
        first = call("researcher", "One seat costs 121 EUR.")
        return call("analyst", f"30 * 121 = {price} EUR", first)
"""
TESTS = """
from conftest import quote
import asyncio, pytest

def test_right():
    assert "3630" in quote(3630)

@pytest.mark.parametrize("seats", [30])
def test_wrong(seats):
    assert "3630" in quote(3360)

def test_wrong_in_a_loop():
    async def main():
        assert "3630" in quote(3360)
    asyncio.run(main())

def test_without_agents():
    assert 1 == 2
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(SUITE)
    (tmp_path / "test_desk.py").write_text(TESTS)
    return tmp_path


def run(suite: Path, *options: str, start: Callable[..., Ended] = ran, **variables: str) -> Ended:
    return start([*PYTEST, *options], environ=os.environ | variables, folder=suite)


def test_a_failing_test_says_who_broke_it(suite: Path) -> None:
    said = run(suite, "--blamespan", "--junitxml=junit.xml", start=afresh)
    assert "3 failed, 1 passed" in said.stdout
    assert said.stdout.count("blamespan: who broke it") == 2
    assert len(re.findall(r"^analyst, step 2 \(\d\d%\): .*3360", said.stdout, re.MULTILINE)) == 2
    assert "blamespan: 1 failing test ended no span of an agent" in said.stdout
    xml = (suite / "junit.xml").read_text()
    assert xml.count('<property name="blamespan.agent" value="analyst"') == 2


SEVERAL = """
from conftest import quote

def test_the_second_is_wrong():
    assert "3630" in quote(3630)
    assert "3630" in quote(3360)

def test_the_first_is_wrong():
    quote(3360)
    assert "3360" in quote(3630)
"""


def test_of_several_runs_the_last_failed_and_others_only_if_their_steps_say_so(suite: Path) -> None:
    (suite / "test_desk.py").write_text(SEVERAL)
    said = run(suite, "--blamespan")
    second, first = re.split("_+ test_the_first_is_wrong _+", said.stdout)
    assert second.count("blamespan: who broke it") == 1
    assert first.count("blamespan: who broke it") == 2
    assert "3360" in first[first.index("blamespan: who broke it") :]


def test_without_the_option_nothing_changes(suite: Path) -> None:
    said = run(suite)
    assert "3 failed, 1 passed" in said.stdout
    assert "blamespan" not in said.stdout


def test_processes_of_xdist_pass_their_verdicts_on(suite: Path) -> None:
    said = run(suite, "--blamespan", "-n", "2")
    assert said.stdout.count("blamespan: who broke it") == 2
    assert "blamespan: 1 failing test ended no span of an agent" in said.stdout


def test_the_configuration_switches_it_on(suite: Path) -> None:
    (suite / "pytest.ini").write_text("[pytest]\nblamespan = true\n")
    assert run(suite).stdout.count("blamespan: who broke it") == 2


def test_runs_are_saved_and_can_be_judged_again(suite: Path) -> None:
    run(suite, "--blamespan-save", "runs")
    files = sorted(path.name for path in (suite / "runs").iterdir())
    assert files == [f"test_desk.py_test_{name}.json" for name in ("right", "wrong_30_", "wrong_in_a_loop")]
    command = (sys.executable, "-m", "analyzer", "attribute", "--failed", "--format", "json")
    said = ran([*command, "runs/test_desk.py_test_wrong_30_.json"], environ=os.environ, folder=suite)
    assert json.loads(said.stdout)["agent"] == "analyst"


def test_a_folder_that_cannot_be_written_fails_no_test(suite: Path) -> None:
    (suite / "runs").write_text("a file")
    said = run(suite, "--blamespan-save", "runs", "-k", "right")
    assert "1 passed" in said.stdout
    assert "blamespan: test_desk.py::test_right: FileExistsError" in said.stdout
    assert said.returncode == 0


REPEATED = """
import itertools, pytest
from conftest import call, quote

runs, rooms = itertools.count(), []

@pytest.fixture(scope="module")
def room():
    rooms.append("made")
    yield rooms
    print("rooms made:", len(rooms))

@pytest.fixture
def place(room):
    return room.append("place") or len(room)

@pytest.mark.blamespan(repeat=10, at_least={at_least})
def test_mostly_right(place):
    assert place == next(runs) % 10 + 2  # a fixture of the test is made for each run, one of the module once
    assert "3630" in quote(3360 if place % 3 == 0 else 3630)

def test_next(room):
    assert len(room) in (2, 11)
"""


@pytest.mark.parametrize(("at_least", "ended"), [("0.7", "2 passed"), ("0.8", "1 failed, 1 passed")])
def test_a_marked_test_runs_repeatedly_and_says_how_sure_its_share_is(
    suite: Path, at_least: str, ended: str
) -> None:
    (suite / "test_desk.py").write_text(REPEATED.replace("{at_least}", at_least))
    said = run(suite, "--blamespan", "--strict-markers", "-rA", "--junitxml=junit.xml", "-p", "no:randomly")
    assert ended in said.stdout, said.stdout
    assert "7 of 10 runs passed (40% to 89%, 95 % interval)" in said.stdout
    assert "3 of 3 failures: analyst, step 2" in said.stdout
    assert said.stdout.count("rooms made: 11") == 1
    assert ("if each run passes 80% of the time, 32.2% of such tests fail so" in said.stdout) is (
        at_least == "0.8"
    )
    assert (suite / "junit.xml").read_text().count('name="blamespan.agent" value="analyst"') == 1


def test_a_budget_of_model_calls_ends_the_repetition_and_the_runs_made_decide(suite: Path) -> None:
    (suite / "test_desk.py").write_text(
        REPEATED.replace("{at_least}", "0.5").replace("(2, 11)", "range(3, 11)")
    )
    said = run(suite, "--blamespan", "--blamespan-budget", "4", "-rA", "-p", "no:randomly")
    assert "2 passed" in said.stdout, said.stdout
    made = re.search(r"(\d+) of 10 runs made: the budget of 4 model calls is used up", said.stdout)
    assert made, said.stdout
    assert f" of {made[1]} runs passed" in said.stdout
    assert 1 <= int(made[1]) < 10
    assert said.stdout.count("rooms made: ") == 1, "the module's fixture ends with the test"


def test_a_budget_says_when_it_sees_no_call_and_refuses_nonsense(suite: Path) -> None:
    (suite / "test_desk.py").write_text(ENDED_EARLY)
    said = run(suite, "--blamespan", "--blamespan-budget", "1", "-k", "fresh")
    assert "3 of 3 runs passed" not in said.stdout
    assert "test_fresh: no model call was seen, and --blamespan-budget counts none" in said.stdout
    assert "--blamespan-budget: expected" in run(suite, "--blamespan", "--blamespan-budget", "0").stderr


def test_without_the_option_a_marked_test_runs_once(suite: Path) -> None:
    (suite / "test_desk.py").write_text(REPEATED.replace("{at_least}", "1"))
    said = run(suite, "--strict-markers", "-p", "no:randomly")
    assert "2 passed" in said.stdout
    assert "runs passed" not in said.stdout


ENDED_EARLY = """
import pytest

@pytest.fixture(scope="module")
def wide():
    yield
    print("wide ended")

@pytest.fixture
def broken(wide):
    assert 1 == 2

@pytest.mark.blamespan(repeat=3)
def test_broken_fixture(broken): pass

@pytest.mark.blamespan(repeat=3)
def test_skipped(wide): pytest.skip("not today")

def test_after(wide): pass

@pytest.mark.blamespan(repeat=3)
class TestOwnObject:
    runs = 0

    def test_fresh(self):
        assert not hasattr(self, "was_here")
        self.was_here = True

    def test_fails_then_skips(self):
        type(self).runs += 1
        if self.runs == 3:
            pytest.skip("rate limited")
        assert 1 == 2
"""


def test_a_broken_fixture_and_a_skip_end_the_repetition(suite: Path) -> None:
    (suite / "test_desk.py").write_text(ENDED_EARLY)
    said = run(suite, "--blamespan", "-rA")
    assert "1 failed, 2 passed, 1 skipped, 1 error" in said.stdout, said.stdout
    assert "0 of 2 runs passed" in said.stdout


@pytest.mark.parametrize("wrong", ["repeat=2, at_least=2", "3"])
def test_a_wrong_marker_is_refused_before_anything_runs(suite: Path, wrong: str) -> None:
    (suite / "test_desk.py").write_text(
        f"import pytest\n@pytest.mark.blamespan({wrong})\ndef test_x(): 1/0\n"
    )
    said = run(suite, "--blamespan")
    assert said.returncode == 4
    assert "expected blamespan(repeat=1 to 1000" in said.stderr + said.stdout


def test_each_run_of_a_marked_test_is_saved(suite: Path) -> None:
    (suite / "test_desk.py").write_text(REPEATED.replace("{at_least}", "0.7"))
    run(suite, "--blamespan-save", "runs", "-k", "mostly")
    assert len(list((suite / "runs").glob("*mostly_right-*.json"))) == 10


OTHERS = """
import os, runpy, subprocess, sys

def test_in_this_process(capsys):
    runpy.run_path("plain.py")
    assert "3,630" in capsys.readouterr().out

def test_in_another_process():
    ended = subprocess.run([sys.executable, "plain.py"], capture_output=True, text=True)
    assert "3,630" in ended.stdout

def test_another_process_with_telemetry():
    subprocess.run([sys.executable, "instrumented.py"], check=True)
    assert 1 == 2

def test_right():
    assert "127.0.0.1" in os.environ["OPENAI_BASE_URL"]
"""


def test_programs_without_telemetry_and_subprocesses_are_seen(suite: Path) -> None:
    (suite / "plain.py").write_text(PLAIN)
    (suite / "instrumented.py").write_text(INSTRUMENTED)
    (suite / "conftest.py").write_text("")
    (suite / "test_desk.py").write_text(OTHERS)
    with serving() as url:
        said = run(suite, "--blamespan-calls", "-n", "2", start=afresh, OPENAI_BASE_URL=url)
    assert "3 failed, 1 passed" in said.stdout, said.stdout
    assert len(re.findall(r"^analyst, step \d \(\d\d%\): .*3,530", said.stdout, re.MULTILINE)) == 3


FORKED = """
import os, pytest, subprocess, sys

def test_of_a_process_that_forks():
    child = os.fork()
    if not child:
        pytest.exit("done in the child", returncode=0)
    assert os.waitpid(child, 0)[1] == 0
    subprocess.run([sys.executable, "instrumented.py"], check=True)
    assert 1 == 2
"""


def test_a_forked_process_ends_its_session_without_the_recorder(suite: Path) -> None:
    """A child of ``os.fork`` has the plugin and not its thread: it used to wait for it for a minute."""
    (suite / "instrumented.py").write_text(INSTRUMENTED)
    (suite / "conftest.py").write_text("")
    (suite / "test_desk.py").write_text(FORKED)
    with serving() as url:
        said = run(suite, "--blamespan-calls", start=afresh, OPENAI_BASE_URL=url)
    assert "1 failed" in said.stdout, said.stdout
    assert re.search(r"^analyst, step \d \(\d\d%\): .*3,530", said.stdout, re.MULTILINE)
