"""``blamespan train`` with too little data prints one line and writes no model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzer.cli.main import run


def log(number: int) -> dict[str, object]:
    turns = [{"role": agent, "content": f"{agent} {number}"} for agent in "ABC"]
    return {"id": str(number), "history": turns, "label": {"agent": "B", "step": 1}}


@pytest.mark.parametrize(
    ("numbers", "different"),
    [([0] * 12, 1), ([0, 1] * 6, 2), ([0, 1, 2, 3], 4)],
    ids=["one run twelve times", "two runs six times", "four runs"],
)
def test_runs_that_are_the_same_do_not_count_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], numbers: list[int], different: int
) -> None:
    data, out = tmp_path / "runs.jsonl", tmp_path / "ranker.json"
    data.write_text("\n".join(json.dumps(log(number)) for number in numbers))
    assert run(["train", str(data), "--out", str(out)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"runs.jsonl has {different} different runs with a label to learn from, expected 5" in line
    assert not out.exists()


def test_unlabelled_runs_are_counted_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "runs.jsonl"
    data.write_text("\n".join(json.dumps(log(number) | {"label": None}) for number in range(12)))
    assert run(["train", str(data), "--out", str(tmp_path / "ranker.json")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert "12 runs left out" in said[0]
    assert "has 0 different runs" in said[1]


def test_a_data_set_and_a_tenant_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", str(tmp_path), "--out", str(tmp_path / "m"), "--tenant", "a"]) == 2
    assert "exclude a DATASET" in capsys.readouterr().err
