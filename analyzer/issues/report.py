"""Issues in the form shown to people and programs: state, trend, and the agent's share with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from analyzer.inquiry.match_agents import same_agent
from analyzer.inquiry.present import counted
from analyzer.issues.agent_counts import PAST_DAYS, WEEK, AgentCounts, Place
from analyzer.issues.issue_store import DAY_NS, CountedRun, IssueStore
from analyzer.issues.labels.run_label import LabelKind
from analyzer.issues.recurrence import Count, Issue, IssueState, Share, age, compared, observed, share_of
from collector_processor.otlp import Tenant

TREND_DAYS: Final = 14
_STATES: Final = (IssueState.REGRESSED, IssueState.NEW, IssueState.ONGOING, IssueState.RESOLVED)
SAMPLED: Final = "off: with tail sampling before blamespan, failures are over-represented"

NO_RUNS: Final = "unknown: the agent took part in no run of the last seven days"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentShare:
    """Share of an agent's runs of the last seven days in which it was to blame."""

    blamed: Count
    """The share according to the method."""
    labelled: int
    """Number of runs of its service with a label that says whether the method was right about it."""
    share: Share
    """The share to show: corrected by the labels if there are any, else the method's own."""
    against_past: Share
    """Ratio of its share of blame to that of the four weeks before."""
    against_fellows: Share
    """Ratio of its share of blame to that of the other agents of its service."""
    is_alarm: bool
    """Whether it fails more often than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueReport:
    """An issue with its trend and its agent's share."""

    tenant: Tenant
    issue: Issue
    """The issue in its present state."""
    trend: tuple[int, ...]
    """Failures per day, oldest first; the last is today."""
    agent: AgentShare | None
    """The agent's share; ``None`` if shares are off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Filter of the issues to show."""

    tenant: Tenant | None = None
    state: IssueState | None = None
    service: str | None = None
    agent: str | None = None
    limit: int = 500


def share_by(blamed: Count, rightly: Count, missed: Count) -> Share:
    """Return an agent's share of failures: the one number that commands, the API, pages and metrics show.

    Without a labelled verdict that blames the agent, the method's errors are unknown, and a corrected
    interval would be as wide as 1 to 99 %: then the share is the method's own.

    Args:
        blamed: runs in which the method blames the agent, out of those in which it took part.
        rightly: the first result of ``checked``.
        missed: the second result of ``checked``.
    """
    return _share_of(blamed, rightly, missed) if rightly.n else _observed(blamed)


def share_text(agent: AgentShare) -> str:
    """Describe a share and its source in one line."""
    share = agent.share
    source = f"corrected by {counted(agent.labelled, 'label')}" if agent.labelled else "by the method alone"
    return f"{share.estimate:.0%} [{share.low:.0%}, {share.high:.0%}], {source}"


class IssueReports:
    """Reads the issue store."""

    def __init__(self, store: IssueStore, *, is_fair_sample: bool) -> None:
        """Create a reader; it gives no shares if sampling depends on how runs end."""
        self._store: Final = store
        self._counts: Final = AgentCounts(store)
        self._is_fair_sample: Final = is_fair_sample

    def issues(self, wanted: Wanted, now_ns: int) -> list[tuple[Tenant, Issue]]:
        """Return the requested issues in their present state; regressed and new ones first."""
        aged = [
            (tenant, age(issue, now_ns))
            for tenant, issue in self._store.issues(wanted.tenant, 10 * wanted.limit)
        ]
        found = [(tenant, issue) for tenant, issue in aged if _is_wanted(issue, wanted)]
        found.sort(key=lambda one: _STATES.index(one[1].state))  # stable sort: latest failure first
        return found[: wanted.limit]

    def trend(self, tenant: Tenant, issue: Issue, now_ns: int) -> tuple[int, ...]:
        """Return the failures per day of the last two weeks."""
        return self.trends([(tenant, issue)], now_ns)[0]

    def trends(self, issues: Sequence[tuple[Tenant, Issue]], now_ns: int) -> list[tuple[int, ...]]:
        """Return the same for several issues."""
        keys = [(tenant, issue.fingerprint.id) for tenant, issue in issues]
        found = self._store.trends(keys, now_ns // DAY_NS, TREND_DAYS)
        return [found[key] for key in keys]

    def reports(self, wanted: Wanted, now_ns: int) -> Iterable[IssueReport]:
        """Return the requested issues with their trends and shares."""
        shares: dict[Place, AgentShare | None] = {}
        found = self.issues(wanted, now_ns)
        for (tenant, issue), trend in zip(found, self.trends(found, now_ns), strict=True):
            place = _place(tenant, issue)
            if place not in shares:
                shares[place] = self.share(tenant, issue, now_ns)
            yield IssueReport(tenant=tenant, issue=issue, trend=trend, agent=shares[place])

    def share(self, tenant: Tenant, issue: Issue, now_ns: int) -> AgentShare | None:
        """Return the share of its runs in which an issue's agent is to blame; ``None`` if shares are off."""
        return self._share(_place(tenant, issue), now_ns // DAY_NS) if self._is_fair_sample else None

    def lows(self, now_ns: int) -> Iterator[tuple[str, str, float]]:
        """Yield services, agents and the lower bound of each one's share of failures in the last seven days.

        Only for agents that a labelled verdict blames: without labels the interval begins at 0.
        """
        if not self._is_fair_sample:
            return
        today = now_ns // DAY_NS
        for tenant, service in self._store.labelled_services():
            runs = self._store.labelled_runs(tenant, service)
            for agent in sorted({run.failed_agent for run in runs if run.failed_agent}):
                place = Place(tenant=tenant, service=service, agent=agent)
                of_week = self._counts.window(place, today - WEEK + 1, today)
                yield service, agent, share_by(of_week, *checked(runs, agent)).low

    def _share(self, place: Place, today: int) -> AgentShare:
        of_week = self._counts.window(place, today - WEEK + 1, today)
        past = self._counts.window(place, today - WEEK - PAST_DAYS + 1, today - WEEK)
        rightly, missed = checked(self._store.labelled_runs(place.tenant, place.service), place.agent)
        watched = self._counts.watched(place)
        return AgentShare(
            blamed=of_week,
            labelled=rightly.n + missed.n if rightly.n else 0,
            share=share_by(of_week, rightly, missed),
            against_past=compared(of_week, past),
            against_fellows=compared(of_week, self._counts.fellows(place, today - WEEK + 1, today)),
            is_alarm=watched is not None and watched.watch.is_alarm,
        )


_observed: Final = lru_cache(maxsize=1_000)(observed)
_share_of: Final = lru_cache(maxsize=1_000)(share_of)
"""Cached results: requested every few seconds, for counts that seldom change."""


def checked(runs: Iterable[CountedRun], agent: str) -> tuple[Count, Count]:
    """Return how often the method was right about an agent, according to people's labels.

    Returns: Two counts: the runs in which the agent was to blame, out of the labelled runs in which the
    method blames it; and out of those in which the method does not.
    """
    rightly, missed = Count(), Count()
    for run in runs:
        if agent not in run.agents:
            continue
        is_blamed = run.failed_agent == agent
        if run.label == LabelKind.REJECTED and not is_blamed:
            continue  # the verdict was wrong, but no label says that it was this agent
        was_it = run.label_agent is not None and same_agent(run.label_agent, agent)
        if is_blamed:
            rightly = Count(hits=rightly.hits + was_it, n=rightly.n + 1)
        else:
            missed = Count(hits=missed.hits + was_it, n=missed.n + 1)
    return rightly, missed


def to_json(report: IssueReport, now_ns: int) -> dict[str, Any]:
    """Return an issue as JSON for programs, always with the same keys."""
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
        "suspected": mark.is_suspected,
        "tool": mark.tool,
        "error": mark.error,
        "count": issue.count,
        "first_seen": iso(issue.first_ns),
        "last_seen": iso(issue.last_ns),
        "since": iso(issue.since_ns),
        "trend": [{"day": _day(first + place), "count": count} for place, count in enumerate(report.trend)],
        "examples": list(issue.runs),
        "muted": issue.is_muted(now_ns),
        "muted_until": iso(issue.muted_until_ns) if issue.is_muted(now_ns) else None,
        **_shares(report.agent),
    }


def _shares(agent: AgentShare | None) -> dict[str, Any]:
    if agent is None:
        return {"share": None, "share_off": SAMPLED}
    if not agent.blamed.n:
        return {"share": None, "share_off": NO_RUNS}
    return {"share": _share_document(agent), "share_off": None}


def _share_document(agent: AgentShare) -> dict[str, Any]:
    return {
        **{name: round(value, 4) for name, value in asdict(agent.share).items()},
        "blamed": agent.blamed.hits,
        "runs": agent.blamed.n,
        "labelled": agent.labelled,
        "told": share_text(agent),
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


def iso(time_ns: int) -> str:
    """Return a time as text, to the second."""
    return datetime.fromtimestamp(time_ns / 1e9, tz=UTC).isoformat(timespec="seconds")


def _day(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_NS / 1e9, tz=UTC).date().isoformat()
