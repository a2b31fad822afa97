"""Sets of steps keep the coverage that they state, on runs like those they were calibrated on."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.posterior import (
    COVERAGE,
    LogShares,
    Order,
    SetRule,
    log_softmax,
    set_rule,
    steps_within,
)


def logs(*shares: float) -> LogShares:
    return tuple(math.log(share) for share in shares)


def rule(order: Order, mass: float) -> SetRule:
    return SetRule(order=order, mass=mass, covered=90, n=100)


def folds(count: int, parts: int = 10) -> list[list[int]]:
    return [list(range(part, count, parts)) for part in range(parts)]


def drawn(seed: int, count: int, sharpness: float = 1.0) -> tuple[list[LogShares], list[int]]:
    """Runs of 3 to 12 steps, and a decisive step drawn by their probabilities (too sure if not 1)."""
    chance = random.Random(seed)
    stated: list[LogShares] = []
    right: list[int] = []
    for _ in range(count):
        scores = [chance.gauss(0, 2) for _ in range(chance.randint(3, 12))]
        stated.append(log_softmax([sharpness * score for score in scores]))
        true = [math.exp(share) for share in log_softmax(scores)]
        right.append(chance.choices(range(len(true)), weights=true)[0])
    return stated, right


def test_steps_are_taken_by_probability_or_outwards_from_the_first() -> None:
    shares = logs(0.3, 0.05, 0.4, 0.25)
    assert steps_within(shares, rule(Order.BY_PROBABILITY, 0.0)) == (2,)
    assert steps_within(shares, rule(Order.BY_PROBABILITY, 0.4)) == (0, 2)
    assert steps_within(shares, rule(Order.CONTIGUOUS, 0.4)) == (2, 3)
    assert steps_within(shares, rule(Order.CONTIGUOUS, 0.68)) == (1, 2, 3)
    assert steps_within(shares, rule(Order.CONTIGUOUS, 1.0)) == (0, 1, 2, 3)
    assert steps_within((), rule(Order.CONTIGUOUS, 0.5)) == ()


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])  # too humble, honest, too sure
def test_unseen_runs_are_covered_as_stated_whatever_the_probabilities_are_worth(sharpness: float) -> None:
    unseen, truth = drawn(0, 1000, sharpness)
    observed: list[float] = []
    covered: list[float] = []
    for seed in range(1, 11):
        found = set_rule(*drawn(seed, 200, sharpness), folds(200))
        assert found is not None
        observed.append(found.covered / found.n)
        inside = sum(step in steps_within(one, found) for one, step in zip(unseen, truth, strict=True))
        covered.append(inside / 1000)
    assert COVERAGE - 0.01 < fmean(covered) < COVERAGE + 0.03
    assert fmean(observed) == pytest.approx(fmean(covered), abs=0.02)


def test_sets_are_no_larger_than_they_need_to_be() -> None:
    sure, right = drawn(3, 200, sharpness=1.0)
    found = set_rule(sure, right, folds(200))
    assert found is not None
    sizes = [len(steps_within(one, found)) for one in sure]
    assert sum(sizes) < 0.8 * sum(map(len, sure))


def test_related_runs_do_not_vouch_for_each_other() -> None:
    """In nine parts the first step is right; in the tenth the last one is, which the others do not know."""
    shares = [logs(0.6, 0.3, 0.1)] * 100
    right = [2 if run >= 90 else 0 for run in range(100)]
    found = set_rule(shares, right, [list(range(part * 10, part * 10 + 10)) for part in range(10)])
    assert found is not None
    assert found.covered == 90


def test_too_few_runs_or_too_little_coverage_show_no_set() -> None:
    assert set_rule([logs(0.6, 0.4)] * 5, [0] * 5, folds(5, 5)) is None
    few = SetRule(order=Order.CONTIGUOUS, mass=0.5, covered=49, n=49)
    low = SetRule(order=Order.CONTIGUOUS, mass=0.5, covered=86, n=100)
    enough = SetRule(order=Order.CONTIGUOUS, mass=0.5, covered=50, n=50)
    assert (few.is_shown, low.is_shown, enough.is_shown) == (False, False, True)


@given(
    st.lists(st.floats(-30, 30), min_size=1, max_size=20),
    st.sampled_from(Order),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_a_larger_mass_keeps_the_steps_of_a_smaller_one(
    scores: Sequence[float], order: Order, one: float, other: float
) -> None:
    shares = log_softmax(scores)
    less, more = (steps_within(shares, rule(order, mass)) for mass in sorted((one, other)))
    assert set(less) <= set(more)
    assert shares.index(max(shares)) in less
    if order is Order.CONTIGUOUS:
        assert list(less) == list(range(less[0], less[-1] + 1))
