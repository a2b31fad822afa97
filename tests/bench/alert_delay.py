"""How often an alarm is false and how soon a true one comes: ``python -m tests.bench.alert_delay``.

A simulation. Agents take part in every run; in a stable system each breaks a fixed share of runs, and the
method names another agent than the right one in 40 % of the failures. Four weeks of past, then weeks to
watch: stable ones (how many raise any alarm), and ones in which one agent's share has doubled (how long until
its alarm). Beside it a watch that sees the truth, and in the last column a naive rule: alert when a day's
share is twice the past's. ``--plot`` draws the delays.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from analyzer.measuring.significance import wilson
from analyzer.recurrence import Count, Watch, begin_watch, observe, threshold

WEEK: Final = 7
PAST_WEEKS: Final = 4
MOST_WEEKS: Final = 12
_X: Final = (60.0, 640.0)
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


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
        self.watches = [
            observe(watch, self.limit, is_blamed=place == agent) for place, watch in enumerate(self.watches)
        ]
        return [place for place, watch in enumerate(self.watches) if watch.is_alarm]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Of one world, in days; infinite where no alarm came."""

    world: World
    method: tuple[float, ...]
    truth: tuple[float, ...]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.alert_delay", description=__doc__)
    parser.add_argument("--weeks", type=int, default=200, help="stable ones simulated for each row")
    parser.add_argument("--delays", type=int, default=100, help="doubled shares simulated for each row")
    parser.add_argument("--confusion", type=float, default=0.4)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the delays as SVG")
    chosen = parser.parse_args()
    worlds = [
        World(agents=agents, runs_a_day=runs, share=share, confusion=chosen.confusion)
        for agents in (3, 6)
        for runs in (50, 500)
        for share in (0.02, 0.05, 0.10)
    ]
    print_stable(worlds, chosen.weeks)
    delays = print_delays(worlds, chosen.delays)
    if chosen.plot:
        chosen.plot.write_text(to_svg(delays), encoding="utf-8")


def print_stable(worlds: Sequence[World], weeks: int) -> None:
    """Print how many stable weeks raise an alarm."""
    confusion = worlds[0].confusion
    print(f"stable weeks with an alarm (n = {weeks} a row, 95 % interval), method wrong {confusion:.0%}")
    print(f"{'agents':>6} {'runs/day':>8} {'share':>6}   {'by the method':>22} {'naive rule':>11}")
    every = 0
    for world in worlds:
        found = [simulate(world, seed, doubled=None, days=WEEK) for seed in range(weeks)]
        alarms = sum(week.method_days is not None for week in found)
        every += alarms
        naive = sum(week.is_naive_alarm for week in found) / weeks
        told = _share(alarms, weeks)
        print(
            f"{world.agents:>6} {world.runs_a_day:>8} {world.share:>6.0%}   {told:>22} {naive:>11.0%}",
            flush=True,
        )
    print(f"{'all':>6} {'':>8} {'':>6}   {_share(every, weeks * len(worlds)):>22}")
    print()


def print_delays(worlds: Sequence[World], times: int) -> list[Delays]:
    """Print, and return, how long a doubled share stays unseen."""
    print(f"days until a doubled share is found: quartiles, n = {times} a row; ∞ = not in {MOST_WEEKS} weeks")
    print(f"{'agents':>6} {'runs/day':>8} {'share':>6}   {'by the method':>24} {'seeing the truth':>24}")
    found = []
    for world in worlds:
        weeks = [simulate(world, seed, doubled=0, days=MOST_WEEKS * WEEK) for seed in range(times)]
        delays = Delays(
            world=world,
            method=tuple(math.inf if week.method_days is None else week.method_days for week in weeks),
            truth=tuple(math.inf if week.truth_days is None else week.truth_days for week in weeks),
        )
        found.append(delays)
        told = f"{_quartiles(delays.method):>24} {_quartiles(delays.truth):>24}"
        print(f"{world.agents:>6} {world.runs_a_day:>8} {world.share:>6.0%}   {told}", flush=True)
    return found


def to_svg(found: Sequence[Delays]) -> str:
    """Draw the medians by the share that doubles; both axes are logarithmic."""
    groups = list(dict.fromkeys((one.world.agents, one.world.runs_a_day) for one in found))
    body = [_label(330, 20, "Days until a doubled failure share is found (median)", "middle")]
    for days in (0.25, 0.5, 1, 2, 4, 7, 14, 28, 56):
        body += [
            _line([(_X[0], _y(days)), (_X[1], _y(days))], "#dddddd"),
            _label(_X[0] - 8, _y(days) + 4, f"{days:g}", "end"),
        ]
    for share in sorted({one.world.share for one in found}):
        body.append(_label(_x(share), 395, f"{share:.0%} to {2 * share:.0%}", "middle"))
    for number, (agents, runs) in enumerate(groups):
        rows = [one for one in found if (one.world.agents, one.world.runs_a_day) == (agents, runs)]
        for is_truth, dash in ((False, ""), (True, "5 4")):
            medians = [(one.world.share, median(one.truth if is_truth else one.method)) for one in rows]
            points = [(_x(share), _y(days)) for share, days in medians if math.isfinite(days)]
            body.append(_line(points, _COLOURS[number], dash))
            body += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_COLOURS[number]}"/>' for x, y in points
            ]
            name = "seeing the truth" if is_truth else f"by a method wrong {rows[0].world.confusion:.0%}"
            place = 420 + 16 * (2 * number + is_truth)
            body.append(_line([(60, place - 4), (100, place - 4)], _COLOURS[number], dash))
            body.append(_label(108, place, f"{agents} agents, {runs} runs a day, {name}", "start"))
    size = 430 + 32 * len(groups)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 {size}" font-family="sans-serif"'
        f' font-size="12"><rect width="660" height="{size}" fill="#ffffff"/>' + "".join(body) + "</svg>\n"
    )


def _x(share: float) -> float:
    return _X[0] + 60 + (_X[1] - _X[0] - 120) * math.log(share / 0.02) / math.log(5)


def _y(days: float) -> float:
    return 375 - 330 * math.log(max(days, 0.2) / 0.2) / math.log(84 / 0.2)


def _line(points: Sequence[tuple[float, float]], colour: str, dash: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    stroke = f'stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}"'
    return f'<polyline points="{path}" fill="none" {stroke}/>'


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222222">{text}</text>'


def _share(hits: int, n: int) -> str:
    interval = wilson(hits, n)
    return f"{hits / n:.1%} [{interval.low:.1%}, {interval.high:.1%}]"


def _quartiles(days: Sequence[float]) -> str:
    """Return the quartiles; of an even number the value above, so that one that never came counts as that."""
    ordered = sorted(days)
    cuts = (ordered[len(ordered) * quarter // 4] for quarter in (1, 2, 3))
    return " / ".join(f"{cut:.1f}" if math.isfinite(cut) else "∞" for cut in cuts)


if __name__ == "__main__":
    main()
