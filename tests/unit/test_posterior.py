from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.calibration import fit_temperature
from analyzer.inquiry.posterior import (
    LogShares,
    Opinion,
    gain_of_asking,
    log_softmax,
    mixed,
    pool,
    ranked,
    temper,
)
from semconv.model import Ranked
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
