"""Simulated failures of systems of agents, and the watches on them, for many stretches of time at once.

This repeats the arithmetic of ``analyzer/issues/recurrence.py`` over arrays, with one element for each
stretch; ``tests/unit/test_alert_chance.py`` checks that both agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analyzer.issues.agent_counts import FEWEST_A_WEEK, PAST_DAYS, RENEW_DAYS, WEEK
from analyzer.issues.recurrence import RATIOS, threshold

MOST_DAYS: Final = 12 * WEEK
"""Time limit for finding a doubled share."""
NOBODY: Final = -1
_RATIOS: Final = np.array(RATIOS)

Counts = NDArray[np.int64]
Days = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A system of agents and the method that watches it."""

    agents: int
    runs_a_day: int
    share: float
    """Share of runs that each agent breaks."""
    confusion: float
    """Share of failures attributed to another agent, each equally often; 0 for a method that is always
    right."""

    @property
    def limit(self) -> float:
        """Return the evidence at which the service would raise an alarm."""
        return threshold(max(self.runs_a_day * WEEK, FEWEST_A_WEEK), self.agents)


@dataclass(slots=True)
class Watches:
    """One watch for each agent and period, given the agent's earlier runs."""

    hits: Counts
    """Counts, by stretch and agent."""
    n: Counts
    sums: Days = field(init=False)
    """Sums of the bets, by stretch, agent and ratio."""

    def __post_init__(self) -> None:
        self.sums = np.zeros((*self.hits.shape, len(RATIOS)))

    @property
    def evidence(self) -> Days:
        """Evidence of a change, by stretch and agent."""
        found: Days = self.sums.mean(axis=-1)
        return found

    def take(self, said: Counts) -> None:
        """Add one run to each stretch, with the agent blamed for it."""
        base = ((self.hits + 0.5) / (self.n + 1))[..., None]
        bet = np.minimum(base * _RATIOS, (base + 1) / 2)
        is_blamed = said[:, None] == np.arange(self.hits.shape[1])
        factor = np.where(is_blamed[..., None], bet / base, (1 - bet) / (1 - base))
        self.sums = (self.sums + 1) * factor
        self.hits += is_blamed
        self.n += 1

    def begin_again(self, which: NDArray[np.bool_], hits: Counts, n: int) -> None:
        """Restart some watches with another history."""
        self.hits, self.n = np.where(which, hits, self.hits), np.where(which, n, self.n)
        self.sums[which] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stable:
    """Results of stretches without a change, each as long as a watch lives."""

    n: int
    alarms: int
    """Number of stretches with an alarm."""
    naive_weeks: float
    """Share of weeks with a day on which some agent had twice its usual share."""

    @property
    def weeks(self) -> int:
        """Length of a stretch in weeks."""
        return RENEW_DAYS // WEEK


def stable(world: World, n: int, seed: int) -> Stable:
    """Simulate stretches without a change, each after four weeks of history."""
    chance = np.random.default_rng([seed, 0, *_key(world)])
    past = _past(world, n, chance)
    watches = _begin(world, past)
    usual = watches.hits / watches.n
    is_alarm, is_naive = np.zeros(n, dtype=bool), np.zeros((RENEW_DAYS // WEEK, n), dtype=bool)
    for number in range(RENEW_DAYS):
        day = _day(world, n, chance, _shares(world))
        for said in day:
            watches.take(said)
            is_alarm |= (watches.evidence >= world.limit).any(axis=1)
        is_bad_day = (_counted(day, world.agents) / world.runs_a_day > 2 * usual).any(axis=1)
        is_naive[number // WEEK] |= is_bad_day
    return Stable(n=n, alarms=int(is_alarm.sum()), naive_weeks=float(is_naive.mean()))


def delays(world: World, n: int, seed: int) -> Days:
    """Return the days until the alarm for the first agent, whose share doubled; infinite for never.

    As in the service, a watch that has found nothing in four weeks restarts with these as its history, which
    then contains part of the change.
    """
    chance = np.random.default_rng([seed, 1, *_key(world)])
    daily = list(np.moveaxis(_past(world, n, chance)[..., :1], 1, 0))
    watches = _begin(world, np.stack(daily, axis=1))
    shares = _shares(world)
    shares[0] *= 2
    found, begun = np.full(n, np.inf), np.zeros((n, 1))
    for number in range(MOST_DAYS):
        _renew(world, watches, begun, daily, number)
        day = _day(world, n, chance, shares)
        for place, said in enumerate(day, start=1):
            watches.take(said)
            is_found = (watches.evidence[:, 0] >= world.limit) & np.isinf(found)
            found[is_found] = number + place / world.runs_a_day
        daily.append(_counted(day, 1))
        if np.isfinite(found).all():
            break
    return found


def _renew(world: World, watches: Watches, begun: Days, daily: list[Counts], number: int) -> None:
    is_old = (number - begun >= RENEW_DAYS) & (watches.evidence <= np.maximum(FEWEST_A_WEEK, watches.n))
    if is_old.any():
        past = sum(daily[-PAST_DAYS:])
        watches.begin_again(is_old, np.asarray(past), PAST_DAYS * world.runs_a_day)
        begun[is_old] = number


def _key(world: World) -> tuple[int, ...]:
    """Return a seed that differs between worlds, and between the method and the truth."""
    return world.agents, world.runs_a_day, round(1000 * world.share), round(1000 * world.confusion)


def _shares(world: World) -> Days:
    return np.full(world.agents, world.share)


def _begin(world: World, past: Counts) -> Watches:
    hits = past.sum(axis=1)
    return Watches(hits=hits, n=np.full(hits.shape, PAST_DAYS * world.runs_a_day))


def _past(world: World, n: int, chance: np.random.Generator) -> Counts:
    """Return the number of blames, by stretch, day and agent.

    In a stable system, each agent is blamed for as many failures of others as others are for its own.
    """
    often = [*_shares(world), 1 - world.agents * world.share]
    return chance.multinomial(world.runs_a_day, often, size=(n, PAST_DAYS))[..., : world.agents]


def _day(world: World, n: int, chance: np.random.Generator, shares: Days) -> Counts:
    """Return the agent blamed for each run, by run and stretch."""
    size = (world.runs_a_day, n)
    guilty = np.searchsorted(np.cumsum(shares), chance.random(size), side="right")
    other = (guilty + chance.integers(1, world.agents, size)) % world.agents
    said = np.where(chance.random(size) < world.confusion, other, guilty)
    return np.where(guilty == world.agents, NOBODY, said)


def _counted(day: Counts, agents: int) -> Counts:
    return np.stack([(day == agent).sum(axis=0) for agent in range(agents)], axis=1)
