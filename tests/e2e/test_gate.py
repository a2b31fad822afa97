"""The gate's stages: what runs beside what, what a failure prevents, and what is said at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import gate
from tools.gate import End, Ended, Gate, Stage, closing_line, table

PASSED = Stage(name="lint", command="true", usual_s=20)


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gate, "LOGS", tmp_path)
    return tmp_path


def test_a_failure_prevents_what_needs_the_stage_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    stages = (
        Stage(name="first", command="echo so it is >&2; exit 3", usual_s=1),
        Stage(name="second", command="true", usual_s=1, needs=("first",)),
        Stage(name="third", command="true", usual_s=1, needs=("second",)),
        Stage(name="other", command='test -d "$WORK" && test -z "${PYTHONDONTWRITEBYTECODE:-}"', usual_s=1),
    )
    ended = {one.stage.name: one.end for one in Gate(stages).run()}
    assert ended == {
        "first": End.FAILED,
        "second": End.NOT_RUN,
        "third": End.NOT_RUN,
        "other": End.PASSED,
    }
    assert "so it is" in capsys.readouterr().out


def test_what_is_unset_is_an_error_and_a_pipe_that_fails_too() -> None:
    stages = [
        Stage(name=f"stage {number}", command=command, usual_s=1)
        for number, command in enumerate(("false | true", 'echo "$nothing"', "false; true"))
    ]
    assert {one.end for one in Gate(stages).run()} == {End.FAILED}


def test_stages_share_the_places_and_wait_for_what_they_need(tmp_path: Path) -> None:
    meet = "touch {own}; until [ -e {other} ]; do sleep 0.05; done"
    a, b = tmp_path / "a", tmp_path / "b"
    stages = (
        Stage(name="one", command=meet.format(own=a, other=b), usual_s=1, places=2),
        Stage(name="two", command=meet.format(own=b, other=a), usual_s=1),
        Stage(name="large", command=f"test -e {a}", usual_s=1, places=gate.PLACES, needs=("one",)),
    )
    ended = Gate(stages).run()
    assert [one.end for one in ended] == [End.PASSED] * 3
    assert ended[-1].stage.name == "large"


def test_a_large_stage_is_not_overtaken_by_small_ones_for_ever(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    stages = (
        Stage(name="large", command=f"touch {begun}", usual_s=1, places=gate.PLACES, needs=("first",)),
        Stage(name="first", command="sleep 0.3", usual_s=1, places=0),
        Stage(name="small", command=f"test -e {begun}", usual_s=1),
    )
    assert {one.end for one in Gate(stages).run()} == {End.PASSED}


def test_the_table_says_which_stage_is_slow_failed_or_was_not_run() -> None:
    lines = table(
        [
            Ended(stage=PASSED, end=End.PASSED, began_s=3, wall_s=31, cpu_s=40),
            Ended(stage=PASSED, end=End.FAILED, wall_s=20),
            Ended(stage=PASSED, end=End.NOT_RUN),
        ],
        90.0,
    ).splitlines()
    assert lines[1].split() == ["lint", "3", "31", "40", "20", *["1.6", "times", "its", "usual", "time"]]
    assert lines[2].endswith("failed")
    assert lines[3].endswith("not run")
    assert lines[-1].split() == ["all", "0", "90", "40"]


def test_the_last_line_adds_up_all_results(tmp_path: Path) -> None:
    for name, numbers in (("a", 'tests="10" failures="1" errors="1" skipped="2"'), ("b", 'tests="5"')):
        (tmp_path / f"{name}.xml").write_text(f"<testsuites><testsuite {numbers}/></testsuites>")
    assert closing_line(tmp_path) == "11 passed, 2 failed, 2 skipped"
