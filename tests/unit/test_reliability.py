from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.reliability import (
    brier,
    calibration_error,
    coverage_curve,
    error_if_calibrated,
    least_confidence,
)

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


def test_few_true_confidences_show_an_error_all_the_same_and_many_show_little() -> None:
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


@given(PAIRS, st.sampled_from([0.2, 0.5, 0.8, 1.0]))
def test_the_threshold_is_the_lowest_that_reaches_the_precision(
    pairs: list[tuple[float, bool]], wanted: float
) -> None:
    def precision(threshold: float) -> float:
        held = [right for c, right in pairs if c >= threshold]
        return sum(held) / len(held)

    reached = [c for c in {c for c, _ in pairs} if precision(c) >= wanted]
    assert least_confidence(pairs, wanted) == (min(reached) if reached else None)
