"""22 stories: weeks of simulated agents with known correct alerts.

Each story defines a service's number of runs, the share that each agent breaks and when, the delay and
corrections of verdicts, and the expected alerts. It emits ``Move``s, as the issue service does:
``alert_scenarios`` plays them to a real Prometheus, and the tests to promtool. Pure, with a fixed seed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from analyzer.telemetry.verdict_counters import Move, RunCount, VerdictCounters

TICK_S: Final = 180
"""Real seconds represented by one tick; in compressed time it takes one second."""
HOUR: Final = 3600 // TICK_S
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
BEGIN: Final = -WEEK - 3 * HOUR
"""The first tick; ticks before 0 are history without alerts."""
END: Final = 15 * HOUR
PAGE: Final = "BlamespanAgentFailureShare"
TICKET: Final = "BlamespanAgentKeepsFailing"
SETTLE_S: Final = 2.5 * TICK_S
"""Time for which a new series is shown at 0; longer than the scrape interval, as in the shipped setting."""

Share = Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An expected alert: a range of ticks in which an agent is broken."""

    agent: str
    begin: int
    end: int
    alert: str = PAGE
    service: str = ""
    """Suffix to the story's name, if it has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One scenario."""

    name: str
    what: str
    shares: Mapping[str, Share]
    """The share of runs that each agent breaks at a tick; all agents take part in each run."""
    runs: Share = lambda _tick: 2.0
    """Number of runs at a tick."""
    late: int = 0
    """Ticks between a run and its settled verdict."""
    first_blamed: str = ""
    """The agent blamed for every failure until late spans arrive, ``corrected`` ticks later."""
    corrected: int = 0
    joins: Mapping[str, int] = field(default_factory=dict)
    """Tick at which an agent first takes part; the others always do."""
    restarts: tuple[int, ...] = ()
    """Ticks at which the counters restart at 0."""
    troubles: tuple[Trouble, ...] = ()
    past: int = DAY + 3 * HOUR
    """Number of ticks of history that it needs."""
    beside: Mapping[str, Share] = field(default_factory=dict)
    """Agents of a second service of the same story."""

    @property
    def services(self) -> dict[str, Mapping[str, Share]]:
        """Return the agents of each service."""
        return {self.name: self.shares} | ({f"{self.name} 2": self.beside} if self.beside else {})


def steady(share: float) -> Share:
    """Return a share that never changes."""
    return lambda _tick: share


def between(begin: float, end: float, inside: float, outside: float = 0.02, every: int = 0) -> Share:
    """Return a share that differs between two hours, repeated at an interval of ticks."""
    first, last = round(begin * HOUR), round(end * HOUR)
    return lambda tick: inside if first <= (tick % every if every else tick) < last else outside


def _ramp(tick: int) -> float:
    return 0.02 if not 3 * HOUR <= tick < 11 * HOUR else min(0.6, 0.02 + 0.58 * (tick / HOUR - 3) / 6)


def _flaps(tick: int) -> float:
    return 1.0 if 4 * HOUR <= tick < 9 * HOUR and tick % 10 < 3 else 0.0


def _burst(tick: int) -> float:
    if tick < 4 * HOUR:
        return 1.0
    return 24.0 if tick == 4 * HOUR else 0.9 if tick < 4.9 * HOUR else 0.3


def _seldom(tick: int) -> float:
    return 1.0 if tick % (3 * HOUR) == 0 else 0.0


def _trouble(begin: float, end: float, alert: str = PAGE, **more: str) -> tuple[Trouble, ...]:
    told = {"agent": "calculator"} | more
    return (Trouble(begin=round(begin * HOUR), end=round(end * HOUR), alert=alert, **told),)


_FINE: Final = steady(0.02)

STORIES: Final = (
    Story(
        name="step up",
        what="2 % → 40 %, five hours",
        shares={"planner": _FINE, "calculator": between(4, 9, 0.4)},
        troubles=_trouble(4, 9),
    ),
    Story(
        name="ramp",
        what="2 % → 60 % over six hours, fixed after eight",
        shares={"planner": _FINE, "calculator": _ramp},
        troubles=_trouble(3, 11),
    ),
    Story(name="constant 10 %", what="for weeks", shares={"planner": _FINE, "calculator": steady(0.1)}),
    Story(
        name="constant 50 %",
        what="for weeks; one ticket that stands is right",
        shares={"planner": _FINE, "calculator": steady(0.5)},
        troubles=_trouble(0, 99, TICKET),
    ),
    Story(
        name="weekly rhythm",
        what="5 %, and 20 % on one morning of each week",
        shares={"planner": _FINE, "calculator": between(4, 8, 0.2, 0.05, every=WEEK)},
        past=WEEK + 3 * HOUR,
        runs=steady(6),
    ),
    Story(
        name="daily rhythm",
        what="5 %, and 20 % on each morning",
        shares={"planner": _FINE, "calculator": between(4, 8, 0.2, 0.05, every=DAY)},
        past=2 * DAY + 3 * HOUR,
        runs=steady(6),
    ),
    Story(
        name="release that breaks",
        what="1 % → 100 %, rolled back after two hours",
        shares={"planner": _FINE, "calculator": between(5, 7, 1.0, 0.01)},
        troubles=_trouble(5, 7),
    ),
    Story(
        name="release that fixes",
        what="40 % for weeks → 2 %",
        shares={"planner": _FINE, "calculator": between(-999, 5, 0.4)},
        troubles=_trouble(0, 5, TICKET),
    ),
    Story(
        name="low traffic",
        what="8 runs an hour, all broken for six hours",
        shares={"planner": steady(0.0), "calculator": between(4, 10, 1.0, 0.0)},
        runs=steady(0.4),
        troubles=_trouble(4, 10, TICKET),
    ),
    Story(
        name="hardly a run",
        what="3 runs an hour, one broken every third hour",
        shares={"planner": steady(0.0), "calculator": _seldom},
        runs=steady(0.15),
    ),
    Story(
        name="no traffic after",
        what="2 % → 60 % for an hour, then no run at all",
        shares={"planner": _FINE, "calculator": between(4, 5, 0.6)},
        runs=between(-999, 5, 2.0, 0.0),
        troubles=_trouble(4, 5),
    ),
    Story(
        name="one burst",
        what="70 % for six minutes",
        shares={"planner": _FINE, "calculator": between(5, 5.1, 0.7, 0.0)},
        runs=steady(3),
    ),
    Story(
        name="restarts of ours",
        what="2 % → 40 %, counters at 0 four times",
        shares={"planner": _FINE, "calculator": between(4, 9, 0.4)},
        restarts=(3 * HOUR, 5 * HOUR, 6 * HOUR + 7, 8 * HOUR),
        troubles=_trouble(4, 9),
    ),
    Story(
        name="late verdicts",
        what="2 % → 40 % for three hours, settled 30 minutes late",
        shares={"planner": _FINE, "calculator": between(4, 7, 0.4)},
        late=HOUR // 2,
        troubles=_trouble(4, 7.5),
    ),
    Story(
        name="corrected blame",
        what="the planner is blamed first, six minutes later the calculator",
        shares={"planner": steady(0.0), "calculator": between(4, 9, 0.4)},
        first_blamed="planner",
        corrected=2,
        troubles=_trouble(4, 9),
    ),
    Story(
        name="new agent",
        what="an agent's first run ever, half of them broken",
        shares={"planner": _FINE, "archivist": between(4, 10, 0.5, 0.0)},
        joins={"archivist": 4 * HOUR},
        troubles=_trouble(4, 10, TICKET, agent="archivist"),
    ),
    Story(
        name="many agents",
        what="twelve, one goes from 1 % to 40 %",
        shares={f"agent {number}": steady(0.01) for number in range(11)}
        | {"calculator": between(4, 9, 0.4, 0.01)},
        troubles=_trouble(4, 9),
    ),
    Story(
        name="two services",
        what="an agent of the same name breaks in the second",
        shares={"planner": _FINE, "calculator": steady(0.05)},
        beside={"planner": _FINE, "calculator": between(4, 9, 0.4)},
        troubles=_trouble(4, 9, service=" 2"),
    ),
    Story(
        name="series seen late",
        what="no run for 18 hours, a new process, then 80 % broken",
        shares={"planner": _FINE, "calculator": between(6, 8, 0.8)},
        runs=lambda tick: 0.0 if -12 * HOUR <= tick < 6 * HOUR else 2.0,
        restarts=(0,),
        troubles=_trouble(6, 8),
    ),
    Story(
        name="flapping",
        what="nine minutes all broken, 21 fine, for five hours",
        shares={"planner": steady(0.0), "calculator": _flaps},
        troubles=_trouble(4, 9),
    ),
    Story(
        name="quiet after a burst",
        what="24 runs in three minutes, then one in three, all broken, for an hour; then few, all fine",
        shares={"planner": _FINE, "calculator": between(4.05, 4.9, 1.0)},
        runs=_burst,
        troubles=_trouble(4, 4.9),
    ),
    Story(
        name="recovery, regression",
        what="2 % → 50 % for two hours, fine for three, 50 % again",
        shares={
            "planner": _FINE,
            "calculator": lambda tick: max(between(3, 5, 0.5)(tick), between(8, 10, 0.5)(tick)),
        },
        troubles=(*_trouble(3, 5), *_trouble(8, 10)),
    ),
)


@dataclass(slots=True)
class Playing:
    """A story being played, tick by tick, into counters like those of the service."""

    story: Story
    tick: int = BEGIN
    tallies: VerdictCounters = field(init=False)
    _owed: defaultdict[int, list[Move]] = field(default_factory=lambda: defaultdict(list))
    _due: dict[str, float] = field(default_factory=dict)
    """Fractions of a run left over, by service."""
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.story.name)
        self.restart()

    def restart(self) -> None:
        """Restart the counters at 0."""
        self.tallies = VerdictCounters(monotonic=lambda: float(self.tick * TICK_S))

    def step(self) -> None:
        """Count the verdicts settled at this tick, and go on to the next."""
        if self.tick in self.story.restarts:
            self.restart()
        for service, shares in self.story.services.items():
            for run in self._runs(service, shares):
                self._tell(run)
        for move in self._owed.pop(self.tick, ()):
            self.tallies.move(move)
        self.tick += 1

    def _runs(self, service: str, shares: Mapping[str, Share]) -> Iterator[RunCount]:
        due = self._due.get(service, 0.0) + self.story.runs(self.tick)
        self._due[service] = due % 1
        agents = tuple(agent for agent in shares if self.tick >= self.story.joins.get(agent, BEGIN))
        for _ in range(int(due)):
            dice, blamed = self._chance.random(), None
            for agent in agents:
                dice -= shares[agent](self.tick)
                blamed = agent if dice < 0 and blamed is None else blamed
            status = "attributed" if blamed else "no_failure"
            yield RunCount(service=service, status=status, agents=agents, blamed=blamed, mode="loop")

    def _tell(self, run: RunCount) -> None:
        settled = self.tick + self.story.late
        if run.blamed is None or not self.story.first_blamed:
            self._owed[settled].append(Move(before=None, after=run))
            return
        first = replace(run, blamed=self.story.first_blamed)
        self._owed[settled].append(Move(before=None, after=first))
        self._owed[settled + self.story.corrected].append(Move(before=first, after=run))


def playings(stories: Iterable[Story] = STORIES, begin: int = BEGIN) -> list[Playing]:
    """Return the stories, each at its beginning."""
    return [Playing(story, begin) for story in stories]
