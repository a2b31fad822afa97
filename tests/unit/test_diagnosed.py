"""Answers of a reader of failed runs, scored against the calls that the script knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiment.diagnosed import score


def written(place: Path, rows: list[dict[str, Any]]) -> Path:
    place.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return place


def test_each_tool_is_scored_on_all_readings_and_on_those_that_came_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed = written(tmp_path / "sealed", [{"call": 3}, {"call": 0}])
    answers = [
        {"run": 1, "tool": "phoenix", "first": True, "call": 3, "seconds": 30.0},
        {"run": 1, "tool": "blamespan", "first": False, "call": 2, "seconds": 10.0},
        {"run": 2, "tool": "phoenix", "first": False, "call": 0, "seconds": 20.0},
        {"run": 2, "tool": "blamespan", "first": True, "call": 0, "seconds": 12.0},
    ]
    score(sealed, written(tmp_path / "answers", answers))
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("|")[3].split("[")[0].strip() for row in rows] == [
        "2 of 2",
        "1 of 2",
        "1 of 1",
        "1 of 1",
    ]
    assert "25 (20 to 30)" in rows[0]
