"""What the pages are shown, and who hands it to them: records and protocols, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from analyzer.issues.report import AgentShare
from analyzer.recurrence.issue import Issue
from collector_processor.otlp import NO_TENANT, Tenant
from semconv.model import Status

RunName = tuple[Tenant, str]
"""Whose a run is, and its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """A place in the list of runs, newest first: the run that a page ended with."""

    decided_ns: int
    tenant: Tenant
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs somebody wants to see."""

    tenant: Tenant = NO_TENANT
    """Empty: of all."""
    status: Status | None = None
    text: str = ""
    """Looked for in the run's id, service and verdict; letters of ASCII without regard to case."""
    service: str = ""
    """Only runs of this service, named as in the metrics; empty for all."""
    agent: str = ""
    """Only runs blamed on this agent, named as in the metrics; empty for all."""
    before: RunKey | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLabel:
    """What a person said of a run, as far as the list shows it."""

    kind: str
    agent: str | None
    step: int | None


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
    """Its beginning; empty where the run is not kept."""
    document: dict[str, Any]
    """The verdict as programs get it."""
    said: RowLabel | None = None
    """By a person, last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Some runs, and where to go on."""

    rows: tuple[RunRow, ...]
    next: RunKey | None = None
    """``None`` where there are no more."""
    looked_at: int = 0
    """How many runs were looked at for these rows; a search ends after a bounded number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """What one analysis came to, as far as sums need it."""

    decided_ns: int
    status: str
    cost_usd: float | None
    """``None``: not known."""
    calls: int
    duration_s: float


class RunSource(Protocol):
    """Reads runs and verdicts; every call is made off the event loop."""

    async def page(self, query: RunQuery) -> RunPage:
        """Return the runs asked for, newest first."""
        ...

    async def rows(self, names: Sequence[RunName]) -> Sequence[RunRow]:
        """Return some runs as the list shows them, in this order; those that are forgotten are left out."""
        ...

    async def newest(self) -> tuple[int, int]:
        """Return what changes whenever a verdict is added or taken away."""
        ...

    async def kept(self, tenant: Tenant, run_id: str) -> bytes | None:
        """Return what is kept of a run's steps."""
        ...

    async def analyses_since(self, since_ns: int, most: int) -> Sequence[Analysed]:
        """Return what was analysed later than that, the newest first and no more than ``most``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownIssue:
    """A recurring failure as the page shows it."""

    tenant: Tenant
    issue: Issue
    """As it stands now."""
    trend: tuple[int, ...] = ()
    """Failures a day, oldest first; the last is today."""
    share: AgentShare | None = None
    """Of its agent's runs, where it is known; a list does without."""
    fellows: tuple[Issue, ...] = ()
    """Other issues of its service; a list does without."""


class IssueSource(Protocol):
    """Reads recurring failures, and takes what people decide of them."""

    async def issues(self, tenant: Tenant, limit: int) -> Sequence[ShownIssue]:
        """Return issues, the latest change first; of all tenants for the empty one."""
        ...

    async def issue(self, tenant: Tenant, issue_id: str) -> Sequence[ShownIssue]:
        """Return the issue of this id, one a tenant that has it; of all tenants for the empty one."""
        ...

    async def of_runs(self, runs: Sequence[RunName]) -> Mapping[RunName, Issue]:
        """Return the issues that runs are counted in, as they stand now; runs in none are left out."""
        ...

    async def resolve(self, tenant: Tenant, issue_id: str) -> bool:
        """Close an issue; ``False`` where there is none of this id."""
        ...

    async def mute(self, tenant: Tenant, issue_id: str, until_ns: int) -> bool:
        """Tell nobody of an issue until then, 0 for from now on again; ``False`` where there is none."""
        ...
