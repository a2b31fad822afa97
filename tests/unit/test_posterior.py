from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.calibration import fit_temperature
from analyzer.inquiry.posterior import (
    RIGHT_STEP_USD,
    SIGNALS_ACCURACY,
    LogShares,
    Opinion,
    Worth,
    belief_in_signals,
    gain_of_asking,
    log_softmax,
    mixed,
    pool,
    ranked,
    temper,
    worth_of,
)
from analyzer.methods.attribution import Attributor
from semconv.model import Ranked, Status
from tests.runs import run, step

SCORES = st.lists(st.floats(-30, 30), min_size=1, max_size=40)
THREE = run(step("a"), step("b"), step("a"))


def shares(*probabilities: float) -> LogShares:
    return tuple(math.log(p) for p in probabilities)


def total(opinion: LogShares) -> float:
    return math.fsum(math.exp(share) for share in opinion)


@given(SCORES)
def test_log_softmax_gives_probabilities_in_the_order_of_the_scores(scores: list[float]) -> None:
    result = log_softmax(scores)
    assert total(result) == pytest.approx(1.0)
    assert result[scores.index(max(scores))] == max(result)


@given(SCORES, st.floats(0.1, 10))
def test_temper_keeps_the_best_step_and_the_sum(scores: list[float], temperature: float) -> None:
    before = log_softmax(scores)
    after = temper(before, temperature)
    assert total(after) == pytest.approx(1.0)
    assert after[before.index(max(before))] == pytest.approx(max(after))


def test_a_pool_of_equal_opinions_is_that_opinion_and_an_ignored_one_changes_nothing() -> None:
    one = shares(0.2, 0.5, 0.3)
    assert pool([Opinion(shares=one, weight=0.5)] * 2) == pytest.approx(one)
    ignored = Opinion(shares=shares(0.9, 0.05, 0.05), weight=0.0)
    assert pool([Opinion(shares=one), ignored]) == pytest.approx(one)


def test_an_expert_that_rules_a_step_out_keeps_it_out() -> None:
    sure = shares(1e-9, 0.5, 0.5)
    keen = shares(0.8, 0.1, 0.1)
    assert math.exp(pool([Opinion(shares=sure), Opinion(shares=keen)])[0]) < 1e-6


def test_opinions_on_different_runs_and_an_empty_list_are_refused() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        pool([Opinion(shares=shares(1.0)), Opinion(shares=shares(0.5, 0.5))])
    with pytest.raises(ValueError, match="no opinion"):
        pool([])


def test_a_ranking_holds_as_often_as_it_has_earned_and_else_says_nothing() -> None:
    opinion = mixed((Ranked(step=1, agent="b", probability=0.4),), THREE, 0.1)
    assert [math.exp(share) for share in opinion] == pytest.approx([0.3, 0.4, 0.3])


def test_a_boast_earns_no_belief_but_divides_it() -> None:
    boast = (Ranked(step=1, agent="b", probability=0.96), Ranked(step=0, agent="a", probability=0.32))
    timid = tuple(Ranked(step=r.step, agent=r.agent, probability=r.probability / 9) for r in boast)
    assert mixed(boast, THREE, 0.4) == pytest.approx(mixed(timid, THREE, 0.4))
    assert [math.exp(share) for share in mixed(boast, THREE, 0.4)] == pytest.approx([0.3, 0.5, 0.2])


@pytest.mark.parametrize("ranking", [(), (Ranked(step=1, agent="b", probability=0.0),)])
def test_an_empty_ranking_is_not_an_opinion(ranking: tuple[Ranked, ...]) -> None:
    assert [math.exp(share) for share in mixed(ranking, THREE, 0.9)] == pytest.approx([1 / 3] * 3)


def test_the_ranking_is_best_first_and_the_earlier_of_equals() -> None:
    order = [candidate.step for candidate in ranked(shares(0.25, 0.5, 0.25), THREE, 2)]
    assert order == [1, 0]


def test_asking_gains_nothing_where_no_answer_could_change_ours() -> None:
    assert gain_of_asking(shares(0.97, 0.02, 0.01), accuracy=0.45) == 0.0
    assert gain_of_asking(shares(1.0), accuracy=0.9) == 0.0


@given(st.integers(2, 60), st.floats(0.0, 1.0))
def test_asking_about_a_run_of_which_nothing_is_known_gains_what_the_expert_knows(
    n: int, accuracy: float
) -> None:
    gain = gain_of_asking(log_softmax([0.0] * n), accuracy)
    slip = (1 - accuracy) / (n - 1)
    assert gain == pytest.approx(max(accuracy, slip) - 1 / n, abs=1e-9)


@given(SCORES, st.floats(0.0, 1.0))
def test_asking_never_harms(scores: list[float], accuracy: float) -> None:
    assert 0.0 <= gain_of_asking(log_softmax(scores), accuracy) <= 1.0


def test_the_temperature_cools_a_boaster_and_leaves_an_honest_one_alone() -> None:
    boasts = [shares(0.98, 0.01, 0.01)] * 10
    right = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert fit_temperature(boasts, right) > 3
    honest = [shares(0.4, 0.3, 0.3)] * 10
    assert fit_temperature(honest, right) == 1.0
    assert fit_temperature([], []) == 1.0


JUDGE = 0.45
BELIEFS = st.lists(st.floats(-8, 8), min_size=1, max_size=40).map(log_softmax)
RUN = run(*(step(f"agent{n}", f"said {n}") for n in range(5)), task="t")
EVIDENCE = [{"step": 1, "quote": "said 1"}]
JUDGED = json.dumps({"reason": "r", "step": 1, "agent": "agent1", "ranking": [], "evidence": EVIDENCE})


@given(BELIEFS, st.floats(0.01, 1))
def test_an_answer_is_worth_no_more_than_being_right_instead_of_wrong(
    shares: tuple[float, ...], accuracy: float
) -> None:
    worth = worth_of(shares, accuracy)
    assert 0 <= worth.gain <= 1 - math.exp(max(shares)) + 1e-9
    assert worth.usd == worth.gain * RIGHT_STEP_USD


@given(BELIEFS)
def test_a_better_expert_is_worth_no_less(shares: tuple[float, ...]) -> None:
    even = 1 / len(shares)
    gains = [worth_of(shares, even + (1 - even) * share / 10).gain for share in range(11)]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(gains))


def test_who_is_sure_needs_no_answer_and_who_knows_nothing_gains_what_the_expert_knows() -> None:
    assert not worth_of(log_softmax([9.0, 0.0, 0.0]), JUDGE).is_any
    assert worth_of(log_softmax([0.0] * 10), JUDGE).gain == pytest.approx(JUDGE - 0.1)
    assert not worth_of((0.0,), JUDGE).is_any
    assert not worth_of((), JUDGE).is_any


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 100])
def test_signals_are_believed_as_often_as_they_are_right(steps: int) -> None:
    shares = belief_in_signals(steps)
    assert len(shares) == steps
    if steps:
        assert sum(map(math.exp, shares)) == pytest.approx(1)
        assert math.exp(max(shares)) == pytest.approx(max(SIGNALS_ACCURACY, 1 / steps))


def test_the_smaller_of_worth_and_budget_is_spent() -> None:
    worth = Worth(gain=0.1, usd=0.5)
    assert worth.limit(0.2) == (0.2, "a run")
    assert worth.limit(2.0)[0] == worth.limit(None)[0] == 0.5
    assert "by 10%" in worth.limit(None)[1]


@pytest.mark.parametrize(
    ("shares", "gain", "most"),
    [
        (belief_in_signals(10), 0.25, 0.5),
        (log_softmax([math.log(0.4), *[math.log(0.6 / 9)] * 9]), 0.05, 0.25),
        (log_softmax([math.log(0.8), *[math.log(0.2 / 9)] * 9]), 0.0, 0.0),
    ],
)
def test_the_figures_of_the_page_on_methods(shares: tuple[float, ...], gain: float, most: float) -> None:
    worth = worth_of(shares, JUDGE)
    assert worth.gain == pytest.approx(gain)
    assert worth.limit(0.5)[0] == pytest.approx(most)


@pytest.mark.parametrize(
    ("price", "method", "calls"),
    [
        pytest.param(None, "judge+signals", 1, id="nobody knows the price"),
        pytest.param(0.0, "judge+signals", 1, id="free"),
        pytest.param(1.0, "judge+signals", 1, id="worth it"),
        pytest.param(2.0, "signals", 0, id="too dear for what it brings"),
    ],
)
async def test_auto_spends_what_the_answer_is_worth_and_says_where_it_did_not(
    price: float | None, method: str, calls: int
) -> None:
    """Among five steps a judge is expected to add 25 points to the 20 of signals: 1.25 USD."""
    model = ScriptedModel(replies=[JUDGED], cost_usd=price)
    found = await Attributor(model=model, budget_usd=None)(RUN)
    assert (found.method, len(model.prompts), found.status) == (method, calls, Status.ATTRIBUTED)
    assert bool(found.fallback) is not bool(calls)
    if found.fallback:
        assert "the budget of $1.25 for an answer that raises the chance of the right step by 25%" in (
            found.fallback
        )


async def test_a_method_that_was_asked_for_by_name_is_not_haggled_over() -> None:
    model = ScriptedModel(replies=[JUDGED], cost_usd=2.0)
    found = await Attributor(method="judge", model=model, budget_usd=None)(RUN)
    assert (found.status, len(model.prompts)) == (Status.ATTRIBUTED, 1)


async def test_where_there_is_one_step_there_is_nothing_to_ask() -> None:
    model = ScriptedModel(replies=[JUDGED])
    found = await Attributor(model=model)(run(step("a", "failed")))
    assert (found.method, len(model.prompts), found.fallback) == ("signals", 0, None)
