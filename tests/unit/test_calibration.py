from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.calibration import Calibration, Knots, calibrate, log_loss
from analyzer.inquiry.posterior import LogShares, log_softmax

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
