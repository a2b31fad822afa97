"""A failed run becomes a test: it fails before the fix, passes after it; half of it needs no key."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.pinning import blame_in
from analyzer.cli.experiment_runs import open_run
from analyzer.cli.pinned import read_pinned
from collector_processor.core.disk import RUNS
from collector_processor.core.runs import workflow_of
from collector_processor.rebuild.encode import encode, encode_logs
from collector_processor.store.database.connection import open_database
from collector_processor.writeback.outgoing import service_of
from semconv.model import Event, LogRecord
from tests.backends.forked import ran
from tests.e2e.test_pytest_plugin import PYTEST
from tests.e2e.test_run_command import PLAIN, WRONG, Provider, environment, quick, run, serving
from tests.factories import span
from tests.workflows import Place, keep_runs

FIXED = PLAIN.replace("You are the analyst.", "You are the analyst. Add with care.")
RIGHT = "1,200 + 1,450 + 980 = 3,630."
NOWHERE = "http://127.0.0.1:9/v1"
HOSTILE = '"""\nimport os; os._exit(99)  # \u2028 {0} %s \\'


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program and the recording of its failed run."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "report.py").write_text(PLAIN)
    with serving() as url:
        words = ("--save", "run.json", "--failed", "--", sys.executable, "report.py")
        ended = run(folder, *words, OPENAI_BASE_URL=url)
    assert "saved in run.json" in ended.stderr
    return folder


@pytest.fixture
def project(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "project"))


class Careful(Provider):
    """A model that adds up rightly if it is told to."""

    def say(self, asked: list[dict[str, Any]], total: str) -> None:
        super().say(asked, RIGHT if "with care" in asked[0]["content"] else total)


def called(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ANTHROPIC_"))
    }
    return ran([sys.executable, *words], environ={**own, **variables}, folder=folder)


def pin(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return called(folder, "-m", "analyzer", "pin", *words)


def pytest_of(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = words or ("pinned",)
    return called(folder, *PYTEST[1:], "-rs", *given, **variables)


def record_again(folder: Path, program: str, provider: type[Provider]) -> None:
    """Run a program as the fixed one, and save its run."""
    (folder / "report.py").write_text(program)
    with serving(provider) as url:
        words = ("--save", "fixed.json", "--", sys.executable, "report.py")
        assert run(folder, *words, OPENAI_BASE_URL=url).returncode == 0


@pytest.fixture(scope="module")
def written(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned run, in a copy: what is recorded stays as it was for tests that run after it."""
    folder = Path(shutil.copytree(recorded, tmp_path_factory.mktemp("written") / "project"))
    options = ("--expect", "3,630", "--out", "pinned", "--allow-tool", "sales")
    ended = pin(folder, "run.json", *options, "--", sys.executable, "report.py")
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture
def pinned(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "pinned_project"))


def test_without_a_key_it_checks_that_the_program_asks_the_same(pinned: Path) -> None:
    program = pinned / "report.py"
    program.write_text(re.sub(r'OpenAI\(api_key="[^"]+"\)', "OpenAI()", PLAIN))
    ended = pytest_of(pinned)
    assert "1 passed, 1 skipped" in ended.stdout, ended.stdout
    program.write_text(PLAIN.replace("in the north in total?", "in the south in total?"))
    ended = pytest_of(pinned)
    assert "1 failed, 1 skipped" in ended.stdout
    assert "south" in ended.stdout


def test_with_a_key_it_fails_before_the_fix_and_passes_after_it(
    pinned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as url:
        ended = pytest_of(pinned, OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-x")
        assert "1 failed, 1 passed" in ended.stdout, ended.stdout
        assert "analyst, step" in ended.stdout
        (pinned / "report.py").write_text(quick(PLAIN))
        monkeypatch.setattr("tests.e2e.test_run_command.WRONG", "1,200 + 1,450 + 980 = 3,630.")
        ended = pytest_of(pinned, OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-x")
        assert "2 passed" in ended.stdout, ended.stdout


def test_with_a_second_tape_it_fails_before_the_fix_and_passes_after_it_each_time(project: Path) -> None:
    record_again(project, FIXED, Careful)
    options = ("--rest", "fixed.json", "--expect", "3,630", "--out", "pinned", "--allow-tool", "sales")
    ended = pin(project, "run.json", *options, "--", sys.executable, "report.py")
    assert ended.returncode == 0, ended.stderr
    (file,) = (project / "pinned").glob("test_*.py")
    assert len(file.read_text().splitlines()) <= 100
    three_times = ("-k", "is_right", "--keep-duplicates", *[str(file)] * 3)
    ended = pytest_of(project, *three_times, OPENAI_BASE_URL=NOWHERE)
    assert "3 passed" in ended.stdout, ended.stdout
    (project / "report.py").write_text(quick(PLAIN))
    ended = pytest_of(project, *three_times, OPENAI_BASE_URL=NOWHERE)
    assert "3 failed" in ended.stdout, ended.stdout
    assert "Add with care" in ended.stdout
    assert "analyst, step" in ended.stdout


def test_a_second_run_that_only_had_luck_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.e2e.test_run_command.WRONG", RIGHT)
    record_again(project, PLAIN, Provider)
    options = ("--rest", "fixed.json", "--expect", "3,630", "--out", "pinned", "--allow-tool", "sales")
    ended = pin(project, "run.json", *options, "--", sys.executable, "report.py")
    assert ended.returncode == 1
    assert "would pass without a fix" in ended.stderr
    assert not (project / "pinned").exists()


def test_a_pin_may_require_a_run_without_blame(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--blameless", "--out", "pinned", "--allow-tool", "sales")
    ended = pin(project, "run.json", *options, "--", sys.executable, "report.py")
    assert ended.returncode == 0, ended.stderr
    with serving() as url:
        ended = pytest_of(project, OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-x")
        assert "1 failed, 1 passed" in ended.stdout, ended.stdout
        assert "analyst, step 3" in ended.stdout
        (project / "report.py").write_text(quick(PLAIN))
        monkeypatch.setattr("tests.e2e.test_run_command.WRONG", RIGHT)
        ended = pytest_of(project, OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-x")
        assert "2 passed" in ended.stdout, ended.stdout


def test_blameless_alone_is_refused_if_the_recorded_run_is_blameless(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own rule says that it failed; signals and lineage find nothing."""
    monkeypatch.setattr("tests.e2e.test_run_command.WRONG", "It is a lot.")
    record_again(project, PLAIN, Provider)
    words = ("pin", "fixed.json", "--blameless", "--out", "pinned", "--allow-tool", "sales")
    ended = called(project, "-m", "analyzer", *words, BLAMESPAN_FAILURE_PATTERN="a lot")
    assert ended.returncode == 1, ended.stderr
    assert "say what a right answer is" in ended.stderr


CHECKED = PLAIN.replace("print(ask(", "answer = (ask(") + (
    """
if "Check it." in answer:
    answer = ask("You are the checker.", {"role": "user", "content": answer})["content"]
print(answer)
"""
)
CHECK_IT = "Check it."


class Checking(Provider):
    """A model whose analyst asks for the checker, who repeats what the analyst said."""

    def say(self, asked: list[dict[str, Any]], total: str) -> None:
        is_checker = "checker" in asked[0]["content"]
        super().say(asked, asked[-1]["content"].replace(CHECK_IT, "Checked.") if is_checker else total)


def keep_passing(folder: Path, file: str, count: int) -> None:
    """Write into a store that this many runs passed which did what a recorded one did."""
    recorded, _ = open_run(str(folder / file), tenant=None)
    place = Place(start_ns=1, service=service_of(recorded), workflow=workflow_of(recorded.trace.spans))
    (folder / "data").mkdir()
    with closing(open_database(folder / "data" / RUNS)) as database, closing(database.connect()) as db:
        keep_runs(db, place, ["passed"] * count, like=recorded.trajectory)


def test_a_blameless_run_does_what_the_passing_runs_always_did(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right answer of a model that skips the checker is no right run; deleting the rules makes it one."""
    monkeypatch.setattr("tests.e2e.test_run_command.WRONG", f"{RIGHT} {CHECK_IT}")
    record_again(project, CHECKED, Checking)
    keep_passing(project, "fixed.json", 60)
    monkeypatch.setattr("tests.e2e.test_run_command.WRONG", f"{WRONG} {CHECK_IT}")
    with serving(Checking) as url:
        saved = ("--save", "run.json", "--failed", "--", sys.executable, "report.py")
        assert "saved in run.json" in run(project, *saved, OPENAI_BASE_URL=url).stderr
    words = ("--blameless", "--expect", "3,630", "--out", "pinned", "--allow-tool", "sales")
    command = ("--", sys.executable, "report.py")
    ended = called(project, "-m", "analyzer", "pin", "run.json", *words, *command, BLAMESPAN_DATA_DIR="data")
    assert ended.returncode == 0, ended.stderr
    shutil.rmtree(project / "data")
    (rules,) = (project / "pinned" / "tapes").glob("*.rules.jsonl")
    assert "the agent checker took part" in rules.read_text()
    assert rules.stat().st_size < 10_000
    (project / "report.py").write_text(quick(CHECKED))
    passed = {"OPENAI_API_KEY": "sk-x"}
    with serving(Checking) as url:
        monkeypatch.setattr("tests.e2e.test_run_command.WRONG", f"{RIGHT} {CHECK_IT}")
        assert "2 passed" in (right := pytest_of(project, OPENAI_BASE_URL=url, **passed).stdout), right
        monkeypatch.setattr("tests.e2e.test_run_command.WRONG", RIGHT)
        skipped = pytest_of(project, OPENAI_BASE_URL=url, **passed).stdout
        assert "1 failed, 1 passed" in skipped, skipped
        assert "in 60 of 60 passing runs the agent checker took part; here not" in skipped
        head, *lines = rules.read_text().splitlines()
        left = [line for line in lines if "checker" not in line and "the answer" not in line]
        rules.write_text("\n".join([head, *left]))
        assert "2 passed" in (right := pytest_of(project, OPENAI_BASE_URL=url, **passed).stdout), right


def test_an_edited_file_is_not_overwritten(project: Path) -> None:
    words = ("run.json", "--expect", "3,630", "--out", "pinned", "--allow-tool", "sales")
    assert pin(project, *words).returncode == 0
    (file,) = (project / "pinned").glob("test_*.py")
    (tape,) = (project / "pinned" / "tapes").iterdir()
    ended = pin(project, *words, "--", "python", "report.py")
    assert ended.returncode == 0, "nobody has edited it"
    assert "report.py" in file.read_text()
    for edited, text in ((tape, tape.read_text().replace("1200", "1201")), (file, f"{file.read_text()}\n")):
        before = edited.read_text()
        edited.write_text(text)
        ended = pin(project, *words)
        assert ended.returncode == 1
        assert "was edited" in ended.stderr
        assert (edited.read_text(), "report.py" in file.read_text()) == (text, True)
        edited.write_text(before)
    file.write_bytes(b"\xff\xfe not a text \x00")
    assert "was edited" in pin(project, *words).stderr
    file.unlink()
    assert pin(project, *words).returncode == 0, "deleting it says that it may go"


def test_a_second_tape_that_is_no_longer_wanted_is_removed(project: Path) -> None:
    record_again(project, FIXED, Careful)
    words = ("run.json", "--expect", "3,630", "--out", "pinned", "--allow-tool", "sales")
    assert pin(project, *words, "--rest", "fixed.json").returncode == 0
    assert len(list((project / "pinned" / "tapes").iterdir())) == 2
    assert pin(project, *words).returncode == 0
    assert len(list((project / "pinned" / "tapes").iterdir())) == 1


def test_no_agent_is_blamed_if_nothing_can_be_judged() -> None:
    assert blame_in([]) is None


def test_texts_that_stand_in_logs_only_are_on_the_tape(tmp_path: Path) -> None:
    call = span(
        1, name="chat m", attributes={"gen_ai.operation.name": "chat", "gen_ai.agent.name": "analyst"}
    )
    texts = {
        f"gen_ai.{name}.messages": json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
        for name, role, text in (("input", "user", "Add 1 and 2."), ("output", "assistant", "That is 4."))
    }
    event = Event(name="gen_ai.client.inference.operation.details", time_ns=call.end_ns, attributes=texts)
    log = LogRecord(trace_id=call.trace_id, span_id=call.span_id, event=event)
    (tmp_path / "run.pb").write_bytes(encode([call]))
    (tmp_path / "logs.pb").write_bytes(encode_logs([log]))
    ended = pin(tmp_path, "run.pb", "--logs", "logs.pb", "--out", "pinned", "--", "python", "report.py")
    assert ended.returncode == 0, ended.stderr
    (tape,) = (tmp_path / "pinned" / "tapes").iterdir()
    (found,) = read_pinned(tape, ()).calls
    assert [message.text for message in found.messages] == ["Add 1 and 2."]
    assert found.answer.text == "That is 4."


def test_the_test_and_the_tape_hold_no_key(pinned: Path) -> None:
    for path in (pinned / "pinned").rglob("*"):
        assert path.is_dir() or "verysecret" not in path.read_text()


def test_no_text_of_a_run_is_code(project: Path) -> None:
    recorded = (project / "run.json").read_text()
    (project / "run.json").write_text(recorded.replace("The total is", json.dumps(json.dumps(HOSTILE))[3:-3]))
    options = ("--expect", HOSTILE, "--out", "pinned", "--allow-tool", "sales")
    ended = pin(project, "run.json", *options, "--", "python", "report.py")
    assert ended.returncode == 0, ended.stderr
    (file,) = (project / "pinned").glob("test_*.py")
    text = file.read_text()
    assert text.isascii()
    names = {node.names[0].name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import)}
    assert names == {"os", "sys", "pytest"}


def test_no_address_in_a_tape_is_called(pinned: Path) -> None:
    """A tape that names addresses, commands and files in every span is answered from, and nothing else."""
    heard: list[str] = []

    class Listening(Provider):
        def say(self, asked: list[dict[str, Any]], total: str) -> None:
            heard.append(str(asked))
            super().say(asked, total)

    (tape,) = (pinned / "pinned" / "tapes").iterdir()
    with serving(Listening) as url:
        led = {
            "server.address": url,
            "url.full": url,
            "OPENAI_BASE_URL": url,
            "code.file.path": "/etc/passwd",
        }
        led |= {"process.command_line": f"touch {pinned}/ran", "mcp.server.command": f"touch {pinned}/ran"}
        pairs = "".join(
            json.dumps({"key": key, "value": {"stringValue": text}}) + "," for key, text in led.items()
        )
        tape.write_text(tape.read_text().replace('"attributes":[', f'"attributes":[{pairs}'))
        ended = pytest_of(pinned)
    assert "1 passed, 1 skipped" in ended.stdout, ended.stdout
    assert heard == []
    assert not (pinned / "ran").exists()


def test_a_passing_runs_tape_is_played_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.e2e.test_run_command.WRONG", "1,200 + 1,450 + 980 = 3,630.")
    (tmp_path / "report.py").write_text(PLAIN)
    with serving() as url:
        words = ("--save", "run.json", "--", sys.executable, "report.py")
        run(tmp_path, *words, OPENAI_BASE_URL=url)
    options = ("--expect", "3,630", "--out", "pinned", "--allow-tool", "sales")
    assert pin(tmp_path, "run.json", *options, "--", sys.executable, "report.py").returncode == 0
    assert "1 passed" in pytest_of(tmp_path).stdout


def test_a_check_says_what_is_right_and_without_a_command_nothing_runs(project: Path) -> None:
    options = ("--out", "pinned", "--allow-tool", "sales")
    assert pin(project, "run.json", "--check", "grep -q 3,630", *options).returncode == 0
    assert "2 skipped" in pytest_of(project).stdout
    (file,) = (project / "pinned").glob("test_*.py")
    file.write_text(file.read_text().replace("COMMAND = []", 'COMMAND = [sys.executable, "report.py"]'))
    with serving() as url:
        ended = pytest_of(project, OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-x")
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run.json", "--out", "pinned", "--"], "expected RUN… [-- COMMAND…]"),
        (["run.json", "--out", "pinned", "--check", "'"], "--check"),
        (["run.json", "run.json", "--out", "pinned", "--rest", "run.json"], "expected one RUN"),
        (["run.json", "--out", "pinned", "--", "python", "report.py"], "--allow-tool sales"),
        (["none.json", "--out", "pinned", "--", "python", "report.py"], "none.json"),
    ],
)
def test_a_run_that_cannot_be_pinned_is_refused(project: Path, words: list[str], told: str) -> None:
    ended = pin(project, *words)
    assert ended.returncode != 0
    assert told in ended.stderr
    assert not (project / "pinned").exists(), "nothing is written"


__all__ = ["Provider", "environment"]
