"""The simulation of alarms counts as the service does, and finds obvious changes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from analyzer.issues.recurrence import Count, Watch, observe
from benchmarks.alerting.alert_worlds import MOST_DAYS, NOBODY, Watches, World, delays, stable

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
