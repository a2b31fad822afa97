from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.calibration import least_confidence
from analyzer.lab.evaluation.significance import brier, calibration_error, coverage_curve, error_if_calibrated

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
