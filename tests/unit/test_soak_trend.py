"""A soak fails only on growth that is certain and larger than tolerated."""

from __future__ import annotations

import random

import pytest

from benchmarks.soak.trend import LEAST_SAMPLES, trend


def noisy(level: float, growth: float, noise: float, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [level * (1 + growth * place / 59) + chance.gauss(0, noise * level) for place in range(60)]


def test_what_leaks_steadily_is_not_flat() -> None:
    found = trend(noisy(100, growth=0.5, noise=0.02))
    assert not found.is_flat(0.10)
    assert found.first == pytest.approx(108, abs=2)  # a third's median lies in its middle
    assert found.low < 50 / found.first < found.high
    assert found.growth == pytest.approx(0.31, abs=0.03)


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_flat(seed: int) -> None:
    assert trend(noisy(100, growth=0.0, noise=0.05, seed=seed)).is_flat(0.05)


def test_growth_beyond_doubt_that_is_small_is_tolerated() -> None:
    found = trend(noisy(100, growth=0.05, noise=0.001))
    assert found.low > 0
    assert found.is_flat(0.10)


def test_what_shrinks_is_flat() -> None:
    assert trend(noisy(100, growth=-0.5, noise=0.02)).is_flat(0.0)


def test_one_step_up_that_stays_is_seen() -> None:
    assert not trend([100.0] * 30 + [150.0] * 30).is_flat(0.25)


def test_one_spike_is_no_growth() -> None:
    assert trend([100.0] * 29 + [900.0] + [100.0] * 30).is_flat(0.10)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([1.0] * (LEAST_SAMPLES - 1), id="too few"),
        pytest.param([0.0] * LEAST_SAMPLES, id="nothing"),
    ],
)
def test_what_cannot_be_told_is_said(values: list[float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        trend(values)
