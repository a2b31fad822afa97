"""Records that the pages read: rows of the list of runs, and recurring failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from analyzer.issues.fix_reports import IssueFix
from analyzer.issues.labels.run_label import Label
from analyzer.issues.recurrence import Issue
from analyzer.issues.report import AgentShare
from analyzer.issues.workflow_reports import WorkflowReport
from analyzer.web.reads.documents import read_document
from collector_processor.core.records import StoredVerdict, stated_certainty
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import NO_TENANT, Tenant
from semconv.model import Status
from semconv.record import record

RunName = tuple[Tenant, str]
"""A run's tenant and id."""


class Measure(StrEnum):
    """A number of each run; the value is its column."""

    CONFIDENCE = "confidence"
    STEPS = "steps"
    DURATION = "duration_ns"
    TOKENS = "tokens"
    COST = "cost_usd"


class Sort(StrEnum):
    """An order of the list of runs; runs without the number are left out."""

    NEWEST = "newest"
    OLDEST = "oldest"
    LONGEST = "longest"
    SHORTEST = "shortest"
    MOST_STEPS = "most_steps"
    FEWEST_STEPS = "fewest_steps"
    MOST_TOKENS = "most_tokens"
    FEWEST_TOKENS = "fewest_tokens"
    COSTLIEST = "costliest"
    CHEAPEST = "cheapest"
    SUREST = "surest"
    LEAST_SURE = "least_sure"


@record
class RunKey:
    """A position in the list of runs: the last run of a page."""

    at: int | float
    """The run's number that the list is sorted by; the time of its verdict in Unix ns if by time."""
    tenant: Tenant
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds on a number of each run; a run without the number does not fit."""

    of: Measure
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Query of the list of runs."""

    tenant: Tenant = NO_TENANT
    """Empty for all tenants."""
    statuses: tuple[Status, ...] = ()
    """Only runs with one of these; empty for all."""
    text: str = ""
    """Searched in the run's id, service, verdict, task and kept texts; ignores the case of ASCII letters."""
    service: str = ""
    """Only runs of this service, named as in the metrics; empty for all."""
    agent: str = ""
    """Only runs blamed on this agent, named as in the metrics; empty for all."""
    since_ns: int | None = None
    """Only verdicts decided at this time or later, Unix ns."""
    until_ns: int | None = None
    """Only verdicts decided before this time, Unix ns."""
    workflow: str = ""
    """Only runs of this workflow; empty for all."""
    bounds: tuple[Bounds, ...] = ()
    sort: Sort = Sort.NEWEST
    before: RunKey | None = None
    """The last run of the previous page; only runs after it are returned."""
    limit: int = 50
    has_tasks: bool = True
    """Whether the rows have the runs' tasks, which are read from the kept runs."""


@record
class RunRow:
    """One run in the list."""

    key: RunKey
    service: str
    status: str
    is_provisional: bool
    agent: str | None
    step: int | None
    task: str
    """Beginning of the task; empty if the run is not kept."""
    document: dict[str, Any]
    """The verdict as JSON."""
    verdict: StoredVerdict
    """The verdict as stored."""
    totals: RunTotals | None = None
    """``None`` if they are not known: the run is from before they were kept, or still in progress."""
    said: Label | None = None
    """The newest label by a person."""

    @property
    def certainty(self) -> float | None:
        """The probability that the list is filtered and sorted by."""
        return stated_certainty(self.document)


def row_of(
    verdict: StoredVerdict,
    task: str = "",
    said: Label | None = None,
    *,
    totals: RunTotals | None = None,
    at: float | None = None,
) -> RunRow:
    """Return a stored verdict as a row of the list; ``at`` is its place if not by time."""
    return RunRow(
        key=RunKey(at=verdict.decided_ns if at is None else at, tenant=verdict.tenant, run_id=verdict.run_id),
        totals=totals,
        service=verdict.service,
        status=verdict.status,
        is_provisional=verdict.is_provisional,
        agent=verdict.agent,
        step=verdict.step,
        task=task,
        document=read_document(verdict.document, verdict.run_id),
        verdict=verdict,
        said=said,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """One page of runs, and the position of the next."""

    rows: tuple[RunRow, ...]
    next: RunKey | None = None
    """``None`` if there are no more."""
    looked_at: int = 0
    """Runs examined for these rows; a search stops after a bounded number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The runs of a period, counted."""

    since_ns: int
    runs: int
    failed: int
    """Runs that failed, or may have: all but those without a sign of failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Runs and failures over time; periods without runs are included."""

    width_ns: int
    """Length of each period."""
    buckets: tuple[Bucket, ...] = ()
    """Oldest first."""
    is_whole: bool = True
    """Whether all runs that fit are counted, and not only the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """The result of one analysis, as far as totals need it."""

    decided_ns: int
    status: str
    cost_usd: float | None
    """``None`` if unknown."""
    calls: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownIssue:
    """A recurring failure with the data that pages show."""

    tenant: Tenant
    issue: Issue
    """The issue with its current state."""
    trend: tuple[int, ...] = ()
    """Failures per day, oldest first; the last is today."""
    share: AgentShare | None = None
    """Share of its agent's runs, if known; not set in lists."""
    fellows: tuple[Issue, ...] = ()
    """Other issues of its service; not set in lists."""
    fix: IssueFix | None = None
    """Its workflows before and after a fix; not set in lists."""


@record
class ShownWorkflows:
    """The workflows of one tenant or all, at one time."""

    reports: tuple[WorkflowReport, ...]
    """Latest run first, without what they always do."""
    read_ns: int
    """When they were read: they are remembered for a while."""


@record
class ShownWorkflow:
    """One workflow with what it always does, at one time."""

    report: WorkflowReport
    titles: Mapping[str, str]
    """Titles of the issues that explain its changes, by id; forgotten issues have none."""
    read_ns: int
    """When it was read."""


class IssueSource(Protocol):
    """Reads recurring failures, and applies people's decisions on them."""

    async def issues(self, tenant: Tenant, limit: int) -> Sequence[ShownIssue]:
        """Return issues, latest change first; an empty tenant means all."""
        ...

    async def issue(self, tenant: Tenant, issue_id: str, since: str = "") -> Sequence[ShownIssue]:
        """Return the issues of this id, one per tenant that has it.

        Args:
            tenant: its owner; empty for all.
            issue_id: the issue.
            since: the release or time of a fix to compare; empty for the likeliest one.
        """
        ...

    async def of_runs(self, runs: Sequence[RunName]) -> Mapping[RunName, Issue]:
        """Return the current issues that runs are counted in; runs without an issue are left out."""
        ...

    async def resolve(self, tenant: Tenant, issue_id: str) -> bool:
        """Close an issue; ``False`` if there is no issue with this id."""
        ...

    async def mute(self, tenant: Tenant, issue_id: str, until_ns: int) -> bool:
        """Mute an issue until the given time (0 to unmute); ``False`` if there is no such issue."""
        ...
