"""Client of analyzers: adds a job to the store they share, and waits for its answer. Not pure.

The job's id is a hash of the question, so a collector that was restarted finds the job that its predecessor
added, or the answer. While no analyzer has announced itself, nothing waits: signals answer at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from analyzer.analyses.codec import (
    Progress,
    read_answer,
    read_offer,
    read_progress,
    write_choice,
    write_earned,
    write_run,
)
from analyzer.analyses.local_analyst import LocalAnalyst
from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.inquiry.verdict import analysis_of
from analyzer.methods.choice import Called, Choice, Offer
from collector_processor.core.analysis import NOTHING_EARNED, Analysis, Earned
from collector_processor.core.disk import StoreError
from collector_processor.store.jobs import LEASE_S, JobRows, Replica, ReplicaRows
from semconv.model import BLAMELESS, Attribution, Status, Trajectory

logger = logging.getLogger(__name__)

ANALYZER: Final = "analyzer"
"""Kind of replica that takes jobs."""
OFFER: Final = "offer"
"""Key in an analyzer's facts: the methods and models that can be chosen, as JSON text."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.0
_PAUSE_FACTOR: Final = 1.5
_LOOK_EVERY_S: Final = 5.0
"""Seconds between checks whether any analyzer lives."""
NO_ANALYZER: Final = "no analyzer takes jobs from the store"

FRESH_S: Final = 30.0
"""Seconds for which an offer is cached."""
AWAY_S: Final = 5.0
"""Seconds without another attempt after no analyzer answered."""

Watch: TypeAlias = Callable[[Progress], None]
InDb: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a store's call on the store's thread."""


class AwayError(AnalyzerError):
    """No analyzer gave an answer; the message gives a short reason."""


def job_id(body: bytes, choice: Choice | None) -> str:
    """Return an id that two questions share only if they are identical.

    What models have earned is no part of it: an answer that was paid for counts after another label, too.
    """
    asked = json.dumps(write_choice(choice), sort_keys=True).encode()
    return hashlib.blake2b(asked + b"\0" + body, digest_size=16).hexdigest()


class JobAsk:
    """Asks the analyzers that take jobs from one store."""

    def __init__(
        self,
        jobs: JobRows,
        replicas: ReplicaRows,
        in_db: InDb,
        *,
        timeout_s: float,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a client.

        Args:
            jobs: the table of jobs.
            replicas: the table of replicas.
            in_db: runs calls on them.
            timeout_s: time limit for one run, takeovers included.
            pause: sleeps for the given seconds.
            clock: returns seconds.
        """
        self._jobs: Final = jobs
        self._replicas: Final = replicas
        self._in_db: Final = in_db
        self._timeout_s: Final = timeout_s
        self._pause: Final = pause
        self._clock: Final = clock

    async def __call__(
        self,
        trajectory: Trajectory,
        choice: Choice | None = None,
        watch: Watch | None = None,
        earned: Earned = NOTHING_EARNED,
    ) -> Attribution:
        """Return an analyzer's attribution of a run, by its settings or by a person's choice.

        ``watch`` is called with the calls and dollars that the analyzer reported with its last renewal.

        Raises:
            AwayError: no analyzer answered in time, or the run crashed several of them.
            UnreadableInput: the run cannot be stored, or the answer is not an attribution of it.
        """
        body = await asyncio.to_thread(write_run, trajectory)
        id_ = job_id(body, choice)
        try:
            await self._require_analyzer()
            await self._in_db(self._jobs.ask, id_, write_choice(choice) | write_earned(earned), body)
        except StoreError as error:
            raise AwayError(str(error)) from error
        del body
        attribution = read_answer(await self._answer(id_, watch), trajectory)
        if attribution.status is Status.ERROR or attribution.fallback is not None:
            await self._forget(id_)  # the next attempt may succeed
        return attribution

    async def offer(self) -> Offer:
        """Return the methods and models that can be chosen there.

        Raises:
            AwayError: no analyzer lives.
            UnreadableInput: the analyzer runs another version, whose offer cannot be read.
        """
        try:
            analyzer = await self._require_analyzer()
        except StoreError as error:
            raise AwayError(str(error)) from error
        return read_offer(str(analyzer.facts.get(OFFER, "")).encode())

    async def _answer(self, id_: str, watch: Watch | None) -> bytes:
        """Wait for an answer.

        Raises:
            AwayError: there is none in time.
        """
        began = looked = self._clock()
        pause_s, reason = _FIRST_PAUSE_S, "no analyzer has finished it"
        while self._clock() < began + self._timeout_s:
            await self._pause(pause_s)
            pause_s = min(pause_s * _PAUSE_FACTOR, _LONGEST_PAUSE_S)
            try:
                found = await self._in_db(self._jobs.answered, [id_])
                if watch is not None and not found:
                    await self._tell(id_, watch)
                if self._clock() >= looked + _LOOK_EVERY_S:
                    looked = self._clock()
                    await self._require_analyzer()
            except StoreError as error:
                reason = str(error)  # the job is still there when the server is back
                continue
            except AwayError:
                await self._forget(id_)
                raise
            if id_ in found:
                return await self._found(id_, found[id_])
        await self._forget(id_)
        raise AwayError(f"no answer within {self._timeout_s:g} s: {reason}")

    async def _tell(self, id_: str, watch: Watch) -> None:
        told: str = await self._in_db(self._jobs.progress, id_)
        if not told:
            return
        try:
            watch(read_progress(told.encode()))
        except UnreadableInput as error:  # progress is only shown; the answer still counts
            logger.warning("progress of an analysis is unreadable", extra={"reason": str(error)})

    async def _found(self, id_: str, answer: bytes | None) -> bytes:
        if answer is None:
            await self._forget(id_)
            raise AwayError("several analyzers ended while they analysed this run")
        return answer

    async def _forget(self, id_: str) -> None:
        try:
            await self._in_db(self._jobs.forget, id_)
        except StoreError:  # it expires
            return

    async def _require_analyzer(self) -> Replica:
        replicas: list[Replica] = await self._in_db(self._replicas.seen, LEASE_S)
        analyzer = next((replica for replica in replicas if replica.kind == ANALYZER), None)
        if analyzer is None:
            raise AwayError(NO_ANALYZER)
        return analyzer


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnalyst:
    """Analyst that has failed runs analysed by the analyzers of one store."""

    ask: JobAsk
    local: LocalAnalyst
    """Analyst without a model: triage and signals."""

    async def analyse(self, trajectory: Trajectory, earned: Earned = NOTHING_EARNED) -> Analysis:
        """Triage here and attribute elsewhere; by signals if no analyzer answers in time."""
        own = await self.local.analyse(trajectory, NOTHING_EARNED)
        if own.attribution.status in {*BLAMELESS, Status.UNREADABLE}:
            return own
        try:
            attribution = await self.ask(trajectory, earned=earned)
        except AnalyzerError as error:
            logger.warning("no analyzer", extra={"run_id": trajectory.run_id, "reason": str(error)})
            fallback = f"{own.attribution.method}, because the analyzer failed: {error}"
            attribution = replace(own.attribution, fallback=fallback)
        return analysis_of(attribution, trajectory)

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute at once, without a model."""
        return self.local.glance(trajectory)


class JobOpinions:
    """``Opinions`` of the analyzers of one store.

    Their offer is cached, so that pages do not wait each time when no analyzer lives.
    """

    def __init__(self, ask: JobAsk, clock: Callable[[], float] = time.monotonic) -> None:
        """Create a client over ``ask``; ``clock`` returns seconds."""
        self._ask: Final = ask
        self._clock: Final = clock
        self._known: Offer | str = "not asked yet"
        self._fresh_until = float("-inf")

    async def offer(self) -> Offer:
        """Return the methods and models that can be chosen there.

        Raises:
            AwayError: no analyzer answers.
        """
        if self._clock() >= self._fresh_until:
            try:
                self._known, lasts_s = await self._ask.offer(), FRESH_S
            except AnalyzerError as error:
                self._known, lasts_s = str(error), AWAY_S
            self._fresh_until = self._clock() + lasts_s
        if isinstance(self._known, str):
            raise AwayError(self._known)
        return self._known

    async def ask(
        self, trajectory: Trajectory, choice: Choice, called: Called, earned: Earned = NOTHING_EARNED
    ) -> Attribution:
        """Have a run analysed there; ``called`` learns of its model calls about once a second."""
        told = Progress()

        def watch(so_far: Progress) -> None:
            nonlocal told
            called(so_far.calls - told.calls, so_far.cost_usd - told.cost_usd)
            told = so_far

        attribution = await self._ask(trajectory, choice, watch, earned)
        effort = attribution.effort
        watch(Progress(calls=effort.calls, cost_usd=effort.cost_usd or 0.0))
        return attribution
