"""Issues for the pages, from the desk that keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.issue_desk import IssueDesk
from analyzer.issues.report import Wanted
from analyzer.web.sources import ShownIssue
from collector_processor.otlp import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskIssues:
    """An ``IssueSource`` of a running service."""

    desk: IssueDesk

    async def issues(self, tenant: Tenant, limit: int) -> Sequence[ShownIssue]:
        """Return issues: what came back and what is new first, then the last that failed."""
        found = await self.desk.issues(Wanted(tenant=tenant or None, limit=limit))
        return [ShownIssue(tenant=owner, issue=issue, trend=trend) for owner, issue, trend in found]

    async def resolve(self, tenant: Tenant, issue_id: str) -> bool:
        """Close an issue; ``False`` where there is none of this id."""
        return await self.desk.resolve(tenant, issue_id)

    async def mute(self, tenant: Tenant, issue_id: str, until_ns: int) -> bool:
        """Tell nobody of an issue until then; ``False`` where there is none of this id."""
        return await self.desk.mute(tenant, issue_id, until_ns)
