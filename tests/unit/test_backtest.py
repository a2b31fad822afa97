"""A backtest says "fixed" only if today beats yesterday: luck on a retry and a lost run are no fix."""

from __future__ import annotations

import random
import re
from itertools import count as numbers

import pytest

from analyzer.cli.commands.backtest import NamedIssue
from analyzer.experiment.backtest.findings import finished, most_broken, report
from analyzer.experiment.backtest.plan import Outcome, Plan, Side, Verdict
from analyzer.experiment.call_budget import Spent
from analyzer.experiment.sequential import ALPHA, Draw, TrialResult
from analyzer.records.proof_records import Report
from benchmarks.experiment.backtests import Rates, play
from collector_processor.otlp import Tenant

ANSWERS = numbers()


def sides(today: float, yesterday: float) -> Rates:
    return lambda _, side: today if side is Side.TODAY else yesterday


def runs(n: int) -> list[tuple[str, str]]:
    return [(f"run{number}", "analyst") for number in range(n)]


@pytest.mark.parametrize("n", [1, 3, 10])
def test_a_right_fix_is_proved(n: int) -> None:
    plan = Plan(runs(n))
    assert play(plan, sides(1.0, 0.0), random.Random(1)) is Verdict.FIXED
    assert all(state.today.n and state.today.rate == 1 for state in plan.failed)


@pytest.mark.parametrize("n", [1, 3])
def test_a_useless_fix_is_not_fixed(n: int) -> None:
    assert play(Plan(runs(n)), sides(0.0, 0.0), random.Random(1)) is Verdict.NOT_FIXED


def test_luck_on_a_retry_is_not_a_fix() -> None:
    plan = Plan(runs(2))
    assert play(plan, sides(1.0, 1.0), random.Random(1)) is Verdict.UNDECIDED
    assert all(state.yesterday.rate == 1 for state in plan.failed)


@pytest.mark.parametrize("verdict", [Verdict.NO_LONGER_FAILS, Verdict.FIXED])
def test_a_change_that_the_decisive_request_does_not_show_needs_yesterdays_program(verdict: Verdict) -> None:
    has_baseline = verdict is Verdict.FIXED
    plan = Plan(runs(2), has_baseline=has_baseline)
    for number in numbers():
        key = plan.begin()
        if key is None:
            break
        draws = (Draw(source="m", request="same", answer=str(number)),)
        plan.end(key, Outcome(result=TrialResult(success=key[1] is Side.TODAY, draws=draws)))
    assert plan.verdict is verdict
    assert all(bool(state.yesterday.n) is has_baseline for state in plan.failed)


def test_one_run_that_still_fails_is_no_fix_of_the_others() -> None:
    def rates(run: str, side: Side) -> float:
        return float(side is Side.TODAY and run != "run2")

    assert play(Plan(runs(3)), rates, random.Random(1)) is Verdict.NOT_FIXED


def test_blame_that_moved_is_told_from_a_failure_that_stayed() -> None:
    stays, moves = Plan(runs(1)), Plan(runs(1))
    assert play(stays, sides(0.0, 0.0), random.Random(1), blamed="analyst") is Verdict.NOT_FIXED
    assert play(moves, sides(0.0, 0.0), random.Random(1), blamed="writer") is Verdict.MOVED
    (state,) = moves.failed
    assert state.moved == state.judged == state.today.n


def test_a_run_that_left_its_tape_is_counted_apart() -> None:
    plan = Plan(runs(2))
    for _ in numbers():
        key = plan.begin()
        if key is None:
            break
        lost = key[0] == "run0"
        plan.end(key, Outcome(result=TrialResult(invalid="call 1, message 2") if lost else TrialResult()))
    assert [state.refused for state in plan.failed] == ["call 1, message 2", ""]
    assert plan.verdict is Verdict.NOT_FIXED, "the model always says the same, and the run fails"


@pytest.mark.parametrize("every", [2, 3])
def test_a_fix_whose_trials_are_often_invalid_is_not_proved(every: int) -> None:
    """A provider refuses some of today's requests: what is left of them always passes."""
    plan, number = Plan(runs(1)), 0
    while (key := plan.begin()) is not None:
        number += 1
        draws = (Draw(source="m", request=key[1], answer=str(number)),)
        is_today = key[1] is Side.TODAY
        number_of_today = number // 2
        invalid = "the upstream failed (http_400: 1)" if is_today and number_of_today % every == 0 else ""
        result = TrialResult(success=is_today, invalid=invalid, draws=draws)
        plan.end(key, Outcome(result=result, differs=is_today))
        if plan.verdict is Verdict.FIXED:
            state = plan.run("run0")
            assert state.today.invalid * 2 < state.today.n, "most of all of today's trials passed"
    assert every > 2 or plan.verdict is not Verdict.FIXED


def test_an_issue_is_proved_by_its_own_runs_only() -> None:
    plan = Plan(runs(2), refused={"run0": "no longer kept"})
    while (key := plan.begin()) is not None:
        is_today = key[1] is Side.TODAY
        draws = (Draw(source="m", request=key[1], answer=str(next(ANSWERS))),)
        plan.end(key, Outcome(result=TrialResult(success=is_today, draws=draws), differs=is_today))
    found = finished(plan, Spent(), 9, "")
    assert found.verdict is Verdict.FIXED
    owner = Tenant("")
    assert not NamedIssue(service="sales", issue="a", tenant=owner, runs=("run0",)).is_proved_by(found)
    assert not NamedIssue(service="sales", issue="a", tenant=owner, runs=()).is_proved_by(found)
    assert NamedIssue(service="sales", issue="a", tenant=owner, runs=("run1",)).is_proved_by(found)


def test_more_than_half_lost_is_not_replayable() -> None:
    plan = Plan(runs(3))
    while (key := plan.begin()) is not None:
        lost = key[0] != "run0"
        plan.end(key, Outcome(result=TrialResult(invalid="lost" if lost else "", success=not lost)))
    assert plan.verdict is Verdict.NOT_REPLAYABLE


def test_a_model_that_always_says_the_same_proves_nothing_in_one_run() -> None:
    plan = Plan(runs(1))
    while (key := plan.begin()) is not None:
        draws = (Draw(source="m", request=key[1], answer="same"),)
        is_today = key[1] is Side.TODAY
        plan.end(key, Outcome(result=TrialResult(success=is_today, draws=draws), differs=is_today))
    assert plan.verdict is Verdict.NO_LONGER_FAILS
    (state,) = plan.failed
    assert (state.today.n, state.yesterday.n) == (1, 1)


def test_cancelled_trials_say_nothing() -> None:
    plan = Plan(runs(1))
    for _ in range(50):
        key = plan.begin()
        assert key is not None
        assert plan.begin() is None, "the first trial says whether there is a second arm"
        plan.end(key, None)
    assert plan.verdict is Verdict.UNDECIDED


def test_a_passing_run_is_broken_by_two_failures_and_not_by_one() -> None:
    plan = Plan(runs(1), [f"good{number}" for number in range(3)])
    failures = {"good1": [False, True, True], "good2": [False, False]}
    while (key := plan.begin()) is not None:
        passes = failures.get(key[0], [True] * 99).pop(0)
        draw = Draw(source="m", request="same", answer="same")
        plan.end(key, Outcome(result=TrialResult(success=passes, draws=(draw,)), differs=True))
    assert [state.is_broken for state in plan.passing] == [False, False, True]
    assert all(state.is_done for state in plan.passing)


def test_a_fix_whose_passing_runs_could_not_be_tried_is_no_success() -> None:
    plan = Plan(runs(1), ["good0", "good1", "good2"], {"good0": "lost", "good1": "lost"})
    assert play(plan, sides(1.0, 0.0), random.Random(1)) is Verdict.FIXED
    found = finished(plan, Spent(), 1, "")
    assert (found.held, found.broken, found.code) == (1, 0, 3)


def test_invalid_trials_after_one_failure_do_not_make_it_sure() -> None:
    plan = Plan(runs(1))
    for number in numbers():
        key = plan.begin()
        if key is None:
            break
        plan.end(key, Outcome(result=TrialResult(invalid="upstream: 503" if number else "")))
    assert plan.verdict is Verdict.UNDECIDED


def test_no_text_of_a_run_is_markup_in_a_pull_request() -> None:
    hostile = "a|b\n# [x](http://evil) ![y](z) <img src=x> `@team`"
    plan = Plan([(hostile, hostile)], [f"{hostile} good"], {hostile: hostile, f"{hostile} good": hostile})
    shown = report(finished(plan, Spent(), 0, "")).markdown("blamespan backtest")
    row = next(line for line in shown.splitlines() if "evil" in line)
    assert shown.count("\n# ") == 0
    assert all(f"\\{mark}" in row and not re.search(rf"(?<!\\){re.escape(mark)}", row) for mark in "[<`!#")
    assert "@team" not in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 7, "the row keeps its six cells"


def test_no_bare_address_of_a_run_becomes_a_link_in_a_pull_request() -> None:
    hostile = (
        "[x](y) https://evil.example/x HTTP://evil.example www.evil.example WWW.evil.example &#58; #1 @a"
    )
    row = (hostile,)
    shown = Report(head=hostile, lines=row, columns=row, rows=(row,)).markdown("blamespan backtest")
    assert shown.count("evil.example") == 16, "in the head, a line, a column and a cell"
    assert not re.search(r"://|www\.|(?<!\\)[\[&]|#\d|@\w", shown, re.IGNORECASE)


@pytest.mark.parametrize(("broken", "n", "most"), [(0, 40, 0.072), (0, 1, 0.95), (0, 0, 1.0), (2, 2, 1.0)])
def test_the_bound_of_broken_runs_is_exact(broken: int, n: int, most: float) -> None:
    assert most_broken(broken, n) == pytest.approx(most, abs=5e-4)


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8, None])
def test_a_change_without_effect_is_seldom_called_fixed(n: int, rate: float | None) -> None:
    """``None``: every run has a rate of its own, so that sums over runs would mislead."""
    coin, proved, worlds = random.Random(f"{n} {rate}"), 0, 60

    def rates(run: str, _: Side) -> float:
        return (int(run[-1]) + 1) / (n + 1) if rate is None else rate

    for _ in range(worlds):
        proved += play(Plan(runs(n), most_trials=8), rates, coin) is Verdict.FIXED
    assert proved <= ALPHA * worlds
