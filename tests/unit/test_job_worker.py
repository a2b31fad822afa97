"""Jobs between a collector's client and analyzers' workers: each is answered once, whatever dies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from analyzer.analyses.codec import Progress, read_run, write_offer
from analyzer.analyses.job_client import ANALYZER, NO_ANALYZER, OFFER, AwayError, JobAsk
from analyzer.methods.choice import Called, Choice, Offer
from analyzer.service import job_worker
from analyzer.service.job_worker import JobWorker
from analyzer.service.replicas import Announcer
from collector_processor.core.analysis import Earned, TrackRecord
from collector_processor.core.disk import RUNS
from collector_processor.store.database.connection import StoreConnection, StoreThread, open_database
from collector_processor.store.jobs import MOST_CLAIMS, JobRows, ReplicaRows
from semconv.model import Abstention, Attribution, Blame, Status, Trajectory
from tests.runs import run, step

FAILED = run(step("planner"), step("clerk"))
SHORT_S = 0.01
EARNED: Earned = {"scripted": TrackRecord(labelled=2, right=1)}


def said(trajectory: Trajectory) -> Attribution:
    verdict = Blame(agent="clerk", step=1, reason="scripted", confidence=0.9)
    return Attribution(run_id=trajectory.run_id, verdict=verdict, method="judge")


@dataclass(slots=True)
class Analyzer:
    """An analyzer over one store, with a scripted analysis."""

    store: Store
    answer: Callable[[Trajectory], Attribution] = said
    at_once: int = 4
    asked: list[tuple[Trajectory, Choice | None]] = field(default_factory=list)
    earned: list[Earned] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    called: Called = field(default=lambda _calls, _usd: None)

    async def analyse(
        self, trajectory: Trajectory, choice: Choice | None, earned: Earned, called: Called
    ) -> Attribution:
        self.asked.append((trajectory, choice))
        self.earned.append(earned)
        self.called = called
        await self.may_answer.wait()
        return self.answer(trajectory)

    @asynccontextmanager
    async def working(self, *, lease_s: float = 3600.0) -> AsyncIterator[JobWorker]:
        worker = JobWorker(
            self.store.jobs,
            self.store.thread,
            self.analyse,
            at_once=self.at_once,
            pause=shortly,
            beat_s=SHORT_S,
            lease_s=lease_s,
        )
        announcer = Announcer(
            self.store.replicas, self.store.thread.run, ANALYZER, {OFFER: write_offer(OFFERED).decode()}
        )
        await announcer.announce()
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            await worker.stop(0.0)
            await task
            await announcer.leave()


OFFERED = Offer(methods=("auto", "judge"), model="scripted", models=())


async def shortly(_seconds: float) -> None:
    await asyncio.sleep(SHORT_S)


@dataclass(frozen=True, slots=True)
class Store:
    """A store shared by the processes of a test."""

    db: StoreConnection
    thread: StoreThread

    @property
    def jobs(self) -> JobRows:
        return JobRows(self.db)

    @property
    def replicas(self) -> ReplicaRows:
        return ReplicaRows(self.db)

    def client(self, timeout_s: float = 3600.0) -> JobAsk:
        return JobAsk(self.jobs, self.replicas, self.thread.run, timeout_s=timeout_s, pause=shortly)

    async def rows(self, sql: str) -> list[Any]:
        found: list[Any] = await self.thread.run(lambda: self.db.execute(sql).fetchall())
        return found


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    with closing(open_database(tmp_path / RUNS)) as database:
        thread = StoreThread()
        db = await thread.run(database.connect)
        yield Store(db, thread)
        await thread.run(db.close)
        thread.close()


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not claim():  # noqa: ASYNC110 - the claim is about another thread's work
            await asyncio.sleep(SHORT_S)


async def until_rows(store: Store, count: int) -> None:
    async with asyncio.timeout(60):
        while len(await store.rows("SELECT id FROM job")) < count:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(SHORT_S)


def ask(work: Coroutine[Any, Any, Attribution]) -> asyncio.Task[Attribution]:
    return asyncio.create_task(work)


async def test_a_run_is_answered_through_the_store(store: Store) -> None:
    analyzer = Analyzer(store)
    analyzer.may_answer.set()
    async with analyzer.working():
        assert await store.client()(FAILED) == said(FAILED)
        choice = Choice(method="judge", takes_as_failed=True, budget_usd=0.5)
        assert await store.client()(FAILED, choice, earned=EARNED) == said(FAILED)
    assert analyzer.asked == [(FAILED, None), (FAILED, choice)]
    assert analyzer.earned == [{}, EARNED]


async def test_calls_and_dollars_are_reported_during_an_analysis(store: Store) -> None:
    analyzer, told = Analyzer(store), list[Progress]()
    async with analyzer.working():
        waiting = ask(store.client()(FAILED, Choice(method="judge"), told.append))
        await until(lambda: len(analyzer.asked) == 1)
        for calls in (1, 2):
            analyzer.called(1, 0.25)
            await until(lambda calls=calls: any(one.calls == calls for one in told))  # type: ignore[misc]
        assert not waiting.done()
        analyzer.may_answer.set()
        assert await waiting == said(FAILED)
    assert told[-1] == Progress(calls=2, cost_usd=0.5)


class OtherProgress(JobRows):
    """Rows whose progress another version wrote, in a form of its own."""

    def progress(self, id_: str) -> str:
        return f"half of {id_}"


async def test_progress_that_cannot_be_read_costs_no_answer(store: Store) -> None:
    analyzer, told = Analyzer(store), list[Progress]()
    client = JobAsk(
        OtherProgress(store.db), store.replicas, store.thread.run, timeout_s=3600.0, pause=shortly
    )
    async with analyzer.working():
        waiting = ask(client(FAILED, Choice(method="judge"), told.append))
        await until(lambda: len(analyzer.asked) == 1)
        await asyncio.sleep(20 * SHORT_S)  # looks go on meanwhile
        analyzer.may_answer.set()
        assert await waiting == said(FAILED)
    assert told == []


async def test_a_collector_that_asks_again_after_a_restart_gets_the_same_answer(store: Store) -> None:
    analyzer = Analyzer(store)
    async with analyzer.working():
        first = ask(store.client()(FAILED))
        await until(lambda: len(analyzer.asked) == 1)
        first.cancel()
        await asyncio.wait({first})
        second = ask(store.client()(FAILED))
        analyzer.may_answer.set()
        assert await second == said(FAILED)
        assert await store.client()(FAILED) == said(FAILED)
    assert len(analyzer.asked) == 1


async def test_the_job_of_a_silent_analyzer_is_taken_over_and_answered_once(store: Store) -> None:
    """The first claims with a lease that has expired at once, as if it were frozen ever since."""
    heir = Analyzer(store)
    heir.may_answer.set()
    await Announcer(store.replicas, store.thread.run, ANALYZER, {}).announce()
    asked = ask(store.client()(FAILED))
    await until_rows(store, 1)
    job = await store.thread.run(store.jobs.claim, -1.0)
    assert job is not None
    async with heir.working():
        assert await asked == said(FAILED)
    assert not await store.thread.run(store.jobs.answer, job, b"late")
    assert len(heir.asked) == 1


async def test_an_analysis_whose_claim_was_lost_is_cancelled(store: Store) -> None:
    slow = Analyzer(store)
    async with slow.working() as worker:
        asked = ask(store.client()(FAILED))
        await until(lambda: len(slow.asked) == 1)
        asked.cancel()
        await store.thread.run(lambda: store.db.execute("DELETE FROM job"))
        await until(lambda: worker.under_way == 0)
    assert not slow.may_answer.is_set()


async def test_an_analyzer_that_stops_gives_its_jobs_back(store: Store) -> None:
    first, second = Analyzer(store), Analyzer(store)
    second.may_answer.set()
    async with first.working():
        asked = ask(store.client()(FAILED))
        await until(lambda: len(first.asked) == 1)
        await Announcer(store.replicas, store.thread.run, ANALYZER, {}).announce()
    assert await store.rows("SELECT claims - returned, lease_ns FROM job") == [(0, 0)]
    async with second.working():
        assert await asked == said(FAILED)


async def test_no_more_jobs_are_claimed_than_can_be_analysed_at_once(store: Store) -> None:
    analyzer = Analyzer(store, at_once=2)
    runs = [run(step("planner"), step("clerk"), task=str(number)) for number in range(5)]
    async with analyzer.working() as worker:
        asked = [ask(store.client()(one)) for one in runs]
        await until(lambda: len(analyzer.asked) == 2)
        looking = asyncio.create_task(worker.look())
        await until(lambda: worker.waiting.count == 3)
        analyzer.may_answer.set()
        assert [one.status for one in await asyncio.gather(*asked)] == [Status.ATTRIBUTED] * 5
        await until(lambda: worker.waiting.count == 0)
        looking.cancel()
        await asyncio.wait({looking})
    assert len(analyzer.asked) == 5


async def test_runs_that_take_long_to_read_count_as_jobs_and_keep_their_claims(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_read, reading, most = threading.Event(), list[bytes](), 0

    def slowly(body: bytes) -> Trajectory:
        nonlocal most
        reading.append(body)
        most = max(most, len(reading))
        may_read.wait(60)
        reading.remove(body)
        return read_run(body)

    monkeypatch.setattr(job_worker, "read_run", slowly)
    analyzer = Analyzer(store, at_once=2)
    analyzer.may_answer.set()
    async with analyzer.working():
        asked = [
            ask(store.client()(run(step("planner"), step("clerk"), run_id=f"run-{n}"))) for n in range(5)
        ]
        await until_rows(store, 5)
        await until(lambda: len(reading) >= 2)
        leases = "SELECT min(lease_ns) FROM job WHERE claims > 0"
        (lease_ns,) = (await store.rows(leases))[0]
        async with asyncio.timeout(60):
            while (await store.rows(leases))[0][0] <= lease_ns:  # noqa: ASYNC110 - of another thread
                await asyncio.sleep(SHORT_S)
        may_read.set()
        await asyncio.gather(*asked)
    assert most == 2
    assert await store.rows("SELECT DISTINCT claims, returned FROM job") == [(1, 0)]


async def test_a_run_that_every_analysis_fails_on_is_given_up(store: Store) -> None:
    def fails(_trajectory: Trajectory) -> Attribution:
        raise ZeroDivisionError

    broken = Analyzer(store, answer=fails)
    broken.may_answer.set()
    async with broken.working(lease_s=-1.0):
        with pytest.raises(AwayError, match="several analyzers ended"):
            await store.client()(FAILED)
    assert len(broken.asked) <= MOST_CLAIMS


async def test_a_failure_is_not_kept_as_the_answer(store: Store) -> None:
    failure = Attribution(
        run_id=FAILED.run_id,
        verdict=Abstention(status=Status.ERROR, reason="the model was away"),
        method="judge",
    )
    analyzer = Analyzer(store, answer=lambda _trajectory: failure)
    analyzer.may_answer.set()
    async with analyzer.working():
        assert (await store.client()(FAILED)).status is Status.ERROR
        analyzer.answer = said
        assert await store.client()(FAILED) == said(FAILED)


async def test_without_an_analyzer_nothing_waits(store: Store) -> None:
    with pytest.raises(AwayError, match=NO_ANALYZER):
        await store.client()(FAILED)
    with pytest.raises(AwayError, match=NO_ANALYZER):
        await store.client().offer()
    assert await store.rows("SELECT id FROM job") == []


async def test_what_can_be_chosen_is_what_the_analyzers_announce(store: Store) -> None:
    async with Analyzer(store).working():
        assert await store.client().offer() == OFFERED


async def test_a_job_that_is_not_finished_in_time_is_withdrawn(store: Store) -> None:
    slow = Analyzer(store)
    async with slow.working():
        with pytest.raises(AwayError, match="no answer within"):
            await store.client(timeout_s=0.2)(FAILED)
        assert await store.rows("SELECT id FROM job") == []
