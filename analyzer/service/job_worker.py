"""Worker of the analyzer half: claims jobs in the store and answers them. Not pure.

Each claim of a job is renewed while its analysis runs. If a renewal says that the claim is no longer valid,
because another analyzer took the job over or the collector gave it up, the analysis is cancelled: it would
cost money for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from analyzer.analyses.codec import (
    Progress,
    read_choice,
    read_earned,
    read_run,
    write_answer,
    write_progress,
)
from analyzer.inquiry.errors import UnreadableInput
from analyzer.methods.choice import Called, Choice, NotOffered
from collector_processor.core.analysis import Earned
from collector_processor.core.disk import StoreError
from collector_processor.store.database.connection import StoreThread
from collector_processor.store.jobs import BEAT_S, LEASE_S, NO_JOBS, Job, JobRows
from semconv.model import Attribution, Trajectory

logger = logging.getLogger(__name__)

POLL_S: Final = 0.5
"""Seconds between claims while there is no job."""

Analyse: TypeAlias = Callable[[Trajectory, Choice | None, Earned, Called], Awaitable[Attribution]]
"""Analyses a run by a person's choice, or by the settings; raises ``NotOffered``."""


class _Spending:
    """Model calls of one analysis so far, and the dollars for them."""

    def __init__(self) -> None:
        self.progress = Progress()

    def add(self, calls: int, usd: float) -> None:
        before = self.progress
        self.progress = Progress(calls=before.calls + calls, cost_usd=max(0.0, before.cost_usd + usd))


class JobWorker:
    """Claims jobs as long as there is room for them, until it is stopped."""

    def __init__(
        self,
        jobs: JobRows,
        thread: StoreThread,
        analyse: Analyse,
        *,
        at_once: int,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        beat_s: float = BEAT_S,
        lease_s: float = LEASE_S,
    ) -> None:
        """Create a worker; it claims nothing yet.

        Args:
            jobs: the table of jobs.
            thread: runs calls on it.
            analyse: analyses a run; its calls are reported with each renewal.
            at_once: most jobs at once.
            pause: sleeps for the given seconds.
            beat_s: seconds between renewals of a claim.
            lease_s: seconds after which a claim that is not renewed expires.
        """
        self._jobs: Final = jobs
        self._thread: Final = thread
        self._analyse: Final = analyse
        self._at_once: Final = at_once
        self._pause: Final = pause
        self._beat_s: Final = beat_s
        self._lease_s: Final = lease_s
        self._working: Final[set[asyncio.Task[None]]] = set()
        self._analyses: Final[set[asyncio.Task[bytes]]] = set()
        self._is_stopped = False
        self.waiting = NO_JOBS
        """Jobs that waited for an analyzer at the last look; read by metrics."""

    @property
    def under_way(self) -> int:
        """Number of jobs in progress."""
        return len(self._working)

    async def run(self) -> None:
        """Claim jobs until stopped."""
        while not self._is_stopped:
            job = await self._next() if len(self._working) < self._at_once else None
            if job is None:
                await self._pause(POLL_S)
            else:
                task = asyncio.create_task(self._work(job))
                self._working.add(task)
                task.add_done_callback(self._working.discard)

    async def look(self) -> None:
        """Refresh ``waiting`` every few seconds until cancelled."""
        while True:
            try:
                self.waiting = await self._thread.run(self._jobs.waiting)
            except StoreError as error:
                logger.warning("cannot read the jobs", extra={"reason": str(error)})
            await self._pause(self._beat_s)

    async def stop(self, within_s: float) -> None:
        """Claim no more jobs, finish those in progress within the given seconds, and give the rest back."""
        self._is_stopped = True
        if self._working:
            await asyncio.wait(set(self._working), timeout=within_s)
        for analysis in self._analyses:
            analysis.cancel()
        if self._working:
            await asyncio.wait(set(self._working))

    async def _next(self) -> Job | None:
        try:
            job = await self._thread.run(self._jobs.claim, self._lease_s)
        except StoreError as error:
            logger.warning("cannot claim a job", extra={"reason": str(error)})
            return None
        if job is not None and self._is_stopped:
            await self._give_back(job)
            return None
        return job

    async def _work(self, job: Job) -> None:
        spending = _Spending()
        analysis = asyncio.create_task(self._answer(job, spending))
        self._analyses.add(analysis)
        analysis.add_done_callback(self._analyses.discard)
        if not await self._is_kept(job, analysis, spending):
            return
        if analysis.cancelled():
            await self._give_back(job)
            return
        error = analysis.exception()
        if isinstance(error, UnreadableInput | NotOffered):  # no analyzer of this version can answer it
            logger.warning("a job cannot be answered", extra={"job": job.id, "reason": str(error)})
        elif error is not None:  # the claim counts, and the job is free when its lease expires
            logger.error("analysis failed", extra={"job": job.id}, exc_info=error)
        elif not await self._thread.insist(self._jobs.answer, job, analysis.result()):
            logger.warning("an answer came too late", extra={"job": job.id})

    async def _answer(self, job: Job, spending: _Spending) -> bytes:
        trajectory = await asyncio.to_thread(read_run, job.body)
        choice, earned = read_choice(job.choice), read_earned(job.choice)
        return write_answer(await self._analyse(trajectory, choice, earned, spending.add))

    async def _is_kept(self, job: Job, analysis: asyncio.Task[bytes], spending: _Spending) -> bool:
        """Renew a claim until the analysis ends; cancel the analysis if the claim is lost."""
        while not (await asyncio.wait({analysis}, timeout=self._beat_s))[0]:
            if not await self._renewed(job, spending.progress):
                logger.warning("a job was taken over or given up", extra={"job": job.id})
                analysis.cancel()
                await asyncio.wait({analysis})
                return False
        return True

    async def _renewed(self, job: Job, progress: Progress) -> bool:
        try:
            told = write_progress(progress).decode()
            return await self._thread.run(self._jobs.renew, job, self._lease_s, told)
        except StoreError as error:  # the next renewal or the answer tells whether the claim is still valid
            logger.warning("cannot renew a claim", extra={"job": job.id, "reason": str(error)})
            return True

    async def _give_back(self, job: Job) -> None:
        try:
            await self._thread.run(self._jobs.give_back, job)
        except StoreError as error:  # its lease expires
            logger.warning("cannot give a job back", extra={"job": job.id, "reason": str(error)})
