"""Every block of docs/convention.md runs with the result that the page states."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from analyzer.cli.main import run as command
from collector_processor.lint import RULES, Severity, lint
from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import to_protobuf
from collector_processor.rebuild.stages import rebuild

PAGE: Final = (Path(__file__).parents[2] / "docs" / "convention.md").read_text(encoding="utf-8")
BLOCKS: Final[Sequence[tuple[str, str]]] = re.findall(
    r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


@pytest.fixture(name="_written")
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the Python blocks in order, in a temporary folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for text in blocks("python"):
        exec(compile(text, "docs/convention.md", "exec"), names)
    return names


def test_there_is_no_block_that_no_test_runs() -> None:
    assert {language for language, _ in BLOCKS} == {"python", "json", "console"}


@pytest.mark.usefixtures("_written")
def test_a_run_by_the_page_lacks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(_arguments(0)) == 0
    table = capsys.readouterr().out
    assert "calendar" in table or "planner" in table
    assert table.count("lacks nothing") == 2


@pytest.mark.usefixtures("_written")
def test_lint_finds_what_the_page_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(_arguments(1)) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["rule"] for each in found if each["severity"] == "error"] == [
        "no-agent",
        "no-task",
        "content-off",
    ]
    assert {"rule", "severity", "spans", "of", "span_id", "mend"} <= found[0].keys()


def _arguments(number: int) -> list[str]:
    (line,) = blocks("console")[number].splitlines()
    program, *arguments = line.removeprefix("$ ").split()
    assert program == "blamespan"
    return arguments


@pytest.mark.usefixtures("_written")
def test_the_steps_are_those_that_the_code_tells(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["steps", "mine.pb", "--format", "json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [(step["agent"], step["kind"], step["target"]) for step in first["steps"]] == [
        ("planner", "llm", None),
        ("planner", "tool", "days"),
        ("planner", "handoff", "writer"),
        ("writer", "llm", None),
    ]
    assert (first["task"], first["output"]) == ("How many days from 3 March to 1 May?", "59 days.")
    assert [(step["agent"], step["kind"]) for step in second["steps"]] == [("booker", "llm")]


def test_the_trace_on_the_wire_lacks_nothing() -> None:
    (text,) = blocks("json")
    (run,) = rebuild([to_protobuf(Signal.TRACES, text.encode())])
    assert lint(run) == ()
    assert [(step.agent, step.output) for step in run.trajectory.steps] == [("booker", "Room 12.")]


def test_the_table_lists_every_rule_and_its_severity() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| ([a-z, ]+) \|", PAGE, re.MULTILINE)
    assert {rule for rule, _ in rows} == {rule.name for rule in RULES}
    assert {severity for _, told in rows for severity in told.split(", ")} == set(Severity)
