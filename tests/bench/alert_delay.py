"""How often an alarm is false and how soon a true one comes: ``python -m tests.bench.alert_delay``.

A simulation. Agents take part in every run; in a stable system each breaks a fixed share of runs, and the
method names another agent than the right one in 40 % of the failures. Four weeks of past, then weeks to
watch: stable ones (how many raise any alarm), and ones in which one agent's share has doubled (how long until
its alarm). Beside it a watch that sees the truth, and in the last column a naive rule: alert when a day's
share is twice the past's.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Final

from analyzer.recurrence import Count, Watch, begin_watch, observe, threshold
from analyzer.significance import wilson

WEEK: Final = 7
PAST_WEEKS: Final = 4
MOST_WEEKS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A system of agents and the method that watches it."""

    agents: int
    runs_a_day: int
    share: float
    """Of runs that each agent breaks."""
    confusion: float
    """Of failures that are put down to another agent."""


def outcomes(
    world: World, chance: random.Random, days: int, doubled: int | None
) -> Iterator[tuple[int, int]]:
    """Iterate over runs: who broke it and who is said to have; -1 for nobody."""
    for _ in range(days * world.runs_a_day):
        dice, guilty = chance.random(), -1
        for agent in range(world.agents):
            dice -= world.share * (2 if agent == doubled else 1)
            if dice < 0:
                guilty = agent
                break
        said = guilty
        if guilty >= 0 and chance.random() < world.confusion:
            said = chance.choice([other for other in range(world.agents) if other != guilty])
        yield guilty, said


@dataclass(slots=True)
class Monitor:
    """All agents under watch, by what is said or by what is true."""

    watches: list[Watch]
    limit: float

    def take(self, agent: int) -> list[int]:
        """Take note of a run; return who is over the limit."""
        self.watches = [observe(watch, is_blamed=place == agent) for place, watch in enumerate(self.watches)]
        return [place for place, watch in enumerate(self.watches) if watch.evidence >= self.limit]


def begin(world: World, past: Sequence[int]) -> Monitor:
    """Watch every agent against its past."""
    counts = [Count(hits=past.count(agent), n=len(past)) for agent in range(world.agents)]
    limit = threshold(world.runs_a_day * WEEK, world.agents)
    return Monitor(watches=[begin_watch(count) for count in counts], limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """What became of one simulated stretch."""

    method_days: float | None
    """Until the alarm by what the method says; ``None`` if none came."""
    truth_days: float | None
    is_naive_alarm: bool


def simulate(world: World, seed: int, *, doubled: int | None, days: int) -> Week:
    """Run one stretch; with nobody doubled any alarm counts, else only the right agent's."""
    chance = random.Random(f"{seed}/{world}/{doubled}")
    past = list(outcomes(world, chance, PAST_WEEKS * WEEK, None))
    by_method = begin(world, [said for _, said in past])
    by_truth = begin(world, [guilty for guilty, _ in past])
    base = [sum(said == agent for _, said in past) / len(past) for agent in range(world.agents)]
    found: list[float | None] = [None, None]
    today: list[int] = []
    is_naive = False
    for number, (guilty, said) in enumerate(outcomes(world, chance, days, doubled)):
        for place, alarmed in enumerate((by_method.take(said), by_truth.take(guilty))):
            is_it = bool(alarmed) if doubled is None else doubled in alarmed
            if is_it and found[place] is None:
                found[place] = (number + 1) / world.runs_a_day
        today.append(said)
        if len(today) == world.runs_a_day:
            is_naive |= any(
                today.count(agent) / len(today) > 2 * base[agent] for agent in range(world.agents)
            )
            today = []
        if None not in found and doubled is not None:
            break
    return Week(method_days=found[0], truth_days=found[1], is_naive_alarm=is_naive)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.alert_delay", description=__doc__)
    parser.add_argument("--weeks", type=int, default=200, help="simulated for each row")
    parser.add_argument("--confusion", type=float, default=0.4)
    chosen = parser.parse_args()
    worlds = [
        World(agents=agents, runs_a_day=runs, share=share, confusion=chosen.confusion)
        for agents in (3, 6)
        for runs in (50, 500)
        for share in (0.02, 0.05, 0.10)
    ]
    print(
        f"stable weeks with an alarm (n = {chosen.weeks}, 95 % interval), method wrong {chosen.confusion:.0%}"
    )
    print(f"{'agents':>6} {'runs/day':>8} {'share':>6}   {'by the method':>22} {'naive rule':>11}")
    for world in worlds:
        weeks = [simulate(world, seed, doubled=None, days=WEEK) for seed in range(chosen.weeks)]
        alarms = sum(week.method_days is not None for week in weeks)
        interval = wilson(alarms, chosen.weeks)
        told = f"{alarms / chosen.weeks:.1%} [{interval.low:.1%}, {interval.high:.1%}]"
        naive = sum(week.is_naive_alarm for week in weeks) / chosen.weeks
        print(f"{world.agents:>6} {world.runs_a_day:>8} {world.share:>6.0%}   {told:>22} {naive:>11.0%}")
    print()
    print(f"days until a doubled share is found: quartiles, of {chosen.weeks}; ∞ = not in {MOST_WEEKS} weeks")
    print(f"{'agents':>6} {'runs/day':>8} {'share':>6}   {'by the method':>24} {'seeing the truth':>24}")
    for world in worlds:
        weeks = [simulate(world, seed, doubled=0, days=MOST_WEEKS * WEEK) for seed in range(chosen.weeks)]
        method, truth = (
            _quartiles([week.method_days for week in weeks]),
            _quartiles([week.truth_days for week in weeks]),
        )
        print(f"{world.agents:>6} {world.runs_a_day:>8} {world.share:>6.0%}   {method:>24} {truth:>24}")


def _quartiles(days: Sequence[float | None]) -> str:
    known = [float("inf") if day is None else day for day in days]
    return " / ".join(f"{cut:.1f}" if math.isfinite(cut) else "∞" for cut in quantiles(known, n=4))


if __name__ == "__main__":
    main()
