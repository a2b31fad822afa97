"""Commands import only what they need: users wait for every import."""

from __future__ import annotations

import gc
import re
from importlib import import_module
from pathlib import Path

import pytest

import analyzer.cli.commands
from analyzer.cli.main import COMMANDS, main, run


def test_every_command_is_listed_by_its_first_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    assert "Measure how often a method is right" in listed
    for name in COMMANDS:
        command = getattr(import_module(f"analyzer.cli.commands.{name}"), name)
        first = re.escape(" ".join(command.__doc__.split()[:2]))
        assert re.search(rf" {name} +{first}", listed)
        assert run([name, "--help"]) == 0
        assert f" {name} [OPTIONS]" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["attribute"], ["runs", "export"]])
def test_a_paragraph_of_the_help_is_broken_by_the_width_alone(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    assert run([*command, "--help"]) == 0
    about = capsys.readouterr().out.partition("╭")[0]
    lines = [line.strip() for line in about.splitlines() if line.strip()]
    assert all(line.startswith(("Usage:", "Example:")) or line.endswith(".") for line in lines)


def test_every_file_of_a_command_is_listed() -> None:
    folder = Path(analyzer.cli.commands.__file__).parent
    own = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    assert own == set(COMMANDS)


@pytest.mark.parametrize("arguments", [["--", "steps"], ["steps"]])
def test_a_command_is_found_wherever_it_stands(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert "Missing argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["steps"], "Missing argument 'FILE': see `blamespan steps --help`"),
        (["frobnicate"], "No such command 'frobnicate': see `blamespan --help`"),
        (["attribut", "x"], "No such command 'attribut'. Did you mean 'attribute'?"),
        (
            ["steps", "x", "--format", "xml"],
            "Invalid value for '--format': 'xml' is not one of 'table', 'json'.",
        ),
        (["attribute", "x", "--floor", "3"], "Invalid value for '--floor': expected at most 1"),
        (["attribute", "x", "--floor", "-1"], "Invalid value for '--floor': expected at least 0"),
        (["attribute", "x", "--floor", "high"], "Invalid value for '--floor': expected a number"),
        (["serve", "--page", "x"], "Invalid value for '--page': expected a whole number"),
        (["pull", "phoenix"], "Missing option '--url': see `blamespan pull --help`"),
    ],
)
def test_wrong_usage_is_told_in_plain_words(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr().err == f"blamespan: {said}\n"


def test_a_name_that_is_no_file_and_no_run_says_where_runs_would_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLAMESPAN_DATA_DIR", str(tmp_path))
    assert run(["steps", "nope"]) == 2
    said = capsys.readouterr().err
    assert said == f"blamespan: nope: no such file, and nothing is kept in {tmp_path}\n"


def test_only_the_programs_own_process_keeps_what_imports_made() -> None:
    frozen = gc.get_freeze_count()
    gc.disable()
    try:
        assert run(["--version"]) == 0
        assert (gc.isenabled(), gc.get_freeze_count()) == (False, frozen)
        with pytest.raises(SystemExit):
            main(["--version"])
        assert (gc.isenabled(), gc.get_freeze_count() > frozen) == (True, True)
    finally:
        gc.unfreeze()
        gc.enable()


def test_on_windows_every_command_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    assert run(["run", "--", "python", "agents.py"]) == 2
    assert "needs Linux (tested) or macOS (not tested)" in capsys.readouterr().err
