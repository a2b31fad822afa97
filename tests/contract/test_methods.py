"""Contract of every attribution method, for any run and any reply of the model."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.errors import ModelError, ModelFailure
from analyzer.methods.attribution import Attributor
from analyzer.methods.registry import AUTO, METHODS
from semconv.model import Abstention, Blame, SpanStatus, Status, Step, StepKind, Trajectory
from tests.runs import run, step

NAMES = st.sampled_from(["planner", "WebSurfer", "Computer_terminal", "unknown", "", "agent\n[3] x"])
TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["exitcode: 1 (failed)", "16 x 10 = 150", "I assume 5", "TERMINATE", "[]", "{" * 50]),
)
STEPS = st.builds(
    step,
    NAMES,
    TEXTS,
    st.sampled_from(StepKind),
    status=st.sampled_from(SpanStatus),
    error=st.sampled_from(["", "TimeoutError"]),
    input=TEXTS,
    target=st.sampled_from([None, "lookup", "planner"]),
)
RUNS = st.lists(STEPS, max_size=8).flatmap(
    lambda steps: st.builds(lambda task, output: run(*steps, task=task, output=output), TEXTS, TEXTS)
)
REPLIES = st.one_of(
    st.text(max_size=80),
    st.builds(lambda at: json.dumps({"reason": "r", "step": at}), st.integers(-3, 12)),
    st.builds(
        lambda agent, at: f"Agent Name: {agent}\nStep Number: {at}\nReason for Mistake: r",
        NAMES,
        st.integers(-3, 12),
    ),
    st.just(ModelError("gone", kind=ModelFailure.CONNECTION)),
)


def check(verdict: Blame | Abstention, trajectory: Trajectory) -> None:
    if isinstance(verdict, Abstention):
        assert verdict.status in {Status.ERROR, Status.UNDETERMINED}
        assert verdict.reason
        return
    blamed: Step = trajectory.steps[verdict.step]
    assert verdict.agent == blamed.agent
    assert 0 <= verdict.confidence <= 1
    assert verdict.reason
    assert verdict.ranking[0].step == verdict.step
    assert verdict.ranking[0].probability == pytest.approx(verdict.confidence, abs=1e-3)
    assert sum(candidate.probability for candidate in verdict.ranking) <= 1.001
    assert len({candidate.step for candidate in verdict.ranking}) == len(verdict.ranking)
    for candidate in verdict.ranking:
        assert trajectory.steps[candidate.step].agent == candidate.agent
    for evidence in verdict.evidence:
        assert 0 <= evidence.step < len(trajectory.steps)


@pytest.mark.parametrize("method", [AUTO, *METHODS])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trajectory=RUNS, replies=st.lists(REPLIES, max_size=3))
async def test_every_run_ends_in_a_sound_verdict_or_an_honest_abstention(
    method: str, trajectory: Trajectory, replies: list[str | ModelError]
) -> None:
    attributor = Attributor(method=method, model=ScriptedModel(replies=replies))
    attribution = await attributor(trajectory)
    check(attribution.verdict, trajectory)
    assert (attribution.error is None) == (attribution.status is not Status.ERROR)


@pytest.mark.parametrize("method", [AUTO, *METHODS])
async def test_a_run_without_steps_is_an_error(method: str) -> None:
    attributor = Attributor(method=method, model=ScriptedModel(replies=[]))
    assert (await attributor(run())).status is Status.ERROR


@pytest.mark.parametrize("method", [name for name, entry in METHODS.items() if not entry.needs_model])
async def test_a_method_without_a_model_answers_the_same_each_time(method: str) -> None:
    trajectory = run(step("a", "x"), step("b", "5 + 5 = 11"), step("c", "y"))
    one, other = Attributor(method=method, clock=lambda: 0.0), Attributor(method=method, clock=lambda: 0.0)
    assert await one(trajectory) == await other(trajectory)


async def test_the_baselines_are_what_they_are_called() -> None:
    trajectory = run(
        step("human", "do it", StepKind.HUMAN),
        step("terminal", "4", StepKind.TOOL),
        step("a", "x"),
        step("b", "y"),
    )
    blamed = {}
    for method in ("first-agent-step", "constant", "random"):
        verdict = (await Attributor(method=method)(trajectory)).verdict
        assert isinstance(verdict, Blame)
        blamed[method] = verdict.step
    assert blamed["first-agent-step"] == 2
    assert blamed["constant"] == 1
    draws = set()
    for n in range(40):
        verdict = (await Attributor(method="random")(run(*(step("a", f"{n}-{m}") for m in range(4))))).verdict
        assert isinstance(verdict, Blame)
        draws.add(verdict.step)
    assert draws == {0, 1, 2, 3}
