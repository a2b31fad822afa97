"""Repetitions of a program: how often it breaks, and what breaks it."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from analyzer.cli.repeated_runs import (
    Judged,
    Repetition,
    final_document,
    final_table,
    in_full,
    lines_of,
    progress_line,
    ranking,
)
from semconv.model import Abstention, Attribution, Blame, Status, Step, StepKind, Trajectory

STEPS = (
    Step(index=0, agent="planner", kind=StepKind.LLM),
    Step(index=1, agent="clerk", kind=StepKind.TOOL, target="sales", error="TimeoutError: no answer"),
    Step(index=2, agent="clerk", kind=StepKind.LLM),
    Step(index=3, agent="clerk", kind=StepKind.LLM),
)
WELL = Abstention(reason="well", status=Status.NO_FAILURE)


def judged(verdict: Blame | Abstention) -> Judged:
    return Judged(
        trajectory=Trajectory(run_id="r", steps=STEPS),
        attribution=Attribution(run_id="r", verdict=verdict, method="signals"),
    )


def blame(step: int, mode: str = "wrong_computation", status: Status = Status.ATTRIBUTED) -> Judged:
    agent = STEPS[step].agent
    return judged(Blame(agent=agent, step=step, reason="so", confidence=0.8, mode=mode, status=status))


def repetition(*runs: Judged, code: int = 0) -> Repetition:
    return Repetition(code=code, judged=runs)


MANY = (
    repetition(judged(WELL)),
    repetition(blame(3)),
    repetition(blame(2), blame(3)),  # the same failure twice in one execution
    repetition(blame(1, "unhandled_error"), code=3),
    repetition(blame(3, status=Status.SUSPECTED)),
    repetition(),
    repetition(code=1),
)


def test_failures_are_ranked_by_the_executions_that_show_them() -> None:
    first, *others = ranking("app", MANY)
    assert (first.mark.agent, first.mark.mode, first.repetitions) == ("clerk", "wrong_computation", (2, 3))
    assert first.steps == ((3, 2),)
    assert [(one.mark.tool, one.mark.error, one.mark.is_suspected, one.repetitions) for one in others] == [
        ("sales", "TimeoutError", False, (4,)),
        ("", "", True, (5,)),
    ]


def test_the_last_object_has_rates_with_intervals() -> None:
    document = json.loads(json.dumps(final_document("app", MANY, 10)))
    assert (document["final"], document["planned"], document["repetitions"]) == (True, 10, 7)
    assert document["exit_codes"] == {"0": 5, "1": 1, "3": 1}
    assert document["failed"] == {"count": 4, "rate": pytest.approx(4 / 7), "interval": [0.2505, 0.8418]}
    assert (document["suspected"]["count"], document["unjudged"]) == (1, 1)
    worst = document["broken_by"][0]
    assert (worst["agent"], worst["count"], worst["steps"]) == ("clerk", 2, [{"step": 3, "count": 2}])
    assert worst["interval"][0] < worst["rate"] < worst["interval"][1]


def test_nothing_but_good_runs_breaks_nothing() -> None:
    document = final_document("app", [repetition(judged(WELL))] * 20, 20)
    assert (document["failed"]["count"], document["broken_by"]) == (0, [])
    assert document["failed"]["interval"] == [0.0, 0.1611]  # 20 good runs do not prove that none fails


@pytest.mark.parametrize("code", [0, 130, 143])
def test_an_end_that_the_user_wanted_is_no_failure(code: int) -> None:
    assert not repetition(judged(WELL), code=code).has_failed


def test_of_many_runs_only_the_first_failed_one_is_shown_with_its_steps() -> None:
    well, broken = judged(WELL), blame(3)
    assert in_full([well, broken, well]) == [(1, well), (2, broken), (3, well)]
    assert in_full([well, well, broken, blame(2)]) == [(3, broken)]
    assert in_full([well] * 4) == []
    suspected = blame(2, status=Status.SUSPECTED)
    assert in_full([well, suspected, suspected, broken]) == [(4, broken)]
    assert in_full([well, suspected, suspected, well]) == [(2, suspected)]


def test_neighbours_of_which_the_same_is_to_be_said_share_a_line() -> None:
    well, broken = judged(WELL), blame(3)
    assert [*lines_of([well, well, broken, well])] == [
        "runs 1 to 2 of 4: no failure",
        "run 3 of 4: attributed: clerk, step 3: so",
        "run 4 of 4: no failure",
    ]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_ranking_breaks_no_word_and_loses_no_number(width: int) -> None:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(final_table("app", [repetition(blame(3))] * 50))
    words = captured.get().split()
    assert {"computation", "1,", "2,", "3,", "4,", "5,", "6,", "…"} <= set(words)


def test_people_read_shares_and_places() -> None:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(final_table("app", MANY))
    told = captured.get()
    assert "of 7 runs of app: 4 failed (57%, 25% to 84%), 1 suspected (14%" in told
    assert "1 showed nothing to judge, 1 without a sign of failure" in " ".join(told.split())
    assert "clerk: wrong computation" in told
    assert "3 (in 2)" in told
    assert "2, 3" in told
    assert progress_line(2, 10, MANY[1]) == "2 of 10: exit code 0, attributed: clerk, step 3: so"
    unclear = judged(Abstention(reason="two agree", status=Status.UNDETERMINED))
    assert progress_line(3, 9, repetition(unclear)) == "3 of 9: exit code 0, undetermined: two agree"
    assert progress_line(6, 10, MANY[5]) == "6 of 10: exit code 0, nothing to judge"
