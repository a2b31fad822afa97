"""Takes jobs from the store and answers them. Not pure.

Each claim is renewed while its analysis runs. If a renewal says that the claim is no longer valid, because
another analyzer took the job over or the collector gave it up, the analysis is cancelled: it would cost money
for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from analyzer.executor.codec import Progress, read_choice, read_earned, read_run, write_answer, write_progress
from analyzer.inquiry.errors import UnreadableInput
from analyzer.methods.choice import Choice, NotOffered
from analyzer.service.analyzer_half.server import BusyError
from collector_processor.core.analysis import Earned
from collector_processor.core.disk import StoreError
from collector_processor.store.database.thread import StoreThread
from collector_processor.store.jobs import BEAT_S, LEASE_S, NO_JOBS, Job, JobRows
from semconv.model import Attribution, Trajectory

logger = logging.getLogger(__name__)

POLL_S: Final = 0.5
"""Seconds between claims while there is no job."""

Begin = Callable[[bytes, Trajectory, Choice | None, Earned], asyncio.Future[Attribution]]
"""Begins an analysis under a key; raises ``BusyError`` if too many run."""


class JobWorker:
    """Claims jobs as long as there is room for them, until it is stopped."""

    def __init__(
        self,
        jobs: JobRows,
        thread: StoreThread,
        begin: Begin,
        room: Callable[[], int],
        *,
        progress: Callable[[bytes], Progress] = lambda _key: Progress(),
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        beat_s: float = BEAT_S,
        lease_s: float = LEASE_S,
    ) -> None:
        """Create a worker; it claims nothing yet.

        Args:
            jobs: the table of jobs.
            thread: runs calls on it.
            begin: begins an analysis.
            room: returns how many more analyses may begin.
            progress: returns what the analysis under a key has spent; each renewal reports it.
            pause: sleeps for the given seconds.
            beat_s: seconds between renewals of a claim.
            lease_s: seconds after which a claim that is not renewed expires.
        """
        self._jobs: Final = jobs
        self._thread: Final = thread
        self._begin: Final = begin
        self._room: Final = room
        self._progress: Final = progress
        self._pause: Final = pause
        self._beat_s: Final = beat_s
        self._lease_s: Final = lease_s
        self._working: Final[set[asyncio.Task[None]]] = set()
        self._reading = 0
        """Claimed jobs whose runs are being read; ``room`` counts only analyses that have begun."""
        self._is_stopped = False
        self.waiting = NO_JOBS
        """Jobs that waited for an analyzer at the last look; read by metrics."""

    async def run(self) -> None:
        """Claim jobs until stopped."""
        while not self._is_stopped:
            job = await self._next() if self._room() > self._reading else None
            if job is None:
                await self._pause(POLL_S)
            else:
                task = asyncio.create_task(self._work(job))
                self._working.add(task)
                task.add_done_callback(self._working.discard)
                await asyncio.sleep(0)  # lets the reading begin, so that it is counted

    def stop(self) -> None:
        """Claim no more jobs."""
        self._is_stopped = True

    async def finish(self) -> None:
        """Wait for the jobs in progress; analyses that were cancelled give theirs back."""
        while self._working:
            await asyncio.wait(set(self._working))

    async def look(self) -> None:
        """Refresh ``waiting`` every few seconds until cancelled."""
        while True:
            try:
                self.waiting = await self._thread.run(self._jobs.waiting)
            except StoreError as error:
                logger.warning("cannot read the jobs", extra={"reason": str(error)})
            await self._pause(self._beat_s)

    async def _next(self) -> Job | None:
        try:
            return await self._thread.run(self._jobs.claim, self._lease_s)
        except StoreError as error:
            logger.warning("cannot claim a job", extra={"reason": str(error)})
            return None

    async def _work(self, job: Job) -> None:
        try:
            analysis = await self._read(job)
        except BusyError:
            await self._give_back(job)
            return
        except (
            UnreadableInput,
            NotOffered,
            ValueError,
        ) as error:  # no analyzer of this version can answer it
            logger.warning("a job cannot be read", extra={"job": job.id, "reason": str(error)})
            return
        if analysis is None or not await self._kept(job, analysis):
            return
        if analysis.cancelled():
            await self._give_back(job)
            return
        if analysis.exception() is not None:  # the claim counts, and the job is free when its lease expires
            return
        if not await self._thread.insist(self._jobs.answer, job, write_answer(analysis.result())):
            logger.warning("an answer came too late", extra={"job": job.id})

    async def _read(self, job: Job) -> asyncio.Future[Attribution] | None:
        """Begin a job's analysis; return ``None`` if its claim was lost while its run was read."""
        self._reading += 1
        try:
            beginning = asyncio.create_task(self._begun(job))
            return beginning.result() if await self._kept(job, beginning) else None
        finally:
            self._reading -= 1

    async def _kept(self, job: Job, work: asyncio.Future[Any]) -> bool:
        """Renew a claim until some work on its job ends; cancel the work if the claim is lost."""
        while not (await asyncio.wait({work}, timeout=self._beat_s))[0]:
            if not await self._renewed(job):
                logger.warning("a job was taken over or given up", extra={"job": job.id})
                work.cancel()
                await asyncio.wait({work})
                return False
        return True

    async def _begun(self, job: Job) -> asyncio.Future[Attribution]:
        trajectory = await asyncio.to_thread(read_run, job.body)
        return self._begin(_key(job), trajectory, read_choice(job.choice), read_earned(job.choice))

    async def _renewed(self, job: Job) -> bool:
        try:
            progress = write_progress(self._progress(_key(job))).decode()
            return await self._thread.run(self._jobs.renew, job, self._lease_s, progress)
        except StoreError as error:  # the next renewal or the answer tells whether the claim is still valid
            logger.warning("cannot renew a claim", extra={"job": job.id, "reason": str(error)})
            return True

    async def _give_back(self, job: Job) -> None:
        try:
            await self._thread.run(self._jobs.give_back, job)
        except StoreError as error:  # its lease expires
            logger.warning("cannot give a job back", extra={"job": job.id, "reason": str(error)})


def _key(job: Job) -> bytes:
    """Return the key of a claim's analysis: another claim of the job begins another analysis."""
    return f"{job.id}/{job.claim}".encode()
