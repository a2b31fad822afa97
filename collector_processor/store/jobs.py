"""Jobs in the store: runs that wait for an analyzer, and the replicas that share the store.

A job is claimed with a lease. The analyzer renews the lease while it works; if it dies, the lease expires and
another analyzer claims the job. Every claim has a number, and an answer is accepted only from the newest
claim, so a job has one answer. Times are those of the database's clock: replicas' clocks may differ.

On PostgreSQL, ``FOR UPDATE SKIP LOCKED`` lets analyzers claim at the same time without waiting for each
other; SQLite serializes writers. Synchronous; used on a store's thread. Every call raises ``StoreError`` if
the store refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from collector_processor.store.database.connection import StoreConnection

MOST_CLAIMS: Final = 3
"""Claims of one job that may end without an answer: a run must not crash one analyzer after another."""
BEAT_S: Final = 5.0
"""Seconds between announcements of a replica, and between renewals of a claim."""
LEASE_S: Final = 15.0
"""Seconds after which the job of a silent analyzer is taken over: three renewals."""
KEPT_ANSWER_S: Final = 3600.0
"""Seconds for which an answer is kept: a collector that was restarted asks for the same run again."""
KEPT_JOB_S: Final = 86_400.0
"""Seconds after which a job is deleted even without an answer: its collector is gone."""
KEPT_REPLICA_S: Final = 86_400.0
_NS: Final = 1_000_000_000
_NOW: Final = {
    True: "(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint",
    False: "CAST((julianday('now') - 2440587.5) * 86400000000000 AS INTEGER)",
}
"""The database's clock in nanoseconds, for PostgreSQL and for SQLite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A claimed job."""

    id: str
    claim: int
    """Number of this claim; a later claim by another analyzer invalidates it."""
    choice: Mapping[str, str]
    """A person's choice of method and model; empty for the analyzer's own settings."""
    body: bytes
    """The run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Jobs that an analyzer could claim now."""

    count: int
    oldest_age_s: float
    """0 if there are none."""


NO_JOBS: Final = Waiting(count=0, oldest_age_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A process that uses the store, as it announced itself."""

    id: str
    kind: str
    version: str
    ahead_s: float
    """Seconds by which its clock was ahead of the database's; negative if it was behind."""
    facts: Mapping[str, Any]


class JobRows:
    """Rows of the table of jobs."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db
        self._now: Final = _NOW[db.is_postgresql]
        self._skip: Final = "FOR UPDATE SKIP LOCKED" if db.is_postgresql else ""
        self._claimable: Final = (
            f"answer IS NULL AND lease_ns < {self._now} AND claims - returned < {MOST_CLAIMS}"
        )

    def ask(self, id_: str, choice: Mapping[str, str], body: bytes) -> None:
        """Add a job, unless it is there already, and delete expired ones."""
        self._db.execute(
            f"DELETE FROM job WHERE answered_ns BETWEEN 1 AND {self._now} - ?"  # noqa: S608 - our own words
            f" OR asked_ns < {self._now} - ?",
            (int(KEPT_ANSWER_S * _NS), int(KEPT_JOB_S * _NS)),
        )
        self._db.execute(
            "INSERT INTO job (id, choice, body, asked_ns)"  # noqa: S608 - as above
            f" VALUES (?, ?, ?, {self._now}) ON CONFLICT (id) DO NOTHING",
            (id_, json.dumps(dict(choice)), body),
        )

    def claim(self, lease_s: float) -> Job | None:
        """Claim the job that has waited longest; ``None`` if there is none."""
        row = self._db.execute(
            f"UPDATE job SET claims = claims + 1, lease_ns = {self._now} + ?"  # noqa: S608 - as above
            f" WHERE id = (SELECT id FROM job WHERE {self._claimable}"
            f" ORDER BY asked_ns, id LIMIT 1 {self._skip}) RETURNING id, claims, choice, body",
            (int(lease_s * _NS),),
        ).fetchone()
        if row is None:
            return None
        return Job(id=row[0], claim=row[1], choice=json.loads(row[2]), body=bytes(row[3]))

    def renew(self, job: Job, lease_s: float, progress: str = "") -> bool:
        """Extend a claim; return ``False`` if it is no longer valid and the work should stop.

        ``progress`` is what the analyzer tells the collector.
        """
        return self._changed(job, f"lease_ns = {self._now} + ?, progress = ?", int(lease_s * _NS), progress)

    def progress(self, id_: str) -> str:
        """Return what an analyzer last told of a job; empty if nothing."""
        row = self._db.execute("SELECT progress FROM job WHERE id = ?", (id_,)).fetchone()
        return "" if row is None else str(row[0])

    def answer(self, job: Job, answer: bytes) -> bool:
        """Store the answer of the newest claim, and delete the run's text; return whether it was accepted."""
        return self._changed(job, f"answer = ?, answered_ns = {self._now}, body = ?", answer, b"")

    def give_back(self, job: Job) -> bool:
        """Return a claimed job without an answer, for another analyzer; the claim does not count."""
        return self._changed(job, "lease_ns = 0, returned = returned + 1")

    def _changed(self, job: Job, change: str, *values: object) -> bool:
        row = self._db.execute(
            f"UPDATE job SET {change} WHERE id = ? AND claims = ? AND answer IS NULL"  # noqa: S608 - as above
            " RETURNING id",
            (*values, job.id, job.claim),
        ).fetchone()
        return row is not None

    def answered(self, ids: Iterable[str]) -> dict[str, bytes | None]:
        """Return the available answers of these jobs; ``None`` for jobs that crash analyzers."""
        over = f"AND (answer IS NOT NULL OR (claims - returned >= {MOST_CLAIMS} AND lease_ns < {self._now}))"
        rows = self._db.read_rows("id, answer", "job", "id", [(id_,) for id_ in ids], over)
        return {id_: None if answer is None else bytes(answer) for id_, answer in rows}

    def forget(self, id_: str) -> None:
        """Delete a job: an analyzer that works on it stops at its next renewal."""
        self._db.execute("DELETE FROM job WHERE id = ?", (id_,))

    def waiting(self) -> Waiting:
        """Return how many jobs wait for an analyzer, and for how long."""
        row = self._db.execute(
            f"SELECT count(*), coalesce(max({self._now} - asked_ns), 0)"  # noqa: S608 - as above
            f" FROM job WHERE {self._claimable}"
        ).fetchone()
        return Waiting(count=row[0], oldest_age_s=max(0, row[1]) / _NS)


class ReplicaRows:
    """Rows of the table of replicas."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db
        self._now: Final = _NOW[db.is_postgresql]

    def announce(self, id_: str, kind: str, version: str, clock_ns: int, facts: Mapping[str, Any]) -> None:
        """Record that a replica lives, and its clock; delete rows of replicas that ended long ago."""
        self._db.execute(
            f"DELETE FROM replica WHERE seen_ns < {self._now} - ?",  # noqa: S608 - our own words
            (int(KEPT_REPLICA_S * _NS),),
        )
        self._db.execute(
            "INSERT INTO replica (id, kind, version, clock_ns, facts, seen_ns)"  # noqa: S608 - as above
            f" VALUES (?, ?, ?, ?, ?, {self._now}) ON CONFLICT (id) DO UPDATE SET"
            " version = excluded.version, clock_ns = excluded.clock_ns, facts = excluded.facts,"
            " seen_ns = excluded.seen_ns",
            (id_, kind, version, clock_ns, json.dumps(dict(facts))),
        )

    def leave(self, id_: str) -> None:
        """Delete the row of a replica that ends."""
        self._db.execute("DELETE FROM replica WHERE id = ?", (id_,))

    def seen(self, within_s: float) -> list[Replica]:
        """Return the replicas that announced themselves within these seconds, the latest first."""
        rows = self._db.execute(
            f"SELECT id, kind, version, clock_ns - seen_ns, facts FROM replica"  # noqa: S608
            f" WHERE seen_ns > {self._now} - ? ORDER BY seen_ns DESC, id",
            (int(within_s * _NS),),
        )
        return [
            Replica(
                id=row[0],
                kind=row[1],
                version=row[2],
                ahead_s=row[3] / _NS,
                facts=json.loads(row[4]),
            )
            for row in rows
        ]
