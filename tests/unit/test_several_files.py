"""Several recorded runs on one command line: a missing or unreadable file does not stop the others."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Final

import pytest

from analyzer.cli.judged_runs import some_failed
from analyzer.cli.main import run
from semconv.model import Abstention, Attribution, Status
from tests.backend_exports import EXAMPLES

GOOD: Final = (str(EXAMPLES / "otlp.jsonl"), str(EXAMPLES / "zipkin-spans.json"))


@pytest.fixture
def broken(tmp_path: Path) -> str:
    path = tmp_path / "broken.json"
    path.write_text('{"cut')
    return str(path)


@pytest.mark.parametrize("bad", [("none.json",), ("none.json", "broken"), ("broken",), ("folder",)])
def test_the_other_files_are_judged_and_each_bad_one_gets_a_line(
    bad: tuple[str, ...], broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"broken": broken, "folder": str(tmp_path)}
    wrong = [places.get(name, name) for name in bad]
    code = run(["attribute", GOOD[0], *wrong, GOOD[1], "--format", "json"])
    said = capsys.readouterr()
    assert [json.loads(line)["file"] for line in said.out.splitlines()] == list(GOOD)
    assert [line.split(": ")[1] for line in said.err.splitlines()] == wrong
    assert code == (1 if bad == ("broken",) else 2)


@pytest.mark.parametrize("command", ["steps", "lint"])
def test_other_commands_of_several_files_do_the_same(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "none.json", GOOD[0]]) == 2
    said = capsys.readouterr()
    assert "none.json: no such file" in said.err
    assert said.out


@pytest.mark.parametrize("command", ["attribute", "steps"])
def test_each_of_several_runs_names_its_file(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--format", "json"]):
        run([command, *GOOD, *more])
        said = capsys.readouterr().out
        assert 0 <= said.index(GOOD[0]) < said.index(GOOD[1])


@pytest.mark.parametrize("command", ["attribute", "explain", "map", "steps"])
def test_a_missing_file_is_told_without_the_store_of_kept_runs(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "none.json"]) == 2
    assert capsys.readouterr().err == "blamespan: none.json: no such file\n"


def test_a_missing_file_is_wrong_usage_also_if_the_others_need_no_mapping(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["map", GOOD[0], "none.json"]) == 2
    said = capsys.readouterr().err
    assert "none.json: no such file" in said
    assert "nothing to map: a dialect reads it" in said


def test_missing_logs_stop_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["attribute", *GOOD, "--logs", "none.json"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("no such file")) == ("", 1)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "my agents.py",
            "import openai\n",
            "to run a program: blamespan run -- python '{path}'; neither JSON",
        ),
        ("agents.mjs", "import OpenAI from 'openai'\n", "to run a program: blamespan run -- node {path}; "),
        ("notes.txt", "hello\n", "{path}: neither JSON"),
        ("empty.json", "", "{path}: is empty\n"),
    ],
)
def test_a_file_that_is_no_recording_is_told_with_what_to_type(
    name: str, content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert run(["attribute", str(path)]) == 1
    assert said.format(path=path) in capsys.readouterr().err


@pytest.mark.parametrize(("runs", "which"), [(1, ""), (3, "1 of 3 runs ")])
def test_a_model_that_did_not_answer_is_told(
    runs: int, which: str, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = Attribution(
        run_id="r", verdict=Abstention(status=Status.UNDETERMINED, reason="nothing"), method="signals"
    )
    fallen = replace(judged, fallback="signals, because judge failed: missing credentials")
    assert not some_failed([fallen, *[judged] * (runs - 1)])
    told = "judged by signals, because judge failed: missing credentials"
    assert capsys.readouterr().err == f"blamespan: {which}{told}\n"
    assert not some_failed([judged])
    assert not capsys.readouterr().err


def test_standard_input_is_called_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b'{"resourceSpans": []}')))
    assert run(["lint", "-"]) == 1
    assert capsys.readouterr().err.startswith("blamespan: standard input: holds no run")
