"""Daily counts of each agent's runs and blames, and the watch on each agent: tables of the issue store.

Shares over a window of days use daily sums; alarms use a watch that examines every run. Both count the
method's verdicts and are corrected if a later verdict differs. Neither is kept if an upstream sampler selects
traces by their outcome (tail sampling): failures would be over-represented.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from analyzer.inquiry.match_agents import same_agent
from analyzer.issues.issue_store import DAY_NS, CountedRun, IssueStore
from analyzer.issues.labels.run_label import LabelKind
from analyzer.issues.recurrence import Count, Notice, NoticeKind, Watch, observe, threshold
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import upsert
from semconv.model import agent_in_prose

WEEK: Final = 7
PAST_DAYS: Final = 28
RENEW_DAYS: Final = 28
"""Lifetime of a watch that finds nothing. If it were renewed sooner, a change would become
part of the usual share before it is found (``benchmarks/alerting/alert_delay.py``: if renewed weekly, most
changes are never found)."""
FEWEST_RUNS: Final = 20
"""Runs of an agent before it can raise an alarm; with fewer, its usual share is unknown."""
FEWEST_A_WEEK: Final = 50
"""Fewest runs a week that an alarm's threshold assumes."""
MAX_AGENTS: Final = 10_000
"""Most agents watched in all; traces may contain any number of names."""
MAX_AGENTS_OF_A_RUN: Final = 50
MOST_PLAYED_AGAIN: Final = 5_000
"""Most runs of a service that one correction replays; about 50 ms."""
_ADD_TO_DAY: Final = (
    "INSERT INTO agent_day (tenant, service, agent, day, took_part, blamed) VALUES {rows}"
    " ON CONFLICT (tenant, service, agent, day) DO UPDATE SET"
    " took_part = CASE WHEN agent_day.took_part + excluded.took_part > 0"
    " THEN agent_day.took_part + excluded.took_part ELSE 0 END,"
    " blamed = CASE WHEN agent_day.blamed + excluded.blamed > 0"
    " THEN agent_day.blamed + excluded.blamed ELSE 0 END"
)
_AGENT: Final = "tenant, service, agent"
_WATCHED: Final = f"{_AGENT}, hits, n, sums, is_alarm, calm_runs, begun_day, alarm_ns, run_id"
_WRITE_WATCH: Final = upsert(
    "watch", f"{_AGENT}, begun_day, last_day, hits, n, sums, is_alarm, calm_runs, alarm_ns, run_id", keys=3
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Key of an agent: its tenant, its service and its name."""

    tenant: Tenant
    service: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """An agent's watch as stored."""

    place: Place
    watch: Watch
    begun_day: int
    alarm_ns: int = 0
    """Time at which the alarm was raised; 0 if there is none."""
    run_id: str = ""
    """The run that raised it."""


class AgentCounts:
    """Counts and watches; its writes are part of the caller's transaction."""

    def __init__(self, store: IssueStore) -> None:
        """Use the tables of a store."""
        self._store: Final = store
        self._corrected: dict[Place, CountedRun] = {}
        """Agents whose watches must be recomputed, with the last run that was corrected."""

    def move(self, changes: Sequence[tuple[CountedRun | None, CountedRun]]) -> list[Notice]:
        """Count runs that are already stored, in order, and undo their earlier counts.

        Returns:
            The alarms raised and ended for agents that are new to a run. ``recompute_corrected`` returns
            those of agents that a correction blames or clears.
        """
        batch, notices = self._read(changes), list[Notice]()
        for before, after in changes:
            known = () if before is None or before.service != after.service else before.agents
            for place in _places(after):
                watched = None if place.agent in known else self._watched(place, after, batch)
                if watched is not None:
                    notices += _observe(watched, after, batch)
            if before is not None:
                batch.add(before, -1)
                self.relabel(before, after)
            batch.add(after, 1)
        self._write(batch.kept)
        self._write_days(batch)
        return notices

    def _read(self, changes: Sequence[tuple[CountedRun | None, CountedRun]]) -> _Batch:
        places = list(
            dict.fromkeys(place for pair in changes for run in pair if run for place in _places(run))
        )
        batch = _Batch(watches=self._watches(places))
        if len(batch.watches) < len(places):
            batch.in_all = self._store.db.execute("SELECT count(*) FROM watch").fetchone()[0]
        for today in {after.decided_ns // DAY_NS for _, after in changes}:
            batch.weeks[today] = self._weeks(places, today)
            for tenant in {place.tenant for place in places}:
                batch.agents[tenant, today] = self._agents(tenant, today)
        return batch

    def _weeks(self, places: Sequence[Place], today: int) -> dict[Place, int]:
        """Return the number of runs that each agent took part in during the week until today."""
        rows = self._store.db.read_rows(
            f"{_AGENT}, sum(took_part)",
            "agent_day",
            _AGENT,
            [_key(place) for place in places],
            f"AND day BETWEEN ? AND ? GROUP BY {_AGENT}",
            today - WEEK + 1,
            today,
        )
        return {Place(tenant=Tenant(row[0]), service=row[1], agent=row[2]): int(row[3]) for row in rows}

    def relabel(self, before: CountedRun, after: CountedRun) -> None:
        """Record the agents for which a stored run now counts differently.

        Labels do not change the daily sums: shares already use them to estimate the method's errors.
        """
        for agent in before.agents[:MAX_AGENTS_OF_A_RUN]:
            if _counts(before, before.service, agent) != _counts(after, before.service, agent):
                place = Place(tenant=before.tenant, service=before.service, agent=agent)
                self._corrected[place] = after

    def recompute_corrected(self) -> list[Notice]:
        """Recompute the watches on corrected agents as if the corrections had been known from the start.

        Call it once after several corrections. Returns the alarms raised and ended by them.
        """
        notices: list[Notice] = []
        for place, run in self._corrected.items():
            found = self.watched(place)
            if found is not None:
                notices += self._watch_again(found, run)
        self._corrected.clear()
        return notices

    def _watch_again(self, watched: Watched, run: CountedRun) -> list[Notice]:
        """Recompute a watch by replaying its stored runs."""
        place, today = watched.place, run.decided_ns // DAY_NS
        rows = self._store.service_runs(
            place.tenant, place.service, watched.begun_day * DAY_NS, MOST_PLAYED_AGAIN
        )
        first_day = rows[0].decided_ns // DAY_NS if rows else today
        watch = Watch(known=self.window(place, first_day - PAST_DAYS, first_day - 1))
        week = self._weeks([place], today).get(place, 0)
        agents = self._agents(place.tenant, today)
        for row in rows:
            is_blamed = _counts(row, place.service, place.agent)
            if is_blamed is not None:
                watch = observe(watch, _limit(watch, week, agents), is_blamed=is_blamed)
        kept, notices = _after(watched, watch, run)
        self._write({place: (kept, today)})
        return notices

    def window(self, place: Place, first_day: int, last_day: int) -> Count:
        """Return how often an agent was blamed, and in how many runs, on these days (inclusive)."""
        return self._window("=", place, first_day, last_day)

    def fellows(self, place: Place, first_day: int, last_day: int) -> Count:
        """Return the same counts for all other agents of its service together."""
        return self._window("!=", place, first_day, last_day)

    def _window(self, compared: str, place: Place, first_day: int, last_day: int) -> Count:
        row = self._store.db.execute(
            "SELECT coalesce(sum(blamed), 0), coalesce(sum(took_part), 0) FROM agent_day"  # noqa: S608 - our own
            f" WHERE tenant = ? AND service = ? AND agent {compared} ? AND day BETWEEN ? AND ?",
            (*_key(place), first_day, last_day),
        ).fetchone()
        return Count(hits=int(row[0]), n=int(row[1]))

    def alarms(self) -> list[Watched]:
        """Return the agents of all tenants that fail more often than before."""
        rows = self._store.db.execute(
            f"SELECT {_WATCHED} FROM watch WHERE is_alarm ORDER BY alarm_ns"  # noqa: S608 - our own words
        )
        return [_watched(row) for row in rows]

    def watched(self, place: Place) -> Watched | None:
        """Return an agent's watch."""
        return self._watches([place]).get(place)

    def _watches(self, places: Sequence[Place]) -> dict[Place, Watched]:
        rows = self._store.db.read_rows(_WATCHED, "watch", _AGENT, [_key(place) for place in places])
        return {found.place: found for found in map(_watched, rows)}

    def _watched(self, place: Place, run: CountedRun, batch: _Batch) -> Watched | None:
        """Return the watch to continue: a new one if the agent is new or its watch has expired.

        After four weeks a watch is renewed with these weeks as its past, unless its
        evidence is already high. An alarm lasts a week at most: after that the new share is the usual one.
        """
        found, today = batch.watches.get(place), run.settled_ns // DAY_NS
        if found is None:
            if batch.in_all >= MAX_AGENTS:
                return None
            batch.in_all += 1
            return Watched(place=place, watch=Watch(known=Count()), begun_day=today)
        if found.watch.is_alarm:
            if today - found.alarm_ns // DAY_NS < WEEK:
                return found
            self._write_days(batch)
            past = self.window(place, today - WEEK + 1, today)
            return Watched(place=place, watch=Watch(known=past), begun_day=today, alarm_ns=-1)
        is_young = today - found.begun_day < RENEW_DAYS
        if is_young or found.watch.evidence > max(FEWEST_A_WEEK, found.watch.known.n):
            return found
        self._write_days(batch)
        past = self.window(place, today - PAST_DAYS, today)
        return Watched(place=place, watch=Watch(known=past), begun_day=today)

    def _agents(self, tenant: Tenant, today: int) -> int:
        """Return the number of a tenant's agents that took part in a run in the week until today."""
        row = self._store.db.execute(
            "SELECT count(*) FROM watch WHERE tenant = ? AND last_day > ?", (tenant, today - WEEK)
        ).fetchone()
        return int(row[0])

    def _write(self, kept: Mapping[Place, tuple[Watched, int]]) -> None:
        """Write watches, each with the day of the last run that it saw."""
        self._store.db.write_rows(
            _WRITE_WATCH,
            [
                (
                    *_key(place),
                    watched.begun_day,
                    last_day,
                    watched.watch.known.hits,
                    watched.watch.known.n,
                    json.dumps(watched.watch.sums),
                    watched.watch.is_alarm,
                    watched.watch.calm_runs,
                    watched.alarm_ns,
                    watched.run_id,
                )
                for place, (watched, last_day) in kept.items()
            ],
        )

    def _write_days(self, batch: _Batch) -> None:
        """Write the additions to the daily sums."""
        rows = [(*_key(place), day, n, hits) for (place, day), (n, hits) in batch.added.items() if n or hits]
        self._store.db.write_rows(_ADD_TO_DAY, rows)
        batch.added.clear()


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Watches and counts of the agents of several runs, while they are counted."""

    watches: dict[Place, Watched]
    in_all: int = 0
    """Number of watches of all agents; counted only if some agent has none."""
    weeks: dict[int, dict[Place, int]] = field(default_factory=dict)
    """Runs of each agent in the week until a day, that day included."""
    agents: dict[tuple[Tenant, int], int] = field(default_factory=dict)
    """Number of a tenant's agents in the week until a day; agents that return after a week count from the
    next batch."""
    kept: dict[Place, tuple[Watched, int]] = field(default_factory=dict)
    """Watches to be written, each with the day of the last run that it saw."""
    added: dict[tuple[Place, int], tuple[int, int]] = field(default_factory=dict)
    """Additions to the sums of a day: runs in which an agent took part, and was blamed."""

    def add(self, run: CountedRun, one: int) -> None:
        """Add a run to the sums of its day; ``one`` is 1, or -1 to undo that."""
        day = run.settled_ns // DAY_NS
        for place in _places(run):
            if place not in self.watches:
                continue  # too many agents are watched already
            n, hits = self.added.get((place, day), (0, 0))
            self.added[place, day] = (n + one, hits + one * (place.agent == run.failed_agent))
            for today, week in self.weeks.items():
                if today - WEEK < day <= today:
                    week[place] = week.get(place, 0) + one


def _observe(watched: Watched, run: CountedRun, batch: _Batch) -> list[Notice]:
    place, before, today = watched.place, watched.watch, run.decided_ns // DAY_NS
    limit = _limit(before, batch.weeks[today].get(place, 0), batch.agents[place.tenant, today])
    is_blamed = bool(_counts(run, place.service, place.agent))
    kept, notices = _after(watched, observe(before, limit, is_blamed=is_blamed), run)
    if place not in batch.watches:
        for tenant, day in batch.agents:
            batch.agents[tenant, day] += tenant == place.tenant and today > day - WEEK
    batch.watches[place] = kept
    batch.kept[place] = (kept, today)
    return notices


def _limit(watch: Watch, runs_of_week: int, agents: int) -> float:
    """Return the evidence at which a watch raises its alarm."""
    if watch.known.n < FEWEST_RUNS:
        return float("inf")
    return threshold(max(runs_of_week, FEWEST_A_WEEK), agents)


def _after(watched: Watched, after: Watch, run: CountedRun) -> tuple[Watched, list[Notice]]:
    """Return the watch to store after a run, and the alarm that the run raised or ended."""
    place = watched.place
    was_alarm = watched.watch.is_alarm or watched.alarm_ns < 0
    alarm_ns, run_id = watched.alarm_ns, watched.run_id
    if not after.is_alarm:
        alarm_ns, run_id = 0, ""
    elif not was_alarm:
        alarm_ns, run_id = run.decided_ns, run.run_id
    kept = Watched(place=place, watch=after, begun_day=watched.begun_day, alarm_ns=alarm_ns, run_id=run_id)
    if after.is_alarm == was_alarm:
        return kept, []
    kind = NoticeKind.FAILS_MORE if after.is_alarm else NoticeKind.CALM_AGAIN
    title = f"{agent_in_prose(place.agent)}: fails more often than it did"
    if kind is NoticeKind.CALM_AGAIN:
        title = f"{agent_in_prose(place.agent)}: fails no more often than it did"
    notice = Notice(
        kind=kind,
        tenant=place.tenant,
        at_ns=run.decided_ns,
        service=place.service,
        agent=place.agent,
        title=title,
        run_id=run.run_id,
    )
    return kept, [notice]


def _places(run: CountedRun) -> list[Place]:
    """Return the agents of a run, up to the bound."""
    agents = dict.fromkeys(run.agents[:MAX_AGENTS_OF_A_RUN])
    return [Place(tenant=run.tenant, service=run.service, agent=agent) for agent in agents]


def _key(place: Place) -> tuple[str, str, str]:
    return (place.tenant, place.service, place.agent)


def _counts(run: CountedRun, service: str, agent: str) -> bool | None:
    """Return whether a run counts as a failure of an agent; ``None`` if the agent took no part.

    A label that contradicts the verdict removes a failure from one watch and adds none to another: since
    older runs are mostly unlabelled, the present would otherwise look worse than the past.
    """
    if run.service != service or agent not in run.agents:
        return None
    return run.failed_agent == agent and not is_contradicted(run)


def is_contradicted(run: CountedRun) -> bool:
    """Return whether a label says that the blamed agent did not break the run."""
    if run.label == LabelKind.CORRECTED:
        return run.label_agent is not None and not same_agent(run.label_agent, run.blamed or "")
    return run.label in {LabelKind.REJECTED, LabelKind.NOT_A_FAILURE}


def _watched(row: tuple[str, str, str, int, int, str, int, int, int, int, str]) -> Watched:
    tenant, service, agent, hits, n, sums, is_alarm, calm_runs, begun_day, alarm_ns, run_id = row
    watch = Watch(
        known=Count(hits=hits, n=n),
        sums=tuple(json.loads(sums)),
        is_alarm=bool(is_alarm),
        calm_runs=calm_runs,
    )
    place = Place(tenant=Tenant(tenant), service=service, agent=agent)
    return Watched(place=place, watch=watch, begun_day=begun_day, alarm_ns=alarm_ns, run_id=run_id)
