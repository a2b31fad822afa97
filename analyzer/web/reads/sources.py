"""Records that the pages read: rows of the list of runs, and recurring failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from analyzer.issues.recurrence.issue import Issue
from analyzer.issues.report import AgentShare
from analyzer.labels.label import Label
from analyzer.web.reads.documents import read_document
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.records import StoredVerdict
from semconv.model import Status

RunName = tuple[Tenant, str]
"""A run's tenant and id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """A position in the list of runs, newest first: the last run of a page."""

    decided_ns: int
    tenant: Tenant
    run_id: str


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
    least_confidence: float | None = None
    """Only verdicts that blame a step with at least this confidence."""
    most_confidence: float | None = None
    is_oldest_first: bool = False
    before: RunKey | None = None
    """The last run of the previous page; only runs after it are returned."""
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
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
    said: Label | None = None
    """The newest label by a person."""


def row_of(verdict: StoredVerdict, task: str = "", said: Label | None = None) -> RunRow:
    """Return a stored verdict as a row of the list."""
    return RunRow(
        key=RunKey(decided_ns=verdict.decided_ns, tenant=verdict.tenant, run_id=verdict.run_id),
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


class IssueSource(Protocol):
    """Reads recurring failures, and applies people's decisions on them."""

    async def issues(self, tenant: Tenant, limit: int) -> Sequence[ShownIssue]:
        """Return issues, latest change first; an empty tenant means all."""
        ...

    async def issue(self, tenant: Tenant, issue_id: str) -> Sequence[ShownIssue]:
        """Return the issues of this id, one per tenant that has it; an empty tenant means all."""
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
