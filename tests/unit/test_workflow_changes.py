from __future__ import annotations

import math
import random

import pytest

from analyzer.history.changes import before_and_after, change_points, explain, regression, threshold
from analyzer.inquiry.intervals import fisher


def flips(share: float, n: int, seed: int = 1) -> list[bool]:
    coin = random.Random(seed)
    return [coin.random() < share for _ in range(n)]


def test_a_drop_is_found_where_it_is() -> None:
    (point,) = change_points([*flips(0.9, 200), *flips(0.5, 100, 2)])
    assert abs(point.place - 200) <= 12
    assert point.is_drop
    assert point.difference.high < 0
    assert point.p_value <= 0.04


def test_a_drop_and_a_recovery_are_two_points() -> None:
    points = change_points([*flips(0.9, 200), *flips(0.4, 80), *flips(0.9, 200, 2)])
    assert [point.is_drop for point in points] == [True, False]
    assert sum(each.after[1] for each in points) + points[0].before[1] == 480


@pytest.mark.parametrize("passed", [[], [True], [True] * 500, [False] * 20, [True, False] * 7])
def test_few_or_equal_outcomes_have_no_change_point(passed: list[bool]) -> None:
    assert change_points(passed) == ()


def test_random_order_seldom_has_change_points() -> None:
    found = [bool(change_points(flips(0.8, 120, seed))) for seed in range(100)]
    assert sum(found) <= 9  # 4 expected; more than 9 has a chance of 1 %


def test_the_issue_that_grew_explains_a_drop() -> None:
    before = [None] * 90 + ["slow"] * 10
    after = [None] * 55 + ["slow"] * 10 + ["pays twice"] * 35
    (found,) = explain(before, after)
    assert (found.issue, found.before, found.after) == ("pays twice", (0, 100), (35, 100))
    assert found.part == pytest.approx(1.0)
    assert explain(before, before) == ()
    assert explain([], after) == ()


def test_a_release_that_breaks_a_workflow_raises_an_alarm_and_a_good_one_does_not() -> None:
    bad = regression((10, 100), flips(0.5, 60))
    assert bad.is_alarm
    assert bad.place is not None
    assert bad.place < 40
    assert bad.share.low > 0.2
    good = regression((10, 100), flips(0.1, 300, 3))
    assert not good.is_alarm
    assert good.evidence < threshold()


def test_a_first_release_raises_no_alarm() -> None:
    assert not regression((0, 0), [True] * 100).is_alarm
    assert not regression((3, 7), [True] * 100).is_alarm
    assert regression((5, 50), []).after == (0, 0)


def test_releases_without_effect_seldom_raise_an_alarm() -> None:
    alarms = 0
    for seed in range(300):
        past = flips(0.2, 60, seed)
        alarms += regression((sum(past), 60), flips(0.2, 200, 1000 + seed)).is_alarm
    assert alarms <= 6  # the level of one release is 0.5 %


@pytest.mark.parametrize("before", [3, 5, 10])
@pytest.mark.parametrize("after", [3, 4, 8])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8, 0.95])
def test_a_fix_without_effect_is_seldom_clear_with_few_runs(before: int, after: int, share: float) -> None:
    """All outcomes are enumerated; the interval alone calls three against three clear."""
    clear = 0.0
    for one in range(before + 1):
        for other in range(after + 1):
            found = before_and_after(
                [True] * one + [False] * (before - one), [True] * other + [False] * (after - other)
            )
            chance = math.comb(before, one) * math.comb(after, other)
            right, n = one + other, before + after
            clear += (found.verdict != "unclear") * chance * share**right * (1 - share) ** (n - right)
    assert clear <= 0.05


def test_three_runs_against_three_decide_nothing() -> None:
    assert before_and_after([False] * 3, [True] * 3).verdict == "unclear"
    assert before_and_after([False] * 8, [True] * 8).verdict == "better"
    assert before_and_after([], [True] * 50).verdict == "unclear"


def test_fishers_test_is_exact() -> None:
    assert fisher((3, 3), (0, 3)) == pytest.approx(0.1)
    assert fisher((8, 10), (1, 6)) == pytest.approx(0.03497, abs=1e-5)
    assert fisher((0, 0), (4, 9)) == 1.0


def test_a_fix_is_better_worse_or_unclear() -> None:
    assert before_and_after([False] * 50 + [True] * 50, [True] * 95 + [False] * 5).verdict == "better"
    assert before_and_after([True] * 95 + [False] * 5, [False] * 50 + [True] * 50).verdict == "worse"
    found = before_and_after([True] * 5 + [False] * 5, [True] * 6 + [False] * 4)
    assert found.verdict == "unclear"
    assert found.difference.low < 0 < found.difference.high
