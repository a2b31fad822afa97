"""Turns results that ``blamespan experiment`` stored into verdicts. Not pure.

The command is another process, so it cannot commit verdicts itself: it would race with analyses, and could
not notify the service's tasks. The service reads its results, keeps each as an opinion, and commits it like a
second opinion.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from analyzer.executor.codec import read_answer
from analyzer.inquiry.errors import AnalyzerError
from analyzer.issues.labels.kept_trace import kept_trace
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.opinion_store import Waiting, WaitingExperiments
from analyzer.issues.second_opinions import SecondOpinions, Wanted
from collector_processor.core.disk import StoreError
from collector_processor.core.records import EXPERIMENT
from collector_processor.store.database.connection import StoreConnection
from semconv.dialects import USUAL, Reader

logger = logging.getLogger(__name__)

WATCH_EVERY_S: Final = 2.0
"""Seconds between reads of the table: results come from another process."""


@dataclass(slots=True, kw_only=True)
class Proving:
    """Task that turns experiments' results into verdicts while the service runs."""

    second: SecondOpinions
    db: StoreConnection
    """The connection on which verdicts are committed."""
    reader: Reader = USUAL
    """Reader of the spans of kept runs."""
    _waits: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.follow()
            await asyncio.sleep(WATCH_EVERY_S)

    async def follow(self) -> None:
        """Commit waiting results; if the store refuses, the next call retries."""
        queue, in_db = WaitingExperiments(self.db), self.second.commits.in_db
        try:
            for waiting in await in_db(queue.all):
                await self._commit(waiting)
                await self._pin(waiting)
                await in_db(queue.done, waiting)
        except StoreError as error:
            if not self._waits:
                logger.warning("results of experiments wait for the store", extra={"reason": str(error)})
            self._waits = True
        else:
            self._waits = False

    async def _commit(self, waiting: Waiting) -> None:
        wanted = Wanted(
            tenant=waiting.tenant,
            run_id=waiting.run_id,
            method=EXPERIMENT,
            model="",
            digest=f"experiment {waiting.id} of {waiting.given_ns}",
        )
        if await self.second.known(wanted) is not None:  # already committed before the process died
            return
        extra: dict[str, object] = {"run_id": waiting.run_id}
        try:
            kept = await self.second.commits.in_db(
                kept_trace, self.db, waiting.run_id, waiting.tenant, self.reader
            )
            trajectory = (await asyncio.to_thread(kept.run)).trajectory
            attribution = read_answer(waiting.document.encode(), trajectory)
        except AnalyzerError as error:
            logger.warning("result of an experiment is dropped", extra={**extra, "reason": str(error)})
            return
        outcome = await self.second.take(wanted, trajectory, attribution)
        logger.info("experiment decided", extra={**extra, "outcome": outcome.value})

    async def _pin(self, waiting: Waiting) -> None:
        """Keep the run for ``train``, without delaying the verdict."""
        try:
            await self.second.commits.in_db(LabelStore(self.db).pin, waiting.tenant, waiting.run_id)
        except StoreError as error:
            extra = {"run_id": waiting.run_id, "reason": str(error)}
            logger.warning("run of an experiment is not kept for training", extra=extra)
