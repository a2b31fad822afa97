"""Small tables: spending on models, spans whose parents never arrive, trials, proofs, kept and spilled spans.

A model call is recorded before it is made. The collector half uses no model; the table is here because the
store is. A trial is not a production run: the spans kept of it are in their own table, which no list, count,
issue, spectrum or alert reads. Synchronous; used on the store's thread. Every call raises ``StoreError`` if
the store refuses.

Kept spans: failed and passed runs have a quota of bytes each; the oldest are deleted first.
``rebuild/kept_spans.py`` packs them.

Spilled spans: parts of traces that stay open for long, kept so that a partition's next owner has them
without Kafka. A part is the spans, or log records, of one trace in neighbouring records of one partition; the
number of the first record is part of its key, so writing it twice keeps it once.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from collector_processor.core.records import AbsentParent, SpilledPart, fields_of
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.store.database.connection import StoreConnection, insert, upsert
from collector_processor.store.database.driver import Flush
from semconv.model import TraceId

MAX_ABSENT: Final = 2_000
"""Bound on each of the two kinds of rows; the oldest are dropped and learned again if needed."""
MAX_TRIAL_CHARS: Final = 64
"""Longest id of a trial that is looked up; issued ones have 32 characters."""
_ROUNDING_USD: Final = 1e-9
"""Sums of fractions of a cent are not exact; the budget is."""
_ABSENT: Final = tuple(AbsentParent.__dataclass_fields__)
_WRITE_ABSENT: Final = upsert("absent_parent", ", ".join((*_ABSENT, "has_arrived")), keys=2)


class AbsentRows:
    """Rows of ``absent_parent``; used on the store's thread."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db

    def add(self, absent: Iterable[AbsentParent]) -> None:
        """Store kinds of spans whose parents did not arrive during the wait."""
        with self._db.transaction():
            self._db.write_each(
                _WRITE_ABSENT, [(*(getattr(parent, name) for name in _ABSENT), False) for parent in absent]
            )
            self._prune(has_arrived=False)

    def arrived(self, kinds: Iterable[tuple[Tenant, int]], now_ns: int) -> None:
        """Store kinds of spans whose parents arrived, late or for the first time."""
        with self._db.transaction(Flush.LATER):
            self._db.write_each(
                _WRITE_ABSENT, [(tenant, kind, "", "", "", now_ns, True) for tenant, kind in kinds]
            )
            self._prune(has_arrived=True)

    def arriving(self) -> list[tuple[Tenant, int]]:
        """Return the kinds of spans whose parents have arrived before."""
        rows = self._db.execute("SELECT tenant, kind FROM absent_parent WHERE has_arrived")
        return [(Tenant(tenant), kind) for tenant, kind in rows]

    def _prune(self, *, has_arrived: bool) -> None:
        self._db.execute(
            "DELETE FROM absent_parent WHERE has_arrived = ? AND since_ns < (SELECT since_ns"
            " FROM absent_parent WHERE has_arrived = ? ORDER BY since_ns DESC LIMIT 1 OFFSET ?)",
            (has_arrived, has_arrived, MAX_ABSENT - 1),
        )

    def all(self) -> list[AbsentParent]:
        """Return the kinds of spans whose parents never arrive, newest first."""
        rows = self._db.execute(
            f"SELECT {', '.join(_ABSENT)} FROM absent_parent"  # noqa: S608 - our own words
            " WHERE NOT has_arrived ORDER BY since_ns DESC"
        )
        return [AbsentParent(**dict(zip(_ABSENT, row, strict=True))) for row in rows]


class SpendingRows:
    """Rows of the table of spending; times are nanoseconds of the wall clock."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db

    def reserve(
        self, at_ns: int, usd: float, forget_before_ns: int, most_usd: float = float("inf")
    ) -> int | None:
        """Record the maximum cost of a model call before it is made; return the entry's id.

        Returns ``None`` if all calls of all processes on this store would then exceed ``most_usd``.
        """
        with self._db.transaction():
            self._db.execute("DELETE FROM spending WHERE at_ns < ?", (forget_before_ns,))
            spent: float = self._db.execute("SELECT coalesce(sum(usd), 0) FROM spending").fetchone()[0]
            if spent + usd > most_usd + _ROUNDING_USD:
                return None
            insert = "INSERT INTO spending (at_ns, usd) VALUES (?, ?) RETURNING id"
            entry: int = self._db.execute(insert, (at_ns, usd)).fetchone()[0]
        return entry

    def settle(self, entry: int, usd: float) -> None:
        """Record the actual cost of a call; does nothing if the entry has been deleted."""
        with self._db.transaction():
            self._db.execute("UPDATE spending SET usd = ? WHERE id = ?", (usd, entry))

    def spent(self, since_ns: int, now_ns: int) -> list[tuple[int, float]]:
        """Return time and maximum cost (USD) of each model call since ``since_ns``.

        A call recorded in the future, before the clock was set back, counts as made now.
        """
        with self._db.transaction():
            self._db.execute("UPDATE spending SET at_ns = ? WHERE at_ns > ?", (now_ns, now_ns))
        return self._db.execute(
            "SELECT at_ns, usd FROM spending WHERE at_ns >= ? ORDER BY at_ns", (since_ns,)
        ).fetchall()


class TrialRows:
    """Ids of trials that experiments issued, each for one tenant and a limited time."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db

    def issue(self, tenant: Tenant, trial: str, expires_ns: int, now_ns: int) -> None:
        """Store the id of a trial that is about to begin; expired ones are deleted."""
        with self._db.transaction():
            self._db.execute("DELETE FROM trial WHERE expires_ns <= ?", (now_ns,))
            self._db.execute(
                "INSERT INTO trial (tenant, id, expires_ns) VALUES (?, ?, ?)", (tenant, trial, expires_ns)
            )

    def issued(self, tenant: Tenant, claimed: Iterable[str], now_ns: int) -> frozenset[str]:
        """Return which of these ids were issued for the tenant and have not expired."""
        read = "SELECT 1 FROM trial WHERE tenant = ? AND id = ? AND expires_ns > ?"
        return frozenset(
            trial for trial in claimed if self._db.execute(read, (tenant, trial, now_ns)).fetchone()
        )


MOST_BYTES: Final = 64 << 20
"""Packed bytes of all kept trials; the oldest experiments' trials are deleted first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialArm:
    """A kept trial that stands for its arm."""

    tenant: Tenant
    run_id: str
    """The run that the experiment replayed."""
    id: str
    step: int
    """The step whose answer the experiment changed."""
    is_changed: bool
    """Whether the step had a changed answer in this trial; else it had the recorded one."""
    has_passed: bool
    """Whether the trial passed the experiment's check."""


_ARM: Final = tuple(TrialArm.__dataclass_fields__)
_ARM_COLUMNS: Final = ", ".join(_ARM)


class TrialArmRows:
    """Rows of ``trial_arm``."""

    def __init__(self, db: StoreConnection, most_bytes: int = MOST_BYTES) -> None:
        self._db: Final = db
        self._most_bytes: Final = most_bytes

    def keep(self, arms: Sequence[tuple[TrialArm, bytes]], now_ns: int) -> None:
        """Keep the trials of one experiment, packed, in place of an earlier one's on the same run."""
        with self._db.transaction():
            for tenant, run_id in sorted({(arm.tenant, arm.run_id) for arm, _ in arms}):
                self._db.execute("DELETE FROM trial_arm WHERE tenant = ? AND run_id = ?", (tenant, run_id))
            self._db.write_rows(
                insert("trial_arm", f"{_ARM_COLUMNS}, kept_ns, size, packed"),
                [
                    (*(getattr(arm, name) for name in _ARM), now_ns, len(packed), packed)
                    for arm, packed in arms
                ],
            )
            self._db.keep_bytes("trial_arm", "kept_ns DESC, id DESC", self._most_bytes)

    def of(self, tenant: Tenant, run_id: str) -> tuple[TrialArm, ...]:
        """Return the kept trials of a run, the one with the recorded answer first."""
        rows = self._db.execute(
            f"SELECT {_ARM_COLUMNS} FROM trial_arm WHERE tenant = ? AND run_id = ? ORDER BY is_changed, id",  # noqa: S608 - as above
            (tenant, run_id),
        )
        return tuple(map(_arm, rows.fetchall()))

    def packed(self, trial: str) -> tuple[TrialArm, bytes] | None:
        """Return a kept trial with its packed spans; ``None`` if not kept."""
        row = self._db.execute(
            f"SELECT {_ARM_COLUMNS}, packed FROM trial_arm WHERE id = ?",  # noqa: S608 - as above
            (trial,),
        ).fetchone()
        return None if row is None else (_arm(row), bytes(row[-1]))


MOST_PROOFS: Final = 10_000
"""Results of experiments and backtests; the oldest are deleted."""
MOST_PROOF_CHARS: Final = 200_000
"""Longest result that is kept: the page of its run shows it whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProof:
    """What the last experiment or backtest on a run or an issue said."""

    tenant: Tenant
    subject: str
    """The id of the run or of the issue."""
    kind: str
    """The command that ended: ``experiment`` or ``backtest``."""
    service: str
    ended_ns: int
    document: str
    """The result in words, as a JSON object."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The parsed document; empty if it is damaged."""
        return fields_of(self.document)


_PROOF: Final = tuple(StoredProof.__dataclass_fields__)
_PROOF_COLUMNS: Final = ", ".join(_PROOF)
_WRITE_PROOF: Final = upsert("proof", _PROOF_COLUMNS, keys=3)


class ProofRows:
    """Rows of ``proof``: the last result of each command on each run and issue."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db

    def keep(self, proof: StoredProof) -> bool:
        """Keep a result in place of an earlier one; return whether it is short enough."""
        if len(proof.document) > MOST_PROOF_CHARS:
            return False
        with self._db.transaction():
            self._db.write_rows(_WRITE_PROOF, [[getattr(proof, name) for name in _PROOF]])
            self._db.keep_newest("proof", "ended_ns", MOST_PROOFS)
        return True

    def of(self, tenant: Tenant, subject: str) -> tuple[StoredProof, ...]:
        """Return the results on a run or an issue, newest first."""
        where = "tenant = ? AND subject = ?"
        return self._read(where, (tenant, subject))

    def of_service(self, tenant: Tenant, service: str, most: int) -> tuple[StoredProof, ...]:
        """Return the newest results on a service's runs and issues, newest first."""
        return self._read("tenant = ? AND service = ?", (tenant, service), most)

    def _read(self, where: str, values: tuple[str, ...], most: int = MOST_PROOFS) -> tuple[StoredProof, ...]:
        rows = self._db.execute(
            f"SELECT {_PROOF_COLUMNS} FROM proof WHERE {where} ORDER BY ended_ns DESC LIMIT ?",  # noqa: S608 - as above
            (*values, most),
        )
        return tuple(StoredProof(**dict(zip(_PROOF, row, strict=True))) for row in rows)


def new_trial() -> str:
    """Return an id for a trial to keep: 128 random bits."""
    return secrets.token_hex(16)


def _arm(row: Sequence[Any]) -> TrialArm:
    fields = dict(zip(_ARM, row, strict=False))  # the packed spans may follow
    return TrialArm(
        **fields | {"is_changed": bool(fields["is_changed"]), "has_passed": bool(fields["has_passed"])}
    )


_DAY_NS: Final = 86_400 * 10**9
_KEEP_SPANS: Final = upsert("kept_spans", "tenant, run_id, is_failure, kept_ns, size, packed", keys=2)
_PRUNE_EVERY: Final = 1 / 16
"""Share of a quota that may be written between two checks of the quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepLimits:
    """Quotas of kept runs."""

    failed_bytes: int = 1 << 30
    passed_bytes: int = 512 << 20
    days: int = 30
    """Days after which runs without a label are deleted."""

    def bytes_of(self, *, is_failure: bool) -> int:
        """Return the quota for failed or for passed runs."""
        return self.failed_bytes if is_failure else self.passed_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSpans:
    """The packed spans of a run."""

    tenant: Tenant
    run_id: str
    is_failure: bool
    packed: bytes


class KeptSpansRows:
    """Rows of ``kept_spans``."""

    def __init__(self, db: StoreConnection, limits: KeepLimits | None = None) -> None:
        self._db: Final = db
        self._limits: Final = limits or KeepLimits()
        self._unpruned: Final = {True: 0, False: 0}

    def keep_all(self, runs: Sequence[PackedSpans], now_ns: int) -> None:
        """Keep runs, each replacing what was kept of it before, in the open transaction."""
        self._db.write_each(
            _KEEP_SPANS,
            [(run.tenant, run.run_id, run.is_failure, now_ns, len(run.packed), run.packed) for run in runs],
        )
        for is_failure in (True, False):
            self._unpruned[is_failure] += sum(len(run.packed) for run in runs if run.is_failure is is_failure)
            if self._unpruned[is_failure] > self._limits.bytes_of(is_failure=is_failure) * _PRUNE_EVERY:
                self.prune(is_failure=is_failure)

    def packed(self, tenant: Tenant, run_id: str) -> bytes | None:
        """Return a run's packed spans; ``None`` if not kept."""
        row = self._db.execute(
            "SELECT packed FROM kept_spans WHERE tenant = ? AND run_id = ?", (tenant, run_id)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def count_as_failed(self, tenant: Tenant, run_id: str) -> None:
        """Move a run to the quota of failed runs: a person says that it failed."""
        self._db.execute(
            "UPDATE kept_spans SET is_failure = true WHERE tenant = ? AND run_id = ?", (tenant, run_id)
        )

    def expire(self, now_ns: int) -> None:
        """Delete data older than the limit: spans, experiments, and steps of runs without a label."""
        oldest_ns = now_ns - self._limits.days * _DAY_NS
        with self._db.transaction(Flush.LATER):
            self._db.execute("DELETE FROM trial_arm WHERE kept_ns < ?", (oldest_ns,))
            self._db.execute("DELETE FROM proof WHERE ended_ns < ?", (oldest_ns,))
            for is_failure in (True, False):  # the index begins with it
                self._db.execute(
                    "DELETE FROM kept_spans WHERE is_failure = ? AND kept_ns < ?", (is_failure, oldest_ns)
                )
                self._db.execute(
                    "DELETE FROM kept_run WHERE NOT is_labelled AND is_failure = ? AND kept_ns < ?",
                    (is_failure, oldest_ns),
                )

    def prune_all(self) -> None:
        """Apply the quotas; they may have shrunk since the last start."""
        with self._db.transaction(Flush.LATER):
            for is_failure in (True, False):
                self.prune(is_failure=is_failure)

    def prune(self, *, is_failure: bool) -> None:
        """Delete the oldest failed or passed runs until the rest fits into the quota."""
        self._unpruned[is_failure] = 0
        most_bytes = self._limits.bytes_of(is_failure=is_failure)
        self._db.keep_bytes("kept_spans", "kept_ns DESC, id DESC", most_bytes, "is_failure = ?", is_failure)


SPILLED_S: Final = 2 * 86_400
"""Seconds after which a part is deleted anyway: twice as long as the journal keeps a trace."""
_NS: Final = 1_000_000_000
_KEY: Final = "topic, partition, first_offset, tenant, trace_id"
_WRITE: Final = (
    upsert("spilled_part", f"{_KEY}, last_offset, spilled_ns, packed", keys=5)
    # A suspended process may write late, with only the first of these records: that must not replace more.
    + " WHERE excluded.last_offset >= spilled_part.last_offset"
)
_PAGE_BYTES: Final = 8 << 20
"""Compressed bytes read at once; one larger part is read alone."""


class SpilledPartRows:
    """Rows of ``spilled_part``."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db

    def keep(self, parts: Sequence[SpilledPart], now_ns: int) -> None:
        """Write parts durably, all or none; delete those of all processes that are too old."""
        rows = [
            (
                part.topic,
                part.partition,
                part.first,
                part.key.tenant,
                part.key.trace_id,
                part.last,
                now_ns,
                part.packed,
            )
            for part in parts
        ]
        with self._db.transaction():
            self._db.execute("DELETE FROM spilled_part WHERE spilled_ns < ?", (now_ns - SPILLED_S * _NS,))
            self._db.write_rows(_WRITE, rows)

    def of(
        self, topic: str, partition: int, below: int, after: SpilledPart | None, most: int
    ) -> list[SpilledPart]:
        """Return a partition's parts whose first record is below an offset, in order of their keys.

        Args:
            topic: the topic.
            partition: its partition.
            below: the offset.
            after: the last part that was read, ``None`` for the first page.
            most: parts to read, fewer if they are large.
        """
        last = (-1, "", "") if after is None else (after.first, after.key.tenant, after.key.trace_id)
        order = "ORDER BY first_offset, tenant, trace_id"
        rows = self._db.execute(
            f"SELECT {_KEY}, last_offset, packed FROM (SELECT *,"  # noqa: S608 - our own words
            f" sum(length(packed)) OVER ({order}) - length(packed) AS bytes_before FROM ("
            "SELECT * FROM spilled_part WHERE topic = ? AND partition = ? AND first_offset < ?"
            f" AND (first_offset, tenant, trace_id) > (?, ?, ?) {order} LIMIT ?) AS page) AS summed"
            f" WHERE bytes_before < ? {order}",
            (topic, partition, below, *last, most, _PAGE_BYTES),
        )
        return [
            SpilledPart(
                topic=row[0],
                partition=row[1],
                first=row[2],
                last=row[5],
                key=TraceKey(Tenant(row[3]), TraceId(row[4])),
                packed=bytes(row[6]),
            )
            for row in rows
        ]

    def drop(self, topic: str, partition: int, from_offset: int, until_ns: int) -> None:
        """Delete a partition's parts from an offset on: Kafka still has their records, which are read again.

        Args:
            topic: the topic.
            partition: its partition.
            from_offset: the offset.
            until_ns: Unix ns; parts written later are kept: the next owner wrote them before this call came.
        """
        self._db.execute(
            "DELETE FROM spilled_part"
            " WHERE topic = ? AND partition = ? AND first_offset >= ? AND spilled_ns <= ?",
            (topic, partition, from_offset, until_ns),
        )

    def forget(self, keys: Iterable[TraceKey]) -> None:
        """Delete all parts of traces."""
        with self._db.transaction():
            self._db.executemany("DELETE FROM spilled_part WHERE tenant = ? AND trace_id = ?", list(keys))
