"""Analyses that a person asked for: a file that was dropped, or a kept run once more.

Held in memory, each for the session that asked and for nobody else; bounded in number
and bytes, the oldest that are done go first. What such an analysis finds is shown and
no more: it makes no verdict in the store and sends nothing to the backend.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from analyzer.errors import AnalyzerError
from analyzer.opinion import Choice, Opinions
from analyzer.verdict import to_json
from collector_processor.otlp import CollectorError
from semconv.model import Trajectory

logger = logging.getLogger(__name__)

MOST_RUNS: Final = 10
"""Of one file; what it holds beyond them is said, not analysed."""

Load = Callable[[], Sequence[Trajectory]]
"""Reads the runs; called on a thread. Raises ``AnalyzerError`` or ``CollectorError`` for what is no run."""


class JobState(StrEnum):
    """How far an analysis is."""

    WAITING = "waiting"
    READING = "reading"
    ANALYSING = "analysing"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """How much at once."""

    at_once: int = 4
    waiting: int = 32
    of_a_session: int = 20
    bytes: int = 256 << 20
    """Of what was uploaded, for all jobs that are remembered."""
    timeout_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One run and what the method made of it."""

    trajectory: Trajectory
    document: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be analysed, and how."""

    name: str
    """Of the file or run, as the person gave it."""
    choice: Choice
    size: int
    """Bytes that it takes."""
    load: Load
    run_id: str = ""
    """Of the kept run that this is a second opinion on; empty for a file."""


@dataclass(slots=True, kw_only=True)
class Job:
    """One analysis."""

    id: str
    owner: str
    asked: Asked
    state: JobState = JobState.WAITING
    runs: int = 0
    calls: int = 0
    """To the model, so far."""
    error: str = ""
    note: str = ""
    found: list[Found] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self.state in {JobState.DONE, JobState.FAILED}

    def as_of_now(self) -> Job:
        """Return it as it stands: what a page says of it must not change while the page is written."""
        return replace(self, found=list(self.found))


class TooBusy(AnalyzerError):  # noqa: N818 - a statement reads better where it is raised
    """As much is being analysed as may be; later there is room again."""


class Jobs:
    """All of them. One event loop; what a job reads, and what it computes, is done beside it."""

    def __init__(self, opinions: Opinions, limits: JobLimits | None = None) -> None:
        """Make an empty list; ``opinions`` says what can be chosen, and what comes of it."""
        self.opinions: Final = opinions
        self._limits: Final = limits or JobLimits()
        self._jobs: Final[dict[str, Job]] = {}
        self._slots: Final = asyncio.Semaphore(self._limits.at_once)
        self._reading: Final = asyncio.Lock()  # one file at a time: reading takes the interpreter's time
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def start(self, owner: str, asked: Asked) -> Job:
        """Begin an analysis that only the session ``owner`` may see.

        Raises:
            TooBusy: there is no room.
        """
        limits = self._limits
        if sum(not job.is_over for job in self._jobs.values()) >= limits.at_once + limits.waiting:
            raise TooBusy("as many analyses are under way as may be: try again in a minute")
        if sum(job.owner == owner and not job.is_over for job in self._jobs.values()) >= limits.of_a_session:
            raise TooBusy("this browser has many analyses under way: wait for one to end")
        self._make_room(owner, asked.size)
        job = Job(id=secrets.token_urlsafe(16), owner=owner, asked=asked)
        self._jobs[job.id] = job
        task = asyncio.create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def find(self, owner: str | None, job_id: str) -> Job | None:
        """Return a job of this session; another's is as good as none."""
        job = self._jobs.get(job_id)
        return job if job is not None and owner is not None and job.owner == owner else None

    def of(self, owner: str | None) -> list[Job]:
        """Return a session's jobs, the newest first."""
        return [job for job in reversed(self._jobs.values()) if job.owner == owner]

    async def close(self) -> None:
        """End whatever is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _make_room(self, owner: str, size: int) -> None:
        over = [job for job in self._jobs.values() if job.is_over]
        mine = [job for job in over if job.owner == owner]
        for job in mine[: max(0, len(mine) + 1 - self._limits.of_a_session)]:
            del self._jobs[job.id]
        for job in over:
            if sum(one.asked.size for one in self._jobs.values()) + size <= self._limits.bytes:
                return
            self._jobs.pop(job.id, None)
        if sum(one.asked.size for one in self._jobs.values()) + size > self._limits.bytes:
            raise TooBusy("as much is being analysed as there is room for: try again in a minute")

    async def _work(self, job: Job) -> None:
        try:
            async with self._slots, asyncio.timeout(self._limits.timeout_s):
                await self._do(job)
        except (AnalyzerError, CollectorError) as error:
            job.error = str(error)
        except TimeoutError:
            job.error = f"not done after {self._limits.timeout_s:.0f} seconds"
        except Exception:  # one job is a line of containment: another's must not end for it
            logger.exception("an analysis that was asked for on the page failed")
            job.error = "blamespan could not analyse this: its log says why"
        job.state = JobState.FAILED if job.error else JobState.DONE

    async def _do(self, job: Job) -> None:
        job.state = JobState.READING
        async with self._reading:
            runs = await asyncio.to_thread(job.asked.load)
        if len(runs) > MOST_RUNS:
            job.note = f"The file holds {len(runs)} runs: the first {MOST_RUNS} are analysed."
        runs = runs[:MOST_RUNS]
        job.state, job.runs = JobState.ANALYSING, len(runs)

        def called() -> None:
            job.calls += 1

        for trajectory in runs:
            attribution = await self.opinions.ask(trajectory, job.asked.choice, called)
            job.found.append(Found(trajectory=trajectory, document=to_json(attribution, trajectory)))
