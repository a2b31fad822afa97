"""A new ranker takes over only if it is better on the same random runs."""

from __future__ import annotations

import math
import random

import pytest

from analyzer.lab.evaluation.training import ALPHA, Contest, Ruling, contest, log_evidence

WIN, LOSS, BOTH, NEITHER = (False, True), (True, False), (True, True), (False, False)


def test_only_runs_on_which_exactly_one_ranker_is_right_count() -> None:
    found = contest([*[BOTH] * 50, *[NEITHER] * 50, WIN, LOSS])
    assert found == Contest(n=102, champion=51, challenger=51, wins=1, losses=1)
    assert found.ruling is Ruling.UNDECIDED


def test_a_better_ranker_is_promoted_and_a_worse_one_rejected() -> None:
    assert contest([WIN] * 8).ruling is Ruling.PROMOTE
    assert contest([LOSS] * 8).ruling is Ruling.REJECT
    assert contest([]).ruling is Ruling.UNDECIDED


def test_a_decision_is_final_whatever_follows() -> None:
    decided = contest([WIN] * 8)
    assert contest([*[WIN] * 8, *[LOSS] * 50]) == decided
    assert decided.n == 7


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (5, 0), (0, 5), (8, 1), (30, 12), (300, 280)])
def test_the_evidence_is_the_integral(wins: int, losses: int) -> None:
    steps = 20_000
    shares = [0.5 + (at + 0.5) / steps / 2 for at in range(steps)]
    mean = sum((2 * p) ** wins * (2 * (1 - p)) ** losses for p in shares) / steps
    assert math.exp(log_evidence(wins, losses)) == pytest.approx(mean, rel=1e-3)


def test_a_test_after_every_label_promotes_at_most_5_percent_of_equal_rankers() -> None:
    coin, wrong = random.Random(7), 0
    for _ in range(1000):
        results = ((coin.random() < 0.5, coin.random() < 0.5) for _ in range(200))
        wrong += contest(results).ruling is Ruling.PROMOTE
    assert wrong / 1000 <= ALPHA
