"""A failed run becomes a test: it fails before the fix, passes after it; half of it needs no key."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli.pinned import blame_in, read_pinned
from collector_processor.rebuild.encode import encode, encode_logs
from semconv.model import Event, LogRecord
from tests.e2e.test_run_command import PLAIN, Provider, environment, run, serving
from tests.factories import span

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
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder, env={**own, **variables}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def pin(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return called(folder, "-m", "analyzer", "pin", *words)


def pytest_of(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = words or ("pinned",)
    return called(folder, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *given, **variables)


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
        monkeypatch.setattr("tests.e2e.test_run_command.WRONG", "1,200 + 1,450 + 980 = 3,630.")
        ended = pytest_of(pinned, OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-x")
        assert "2 passed" in ended.stdout, ended.stdout


def test_with_a_second_tape_it_fails_before_the_fix_and_passes_after_it_ten_times(project: Path) -> None:
    record_again(project, FIXED, Careful)
    options = ("--rest", "fixed.json", "--expect", "3,630", "--out", "pinned", "--allow-tool", "sales")
    ended = pin(project, "run.json", *options, "--", sys.executable, "report.py")
    assert ended.returncode == 0, ended.stderr
    (file,) = (project / "pinned").glob("test_*.py")
    assert len(file.read_text().splitlines()) <= 100
    ten_times = ("-k", "is_right", "--keep-duplicates", *[str(file)] * 10)
    ended = pytest_of(project, *ten_times, OPENAI_BASE_URL=NOWHERE)
    assert "10 passed" in ended.stdout, ended.stdout
    (project / "report.py").write_text(PLAIN)
    ended = pytest_of(project, *ten_times, OPENAI_BASE_URL=NOWHERE)
    assert "10 failed" in ended.stdout, ended.stdout
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


def test_a_run_may_have_to_be_blameless(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--blameless", "--out", "pinned", "--allow-tool", "sales")
    ended = pin(project, "run.json", *options, "--", sys.executable, "report.py")
    assert ended.returncode == 0, ended.stderr
    with serving() as url:
        ended = pytest_of(project, OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-x")
        assert "1 failed, 1 passed" in ended.stdout, ended.stdout
        assert "analyst, step 3" in ended.stdout
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


def test_a_tape_leads_nowhere(pinned: Path) -> None:
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


def test_of_a_run_that_did_not_fail_the_whole_tape_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
