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

import pytest

from tests.e2e.test_run_command import PLAIN, Provider, environment, run, serving

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


def pytest_of(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return called(folder, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "pinned", **variables)


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
        (["run.json", "--out", "pinned", "--", "python", "report.py"], "--allow-tool sales"),
        (["none.json", "--out", "pinned", "--", "python", "report.py"], "none.json"),
    ],
)
def test_what_cannot_be_pinned_is_told(project: Path, words: list[str], told: str) -> None:
    ended = pin(project, *words)
    assert ended.returncode != 0
    assert told in ended.stderr
    assert not (project / "pinned").exists(), "nothing is written"


__all__ = ["Provider", "environment"]
