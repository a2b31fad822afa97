from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.calibration import Calibration, Knots, calibrate, least_confidence, log_loss
from analyzer.inquiry.posterior import (
    COVERAGE,
    LogShares,
    Order,
    SetRule,
    log_softmax,
    set_rule,
    steps_within,
)
from analyzer.lab.evaluation.significance import brier, calibration_error, coverage_curve, error_if_calibrated

OPINIONS = st.lists(st.floats(-20, 20), min_size=1, max_size=20).map(log_softmax)
CURVES = st.lists(
    st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=6, unique_by=lambda knot: knot[0]
).map(lambda knots: tuple(zip(sorted(x for x, _ in knots), sorted(y for _, y in knots), strict=True)))


def boastful(draw: random.Random) -> tuple[LogShares, int]:
    """Three steps, the first stated at 90 % and right in 50 %, or stated at 60 % and right in 80 %. No
    temperature corrects both.

    No temperature mends both.
    """
    if draw.random() < 0.5:
        return log_softmax([math.log(0.9), math.log(0.05), math.log(0.05)]), draw.choice((0, 0, 1, 2))
    return log_softmax([math.log(0.6), math.log(0.2), math.log(0.2)]), draw.choice((0,) * 8 + (1, 2))


def runs(count: int) -> tuple[list[LogShares], list[int]]:
    draw = random.Random(3)
    made = [boastful(draw) for _ in range(count)]
    return [shares for shares, _ in made], [right for _, right in made]


def no_curve(_stated: object, _true: object) -> Knots:
    raise AssertionError("a curve was fitted to too few runs")


@given(OPINIONS, st.floats(0.1, 5), CURVES)
def test_calibration_gives_probabilities_and_keeps_the_order_of_the_steps(
    shares: LogShares, temperature: float, curve: Knots
) -> None:
    after = Calibration(temperature=temperature, curve=curve).apply(shares)
    assert math.fsum(math.exp(share) for share in after) == pytest.approx(1.0)
    ranked = sorted(range(len(shares)), key=lambda i: shares[i])
    assert all(after[one] <= after[next_] + 1e-9 for one, next_ in pairwise(ranked))


def test_few_runs_get_a_temperature_and_nothing_else() -> None:
    found = calibrate(*runs(50), no_curve, enough=51)
    assert found.curve == ()
    assert found.temperature > 2


def test_a_curve_that_surprises_more_on_runs_it_was_not_fitted_to_is_not_taken() -> None:
    assert calibrate(*runs(60), lambda _stated, _true: ((0.0, 1.0),), enough=60).curve == ()


def test_many_runs_get_an_isotonic_curve_where_it_surprises_less() -> None:
    pytest.importorskip("sklearn")
    from analyzer.lab.evaluation.training import fit_curve  # noqa: PLC0415

    shares, right = runs(400)
    found = calibrate(shares, right, fit_curve, enough=400)
    plain = Calibration(temperature=found.temperature)
    assert found.curve
    assert log_loss(found, shares, right) < log_loss(plain, shares, right)


PAIRS = st.lists(st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.9]), st.booleans()), min_size=1, max_size=60)


def test_confidence_that_is_always_right_is_perfectly_calibrated() -> None:
    sure = [(1.0, True)] * 10
    assert brier(sure) == calibration_error(sure) == error_if_calibrated(sure) == 0
    wrong = [(1.0, False)] * 10
    assert brier(wrong) == 1
    assert calibration_error(wrong) == pytest.approx(1)


def test_how_equal_confidences_are_ordered_does_not_matter() -> None:
    half = [(0.5, True), (0.5, False)] * 10
    assert calibration_error(half) == calibration_error(sorted(half)) == pytest.approx(0)


def test_without_answers_there_is_nothing_to_calibrate() -> None:
    assert brier([]) is None
    assert calibration_error([]) is None
    assert error_if_calibrated([]) is None
    assert coverage_curve([]) == ()


def test_few_calibrated_confidences_show_an_error_and_many_show_little() -> None:
    few, many = error_if_calibrated([(0.5, True)] * 20), error_if_calibrated([(0.5, True)] * 2_000)
    assert few is not None
    assert many is not None
    assert few > 0.05
    assert many < 0.03


@given(PAIRS)
def test_the_curve_ends_with_all_answers_and_grows(pairs: list[tuple[float, bool]]) -> None:
    curve = coverage_curve(pairs)
    assert curve[-1].answered == len(pairs)
    assert curve[-1].accuracy == pytest.approx(sum(right for _, right in pairs) / len(pairs))
    answered = [point.answered for point in curve]
    assert answered == sorted(set(answered))
    for point in curve:
        assert point.answered == sum(c >= point.threshold for c, _ in pairs), "equal confidences go together"


@given(PAIRS, st.sampled_from([0.2, 0.5, 0.8]))
def test_the_threshold_is_the_lowest_that_promises_the_precision(
    pairs: list[tuple[float, bool]], wanted: float
) -> None:
    def promised(threshold: float) -> float:
        held = [pair for pair in pairs if pair[0] >= threshold]
        stated = sum(c for c, _ in held) / len(held)
        return (sum(right for _, right in held) + 10 * stated) / (len(held) + 10)

    found = least_confidence(pairs, wanted)
    assert found is None or promised(found) == pytest.approx(max(wanted, promised(found)))
    lower = {c for c, _ in pairs if found is None or c < found}
    assert all(promised(c) < wanted + 1e-9 for c in lower)


def test_one_lucky_answer_sets_no_threshold_and_a_hundred_right_ones_do() -> None:
    doubtful = [(0.3, False)] * 50
    assert least_confidence([(0.4, True), *doubtful], 0.9) is None
    assert least_confidence([*[(0.4, True)] * 100, *doubtful], 0.9) == 0.4


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
