from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest

from analyzer.history.changes import before_and_after, change_points, explain, regression, threshold
from analyzer.history.elements import elements_of, pack, unpack
from analyzer.history.known_runs import KnownRun, KnownRuns, has_shared_agents, pooled_versions, said_of
from analyzer.history.spectrum import Said, Spectrum, spectrum_of
from analyzer.history.versions import Decision, Version, equality, version_of
from analyzer.inquiry.intervals import fisher
from analyzer.inquiry.verdict import NOTHING_SAYS_SO
from analyzer.issues.beside_verdicts import said_by
from semconv.model import OutcomeSource, Trajectory
from tests.runs import run, step, tool
from tests.verdicts import stored

USUAL = run(step("planner"), step("buyer"), step("writer"))
OTHER = run(step("planner"), step("buyer"), tool("buyer", "x", "pay"), step("writer"))


def spectrum(trajectory: Trajectory, passed: int, failed: int) -> Spectrum:
    digests = unpack(pack(elements_of(trajectory)))
    return spectrum_of([*[(Said.PASSED, digests)] * passed, *[(Said.FAILED, digests)] * failed])


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        pytest.param("planner buyer writer", "planner buyer writer", True, id="the same agents"),
        pytest.param("planner", "planner buyer writer", True, id="a run that broke off early"),
        pytest.param("planner buyer", "planner x y z", True, id="half of the smaller run's"),
        pytest.param("planner buyer writer", "planner x y z", False, id="a third of the smaller run's"),
        pytest.param("", "planner", True, id="no agents"),
    ],
)
def test_runs_of_a_workflow_share_half_of_the_smaller_ones_agents(
    one: str, other: str, *, is_same: bool
) -> None:
    assert has_shared_agents(one.split(), other.split()) is is_same
    assert has_shared_agents(other.split(), one.split()) is is_same


def test_a_prompt_a_tool_a_model_and_a_release_make_a_version() -> None:
    base = version_of(USUAL, {"gpt-4o"}, "1.0")

    def changed(other: Version) -> tuple[str, ...]:
        names = ("prompts", "tools", "models", "release")
        return tuple(name for name in names if getattr(base, name) != getattr(other, name))

    assert changed(version_of(USUAL, {"gpt-5"}, "1.0")) == ("models",)
    assert changed(version_of(USUAL, {"gpt-4o"}, "1.1")) == ("release",)
    prompted = run(step("planner", instructions="Plan."), step("buyer"), step("writer"))
    assert changed(version_of(prompted, {"gpt-4o"}, "1.0")) == ("prompts",)
    tooled = run(step("planner", tools="pay: pays"), step("buyer"), step("writer"))
    assert changed(version_of(tooled, {"gpt-4o"}, "1.0")) == ("tools",)


def test_the_date_in_a_prompt_makes_no_version() -> None:
    def on(day: str) -> str:
        said = f"Today is {day}. Session 3f2a9c0d1e4b5a69."
        return version_of(run(step("a", instructions=said))).id

    assert on("2026-01-02") == on("2026-11-23")


def test_versions_are_equal_only_once_shown_to_be() -> None:
    same = equality(spectrum(USUAL, 160, 40), spectrum(USUAL, 158, 42))
    assert same.decision is Decision.EQUAL
    few = equality(spectrum(USUAL, 8, 2), spectrum(USUAL, 8, 2))
    assert few.decision is Decision.UNKNOWN
    assert "may differ" in few.reason
    worse = equality(spectrum(USUAL, 160, 40), spectrum(USUAL, 80, 120))
    assert worse.decision is Decision.DIFFERENT
    other = equality(spectrum(USUAL, 160, 40), spectrum(OTHER, 160, 40))
    assert other.decision is Decision.DIFFERENT
    assert equality(spectrum(USUAL, 0, 0), spectrum(USUAL, 9, 9)).decision is Decision.UNKNOWN


def known(
    number: int, trajectory: Trajectory, said: Said, version: str = "v1", service: str = "s"
) -> KnownRun:
    packed = pack(elements_of(trajectory))
    return KnownRun(
        run_id=f"r{number}", service=service, workflow="w", version=version, said=said, elements=packed
    )


def test_versions_that_may_differ_stay_apart() -> None:
    runs = [known(n, USUAL, Said.PASSED) for n in range(10)]
    runs += [known(100 + n, OTHER, Said.PASSED, "v2") for n in range(10)]
    assert len(pooled_versions("v1", runs)) == 10
    alike = [known(n, USUAL, Said.PASSED, f"v{n % 2}") for n in range(200)]
    assert len(pooled_versions("v1", alike)) == 200


def test_a_run_is_compared_with_its_own_workflow_and_never_with_itself() -> None:
    runs = [known(n, USUAL, Said.PASSED) for n in range(10)]
    runs += [known(50 + n, USUAL, Said.PASSED, service="other") for n in range(10)]
    broken = replace(OTHER, run_id="bad")
    failed = KnownRun(
        run_id="bad", service="s", workflow="w", version="v1", said=Said.FAILED,
        elements=pack(elements_of(broken)),
    )  # fmt: skip
    found = KnownRuns.of([*runs, failed]).compare(broken)
    assert found is not None
    assert (found.runs.passed, found.runs.failed) == (10, 0)
    assert found.increases[0].element.step == 2
    assert KnownRuns.of([failed]).compare(broken) is None


def test_only_a_stated_outcome_counts_as_passed() -> None:
    assert said_of(OutcomeSource.EVALUATOR, failed=False) is Said.PASSED
    assert said_of(OutcomeSource.HEURISTIC, failed=False) is Said.UNSAID
    assert said_of(None, failed=False) is Said.UNSAID
    assert said_of(OutcomeSource.ERROR, failed=True) is Said.FAILED


@pytest.mark.parametrize(
    ("status", "document", "said"),
    [
        ("attributed", {}, Said.FAILED),
        ("undetermined", {}, Said.FAILED),
        ("suspected", {}, Said.UNSAID),
        ("error", {}, Said.UNSAID),
        ("no_failure", {"method": "triage", "reason": NOTHING_SAYS_SO}, Said.UNSAID),
        ("no_failure", {"method": "triage", "reason": "an evaluator states its outcome"}, Said.PASSED),
        ("no_failure", {"method": "judge", "reason": "no mistake"}, Said.UNSAID),
        ("no_failure", {"method": "person"}, Said.PASSED),
        ("no_failure", {}, Said.UNSAID),
    ],
)
def test_a_verdict_says_how_a_run_ended(status: str, document: dict[str, str], said: Said) -> None:
    assert said_by(stored(status=status, document=json.dumps(document))) is said


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
