"""The model of a day: it follows from its constants, and what it says of a lag holds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.group.capacity import DAY_S, Constants, rate, simulate

GIVEN = Constants(plain_us=50, agents_us=500, kafka_bytes=1_000, run_bytes=2_000)


def test_the_mean_of_the_day_is_the_given_rate_and_noon_its_peak() -> None:
    mean = sum(rate(GIVEN, second) for second in range(0, DAY_S, 60)) / (DAY_S / 60)
    assert mean == pytest.approx(GIVEN.spans_per_s)
    assert rate(GIVEN, DAY_S / 2) == pytest.approx(GIVEN.peak * GIVEN.spans_per_s)


def test_processors_storage_and_partitions_follow_from_the_constants() -> None:
    day = simulate(GIVEN)
    core_s = 1e-6 * (0.05 * 500 + 0.95 * 50) * 1_500_000
    assert day.processors == math.ceil(core_s / 0.6)
    assert day.partitions >= 2 * day.processors
    assert day.kafka_tb == pytest.approx(1e6 * 1_000 * DAY_S * 3 / 1e12)
    assert day.store_tb == pytest.approx(1e6 * 0.05 / 20 * DAY_S * 30 * 2_000 / 1e12)


def test_open_runs_are_in_the_store_for_as_long_as_they_are_open() -> None:
    day = simulate(replace(GIVEN, long_share=0.2, long_s=600, spilled_bytes=500))
    assert day.spilled_per_s == pytest.approx(1e6 * 0.05 * 0.2)
    assert day.spilled_gb == pytest.approx(1.5 * 1e6 * 0.05 * 0.2 * 600 * 500 / 1e9)
    assert simulate(replace(GIVEN, long_share=0)).spilled_gb == 0


def test_an_outage_leaves_what_came_meanwhile_and_a_reserve_catches_up() -> None:
    day = simulate(GIVEN)
    assert day.lag_spans == pytest.approx(600 * 1_500_000, rel=0.01)
    # With 60 % busy at the peak, the reserve is two thirds of the rate: 15 minutes for 10.
    assert day.caught_up_s == pytest.approx(900, abs=120)


def test_without_a_reserve_the_lag_lasts_until_the_rate_falls() -> None:
    tight = simulate(replace(GIVEN, load=1.0))
    assert tight.caught_up_s > 3 * simulate(GIVEN).caught_up_s
    assert simulate(replace(GIVEN, load=2.0)).caught_up_s > tight.caught_up_s
