"""``blamespan experiment --retry`` measures what each way of retrying recovers and disrupts, and its cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from analyzer import RetryGate
from tests.e2e.test_experiment import WORKFLOW, model, ran_experiment, span

TASK = "12 tickets at 35 and 30 at 14"
CHECK = """
import os, sys
assert os.environ["BLAMESPAN_TASK"] == "12 tickets at 35 and 30 at 14", os.environ["BLAMESPAN_TASK"]
sys.exit("840" not in sys.stdin.read())
"""


def recorded(folder: Path, number: int, total: int) -> None:
    said = f"It is {total}."
    spans = [span(1, "clerk", TASK, said), span(2, "writer", f"{TASK} {said}", f"Pay {total}.")]
    for each in spans:
        each["traceId"] = f"{number:032x}"
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    (folder / f"{number}.json").write_text(json.dumps(document))


async def pilot(folder: Path, *arguments: str, workflow: str = WORKFLOW) -> tuple[int, list[Any], str]:
    code, out, err = await ran_experiment(
        folder, *arguments, "--format", "json", "--", sys.executable, "-c", workflow
    )
    return code, [json.loads(line) for line in out.splitlines()], err


async def test_passing_and_failing_runs_are_retried_in_four_arms_at_the_same_cost(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for number, total in enumerate((820, 840, 830, 840), start=1):
        recorded(runs, number, total)
    (tmp_path / "check.py").write_text(CHECK)
    gate = tmp_path / "gate.json"
    checking = f"{sys.executable} {tmp_path / 'check.py'}"
    async with model() as url:
        options = ["--check", checking, "--upstream", url, "--max-calls", "100", "--gate", str(gate)]
        code, lines, err = await pilot(tmp_path, "runs", "--retry", *options)
    assert code == 0, err
    *each, final = lines
    assert [run["passed"] for run in each] == [False, True, False, True]
    assert all(set(run["arms"]) == {"none", "blind", "generic", "fix"} for run in each)
    assert final["final"]
    assert (final["runs"], final["tried"]) == (4, 4)
    for arm in final["arms"].values():
        assert (arm["recovered"]["n"], arm["disrupted"]["n"], arm["trials"]) == (2, 2, 4)
    calls = {name: arm["calls"] for name, arm in final["arms"].items()}
    assert calls["blind"] == calls["generic"] == calls["fix"] == calls["none"] + 4
    assert sum(calls.values()) == final["calls"]
    assert {found["choice"] for arm in final["gates"].values() for found in arm.values()} == {"unsure"}
    assert json.loads(gate.read_text()) == final
    assert not RetryGate.read(gate).gate.allows


async def test_runs_that_cannot_be_rerun_are_left_out_and_reported(tmp_path: Path) -> None:
    recorded(tmp_path, 1, 820)
    async with model() as url:
        options = ["--expect", "840", "--upstream", url, "--max-calls", "100"]
        code, lines, _ = await pilot(tmp_path, "1.json", "--retry", *options, workflow="print(840)")
    assert code == 1
    assert "never arrived" in lines[0]["refused"]
    assert lines[-1]["tried"] == 0


async def test_a_used_up_budget_ends_the_pilot_with_what_was_measured(tmp_path: Path) -> None:
    for number in range(1, 5):
        recorded(tmp_path, number, 820)
    async with model() as url:
        options = ["--expect", "840", "--upstream", url, "--max-calls", "8"]
        code, lines, _ = await pilot(tmp_path, ".", "--retry", *options)
    assert code == 0
    assert (lines[-1]["tried"], lines[-1]["calls"]) == (1, 8)
    assert "used up" in lines[-1]["stopped"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["none.json", "--retry", "--expect", "840"], "no such file"),
        (["1.json", "--retry", "--expect", "840", "--step", "1"], "--retry excludes"),
        (["1.json", "--expect", "840", "--gate", "gate.json"], "expected --retry"),
        (["1.json", "--retry", "--expect", "840", "--gate", "none/gate.json"], "no such folder"),
        (["1.json", "--retry"], "expected --check"),
    ],
)
async def test_wrong_usage_is_refused_before_anything_starts(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    recorded(tmp_path, 1, 820)
    code, lines, err = await pilot(tmp_path, *arguments, workflow="raise SystemExit('started')")
    assert (code, lines) == (2, [])
    assert expected in err
    assert "started" not in err
