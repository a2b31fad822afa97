"""Two arms are compared after every trial, a walk finds the decisive call, and both are printed."""

from __future__ import annotations

import io
import json
import random

import pytest
from rich.console import Console

from analyzer.experiment.call_budget import Ledger, Spent
from analyzer.experiment.candidates import ArmKey, Candidate, Fix, suspects
from analyzer.experiment.experiment_output import conclusion
from analyzer.experiment.findings import Experiment, finding, to_json
from analyzer.experiment.replay.gateway_options import LiveCall, LiveUsage
from analyzer.experiment.sequential import (
    Arm,
    Decision,
    Draw,
    Reason,
    Sampling,
    TrialResult,
    compare,
    count,
    decide,
    interval,
    latest_reasons,
    log_evidence_of_healing,
    shares_of_alpha,
)
from analyzer.experiment.walk import (
    FOR_THE_BLAMED,
    USUAL,
    Room,
    Walk,
    is_futile,
    probability_of_proof,
    trials_left,
)
from analyzer.experiment.workflow import Command, Endpoint
from benchmarks.experiment.simulated import chain, texts, walk
from tests.tapes import call, tape


def arm(successes: int, n: int, invalid: int = 0, copies: int = 0) -> Arm:
    return Arm(n=n, successes=successes, invalid=invalid, copies=copies)


@pytest.mark.parametrize(
    ("control", "treatment", "decision"),
    [
        pytest.param(arm(0, 5), arm(5, 5), Decision.PROVED, id="all against none"),
        pytest.param(arm(1, 10), arm(8, 10), Decision.PROVED, id=".8 against .1"),
        pytest.param(arm(0, 3), arm(2, 3), Decision.UNDECIDED, id="too few"),
        pytest.param(arm(0, 12), arm(0, 12), Decision.REFUTED, id="never succeeds"),
        pytest.param(arm(8, 10), arm(1, 10), Decision.REFUTED, id="the change harms"),
        pytest.param(arm(0, 0), arm(9, 9), Decision.UNDECIDED, id="no control"),
    ],
)
def test_arms_decide(control: Arm, treatment: Arm, decision: Decision) -> None:
    assert decide(control, treatment) is decision


def test_a_small_effect_is_no_proof_however_many_trials_there_are() -> None:
    assert log_evidence_of_healing(arm(100, 1000), arm(300, 1000)) > 10
    assert decide(arm(100, 1000), arm(300, 1000)) is not Decision.PROVED


def test_rates_of_invalid_trials_more_than_twenty_points_apart_decide_nothing() -> None:
    found = compare(arm(0, 10), arm(10, 10, invalid=5))
    assert found.decision is Decision.UNDECIDED
    assert "more than 20 points apart" in found.reason
    assert decide(arm(0, 10), arm(10, 10, invalid=2)) is Decision.PROVED


def test_the_interval_holds_the_measured_effect_and_narrows() -> None:
    low, high = interval(arm(1, 10), arm(7, 10))
    assert -1 <= low < 0.6 < high <= 1
    narrower = interval(arm(10, 100), arm(70, 100))
    assert low < narrower[0] < 0.6 < narrower[1] < high


def test_the_evidence_is_worth_at_most_one_on_average_under_the_null() -> None:
    """Computed over all outcomes of 6 + 6 trials: the property that makes it an e-value at any rate."""
    from math import comb, exp  # noqa: PLC0415

    for rate in (0.05, 0.3, 0.5, 0.8):
        mean = sum(
            comb(6, a)
            * comb(6, b)
            * rate ** (a + b)
            * (1 - rate) ** (12 - a - b)
            * exp(log_evidence_of_healing(arm(a, 6), arm(b, 6)))
            for a in range(7)
            for b in range(7)
        )
        assert mean <= 1


def test_alpha_is_divided_and_never_exceeded() -> None:
    shares = shares_of_alpha([0.7, 0.1, 0.1, 0.1])
    assert sum(shares) == pytest.approx(0.05)
    assert shares[0] > shares[1]
    assert shares_of_alpha([0.0, 0.0]) == (0.025, 0.025)


@pytest.mark.parametrize("decisive", [0, 3, 7])
def test_a_walk_proves_the_decisive_call_wherever_it_is(decisive: int) -> None:
    done = walk(
        chain([1.0] * 8), lambda key: 0.0 if decisive in key.recorded else 0.9, random.Random(decisive)
    )
    assert done.proved == (decisive,)
    assert done.trials < 80


def test_walks_in_which_nothing_heals_seldom_prove_a_step() -> None:
    """20 walks each; ``python -m benchmarks.experiment null`` makes 1,000."""
    coin = random.Random(4)
    for candidates in (chain([1.0] * 3), texts([1.0] * 2)):
        proved = sum(bool(walk(candidates, lambda _: 0.3, coin, most=10).proved) for _ in range(20))
        assert proved <= 4  # at a rate of 5 %, more come by chance to 3 in 1,000 such tests


def test_a_walk_plans_as_many_trials_at_a_time_as_run_in_parallel() -> None:
    state = Walk(chain([1.0]), most_trials=3)
    begun = [state.begin() for _ in range(8)]
    assert sum(key is not None for key in begun) == 6
    for key in begun:
        if key is not None:
            state.end(key, None)
    assert state.begin() is not None


FULL = Room(control=30, treatment=30)


@pytest.mark.parametrize(
    ("control", "treatment", "is_dropped"),
    [
        pytest.param(arm(7, 10), arm(7, 10), True, id="succeeds with the recorded answer too"),
        pytest.param(arm(9, 10), arm(4, 10), False, id="the change harms, which is soon refuted"),
        pytest.param(arm(0, 8), arm(0, 8), False, id="a refutation is near"),
        pytest.param(arm(2, 10), arm(5, 10), False, id="may still be proved"),
        pytest.param(arm(0, 2), arm(2, 2), False, id="too few trials"),
        pytest.param(arm(2, 2), arm(0, 2), False, id="too few trials, to the other side"),
        pytest.param(arm(0, 0), arm(0, 9), False, id="no control"),
    ],
)
def test_a_step_is_dropped_if_a_proof_is_improbable(
    control: Arm,
    treatment: Arm,
    is_dropped: bool,
) -> None:
    assert is_futile(control, treatment, 0.05, FULL) is is_dropped


def test_without_further_trials_the_probability_of_a_proof_is_0_or_1() -> None:
    none = Room(control=0, treatment=0)
    assert probability_of_proof(arm(0, 5), arm(5, 5), 0.05, none) == 1
    assert probability_of_proof(arm(0, 3), arm(3, 3), 0.0001, none) == 0


def test_trials_are_not_begun_for_a_step_that_the_last_of_them_could_not_prove() -> None:
    """Four trials an arm cannot prove one of 30 steps: an arm of three is enough to say so."""
    done = walk(chain([1.0] * 30), lambda _: 0.5, random.Random(1), most=4)
    assert done.trials < 4 * 31


def test_the_estimate_of_trials_falls_with_each_trial_and_stays_within_the_limit() -> None:
    few, many = trials_left(arm(0, 4), arm(4, 4), 0.01, FULL), trials_left(arm(0, 2), arm(2, 2), 0.01, FULL)
    assert 0 < few < many <= 60
    assert trials_left(arm(3, 10), arm(5, 10), 0.0001, FULL) == 60


def test_dropping_saves_trials_of_an_innocent_step_and_proves_none() -> None:
    """``python -m benchmarks.experiment futility`` compares many walks of many kinds."""
    trials, proved = [0, 0], [0, 0]
    for which, least in enumerate((0.02, 0.0)):
        for seed in range(12):
            done = walk(chain([1.0]), lambda _: 0.7, random.Random(seed), rule=(least, USUAL))
            trials[which] += done.trials
            proved[which] += bool(done.proved)
    assert trials[0] < 0.8 * trials[1]
    assert proved[0] <= proved[1]


def test_the_most_suspect_step_gets_more_trials_for_its_refutation_than_others() -> None:
    taken_back = [0, 0]
    for which, patience in enumerate((FOR_THE_BLAMED, USUAL)):
        for seed in range(12):
            done = walk(chain([1.0]), lambda _: 0.5, random.Random(seed), rule=(0.02, patience))
            taken_back[which] += done.takes_back
    assert taken_back[0] >= taken_back[1] + 3
    suspect, other = Walk(chain([0.9, 0.1])), Walk(chain([0.1, 0.9]))
    for state in (suspect, other):
        first = state.candidates[0]
        for trial in range(14):
            for key in (first.control, first.treatment):
                state.end(key, TrialResult(success=trial % 2 == 0))
    assert not suspect.why_dropped(suspect.candidates[0])
    assert other.why_dropped(other.candidates[0])


def test_a_dropped_step_returns_if_its_shared_arm_favours_it() -> None:
    state = Walk(chain([0.4, 0.6]))
    first, second = state.candidates
    for trial in range(10):
        for key in (first.control, first.treatment, second.control):
            state.end(key, TrialResult(success=trial % 3 != 2))
    assert state.why_dropped(first)
    for _ in range(20):
        state.end(first.control, TrialResult())
    assert not state.why_dropped(first)


def draw(answer: str, *, request: str = "q", is_greedy: bool = False) -> Draw:
    return Draw(source="m", request=request, answer=answer, is_greedy=is_greedy)


def counted(*trials: TrialResult) -> Arm:
    known = Sampling()
    for trial in trials:
        known.add(trial)
    return count(trials, known)


def test_equal_answers_to_equal_requests_count_once() -> None:
    same = TrialResult(success=True, draws=(draw("480"),))
    assert counted(same, same, same) == arm(1, 1, copies=2)


async def test_requests_that_differ_in_the_order_of_their_keys_are_equal() -> None:
    ledger, answered = Ledger(lambda *_: 0.0), LiveUsage(answer="480")
    said = {"role": "user", "content": "How many seats?"}
    for message in (said, dict(reversed(said.items())), said | {"content": "How many berths?"}):
        live = LiveCall(trial="t", model="m", body=json.dumps({"messages": [message]}).encode())
        await ledger.settle(live, answered)
    first, same, other = (drawn.request for drawn in ledger.draws("t"))
    assert first == same != other


def test_equal_answers_of_a_model_that_is_known_to_sample_count_each() -> None:
    same, other = TrialResult(draws=(draw("480"),)), TrialResult(draws=(draw("450"),))
    assert counted(same, same, same, other).n == 4


def test_at_temperature_0_equal_answers_count_once_whatever_else_was_answered() -> None:
    cold = [TrialResult(draws=(draw(answer, is_greedy=True),)) for answer in ("480", "480", "450")]
    assert counted(*cold).n == 2


def test_trials_without_live_calls_count_each() -> None:
    assert counted(TrialResult(), TrialResult()).n == 2


def test_invalid_trials_are_counted_apart() -> None:
    found = counted(TrialResult(invalid="x"), TrialResult(success=True))
    assert (found.n, found.successes, found.invalid) == (1, 1, 1)


def test_the_last_distinct_reasons_of_invalid_trials_are_kept_with_their_numbers() -> None:
    found = counted(*(TrialResult(invalid=reason) for reason in "abcdbd"))
    assert found.reasons == (Reason(text="d", n=2), Reason(text="b", n=2), Reason(text="c", n=1))
    assert found.invalid == 6


def test_a_text_at_one_call_is_not_taken_for_a_text_at_another() -> None:
    one, other = (
        Candidate(
            call=call,
            step=call,
            agent="a",
            belief=0.5,
            control=ArmKey(recorded=frozenset(range(call + 1))),
            treatment=ArmKey(recorded=frozenset(range(call)), fixed=call),
            resampled=ArmKey(recorded=frozenset(range(call))),
        )
        for call in (0, 1)
    )
    assert one.treatment != other.treatment
    assert one.control == other.resampled


TOOL = "no result of the tool `book_flight` for these arguments is left on the tape"
CUT = "the upstream failed (cut: 1)"


def _experiment(*treatment: TrialResult) -> Experiment:
    """An undecided experiment on one step, with one valid trial of the control."""
    found = suspects(tape(call(0, "a")), {0: 1.0}, Fix())
    candidate: Candidate = found.candidates[0]
    walk = Walk(found.candidates)
    walk.end(candidate.control, TrialResult())
    for trial in treatment:
        walk.end(candidate.treatment, trial)
    return Experiment(
        run_id="run",
        fix=Fix(),
        fidelity=None,
        findings=tuple(finding(walk, each, Fix(), Spent(), "") for each in walk.tried),
        decision=Decision.UNDECIDED,
        reason="too few trials",
        spent=Spent(),
        duration_s=1.0,
        invalid=sum(bool(trial.invalid) for trial in treatment),
        reasons=latest_reasons([trial.invalid for trial in treatment if trial.invalid]),
        copies=walk.copies,
    )


def _shown(result: Experiment) -> str:
    screen = Console(file=io.StringIO(), width=200)
    screen.print(conclusion(result))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_the_conclusion_says_why_trials_are_invalid_even_if_none_was_valid() -> None:
    result = _experiment(*[TrialResult(invalid=TOOL)] * 2, TrialResult(invalid=CUT))
    told = _shown(result)
    assert result.findings == ()
    assert "3 trials invalid" in told
    assert f"2: {TOOL}" in told
    assert f"1: {CUT}" in told
    (final,) = to_json(result)
    assert final["invalid_reasons"] == [{"reason": CUT, "n": 1}, {"reason": TOOL, "n": 2}]


def test_each_arm_names_its_reasons_in_json() -> None:
    step, _ = to_json(_experiment(TrialResult(success=True), TrialResult(invalid=TOOL)))
    assert step["treatment"]["invalid_reasons"] == [{"reason": TOOL, "n": 1}]
    assert step["control"]["invalid_reasons"] == []


def test_reasons_beyond_the_last_three_are_counted() -> None:
    told = _shown(_experiment(*(TrialResult(invalid=f"reason {number}") for number in range(5))))
    assert "1: reason 4" in told
    assert "2: earlier, for other reasons" in told
    assert "reason 1" not in told


def test_the_conclusion_says_that_equal_answers_count_once() -> None:
    same = TrialResult(draws=(Draw(source="m", request="q", answer="480"),))
    result = _experiment(same, same, same)
    assert "2 trials not counted: live requests and answers equal those of another trial" in _shown(result)
    step, final = to_json(result)
    assert (step["treatment"]["n"], step["treatment"]["copies"], final["copies"]) == (1, 2, 2)


def test_the_workflow_is_shown_as_the_user_wrote_it() -> None:
    assert str(Command(arguments=["python", "my agents.py", "$X"])) == "python 'my agents.py' '$X'"
    assert str(Endpoint(url="http://127.0.0.1:1/run", task="secret")) == "POST http://127.0.0.1:1/run"
