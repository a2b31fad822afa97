"""Contract of the jobs in the store on every database: SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

import pytest

from collector_processor.store.database.connection import Database, StoreConnection, open_database
from collector_processor.store.jobs import MOST_CLAIMS, Job, JobRows, ReplicaRows
from collector_processor.store.small_tables import SpendingRows
from tests.backends.postgresql import PostgresServer

LEASE_S: Final = 3600.0
OVER_S: Final = -1.0
"""A lease that has expired when it is given."""
HOUR_NS: Final = 3600 * 10**9


@pytest.fixture
def db(database: Database) -> Iterator[StoreConnection]:
    with closing(database.connect()) as opened:
        yield opened


@pytest.fixture
def jobs(db: StoreConnection) -> JobRows:
    return JobRows(db)


def claimed(jobs: JobRows, lease_s: float = LEASE_S) -> Job:
    job = jobs.claim(lease_s)
    assert job is not None
    return job


def test_a_job_is_claimed_once_and_its_answer_comes_back(jobs: JobRows) -> None:
    jobs.ask("a", {"method": "judge"}, b"\0run")
    job = claimed(jobs)
    assert (job.id, job.choice, job.body) == ("a", {"method": "judge"}, b"\0run")
    assert jobs.claim(LEASE_S) is None
    assert jobs.answered(["a", "b"]) == {}
    assert jobs.answer(job, b"\0answer")
    assert jobs.answered(["a", "b"]) == {"a": b"\0answer"}
    assert jobs.claim(LEASE_S) is None


def test_a_job_that_is_asked_again_keeps_its_answer_and_not_its_text(
    jobs: JobRows, db: StoreConnection
) -> None:
    jobs.ask("a", {}, b"run")
    jobs.answer(claimed(jobs), b"answer")
    jobs.ask("a", {}, b"run")
    assert jobs.claim(LEASE_S) is None
    assert jobs.answered(["a"]) == {"a": b"answer"}
    assert [bytes(body) for (body,) in db.execute("SELECT body FROM job")] == [b""]


def test_the_job_of_an_analyzer_that_died_is_taken_over_and_its_late_answer_refused(jobs: JobRows) -> None:
    jobs.ask("a", {}, b"run")
    dead = claimed(jobs, OVER_S)
    heir = claimed(jobs)
    assert (heir.id, heir.body) == ("a", b"run")
    assert not jobs.renew(dead, LEASE_S)
    assert not jobs.answer(dead, b"late")
    assert not jobs.give_back(dead)
    assert jobs.answered(["a"]) == {}
    assert jobs.renew(heir, LEASE_S)
    assert jobs.answer(heir, b"answer")
    assert not jobs.answer(heir, b"another")
    assert jobs.answered(["a"]) == {"a": b"answer"}


def test_a_renewal_tells_what_an_analysis_has_spent_unless_another_took_over(jobs: JobRows) -> None:
    jobs.ask("a", {}, b"run")
    assert (jobs.progress("a"), jobs.progress("b")) == ("", "")
    dead = claimed(jobs, OVER_S)
    assert jobs.renew(dead, OVER_S, "two calls")
    assert jobs.progress("a") == "two calls"
    heir = claimed(jobs)
    assert not jobs.renew(dead, LEASE_S, "three calls")
    assert jobs.renew(heir, LEASE_S, "one call")
    assert jobs.progress("a") == "one call"


def test_an_analyzer_that_was_slow_may_still_answer_if_no_other_took_over(jobs: JobRows) -> None:
    jobs.ask("a", {}, b"run")
    slow = claimed(jobs, OVER_S)
    assert jobs.renew(slow, LEASE_S)
    assert jobs.claim(LEASE_S) is None
    assert jobs.answer(slow, b"answer")


def test_a_run_that_crashes_analyzers_is_given_up(jobs: JobRows) -> None:
    jobs.ask("a", {}, b"run")
    for _ in range(MOST_CLAIMS):
        assert jobs.answered(["a"]) == {}
        claimed(jobs, OVER_S)
    assert jobs.claim(LEASE_S) is None
    assert jobs.answered(["a"]) == {"a": None}
    assert jobs.waiting().count == 0


def test_a_job_that_is_given_back_waits_again_and_counts_no_crash(jobs: JobRows) -> None:
    jobs.ask("a", {}, b"run")
    for _ in range(2 * MOST_CLAIMS):
        assert jobs.give_back(claimed(jobs))
    assert jobs.waiting().count == 1


def test_the_oldest_job_comes_first_and_ages_are_reported(jobs: JobRows, db: StoreConnection) -> None:
    for name in ("c", "b", "a"):
        jobs.ask(name, {}, b"run")
    for age_h, name in enumerate("abc", start=1):
        db.execute("UPDATE job SET asked_ns = asked_ns - ? WHERE id = ?", (age_h * HOUR_NS, name))
    found = jobs.waiting()
    assert found.count == 3
    assert 3 * 3600 <= found.oldest_age_s < 3.5 * 3600
    assert [claimed(jobs).id for _ in range(3)] == ["c", "b", "a"]
    assert jobs.waiting().count == 0
    assert jobs.waiting().oldest_age_s == 0


def test_a_forgotten_job_is_neither_claimed_nor_answered(jobs: JobRows) -> None:
    jobs.ask("a", {}, b"run")
    jobs.ask("b", {}, b"run")
    job = claimed(jobs)
    for name in ("a", "b"):
        jobs.forget(name)
    assert not jobs.renew(job, LEASE_S)
    assert not jobs.answer(job, b"answer")
    assert jobs.claim(LEASE_S) is None


def test_jobs_without_a_collector_are_deleted_and_answers_after_an_hour(
    jobs: JobRows, db: StoreConnection
) -> None:
    for name in ("a", "b", "c"):
        jobs.ask(name, {}, b"run")
    jobs.answer(claimed(jobs), b"answer")
    db.execute("UPDATE job SET answered_ns = answered_ns - ? WHERE answered_ns > 0", (HOUR_NS,))
    db.execute("UPDATE job SET asked_ns = asked_ns - ? WHERE id = 'b'", (24 * HOUR_NS,))
    jobs.ask("d", {}, b"run")
    left = [row[0] for row in db.execute("SELECT id FROM job ORDER BY id")]
    assert left == ["c", "d"]


def test_many_analyzers_claim_each_job_exactly_once(jobs: JobRows, database: Database) -> None:
    names = {f"job-{number:03}" for number in range(120)}
    for name in names:
        jobs.ask(name, {}, b"run")

    def work(_worker: int) -> list[str]:
        found = []
        with closing(database.connect()) as own:
            rows = JobRows(own)
            while (job := rows.claim(LEASE_S)) is not None:
                assert rows.answer(job, job.id.encode())
                found.append(job.id)
        return found

    with ThreadPoolExecutor(4) as pool:
        done = [name for found in pool.map(work, range(4)) for name in found]
    assert sorted(done) == sorted(names)
    assert jobs.answered(names) == {name: name.encode() for name in names}


def test_a_claim_passes_over_a_job_that_another_is_just_claiming(server: PostgresServer) -> None:
    with closing(open_database(server.create("skipping"))) as database:
        first, second = database.connect(), database.connect()
        with closing(first), closing(second):
            for name in ("a", "b"):
                JobRows(first).ask(name, {}, b"run")
            first.execute("BEGIN")
            assert claimed(JobRows(first)).id == "a"
            second.execute("SET lock_timeout = '10s'")
            assert claimed(JobRows(second)).id == "b"
            first.execute("ROLLBACK")
            assert claimed(JobRows(second)).id == "a"


def test_replicas_announce_themselves_and_the_difference_of_their_clocks(db: StoreConnection) -> None:
    rows = ReplicaRows(db)
    rows.announce("one", "analyzer", "1", 0, {"at_once": 2})
    (seen,) = rows.seen(60.0)
    its_clock = int(-seen.ahead_s * 10**9) + 7 * 10**9
    rows.announce("one", "analyzer", "2", its_clock, {})
    rows.announce("two", "web", "2", its_clock, {})
    found = {one.id: one for one in rows.seen(60.0)}
    assert {(one.id, one.kind, one.version) for one in found.values()} == {
        ("one", "analyzer", "2"),
        ("two", "web", "2"),
    }
    assert -3600 < found["one"].ahead_s < 8, "it was made from the clock of a moment ago"
    rows.leave("one")
    assert [one.id for one in rows.seen(60.0)] == ["two"]
    db.execute("UPDATE replica SET seen_ns = seen_ns - ?", (HOUR_NS,))
    assert rows.seen(60.0) == []


def test_the_hours_budget_holds_over_replicas_that_spend_at_the_same_time(database: Database) -> None:
    """Each reservation sees those of the others: at most ten of $0.10 fit into a dollar."""
    database.connect().close()  # Alembic migrates once a process at a time, as a service does at its start
    now_ns = 10**18

    def spend(_worker: int) -> int:
        with closing(database.connect()) as own:
            rows = SpendingRows(own)
            return sum(
                rows.reserve(now_ns, 0.1, now_ns - HOUR_NS, most_usd=1.0) is not None for _ in range(8)
            )

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(spend, range(4))) == 10
    with closing(database.connect()) as own:
        rows = SpendingRows(own)
        assert rows.reserve(now_ns, 0.0, now_ns - HOUR_NS, most_usd=1.0) is not None
        assert rows.reserve(now_ns + 2 * HOUR_NS, 0.9, now_ns + HOUR_NS, most_usd=1.0) is not None
