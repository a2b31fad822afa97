"""Access of the pages and the API to issues and workflows: reads, and people's decisions. Not pure.

Reads use a connection and thread of their own, as for runs (``archive.py``): pages never wait for runs to be
counted and written.

Workflows take long to read. One thread with a connection of its own reads all of them, so that no other page
waits, and no workflow is read twice at a time. Results are remembered: the longer a reading took, the longer,
up to ``WORKFLOWS_EVERY_S``. A result is dropped as soon as a run that it was mined from is deleted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from analyzer.issues.counting import IssueCounting
from analyzer.issues.issue_service import WORKFLOWS_EVERY_S
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.notifier import InDb
from analyzer.issues.recurrence import Issue, age
from analyzer.issues.report import AgentShare, IssueReports, Wanted, to_json
from analyzer.issues.workflow_reports import (
    NOT_FAIR,
    FixReports,
    IssueFix,
    WorkflowRefused,
    WorkflowReport,
    WorkflowReports,
    fix_json,
)
from analyzer.web.reads.run_query import RunName
from analyzer.web.remembered import CostlyReads
from collector_processor.core.disk import refusing
from collector_processor.core.records import WorkflowRow
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreThread
from semconv.record import record


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


T = TypeVar("T")

_MOST_FELLOWS: Final = 5


class IssueReader:
    """Reads recurring failures, and applies people's decisions on them. Without a fair sample, no shares."""

    def __init__(
        self, counting: IssueCounting, store: IssueStore, in_db: InDb, now_ns: Callable[[], int]
    ) -> None:
        """Create the reader.

        Args:
            counting: applies people's decisions, on the connection that writes.
            store: a separate connection for reading; closed with this object.
            in_db: calls what writes on its thread.
            now_ns: returns the time, on which states depend.
        """
        is_fair_sample = counting.rules.is_fair_sample
        self._counting: Final = counting
        self._store: Final = store
        self._in_db: Final = in_db
        self._now_ns: Final = now_ns
        self._reports: Final = IssueReports(store, is_fair_sample=is_fair_sample)
        self._fixes: Final = FixReports(store)
        self._is_fair_sample: Final = is_fair_sample
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="issue-pages")

    def close(self) -> None:
        """Close the file."""
        self._thread.shutdown(wait=True)
        self._store.close()

    async def issues(self, tenant: Tenant, limit: int) -> Sequence[ShownIssue]:
        """Return issues: regressions and new ones first, then by last failure."""

        def read() -> list[ShownIssue]:
            now_ns = self._now_ns()
            found = self._reports.issues(Wanted(tenant=tenant or None, limit=limit), now_ns)
            trends = self._reports.trends(found, now_ns)
            return [
                ShownIssue(tenant=owner, issue=issue, trend=trend)
                for (owner, issue), trend in zip(found, trends, strict=True)
            ]

        return await self._beside(read)

    async def issue(self, tenant: Tenant, issue_id: str, since: str = "") -> Sequence[ShownIssue]:
        """Return the issues of this id, one for each tenant that has it.

        Args:
            tenant: its owner; empty for all.
            issue_id: the issue.
            since: the release or time of a fix to compare; empty for the likeliest one.
        """

        def read() -> list[ShownIssue]:
            now_ns = self._now_ns()
            owners = [one for one in self._store.tenants_of(issue_id) if not tenant or one == tenant]
            found = [(owner, self._store.issue(owner, issue_id)) for owner in owners]
            return [
                self._in_full(owner, age(issue, now_ns), since, now_ns) for owner, issue in found if issue
            ]

        return await self._beside(read)

    async def of_runs(self, runs: Sequence[RunName]) -> Mapping[RunName, Issue]:
        """Return the issues that runs are counted in, in their current state."""

        def read() -> dict[RunName, Issue]:
            now_ns, ids = self._now_ns(), self._store.issue_ids(runs)
            names = sorted({(run[0], issue_id) for run, issue_id in ids.items()})
            known = {
                (owner, issue.fingerprint.id): age(issue, now_ns)
                for owner, issue in self._store.issues_of(names)
            }
            found = {run: known.get((run[0], issue_id)) for run, issue_id in ids.items()}
            return {run: issue for run, issue in found.items() if issue is not None}

        return await self._beside(read)

    async def documents(self, wanted: Wanted) -> list[dict[str, Any]]:
        """Return issues in the form of the API."""

        def read() -> list[dict[str, Any]]:
            now_ns = self._now_ns()
            return [to_json(report, now_ns) for report in self._reports.reports(wanted, now_ns)]

        return await self._beside(read)

    async def fix_document(self, tenant: Tenant, issue_id: str, since: str) -> dict[str, Any] | None:
        """Return an issue's workflows before and after a fix; ``None`` if there is no such issue."""

        def read() -> dict[str, Any] | None:
            now_ns, issue = self._now_ns(), self._store.issue(tenant, issue_id)
            if issue is None:
                return None
            if not self._is_fair_sample:
                return fix_json(IssueFix(since="", workflows=(), releases=()))
            return fix_json(self._fixes.of(tenant, age(issue, now_ns), since, now_ns))

        return await self._beside(read)

    async def tenants_of(self, issue_id: str) -> list[Tenant]:
        """Return the tenants that have an issue with this id."""
        return await self._beside(lambda: self._store.tenants_of(issue_id))

    async def resolve(self, tenant: Tenant, issue_id: str) -> bool:
        """Close an issue; ``False`` if there is no issue with this id."""
        return await self._in_db(self._counting.resolve, tenant, issue_id, self._now_ns()) is not None

    async def mute(self, tenant: Tenant, issue_id: str, until_ns: int) -> bool:
        """Mute an issue until the given time (0 to unmute); ``False`` if there is no such issue."""
        return await self._in_db(self._counting.mute, tenant, issue_id, until_ns) is not None

    def _in_full(self, owner: Tenant, issue: Issue, since: str, now_ns: int) -> ShownIssue:
        """Return an issue with its share, its fix, and its service's other issues."""
        of_service = Wanted(tenant=owner, service=issue.fingerprint.service, limit=_MOST_FELLOWS + 1)
        others = (one for _, one in self._reports.issues(of_service, now_ns))
        fellows = [one for one in others if one.fingerprint.id != issue.fingerprint.id]
        return replace(
            ShownIssue(tenant=owner, issue=issue, trend=self._reports.trend(owner, issue, now_ns)),
            share=self._reports.share(owner, issue, now_ns),
            fellows=tuple(fellows[:_MOST_FELLOWS]),
            fix=self._fixes.of(owner, issue, since, now_ns) if self._is_fair_sample else None,
        )

    async def _beside(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, refusing, read)


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


_MOST: Final = 200
"""Workflows that are remembered with what they always do; as many lists of workflows, one a tenant."""
_MOST_VERSIONS: Final = 10_000
"""Versions in all of either together: about 10 MB."""


class WorkflowReader:
    """Reads workflows of a running service."""

    def __init__(
        self,
        store: IssueStore,
        now_ns: Callable[[], int],
        *,
        is_fair_sample: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the reader.

        Args:
            store: a separate connection for reading; closed with this object.
            now_ns: returns the time, from which the last days are counted.
            is_fair_sample: whether sampling ignores how runs end; otherwise no workflow is shown.
            clock: seconds, monotonic, by which results are remembered.
        """
        self._store: Final = store
        self._now_ns: Final = now_ns
        self._reports: Final = WorkflowReports(store)
        self._is_fair_sample: Final = is_fair_sample
        self._thread: Final = StoreThread(name="workflows")
        every_s = float(WORKFLOWS_EVERY_S)
        self._lists: Final[CostlyReads[ShownWorkflows]] = CostlyReads(_MOST, _MOST_VERSIONS, every_s, clock)
        self._whole: Final[CostlyReads[ShownWorkflow]] = CostlyReads(_MOST, _MOST_VERSIONS, every_s, clock)

    def close(self) -> None:
        """End the thread and close the connection."""
        self._thread.close()
        self._store.close()

    async def listed(self, tenant: Tenant) -> ShownWorkflows:
        """Return the workflows with the latest runs; an empty tenant means all.

        Raises:
            WorkflowRefused: the sample is unfair.
        """
        self._require_fair_sample()
        return await self._thread.run(self._listed, tenant)

    async def find(self, tenant: Tenant, service: str, workflow: str) -> ShownWorkflow | None:
        """Return one workflow with what it always does; ``None`` if there is none of this name.

        Raises:
            WorkflowRefused: the sample is unfair, or several tenants have one and none is named.
        """
        self._require_fair_sample()
        return await self._thread.run(self._find, tenant, service, workflow)

    def _require_fair_sample(self) -> None:
        if not self._is_fair_sample:
            raise WorkflowRefused(NOT_FAIR)

    def _listed(self, tenant: Tenant) -> ShownWorkflows:
        return self._lists.of(tenant, lambda: self._list(tenant), _size_of_list)

    def _list(self, tenant: Tenant) -> ShownWorkflows:
        now_ns = self._now_ns()
        return ShownWorkflows(reports=tuple(self._reports.reports(now_ns, tenant or None)), read_ns=now_ns)

    def _find(self, tenant: Tenant, service: str, workflow: str) -> ShownWorkflow | None:
        row = self._reports.only(service, workflow, self._now_ns(), tenant or None)
        if row is None:
            return None
        return self._whole.of(
            (row.tenant, row.service, row.workflow),
            lambda: self._in_full(row),
            lambda shown_workflow: len(shown_workflow.report.versions),
            lambda shown_workflow: self._reports.is_current(shown_workflow.report),
        )

    def _in_full(self, row: WorkflowRow) -> ShownWorkflow:
        now_ns = self._now_ns()
        report = self._reports.with_always(self._reports.report(row, now_ns))
        return ShownWorkflow(report=report, titles=self._reports.titles(report), read_ns=now_ns)


def _size_of_list(workflows: ShownWorkflows) -> int:
    return sum(len(report.versions) for report in workflows.reports)
