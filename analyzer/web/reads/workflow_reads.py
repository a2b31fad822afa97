"""Access of the pages and the API to workflows, which take long to read. Not pure.

One thread with a connection of its own reads all of them, so that no other page waits, and no workflow is
read twice at a time. Results are remembered: the longer a reading took, the longer, up to
``WORKFLOWS_EVERY_S``. A result is dropped as soon as a run that it was mined from is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from analyzer.issues.issue_service import WORKFLOWS_EVERY_S
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.workflow_reports import NOT_FAIR, WorkflowRefused, WorkflowReport, WorkflowReports
from analyzer.web.remembered import CostlyReads
from collector_processor.core.records import WorkflowRow
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreThread
from semconv.record import record


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
            lambda found: len(found.report.versions),
            lambda found: self._reports.is_current(found.report),
        )

    def _in_full(self, row: WorkflowRow) -> ShownWorkflow:
        now_ns = self._now_ns()
        report = self._reports.with_always(self._reports.report(row, now_ns))
        return ShownWorkflow(report=report, titles=self._reports.titles(report), read_ns=now_ns)


def _size_of_list(found: ShownWorkflows) -> int:
    return sum(len(one.versions) for one in found.reports)
