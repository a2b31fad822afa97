"""What is kept of drafts: runs for labels, notes for issues, and the count of what was taken out. A shell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from analyzer.issue_desk import IssueDesk
from analyzer.issues.rows import NotedRow
from analyzer.labels.labelling import InDb
from analyzer.labels.store import LabelStore, PackedRun
from collector_processor.cleaning import Cleaner
from collector_processor.draft import Draft
from collector_processor.otlp import Tenant
from collector_processor.stores import StoreError

logger = logging.getLogger(__name__)

KeepDrafts: TypeAlias = Callable[[Sequence[tuple[Tenant, Draft]]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftKeeper:
    """Keeps what drafts leave beside their verdicts."""

    labels: LabelStore
    in_db: InDb
    """Makes a call on the stores' thread."""
    desk: IssueDesk
    cleaner: Cleaner
    """Counts what was taken out of all runs."""
    now_ns: Callable[[], int]

    async def __call__(self, drafts: Sequence[tuple[Tenant, Draft]]) -> None:
        """Keep it; where a disk refuses, that is logged."""
        rows = [
            NotedRow(tenant=tenant, run_id=run.keepsake.run_id, document=run.keepsake.noted)
            for tenant, draft in drafts
            for run in draft.runs
        ]
        await asyncio.gather(self._keep_packed(drafts), self.desk.keep_noted(rows))
        for _, draft in drafts:
            self.cleaner.add(draft.redacted)

    async def _keep_packed(self, drafts: Sequence[tuple[Tenant, Draft]]) -> None:
        packed: list[PackedRun] = []
        for tenant, draft in drafts:
            for kept in (run.keepsake for run in draft.runs):
                if kept.packed is None:
                    logger.warning("run is too large to be kept", extra={"run_id": kept.run_id})
                    continue
                packed.append(
                    PackedRun(
                        tenant=tenant, run_id=kept.run_id, is_failure=kept.is_failure, packed=kept.packed
                    )
                )
        try:
            await self.in_db(self.labels.keep_all, packed, self.now_ns())
        except StoreError as error:
            logger.warning("runs cannot be kept for labels", extra={"reason": str(error)})
