from __future__ import annotations

import json
from dataclasses import replace

import pytest

from analyzer.history.elements import elements_of, pack, unpack
from analyzer.history.known_runs import KnownRun, KnownRuns, has_shared_agents, pooled_versions, said_of
from analyzer.history.spectrum import Said, Spectrum, spectrum_of
from analyzer.history.versions import Decision, Version, equality, version_of
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
