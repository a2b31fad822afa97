"""Alarms by chance and their simulation: as the service counts, and by the shipped rule."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from analyzer.issues.recurrence import Count, Watch, observe
from benchmarks.alerting.alert_stories import HOUR, WEEK
from benchmarks.alerting.alert_worlds import MOST_DAYS, NOBODY, Watches, World, delays, stable
from tools.monitoring.alert_rules import DEVIATIONS, MIN_FAILURES, MIN_TASKS, RISE, SHARE, SHIPPED

WEEKS = 20
NOW = SHIPPED.now * HOUR // SHIPPED.recent

Counts = NDArray[np.int64]


def within(counts: Counts, ticks: int) -> Counts:
    """Return sums over the last ``n`` ticks, from the first tick with that many before it."""
    sums = np.cumsum(np.concatenate([[0], counts]))
    found: Counts = sums[ticks:] - sums[:-ticks]
    return found


def pages(runs_an_hour: int, share: float, seed: int) -> int:
    """Return how often a page begins in ``WEEKS`` weeks, after a week of history."""
    chance = np.random.default_rng([seed, runs_an_hour, round(1000 * share)])
    tasks = chance.poisson(runs_an_hour / HOUR, (WEEKS + 1) * WEEK + HOUR)
    failures = chance.binomial(tasks, share)
    (f, t), (f_now, t_now), (f_usual, t_usual) = (
        (within(failures, ticks)[skipped:], within(tasks, ticks)[skipped:])
        for ticks, skipped in ((HOUR, WEEK), (NOW, WEEK + HOUR - NOW), (WEEK, 0))
    )
    usual = ((f_usual + 1) / (t_usual + 2))[: len(f)]
    with np.errstate(divide="ignore", invalid="ignore"):
        risen = (f / t > RISE * usual) | (f / t > (1 + usual) / 2)
        above = 2 * (np.sqrt(f) - np.sqrt(t * usual)) / np.sqrt(1 + t / t_usual[: len(f)])
        goes_on = (f_now / t_now > SHARE) & ((f_now >= 2) | (f_now / t_now >= 0.5))
        fires = (
            (f / t > SHARE) & (t >= MIN_TASKS) & (f >= MIN_FAILURES) & risen & (above > DEVIATIONS) & goes_on
        )
    return int(np.sum(fires[1:] & ~fires[:-1]))


def test_steady_shares_page_once_in_hundreds_of_weeks_at_most() -> None:
    """Measured over 7,200 weeks of agents: three times."""
    systems = [(runs, share) for runs in (20, 40, 120, 500) for share in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)]
    assert sum(pages(*one, seed=1) for one in systems) <= len(systems) * WEEKS // 200


def test_the_arithmetic_would_page_for_a_share_that_rose() -> None:
    chance = np.random.default_rng(1)
    tasks = np.full(2 * HOUR, 2)
    failures = np.concatenate([np.zeros(HOUR, dtype=np.int64), chance.binomial(2, 0.5, HOUR)])
    f, t = within(failures, HOUR)[-1], within(tasks, HOUR)[-1]
    assert 2 * (np.sqrt(f) - np.sqrt(t * 0.02)) > DEVIATIONS


BUSY = World(agents=3, runs_a_day=50, share=0.1, confusion=0.0)


@pytest.mark.parametrize("seed", range(5))
def test_many_watches_at_once_equal_single_ones(seed: int) -> None:
    chance = random.Random(seed)
    past = [chance.randrange(40) for _ in range(2)]
    many = Watches(hits=np.array([past]), n=np.full((1, 2), 400))
    ones = [Watch(known=Count(hits=hits, n=400)) for hits in past]
    for _ in range(300):
        said = chance.choice([NOBODY, NOBODY, 0, 1])
        many.take(np.array([said]))
        ones = [observe(one, float("inf"), is_blamed=said == place) for place, one in enumerate(ones)]
    assert many.evidence[0] == pytest.approx([one.evidence for one in ones], rel=1e-9)
    assert [int(hits) for hits in many.hits[0]] == [one.known.hits for one in ones]


def test_a_doubled_share_is_found_and_sooner_with_true_labels() -> None:
    confused = World(agents=3, runs_a_day=50, share=0.1, confusion=0.4)
    truth, method = delays(BUSY, 60, seed=1), delays(confused, 60, seed=1)
    assert np.median(truth) < np.median(method) <= MOST_DAYS


def test_the_rule_that_looks_for_a_bad_day_finds_one_in_most_stable_weeks_and_the_watch_does_not() -> None:
    sparse = World(agents=6, runs_a_day=50, share=0.02, confusion=0.4)
    found = stable(sparse, 100, seed=1)
    assert found.naive_weeks > 0.9
    assert found.alarms <= 20, "one week in twenty, in four weeks"
