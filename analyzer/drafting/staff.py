"""Who drafts: a thread of this process. A shell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from analyzer.drafting.drafter import Drafter
from collector_processor.draft import Draft, Drafted, LoneTrace

logger = logging.getLogger(__name__)


def draft_each(drafter: Drafter, traces: Sequence[LoneTrace]) -> list[Draft | None]:
    """Draft several; one that a fault of ours stops goes the long way, which says what it is."""
    return [_draft(drafter, trace) for trace in traces]


def _draft(drafter: Drafter, trace: LoneTrace) -> Draft | None:
    try:
        return drafter(trace)
    except Exception:
        logger.debug("draft failed", extra={"trace_id": trace.key.trace_id}, exc_info=True)
        return None


class Staff:
    """Drafts; lives on one event loop."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter: Final = drafter

    async def __call__(self, traces: Sequence[LoneTrace]) -> Sequence[Drafted]:
        """Return a draft for each."""
        return await asyncio.to_thread(draft_each, self._drafter, traces)
