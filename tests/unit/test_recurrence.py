"""Recurring failures: which are the same, their states, and when an increase is reported."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.issues.counting import counts_as, where_it_belongs
from analyzer.issues.issue_store import CountedRun
from analyzer.issues.labels.run_label import LabelKind
from analyzer.issues.recurrence import (
    EXAMPLES,
    Change,
    Count,
    Issue,
    IssueState,
    Watch,
    age,
    compared,
    error_type,
    fingerprint,
    mute,
    observe,
    resolve,
    seen,
    share_of,
    threshold,
    withdrawn,
)
from collector_processor.otlp import NO_TENANT
from semconv.model import Blame, Status, Step, StepKind

DAY = 86_400 * 10**9
BLAME = Blame(agent="calculator", step=3, reason="It misread the table.", confidence=0.8, mode="wrong_result")
STEP = Step(index=3, agent="calculator", kind=StepKind.TOOL, target="add", error="ValueError: 12 is not 13")
MARK = fingerprint("shop", BLAME, STEP)


def first(now_ns: int = 0) -> Issue:
    return seen(None, MARK, "run-0", now_ns).issue


def test_a_models_wording_does_not_make_another_issue() -> None:
    other = Blame(agent="calculator", step=9, reason="Wrong sum!", confidence=0.3, mode="wrong_result")
    elsewhere = replace(STEP, index=9, error="ValueError: 7 is not 8", input="?")
    assert fingerprint("shop", other, elsewhere).id == MARK.id


def test_a_suspected_failure_is_an_issue_of_its_own_until_a_person_confirms_it() -> None:
    mark = fingerprint("shop", replace(BLAME, status=Status.SUSPECTED), STEP)
    assert mark.id != MARK.id
    assert mark.title == "calculator: suspected ValueError in add"
    run = CountedRun(
        tenant=NO_TENANT,
        run_id="run-0",
        service="shop",
        agents=("calculator",),
        blamed="calculator",
        step=3,
        mark=mark,
        issue_id=None,
        decided_ns=0,
        status=Status.SUSPECTED.value,
    )
    assert (where_it_belongs(run), counts_as(run).status, run.failed_agent) == (mark, "suspected", None)
    confirmed = replace(run, label=LabelKind.CONFIRMED)
    assert (where_it_belongs(confirmed), counts_as(confirmed).status) == (MARK, "attributed")


@pytest.mark.parametrize("service", ["shop", "bank"])
@pytest.mark.parametrize("tool", ["add", "subtract"])
def test_another_service_or_tool_makes_another_issue(service: str, tool: str) -> None:
    step = Step(index=3, agent="calculator", kind=StepKind.TOOL, target=tool, error=STEP.error)
    is_same = fingerprint(service, BLAME, step).id == MARK.id
    assert is_same == ((service, tool) == ("shop", "add"))


def test_parts_of_a_fingerprint_cannot_merge() -> None:
    one = fingerprint("a", Blame(agent="bc", step=0, reason="", confidence=1), STEP)
    other = fingerprint("ab", Blame(agent="c", step=0, reason="", confidence=1), STEP)
    assert one.id != other.id


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param("openai.RateLimitError: Error code: 429 - {'m': 'slow'}", "RateLimitError", id="class"),
        pytest.param("upstream said HTTP 503 for /v1/chat/7f3a", "HTTP 503", id="status"),
        pytest.param("no row 17 in table 'orders'", "no row # in table #", id="words"),
        pytest.param("MaxTurnsExceeded", "MaxTurnsExceeded", id="bare"),
        pytest.param("", "", id="none"),
    ],
)
def test_an_error_is_known_by_its_type(error: str, kind: str) -> None:
    assert error_type(error) == kind


def test_a_repetition_is_counted_without_a_notice() -> None:
    found = seen(first(), MARK, "run-1", DAY // 2)
    assert (found.change, found.issue.count, found.issue.runs) == (None, 2, ("run-1", "run-0"))


def test_after_a_day_an_issue_is_ongoing() -> None:
    assert seen(first(), MARK, "run-1", DAY).issue.state is IssueState.ONGOING


def test_a_resolved_issue_that_comes_back_has_regressed_and_sends_a_notice() -> None:
    found = seen(resolve(first(), 10), MARK, "run-1", 20)
    assert (found.change, found.issue.state, found.issue.count) == (Change.REGRESSED, IssueState.REGRESSED, 2)
    again = seen(found.issue, MARK, "run-2", 30)
    assert (again.change, again.issue.state) == (None, IssueState.REGRESSED)


def test_a_long_silence_resolves_an_issue() -> None:
    assert age(first(), 13 * DAY).state is IssueState.ONGOING
    assert age(first(), 14 * DAY).state is IssueState.RESOLVED
    assert seen(first(), MARK, "run-1", 15 * DAY).change is Change.REGRESSED


def test_a_muted_issue_sends_no_notice() -> None:
    found = seen(mute(resolve(first(), 10), DAY), MARK, "run-1", 20)
    assert (found.change, found.issue.state) == (None, IssueState.REGRESSED)
    assert not found.issue.is_muted(DAY)


def test_a_changed_verdict_takes_its_failure_back() -> None:
    twice = seen(first(), MARK, "run-1", 1).issue
    once = withdrawn(twice, "run-1")
    assert once is not None
    assert (once.count, once.runs) == (1, ("run-0",))
    assert withdrawn(once, "run-0") is None


def test_a_run_that_is_no_longer_an_example_is_uncounted_too() -> None:
    issue = first()
    for number in range(1, 50):
        issue = seen(issue, MARK, f"run-{number}", number).issue
    assert withdrawn(issue, "run-0") == replace(issue, count=49)


def test_only_the_last_runs_are_kept() -> None:
    issue = first()
    for number in range(1, 50):
        issue = seen(issue, MARK, f"run-{number}", number).issue
    assert (issue.count, len(issue.runs), issue.runs[0]) == (50, EXAMPLES, "run-49")


def test_a_share_allows_for_a_method_that_is_wrong() -> None:
    """40 of 400 runs are blamed on it: half of these rightly; and 1 in 50 of the others was its fault."""
    share = share_of(Count(hits=40, n=400), Count(hits=50, n=100), Count(hits=2, n=100))
    assert share.low < 0.1 * 0.5 + 0.9 * 0.02 < share.high
    assert share.high < 0.15


def test_without_labels_a_shares_interval_is_wide() -> None:
    share = share_of(Count(hits=40, n=400), Count(), Count())
    assert share.high - share.low > 0.5


def test_a_shares_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance, right = random.Random(3), 0
    for _ in range(200):
        said = sum(chance.random() < 0.2 for _ in range(300))
        rightly = sum(chance.random() < 0.6 for _ in range(40))
        missed = sum(chance.random() < 0.05 for _ in range(60))
        share = share_of(Count(hits=said, n=300), Count(hits=rightly, n=40), Count(hits=missed, n=60))
        right += share.low <= 0.2 * 0.6 + 0.8 * 0.05 <= share.high
    assert right >= 180  # 190 expected


@given(hits=st.integers(0, 50), more=st.integers(0, 500))
def test_equal_counts_have_a_ratio_around_one(hits: int, more: int) -> None:
    ratio = compared(Count(hits=hits, n=hits + more), Count(hits=hits, n=hits + more))
    assert ratio.low <= 1 <= ratio.high


def _watched(share: float, runs: int, past: Count, seed: int) -> tuple[Watch, int | None]:
    chance, watch, alarm = random.Random(seed), Watch(known=past), None
    limit = threshold(runs, 1)
    for number in range(runs):
        watch = observe(watch, math.inf, is_blamed=chance.random() < share)
        if alarm is None and watch.evidence >= limit:
            alarm = number
    return watch, alarm


def test_a_stable_share_raises_no_alarm() -> None:
    assert sum(_watched(0.1, 700, Count(hits=200, n=2000), seed)[1] is not None for seed in range(60)) <= 3


def test_a_doubled_share_raises_an_alarm() -> None:
    alarms = [_watched(0.2, 700, Count(hits=200, n=2000), seed)[1] for seed in range(20)]
    assert None not in alarms
    assert mean(alarm for alarm in alarms if alarm is not None) < 350


def test_while_nothing_changes_the_evidence_is_the_runs_at_most_on_average() -> None:
    """If the share is known, each bet is fair: the bound on false alarms depends on this."""
    ends = []
    for seed in range(400):
        chance, watch = random.Random(seed), Watch(known=Count(hits=300_000, n=1_000_000))
        for _ in range(20):
            watch = observe(watch, math.inf, is_blamed=chance.random() < 0.3)
        ends.append(watch.evidence)
    assert mean(ends) == pytest.approx(20, rel=0.25)


def test_evidence_is_right_on_average_over_shares_with_such_a_past() -> None:
    """The share is drawn from its posterior, so the evidence is right on average."""
    ends = []
    for seed in range(4000):
        chance, watch = random.Random(seed), Watch(known=Count(hits=2, n=10))
        share = chance.betavariate(2.5, 8.5)
        for _ in range(20):
            watch = observe(watch, math.inf, is_blamed=chance.random() < share)
        ends.append(watch.evidence)
    assert mean(ends) == pytest.approx(20, rel=0.25)


def test_an_agent_without_a_past_becomes_known_as_its_runs_come() -> None:
    watch = Watch(known=Count())
    for _ in range(200):
        watch = observe(watch, math.inf, is_blamed=False)
    assert watch.expected < 0.01
    for _ in range(8):
        watch = observe(watch, math.inf, is_blamed=True)
    assert watch.evidence > threshold(350, 3)


def test_an_alarm_ends_after_a_calm_that_a_doubled_share_would_not_have() -> None:
    watch, states = Watch(known=Count(hits=10, n=1000)), []
    for is_blamed in [False] * 50 + [True] * 40 + [False] * 400:
        watch = observe(watch, threshold(100, 1), is_blamed=is_blamed)
        states.append(watch.is_alarm)
    changes = [place for place in range(1, len(states)) if states[place] != states[place - 1]]
    assert len(changes) == 2
    assert 50 < changes[0] < 60
    assert 130 < changes[1] - 90 < 180


@given(st.integers(0, 30), st.integers(0, 300))
def test_the_expected_share_is_near_the_past(hits: int, more: int) -> None:
    watch = Watch(known=Count(hits=hits, n=hits + more))
    assert 0 < watch.expected < 1
    assert abs(watch.expected - hits / max(hits + more, 1)) <= 0.5 / (hits + more + 1) + 1e-9


@given(st.lists(st.booleans(), max_size=300), st.integers(0, 20), st.integers(0, 50))
def test_evidence_is_never_negative_nor_lost(runs: list[bool], hits: int, more: int) -> None:
    watch = Watch(known=Count(hits=hits, n=hits + more))
    for is_blamed in runs:
        watch = observe(watch, math.inf, is_blamed=is_blamed)
        assert watch.evidence >= 0
    assert watch.known.n == hits + more + len(runs)
