"""How often each agent took part and was blamed, by day, and the watch on it: tables of the issue store.

For a window of days there is one sum; for an alarm there is a watch that looks at every
run. Both count the method's verdicts and are corrected when a later verdict differs. Neither
is kept if an upstream sampler selects traces by their outcome (tail sampling): failures would
be over-represented.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from analyzer.agent_names import same_agent
from analyzer.issues.rows import CountedRun
from analyzer.issues.store import DAY_NS, IssueStore
from analyzer.labels import LabelKind
from analyzer.recurrence import Count, Watch, begin_watch, observe, threshold
from analyzer.recurrence.notice import Notice, NoticeKind
from collector_processor.otlp import Tenant

WEEK: Final = 7
PAST_DAYS: Final = 28
RENEW_DAYS: Final = 28
"""How long a watch lives that finds nothing. Were it renewed sooner, a change would be part of what is
usual before it is found (``tests/bench/alert_delay.py``: by the week, most are never found)."""
FEWEST_RUNS: Final = 20
"""Of an agent's before an alarm may be raised for it: with fewer nothing is usual yet."""
FEWEST_A_WEEK: Final = 50
"""Runs a week that an alarm's threshold reckons with at least."""
MAX_AGENTS: Final = 10_000
"""Watched in all; the names in traces are anybody's choice."""
MAX_AGENTS_OF_A_RUN: Final = 50
MOST_PLAYED_AGAIN: Final = 5_000
"""Most runs of a service that one correction replays; about 50 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An agent of a service of a tenant."""

    tenant: Tenant
    service: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """An agent's watch as it is kept."""

    place: Place
    watch: Watch
    begun_day: int
    alarm_ns: int = 0
    """When the alarm was raised; 0 where there is none."""
    run_id: str = ""
    """The run that raised it."""


class AgentCounts:
    """Counts and watches; its writes are part of the caller's transaction."""

    def __init__(self, store: IssueStore) -> None:
        """Make it over a store's tables."""
        self._store: Final = store
        self._corrected: dict[Place, CountedRun] = {}
        """Agents whose watches must be recomputed, with the last run that was corrected."""

    def move(self, before: CountedRun | None, after: CountedRun) -> list[Notice]:
        """Count a run that is already stored, and undo its earlier count.

        Returns:
            The alarms raised and ended for agents that are new to the run. ``put_right`` returns those
            of agents that a correction blames or acquits.
        """
        notices: list[Notice] = []
        day = after.settled_ns // DAY_NS
        known = () if before is None or before.service != after.service else before.agents
        for agent in dict.fromkeys(after.agents[:MAX_AGENTS_OF_A_RUN]):
            place = Place(tenant=after.tenant, service=after.service, agent=agent)
            watched = None if agent in known else self._watched(place, day)
            if watched is not None:
                notices += self._observe(watched, after)
        if before is not None:
            self._add(before, -1)
            self.relabel(before, after)
        self._add(after, 1)
        return notices

    def relabel(self, before: CountedRun, after: CountedRun) -> None:
        """Remember the agents for which a stored run now counts differently.

        Labels do not change the daily sums: shares already use them to estimate the method's errors.
        """
        for agent in before.agents[:MAX_AGENTS_OF_A_RUN]:
            if _counts(before, before.service, agent) != _counts(after, before.service, agent):
                place = Place(tenant=before.tenant, service=before.service, agent=agent)
                self._corrected[place] = after

    def put_right(self) -> list[Notice]:
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
        watch = begin_watch(self.window(place, first_day - PAST_DAYS, first_day - 1))
        limits = self._limits(place, today)
        for row in rows:
            is_blamed = _counts(row, place.service, place.agent)
            if is_blamed is not None:
                watch = observe(watch, limits(watch), is_blamed=is_blamed)
        return self._keep(watched, watch, run)

    def window(self, place: Place, first_day: int, last_day: int) -> Count:
        """Return how often an agent was blamed, of how many runs, in these days, both included."""
        row = self._store.db.execute(
            "SELECT coalesce(sum(blamed), 0), coalesce(sum(took_part), 0) FROM agent_day"
            " WHERE tenant = ? AND service = ? AND agent = ? AND day BETWEEN ? AND ?",
            (place.tenant, place.service, place.agent, first_day, last_day),
        ).fetchone()
        return Count(hits=row[0], n=row[1])

    def fellows(self, place: Place, first_day: int, last_day: int) -> Count:
        """Return the same of all other agents of its service, put together."""
        row = self._store.db.execute(
            "SELECT coalesce(sum(blamed), 0), coalesce(sum(took_part), 0) FROM agent_day"
            " WHERE tenant = ? AND service = ? AND agent != ? AND day BETWEEN ? AND ?",
            (place.tenant, place.service, place.agent, first_day, last_day),
        ).fetchone()
        return Count(hits=row[0], n=row[1])

    def alarms(self, tenant: Tenant | None = None) -> list[Watched]:
        """Return the agents that fail more than they did, of one tenant or of all."""
        rows = self._store.db.execute(
            "SELECT tenant, service, agent, hits, n, sums, is_alarm, calm_runs, begun_day, alarm_ns, run_id"
            " FROM watch WHERE is_alarm AND (? IS NULL OR tenant = ?) ORDER BY alarm_ns",
            (tenant, tenant),
        )
        return [_watched(row) for row in rows]

    def watched(self, place: Place) -> Watched | None:
        """Return an agent's watch."""
        row = self._store.db.execute(
            "SELECT tenant, service, agent, hits, n, sums, is_alarm, calm_runs, begun_day, alarm_ns, run_id"
            " FROM watch WHERE tenant = ? AND service = ? AND agent = ?",
            (place.tenant, place.service, place.agent),
        ).fetchone()
        return None if row is None else _watched(row)

    def _add(self, run: CountedRun, one: int) -> None:
        day = run.settled_ns // DAY_NS
        for agent in dict.fromkeys(run.agents[:MAX_AGENTS_OF_A_RUN]):
            if self.watched(Place(tenant=run.tenant, service=run.service, agent=agent)) is None:
                continue  # one too many
            is_blamed = one * (agent == run.blamed)
            self._store.db.execute(
                "INSERT INTO agent_day VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET took_part = max(0, took_part + excluded.took_part),"
                " blamed = max(0, blamed + excluded.blamed)",
                (run.tenant, run.service, agent, day, one, is_blamed),
            )

    def _watched(self, place: Place, today: int) -> Watched | None:
        """Return the watch to go on with: a new one for a new agent, and for an old one that is through.

        After four weeks a watch begins anew with these as its past, unless it has found
        something. An alarm stands for a week at most: what goes on for longer is the usual.
        """
        found = self.watched(place)
        if found is None:
            count = self._store.db.execute("SELECT count(*) FROM watch").fetchone()[0]
            return (
                Watched(place=place, watch=begin_watch(Count()), begun_day=today)
                if count < MAX_AGENTS
                else None
            )
        if found.watch.is_alarm:
            if today - found.alarm_ns // DAY_NS < WEEK:
                return found
            past = self.window(place, today - WEEK + 1, today)
            return Watched(place=place, watch=begin_watch(past), begun_day=today, alarm_ns=-1)
        is_young = today - found.begun_day < RENEW_DAYS
        if is_young or found.watch.evidence > max(FEWEST_A_WEEK, found.watch.known.n):
            return found
        past = self.window(place, today - PAST_DAYS, today)
        return Watched(place=place, watch=begin_watch(past), begun_day=today)

    def _observe(self, watched: Watched, run: CountedRun) -> list[Notice]:
        place, before = watched.place, watched.watch
        limit = self._limits(place, run.decided_ns // DAY_NS)(before)
        is_blamed = bool(_counts(run, place.service, place.agent))
        return self._keep(watched, observe(before, limit, is_blamed=is_blamed), run)

    def _keep(self, watched: Watched, after: Watch, run: CountedRun) -> list[Notice]:
        """Store the state of a watch after a run, and return the alarm raised or ended by it."""
        place = watched.place
        was_alarm = watched.watch.is_alarm or watched.alarm_ns < 0
        alarm_ns, run_id = watched.alarm_ns, watched.run_id
        if not after.is_alarm:
            alarm_ns, run_id = 0, ""
        elif not was_alarm:
            alarm_ns, run_id = run.decided_ns, run.run_id
        kept = Watched(
            place=place, watch=after, begun_day=watched.begun_day, alarm_ns=alarm_ns, run_id=run_id
        )
        self._write(kept, run.decided_ns // DAY_NS)
        if after.is_alarm == was_alarm:
            return []
        kind = NoticeKind.FAILS_MORE if after.is_alarm else NoticeKind.CALM_AGAIN
        title = f"{place.agent}: fails more often than it did"
        if kind is NoticeKind.CALM_AGAIN:
            title = f"{place.agent}: fails no more often than it did"
        return [
            Notice(
                kind=kind,
                tenant=place.tenant,
                at_ns=run.decided_ns,
                service=place.service,
                agent=place.agent,
                title=title,
                run_id=run.run_id,
            )
        ]

    def _limits(self, place: Place, today: int) -> Callable[[Watch], float]:
        """Return the function that gives the evidence at which a watch raises its alarm."""
        of_week = self.window(place, today - WEEK + 1, today).n
        agents = self._store.db.execute(
            "SELECT count(*) FROM watch WHERE tenant = ? AND last_day > ?", (place.tenant, today - WEEK)
        ).fetchone()[0]
        limit = threshold(max(of_week, FEWEST_A_WEEK), agents)
        return lambda watch: limit if watch.known.n >= FEWEST_RUNS else float("inf")

    def _write(self, watched: Watched, today: int) -> None:
        place, watch = watched.place, watched.watch
        self._store.db.execute(
            "INSERT OR REPLACE INTO watch VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                place.tenant,
                place.service,
                place.agent,
                watched.begun_day,
                today,
                watch.known.hits,
                watch.known.n,
                json.dumps(watch.sums),
                watch.is_alarm,
                watch.calm_runs,
                watched.alarm_ns,
                watched.run_id,
            ),
        )


def _counts(run: CountedRun, service: str, agent: str) -> bool | None:
    """Return whether a run counts as a failure of an agent; ``None`` if the agent took no part.

    A label that contradicts the verdict removes a failure from one watch and adds none to another:
    older runs are mostly unlabelled, so the present would look worse than the past.
    """
    if run.service != service or agent not in run.agents:
        return None
    return run.blamed == agent and not is_contradicted(run)


def is_contradicted(run: CountedRun) -> bool:
    """Whether a label says that the blamed agent did not break the run."""
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
