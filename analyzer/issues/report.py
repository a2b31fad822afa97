"""Issues as people and programs are shown them: state by now, trend, the agent's share with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from analyzer.agent_names import same_agent
from analyzer.issues.agent_counts import PAST_DAYS, WEEK, AgentCounts, Place
from analyzer.issues.rows import CountedRun
from analyzer.issues.store import DAY_NS, IssueStore
from analyzer.labels import LabelKind
from analyzer.recurrence import Count, Issue, IssueRules, IssueState, Share, age, compared, share_of
from collector_processor.otlp import Tenant

TREND_DAYS: Final = 14
_STATES: Final = (IssueState.REGRESSED, IssueState.NEW, IssueState.ONGOING, IssueState.RESOLVED)
SAMPLED: Final = "off: with tail sampling before blamespan, failures are over-represented"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentShare:
    """In what share of its runs of the last seven days an agent was to blame."""

    blamed: Count
    """By the method."""
    labelled: int
    """Runs with a label that say how often the method is wrong about it."""
    share: Share
    """What is true, by both."""
    against_past: Share
    """How many times as often it is blamed as in the four weeks before."""
    against_fellows: Share
    """How many times as often as the other agents of its service."""
    is_alarm: bool
    """Whether it fails more often than it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueReport:
    """An issue with what is known around it."""

    tenant: Tenant
    issue: Issue
    """As it stands now."""
    trend: tuple[int, ...]
    """Failures a day, oldest first; the last is today."""
    agent: AgentShare | None
    """``None`` where shares are off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which issues somebody wants to see."""

    tenant: Tenant | None = None
    state: IssueState | None = None
    service: str | None = None
    agent: str | None = None
    limit: int = 500


class IssueReports:
    """Reads the issue store."""

    def __init__(self, store: IssueStore, *, is_fair_sample: bool, rules: IssueRules | None = None) -> None:
        """Make it over a store.

        Args:
            store: the store.
            is_fair_sample: whether runs come in whatever their end; else there are no shares.
            rules: when states change by themselves.
        """
        self._store: Final = store
        self._counts: Final = AgentCounts(store)
        self._is_fair_sample: Final = is_fair_sample
        self._rules: Final = rules or IssueRules()

    def issues(self, wanted: Wanted, now_ns: int) -> list[tuple[Tenant, Issue]]:
        """Return the issues asked for as they stand now: what came back and what is new first."""
        aged = [
            (tenant, age(issue, now_ns, self._rules))
            for tenant, issue in self._store.issues(wanted.tenant, 10 * wanted.limit)
        ]
        found = [(tenant, issue) for tenant, issue in aged if _is_wanted(issue, wanted)]
        found.sort(key=lambda one: _STATES.index(one[1].state))  # stable: the last that failed first
        return found[: wanted.limit]

    def trend(self, tenant: Tenant, issue: Issue, now_ns: int) -> tuple[int, ...]:
        """Return failures a day of the last fortnight."""
        return self._store.trend(tenant, issue.fingerprint.id, now_ns // DAY_NS, TREND_DAYS)

    def reports(self, wanted: Wanted, now_ns: int) -> Iterable[IssueReport]:
        """Return the issues asked for with all that is known of them."""
        shares: dict[Place, AgentShare | None] = {}
        for tenant, issue in self.issues(wanted, now_ns):
            place = _place(tenant, issue)
            if place not in shares:
                shares[place] = self.share(tenant, issue, now_ns)
            yield IssueReport(
                tenant=tenant,
                issue=issue,
                trend=self.trend(tenant, issue, now_ns),
                agent=shares[place],
            )

    def share(self, tenant: Tenant, issue: Issue, now_ns: int) -> AgentShare | None:
        """Return in what share of its runs an issue's agent is to blame; ``None`` where shares are off."""
        return self._share(_place(tenant, issue), now_ns // DAY_NS) if self._is_fair_sample else None

    def lows(self, now_ns: int) -> Iterator[tuple[str, str, float]]:
        """Yield services, agents and the share that each surely broke in the last seven days.

        Only of agents that a labelled verdict blames: without labels the interval begins at nothing.
        """
        if not self._is_fair_sample:
            return
        today = now_ns // DAY_NS
        for tenant, service in self._store.labelled_services():
            runs = self._store.labelled_runs(tenant, service)
            for agent in sorted({run.blamed for run in runs if run.blamed}):
                place = Place(tenant=tenant, service=service, agent=agent)
                of_week = self._counts.window(place, today - WEEK + 1, today)
                yield service, agent, _share_of(of_week, *checked(runs, agent)).low

    def _share(self, place: Place, today: int) -> AgentShare:
        of_week = self._counts.window(place, today - WEEK + 1, today)
        past = self._counts.window(place, today - WEEK - PAST_DAYS + 1, today - WEEK)
        rightly, missed = checked(self._store.labelled_runs(place.tenant, place.service), place.agent)
        watched = self._counts.watched(place)
        return AgentShare(
            blamed=of_week,
            labelled=rightly.n + missed.n,
            share=_share_of(of_week, rightly, missed),
            against_past=compared(of_week, past),
            against_fellows=compared(of_week, self._counts.fellows(place, today - WEEK + 1, today)),
            is_alarm=watched is not None and watched.watch.is_alarm,
        )


_share_of: Final = lru_cache(maxsize=1_000)(share_of)
"""Asked for every few seconds, of counts that seldom change."""


def checked(runs: Iterable[CountedRun], agent: str) -> tuple[Count, Count]:
    """Return how often the method was right about an agent by people's labels.

    Returns:
        Of the labelled runs in which the method blames it, those in which it was to blame;
        and of those in which the method does not, those in which it was all the same.
    """
    rightly, missed = Count(), Count()
    for run in runs:
        if agent not in run.agents:
            continue
        is_blamed = run.blamed == agent
        if run.label == LabelKind.REJECTED and not is_blamed:
            continue  # the verdict was wrong: whether it was this one, nobody said
        was_it = run.label_agent is not None and same_agent(run.label_agent, agent)
        if is_blamed:
            rightly = Count(hits=rightly.hits + was_it, n=rightly.n + 1)
        else:
            missed = Count(hits=missed.hits + was_it, n=missed.n + 1)
    return rightly, missed


def to_json(report: IssueReport, now_ns: int) -> dict[str, Any]:
    """Return an issue as programs get it, always with the same keys."""
    issue, mark = report.issue, report.issue.fingerprint
    today = now_ns // DAY_NS
    first = today - len(report.trend) + 1
    return {
        "id": mark.id,
        "state": issue.state.value,
        "title": mark.title,
        "tenant": report.tenant,
        "service": mark.service,
        "agent": mark.agent,
        "mode": mark.mode,
        "kind": mark.kind,
        "tool": mark.tool,
        "error": mark.error,
        "count": issue.count,
        "first_seen": _iso(issue.first_ns),
        "last_seen": _iso(issue.last_ns),
        "since": _iso(issue.since_ns),
        "trend": [{"day": _day(first + place), "count": count} for place, count in enumerate(report.trend)],
        "examples": list(issue.runs),
        "muted": issue.is_muted(now_ns),
        "muted_until": _iso(issue.muted_until_ns) if issue.is_muted(now_ns) else None,
        "share": None if report.agent is None else _share_document(report.agent),
        "share_off": SAMPLED if report.agent is None else None,
    }


def _share_document(agent: AgentShare) -> dict[str, Any]:
    return {
        **{name: round(value, 4) for name, value in asdict(agent.share).items()},
        "blamed": agent.blamed.hits,
        "runs": agent.blamed.n,
        "labelled": agent.labelled,
        "against_past": {name: round(value, 3) for name, value in asdict(agent.against_past).items()},
        "against_fellows": {name: round(value, 3) for name, value in asdict(agent.against_fellows).items()},
        "alarm": agent.is_alarm,
    }


def _place(tenant: Tenant, issue: Issue) -> Place:
    return Place(tenant=tenant, service=issue.fingerprint.service, agent=issue.fingerprint.agent)


def _is_wanted(issue: Issue, wanted: Wanted) -> bool:
    mark = issue.fingerprint
    return (
        wanted.state in {None, issue.state}
        and wanted.service in {None, mark.service}
        and (wanted.agent is None or same_agent(mark.agent, wanted.agent))
    )


def _iso(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, tz=UTC).isoformat(timespec="seconds")


def _day(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_NS / 1e9, tz=UTC).date().isoformat()
