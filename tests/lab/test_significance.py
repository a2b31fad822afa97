from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.intervals import wilson
from analyzer.lab.evaluation.significance import bootstrap, difference_interval, mcnemar, paired


def test_wilson_gives_the_published_interval() -> None:
    """69 of 125 gives 46.5 to 63.6 %, 17 of 58 gives 19.2 to 42.0 %."""
    assert (round(wilson(69, 125).low, 3), round(wilson(69, 125).high, 3)) == (0.465, 0.636)
    assert (round(wilson(17, 58).low, 3), round(wilson(17, 58).high, 3)) == (0.192, 0.420)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share(counts: tuple[int, int]) -> None:
    right, n = counts
    interval = wilson(right, n)
    assert 0 <= interval.low <= right / n + 1e-12
    assert right / n - 1e-12 <= interval.high <= 1


@pytest.mark.parametrize(
    ("only_first", "only_second", "p"),
    [(0, 0, 1.0), (5, 5, 1.0), (0, 6, 0.03125), (1, 9, 0.021484375), (9, 25, 0.00904)],
)
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int, p: float) -> None:
    assert mcnemar(only_first, only_second) == pytest.approx(p, rel=1e-3)
    assert mcnemar(only_second, only_first) == mcnemar(only_first, only_second)


def test_a_paired_comparison_counts_all_four_cases() -> None:
    split = paired([True, True, False, False, False], [True, False, True, True, False])
    assert (split.both, split.only_first, split.only_second, split.neither) == (1, 1, 2, 1)
    assert split.difference == pytest.approx(0.2)
    with pytest.raises(ValueError, match="shorter"):
        paired([True], [])


def test_resampling_gives_the_same_interval_each_time_and_about_the_right_one() -> None:
    items = [0.0] * 50 + [1.0] * 50

    def mean(drawn: object) -> float:
        assert isinstance(drawn, list)
        return float(sum(drawn) / len(drawn))

    one, other = bootstrap(items, mean), bootstrap(items, mean)
    assert one == other
    assert one.low == pytest.approx(0.40, abs=0.04)
    assert one.high == pytest.approx(0.60, abs=0.04)
    with pytest.raises(ValueError, match="nothing"):
        bootstrap([], mean)


def test_a_difference_on_the_same_runs_has_a_narrower_interval_than_its_parts() -> None:
    first = [n % 2 == 0 for n in range(100)]
    second = [right or n < 10 for n, right in enumerate(first)]
    interval = difference_interval(first, second)
    assert 0 <= interval.low < 0.05 < interval.high < 0.12
