"""Analyses requested on the pages: of an uploaded file, or of a kept run again.

They are held in memory, and each is visible only to the session that requested it. They are bounded in number
and bytes; the oldest finished ones are dropped first. The result for a file is only shown; the result for a
kept run is passed on (``Asked.take``) to become a version of its verdict.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.verdict import to_json
from analyzer.issues.correcting import Outcome
from analyzer.methods.choice import Choice, Opinions
from analyzer.recordings.uploads import LEFT_OUT, MOST_RUNS, ReadUpload, held_bytes
from collector_processor.core.analysis import ReadEarned, nothing_earned
from collector_processor.otlp import NO_TENANT, CollectorError, Tenant
from semconv.model import Attribution, Trajectory

logger = logging.getLogger(__name__)

Take = Callable[[Trajectory, Attribution], Awaitable[Outcome]]
"""Keeps a result; returns the effect on the verdict. Raises ``CollectorError`` if the store refuses."""
Load = Callable[[], Sequence[Trajectory]]
"""Reads the runs; called in a thread. Raises ``AnalyzerError`` or ``CollectorError`` for invalid input."""


Prepare = Callable[[], Awaitable[None]]


class JobState(StrEnum):
    """State of an analysis."""

    WAITING = "waiting"
    READING = "reading"
    ANALYSING = "analysing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Limits of concurrent and remembered jobs."""

    at_once: int = 4
    waiting: int = 32
    of_a_session: int = 20
    bytes: int = 256 << 20
    """Bytes of the uploads of all remembered jobs, or of their runs where these take more."""
    remembered: int = 1_000
    """Jobs that have ended."""
    timeout_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One run and its attribution."""

    trajectory: Trajectory
    document: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for an analysis: input and choice of method."""

    name: str
    """Name of the file or run, as the person gave it."""
    choice: Choice
    size: int
    """Size in bytes."""
    load: Load
    run_id: str = ""
    """Id of the kept run that this is a second opinion on; empty for a file."""
    tenant: Tenant = NO_TENANT
    """Tenant of the kept run."""
    take: Take | None = None
    """Stores the result for a kept run; ``None`` if the result is only shown."""
    timeout_s: float | None = None
    """Seconds for the analysis, within the limit of all jobs; ``None`` for that limit."""


@dataclass(slots=True, kw_only=True)
class Job:
    """One analysis."""

    id: str
    owner: str
    asked: Asked
    state: JobState = JobState.WAITING
    runs: int = 0
    calls: int = 0
    """Model calls so far."""
    cost_usd: float = 0.0
    """Dollars for these calls: the most that a call in progress may cost, then what it did cost."""
    began_s: float = 0.0
    """Time of the request, by the clock of its ``Jobs``."""
    ended_s: float | None = None
    error: str = ""
    note: str = ""
    outcome: Outcome | None = None
    """The effect on the run's verdict; ``None`` for a file."""
    work: asyncio.Task[None] | None = None
    """Ends with the analysis; it never raises."""
    found: list[Found] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the analysis has ended."""
        return self.state in {JobState.DONE, JobState.FAILED, JobState.CANCELLED}

    def as_of_now(self) -> Job:
        """Return a snapshot, which does not change while a page is rendered from it."""
        return replace(self, found=list(self.found))


class TooBusy(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """A limit of concurrent analyses is reached; retry later."""


class Jobs:
    """All jobs. Used from one event loop; reading and computing run in threads."""

    def __init__(
        self,
        opinions: Opinions,
        read: ReadUpload,
        limits: JobLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        earned: ReadEarned = nothing_earned,
        *,
        prepare: Prepare | None = None,
    ) -> None:
        """Start without jobs.

        Args:
            opinions: lists the choices, and analyses.
            read: reads uploads; called in a thread.
            limits: of concurrent and remembered jobs.
            clock: returns seconds.
            earned: returns what models have earned with a tenant.
            prepare: loads what an analysis needs, if it is not loaded; never raises.
        """
        self._prepare: Final = prepare
        self._preparing: asyncio.Task[None] | None = None
        self._earned: Final = earned
        self.read: Final = read
        self._clock: Final = clock
        self.opinions: Final = opinions
        self._limits: Final = limits or JobLimits()
        self._all: Final[dict[str, Job]] = {}
        """Jobs in progress and remembered ones, in the order of their start."""
        self._slots: Final = asyncio.Semaphore(self._limits.at_once)
        # One file at a time: parsing holds the interpreter lock and goes on after its job has timed out. Not
        # in the threads that receive spans and commit verdicts.
        self._reader: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="uploads")
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    @property
    def timeout_s(self) -> float:
        """Most seconds that one analysis may take."""
        return self._limits.timeout_s

    def look_ahead(self) -> None:
        """Load in the background what an analysis needs: somebody is about to request one."""
        if self._prepare is not None and (self._preparing is None or self._preparing.done()):
            self._preparing = asyncio.ensure_future(self._prepare())

    def start(self, owner: str, asked: Asked) -> Job:
        """Start an analysis visible only to the session ``owner``.

        Raises:
            TooBusy: a limit is reached.
        """
        limits = self._limits
        if sum(not job.is_over for job in self._all.values()) >= limits.at_once + limits.waiting:
            raise TooBusy("too many analyses are in progress: try again in a minute")
        if sum(not job.is_over for job in self.of(owner)) >= limits.of_a_session:
            raise TooBusy("this browser has too many analyses in progress: wait for one to end")
        self._make_room(owner, asked.size)
        job = Job(id=secrets.token_urlsafe(16), owner=owner, asked=asked, began_s=self._clock())
        self._all[job.id] = job
        job.work = task = asyncio.create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def find(self, owner: str | None, job_id: str) -> Job | None:
        """Return a job of this session; ``None`` for another session's."""
        job = self._all.get(job_id)
        return job if job is not None and owner is not None and job.owner == owner else None

    def of(self, owner: str | None) -> list[Job]:
        """Return a session's jobs, newest first."""
        return [job for job in reversed(self._all.values()) if owner is not None and job.owner == owner]

    def elapsed_s(self, job: Job) -> float:
        """Return the seconds since the request, until the end of the job."""
        return max(0.0, (self._clock() if job.ended_s is None else job.ended_s) - job.began_s)

    def cancel(self, job: Job) -> None:
        """End a job; no further call to a model is made. Does nothing if it is over."""
        if not job.is_over and job.work is not None:
            self._end(job, JobState.CANCELLED)
            job.work.cancel()

    def forget(self, tenant: Tenant, run_id: str | None) -> None:
        """Drop the ended second opinions on a tenant's run, or on all its kept runs; files stay."""
        for job in [*self._all.values()]:
            asked = job.asked
            is_of_run = asked.run_id and asked.tenant == tenant and run_id in {None, asked.run_id}
            if job.is_over and is_of_run:
                del self._all[job.id]

    async def close(self) -> None:
        """Cancel all jobs in progress."""
        tasks = [*self._tasks, *filter(None, [self._preparing])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _end(self, job: Job, state: JobState) -> None:
        job.state = state
        job.ended_s = self._clock()

    def _make_room(self, owner: str, size: int) -> None:
        limits = self._limits
        for job in [job for job in self.of(owner) if job.is_over][limits.of_a_session - 1 :]:
            del self._all[job.id]
        held = size + sum(job.asked.size for job in self._all.values())
        ended = sorted((job for job in self._all.values() if job.is_over), key=lambda job: job.ended_s or 0.0)
        for left, job in zip(range(len(ended), 0, -1), ended, strict=True):
            if left < limits.remembered and held <= limits.bytes:
                break
            held -= job.asked.size
            del self._all[job.id]
        if held > limits.bytes:
            raise TooBusy("the analyses in progress use all memory for uploads: try again in a minute")

    async def _work(self, job: Job) -> None:
        limits = self._limits
        asked_s = job.asked.timeout_s
        timeout_s = limits.timeout_s if asked_s is None else min(asked_s, limits.timeout_s)
        try:
            async with self._slots, asyncio.timeout(timeout_s):
                await self._do(job)
        except (AnalyzerError, CollectorError) as error:
            job.error = str(error)
        except TimeoutError:
            job.error = f"timed out after {timeout_s:g} seconds"
        except Exception:  # containment: one job's failure must not end the others
            logger.exception("an analysis requested on a page failed")
            job.error = "blamespan could not analyse this: its log says why"
        self._end(job, JobState.FAILED if job.error else JobState.DONE)

    async def _do(self, job: Job) -> None:
        job.state = JobState.READING
        runs = await asyncio.get_running_loop().run_in_executor(self._reader, job.asked.load)
        notes = [each for each in (runs[0].warnings if runs else ()) if each.startswith(LEFT_OUT)]
        if len(runs) > MOST_RUNS:
            notes.append(f"the file holds {len(runs)} runs: the first {MOST_RUNS} are analysed")
        job.note = "".join(f"{note[:1].upper()}{note[1:]}. " for note in notes).strip()
        runs = runs[:MOST_RUNS]
        job.asked = replace(job.asked, size=max(job.asked.size, sum(map(held_bytes, runs))))
        self._make_room(job.owner, 0)  # the decoded runs may take a hundred times the file's size
        job.state, job.runs = JobState.ANALYSING, len(runs)

        def called(calls: int, usd: float) -> None:
            job.calls += calls
            job.cost_usd = max(0.0, job.cost_usd + usd)

        for trajectory in runs:
            earned = await self._earned(job.asked.tenant)
            attribution = await self.opinions.ask(trajectory, job.asked.choice, called, earned)
            job.found.append(Found(trajectory=trajectory, document=to_json(attribution, trajectory)))
            if job.asked.take is not None:
                job.outcome = await job.asked.take(trajectory, attribution)
