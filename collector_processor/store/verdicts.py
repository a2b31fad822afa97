"""Verdicts and their outbox: tables of the store beside the journal.

The outbox law: a verdict, its version and the exact bytes to send are committed
in one transaction before the first byte leaves; retries send those bytes. So a
crash, or a model that answers differently the second time, never gives a run
two verdicts under one version.

Kept apart from the journal's files so that an analysis never delays an acknowledgement. Synchronous; the
caller runs it off the event loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from typing import Any, Final

from collector_processor.core.records import (
    OUTBOX_BATCH,
    Commit,
    Outgoing,
    RunIdentity,
    Standing,
    StoredVerdict,
)
from collector_processor.core.runs import TRACE_KEY
from collector_processor.core.scores import LANES, Lane
from collector_processor.otlp import Signal, Tenant, TraceKey
from collector_processor.store.database.connection import (
    StoreConnection,
    StorePlace,
    connected,
    insert,
    upsert,
)
from collector_processor.store.database.driver import Flush
from collector_processor.store.run_history import RunHistoryRows, RunTotalsRows
from collector_processor.store.small_tables import (
    AbsentRows,
    KeepLimits,
    KeptSpansRows,
    SpendingRows,
    TrialRows,
)
from semconv.model import TraceId

__all__ = ["IS_CURRENT", "MAX_JOINED", "RunStore"]

MAX_RUN_KEYS: Final = 2_000_000
"""Bound on run keys, some hundreds of MB: twenty for each trace with a verdict; most have one or two."""
MAX_JOINED: Final = 256
"""Bound on the traces of one run; a key shared by more traces is common to many runs and joins none."""
_MAX_COMMON: Final = 10_000
_MOST_NOTED: Final = 1_000
"""Run keys and traces that wait for a commit: some 200 KB."""
MAX_PLACES_BYTES: Final = 128 << 20
"""Bound in bytes on span positions stored for later labels, about 100,000 runs; the oldest are dropped."""
_WRITE_ANALYSED: Final = (
    "INSERT INTO analysed (tenant, trace_id, analyses, upto_seq) VALUES {rows}"
    " ON CONFLICT (tenant, trace_id) DO UPDATE SET"
    " analyses = CASE WHEN excluded.analyses > analysed.analyses"
    " THEN excluded.analyses ELSE analysed.analyses END,"
    " upto_seq = CASE WHEN excluded.upto_seq > analysed.upto_seq"
    " THEN excluded.upto_seq ELSE analysed.upto_seq END"
)
_WRITE_PART: Final = upsert("run_part", "tenant, trace_id, run_id, digest", keys=3)
_WRITE_REWRITE: Final = upsert("rewrite", "seq, body, tenant, late", keys=1)
_COLUMNS: Final = tuple(StoredVerdict.__dataclass_fields__)
_ALL_COLUMNS: Final = ", ".join(_COLUMNS)
_WRITE_VERDICT: Final = upsert("verdict", _ALL_COLUMNS, keys=3)
_verdict_columns: Final = attrgetter(*_COLUMNS)
_WRITE_PLACE: Final = insert("place", "tenant, run_id, size, packed")
_WRITE_KEY: Final = insert("run_key", "tenant, key, trace_id") + " ON CONFLICT DO NOTHING"
_READ_KEY: Final = f"SELECT trace_id FROM run_key WHERE tenant = ? AND key = ? LIMIT {MAX_JOINED + 1}"  # noqa: S608
_LAST: Final = "\U0010ffff"
"""A character that sorts after all others."""
IS_CURRENT: Final = """NOT EXISTS (
  SELECT 1 FROM verdict AS later
  WHERE later.tenant = verdict.tenant AND later.run_id = verdict.run_id AND later.version > verdict.version
)"""
"""Condition on a row of ``verdict``: no later version supersedes it."""


MOST_PRUNED: Final = 500
"""Verdicts deleted in one transaction: some 30 ms, or the store's other calls would wait."""
_PRUNE: Final = (
    "DELETE FROM verdict WHERE (tenant, run_id, version) IN (SELECT tenant, run_id, version FROM verdict"
    " WHERE decided_ns < (SELECT decided_ns FROM verdict ORDER BY decided_ns DESC LIMIT 1 OFFSET ?)"
    " ORDER BY decided_ns LIMIT ?) RETURNING tenant, run_id"
)


class RunStore:
    """Verdicts and outbox. One owner, one thread at a time."""

    def __init__(self, place: StorePlace, limits: KeepLimits | None = None) -> None:
        """Open the tables; ``limits`` are the quotas of kept spans.

        Raises:
            CollectorError: as ``connected``.
        """
        self._db: Final = connected(place)
        self._common: Final[OrderedDict[tuple[Tenant, str], None]] = OrderedDict()
        """Keys shared by more traces than a run may have: neither read nor written again."""
        self._noted: Final[dict[tuple[Tenant, str], set[TraceId]]] = {}
        """Run keys and their traces that the next commit writes; always empty with PostgreSQL."""
        self.also: Callable[[Sequence[Commit]], None] | None = None
        """Called in the transaction of each commit, to write further consequences of it."""
        self.spending: Final = SpendingRows(self._db)
        """Spending on models."""
        self.spans: Final = KeptSpansRows(self._db, limits)
        """Kept spans and logs of runs."""
        self.totals: Final = RunTotalsRows(self._db)
        """One row per run, for lists."""
        self.history: Final = RunHistoryRows(self._db)
        """One row per run, for comparisons within its workflow."""
        self.absent: Final = AbsentRows(self._db)
        """Kinds of spans whose parents never arrive."""
        self.trials: Final = TrialRows(self._db)
        """Trials of experiments, which are not production runs."""

    def close(self) -> None:
        """Close the connection; everything committed stays."""
        self._db.close()

    def transaction(self, flush: Flush = Flush.AT_ONCE) -> AbstractContextManager[None]:
        """Write all changes made inside, or none; raises ``StoreError`` if the store refuses."""
        return self._db.transaction(flush)

    def commit(self, commit: Commit) -> None:
        """Write one analysis durably, completely or not at all."""
        self.commit_all((commit,))

    def commit_all(self, commits: Iterable[Commit]) -> None:
        """Write several analyses durably, all or none, in one transaction."""
        several = tuple(commits)
        with self.transaction():
            self._write_noted()
            self._write(several)
            if self.also is not None:
                self.also(several)

    def _write(self, commits: Sequence[Commit]) -> None:
        """Write each table's rows with one statement; of rows with the same key, the last counts."""
        write, execute_each = self._db.write_rows, self._db.executemany
        analysed = {key: (*key, one.times, upto_seq) for one in commits for key, upto_seq in one.analysed}
        write(_WRITE_ANALYSED, list(analysed.values()))
        self._write_parts(commits)
        for one in commits:
            self._forget_parts(one)
        verdicts = {
            (one.tenant, one.run_id, one.version): one for commit in commits for one in commit.verdicts
        }
        write(_WRITE_VERDICT, list(map(_verdict_columns, verdicts.values())))
        self.totals.note(verdicts.values())
        post(self._db, [out for commit in commits for out in commit.outgoing])
        # Delete first: the new row gets a new id, and the oldest ids are dropped.
        places = {(place.tenant, place.run_id): place.packed for commit in commits for place in commit.places}
        execute_each("DELETE FROM place WHERE tenant = ? AND run_id = ?", list(places))
        write(_WRITE_PLACE, [(*key, len(packed), packed) for key, packed in places.items()])
        if heeded := [commit.heeded for commit in commits if commit.heeded is not None]:
            self._db.execute("DELETE FROM heeded")
            self._db.execute("INSERT INTO heeded (label) VALUES (?)", (heeded[-1],))
        write(_WRITE_REWRITE, [row for commit in commits for row in _rewrites(commit)])

    def _write_parts(self, commits: Iterable[Commit]) -> None:
        """Store which runs the traces now form."""
        gone: list[TraceKey] = []
        parts: list[tuple[Tenant, TraceId, str, bytes]] = []
        for commit in commits:
            keys = {key.trace_id: key for key, _ in commit.analysed} if commit.identities else {}
            gone += keys.values()
            parts += [
                (keys[trace_id].tenant, trace_id, run.run_id, run.digest)
                for run in commit.identities
                for trace_id in run.trace_ids & keys.keys()
            ]
        self._db.executemany("DELETE FROM run_part WHERE tenant = ? AND trace_id = ?", gone)
        self._db.write_rows(_WRITE_PART, parts)

    def _forget_parts(self, commit: Commit) -> None:
        """Delete provisional verdicts on traces that turned out to be part of another trace's run."""
        own = {run.run_id for run in commit.identities}
        for key in [key for key, _ in commit.analysed if own and key.trace_id not in own]:
            self._db.execute("DELETE FROM verdict WHERE tenant = ? AND run_id = ? AND is_provisional", key)
            self.totals.forget([key])

    def identities(self, keys: Iterable[TraceKey]) -> Mapping[TraceKey, tuple[RunIdentity, ...]]:
        """Return the runs that each trace was part of when last analysed, without their other traces."""
        found: dict[TraceKey, tuple[RunIdentity, ...]] = dict.fromkeys(keys, ())
        columns = "tenant, trace_id, run_id, digest"
        for tenant, trace_id, run_id, digest in self._db.read_rows(
            columns, "run_part", "tenant, trace_id", list(found)
        ):
            run = RunIdentity(run_id=run_id, digest=digest, trace_ids=frozenset((trace_id,)))
            found[TraceKey(tenant, trace_id)] += (run,)
        return found

    def join_all(
        self, traces: Sequence[tuple[TraceKey, Sequence[str], Sequence[TraceId]]]
    ) -> list[frozenset[TraceId]]:
        """Store the run keys of traces; return, for each, the other traces of its run.

        Args:
            traces: each with its run keys, and with the other traces known to belong to its run. All are
                stored, or none.
        """
        # Replaced each time the trace is read, until its verdict is committed.
        noted = [
            (key.tenant, name, key.trace_id)
            for key, names, _ in traces
            for name in names
            if (key.tenant, name) not in self._common
        ]
        # Each trace finds the others, whichever is looked up next.
        noted += [
            (key.tenant, f"{TRACE_KEY}{key.trace_id}", trace_id) for key, _, own in traces for trace_id in own
        ]
        # Without PostgreSQL no other process reads keys, and after a crash a trace without a committed
        # verdict is read again, keys included: they need no transaction of their own.
        with self._noting(noted):
            if self._db.is_postgresql or sum(map(len, self._noted.values())) > _MOST_NOTED:
                with self.transaction(Flush.LATER):
                    self._write_noted()
            return [self._siblings(key, names, {key.trace_id, *own}) for key, names, own in traces]

    @contextmanager
    def _noting(self, noted: Iterable[tuple[Tenant, str, TraceId]]) -> Iterator[None]:
        """Note run keys, unless the call fails: one that the database rejects would fail all commits."""
        fresh: list[tuple[set[TraceId], TraceId]] = []
        for tenant, name, trace_id in noted:
            sharing = self._noted.setdefault((tenant, name), set())
            if trace_id not in sharing:
                sharing.add(trace_id)
                fresh.append((sharing, trace_id))
        try:
            yield
        except Exception:
            for sharing, trace_id in fresh:
                sharing.discard(trace_id)
            raise

    def _write_noted(self) -> None:
        rows = [(*key, trace_id) for key, trace_ids in self._noted.items() for trace_id in trace_ids]
        self._db.write_rows(_WRITE_KEY, rows)
        self._db.after_commit(self._noted.clear)

    def _siblings(self, key: TraceKey, names: Iterable[str], own: Container[TraceId]) -> frozenset[TraceId]:
        """Return the traces linked to or from these, and those that share another key.

        A link to the same third trace does not join two traces: the third may be a cron job's. A key
        shared by more traces than a run may have joins none.
        """
        found: set[TraceId] = set()
        for name in names:
            if (key.tenant, name) in self._common:
                continue
            rows = self._db.execute(_READ_KEY, (key.tenant, name)).fetchall()
            sharing = {TraceId(row[0]) for row in rows} | self._noted.get((key.tenant, name), set())
            target = TraceId(name.removeprefix(TRACE_KEY))
            if len(sharing) > MAX_JOINED:
                self._common[key.tenant, name] = None
                if len(self._common) > _MAX_COMMON:
                    self._common.popitem(last=False)
                continue
            if name.startswith(TRACE_KEY) and target not in own:
                found.add(target)
            else:
                found |= sharing
        return frozenset(found - {key.trace_id})

    def seen(self, keys: Iterable[TraceKey]) -> Mapping[TraceKey, tuple[int, int]]:
        """Return each trace's number of final analyses and the highest row seen; (0, -1) if never."""
        found = dict.fromkeys(keys, (0, -1))
        columns = "tenant, trace_id, analyses, upto_seq"
        for tenant, trace_id, analyses, upto in self._db.read_rows(
            columns, "analysed", "tenant, trace_id", list(found)
        ):
            found[TraceKey(tenant, trace_id)] = (analyses, upto)
        return found

    def standing(self, keys: Iterable[TraceKey], tenant: Tenant, run_ids: Iterable[str]) -> Standing:
        """Return the stored facts about these traces and runs, read together."""
        found = ((run_id, self.current(tenant, run_id)) for run_id in run_ids)
        return Standing(
            seen=self.seen(keys),
            verdicts={run_id: verdict for run_id, verdict in found if verdict is not None},
        )

    def current(self, tenant: Tenant, run_id: str) -> StoredVerdict | None:
        """Return the run's highest version, if there is one."""
        verdicts = self._select(
            "WHERE tenant = ? AND run_id = ? ORDER BY version DESC LIMIT 1", (tenant, run_id)
        )
        return verdicts[0] if verdicts else None

    def versions(self, tenant: Tenant, run_ids: Iterable[str]) -> list[StoredVerdict]:
        """Return all stored verdicts on several runs, the first versions first."""
        keys = [(tenant, run_id) for run_id in run_ids]
        rows = self._db.read_rows(_ALL_COLUMNS, "verdict", "tenant, run_id", keys, "ORDER BY version")
        return list(map(_verdict, rows))

    def place(self, tenant: Tenant, run_id: str) -> bytes | None:
        """Return the stored span positions of a run, packed."""
        row = self._db.execute(
            "SELECT packed FROM place WHERE tenant = ? AND run_id = ?", (tenant, run_id)
        ).fetchone()
        return row[0] if row else None

    def heeded(self) -> int:
        """Return the number of the last label applied to the verdicts; 0 if there was none."""
        row = self._db.execute("SELECT label FROM heeded").fetchone()
        return row[0] if row else 0

    def recent_of(self, tenant: Tenant, since_ns: int, limit: int) -> list[StoredVerdict]:
        """Return a tenant's current verdicts on ended runs decided since a Unix ns, newest first."""
        return self._select(
            f"WHERE tenant = ? AND decided_ns >= ? AND NOT is_provisional AND {IS_CURRENT}"
            " ORDER BY decided_ns DESC, run_id LIMIT ?",
            (tenant, since_ns, limit),
        )

    def find(self, run_id: str) -> list[StoredVerdict]:
        """Return the current verdict of a run, one for each tenant with a run of this id."""
        return self._select(f"WHERE run_id = ? AND {IS_CURRENT} ORDER BY tenant", (run_id,))

    def starting_with(self, prefix: str, tenant: Tenant | None, limit: int) -> list[StoredVerdict]:
        """Return the current verdicts of runs whose ids begin with ``prefix``, for one tenant or all."""
        return self._select(
            "WHERE run_id BETWEEN ? AND ? AND (CAST(? AS TEXT) IS NULL OR tenant = ?)"
            f" AND {IS_CURRENT} ORDER BY run_id, tenant LIMIT ?",
            (prefix, prefix + _LAST, tenant, tenant, limit),
        )

    def prune(
        self, keep: int, most_keys: int = MAX_RUN_KEYS, most_place_bytes: int = MAX_PLACES_BYTES
    ) -> bool:
        """Delete the oldest verdicts beyond ``keep``, and the oldest analysed traces beyond four times that.

        That is far more than the journal keeps spans of, so deleted traces cannot be analysed again. Some of
        the space is returned to the disk. Returns whether verdicts are left to delete: one call deletes at
        most ``MOST_PRUNED``, so that the store's other calls do not wait for it.
        """
        self._common.clear()
        with self.transaction():
            found = self._db.execute(_PRUNE, (keep - 1, MOST_PRUNED)).fetchall()
            gone = sorted({(Tenant(row[0]), row[1]) for row in found})
            self.totals.forget(gone)
            self.history.forget(gone)
        if len(found) < MOST_PRUNED:
            self._prune_traces(keep, most_keys, most_place_bytes)
        self._db.give_back()
        return len(found) == MOST_PRUNED

    def _prune_traces(self, keep: int, most_keys: int, most_place_bytes: int) -> None:
        with self.transaction():
            oldest = self._db.execute(
                "SELECT upto_seq FROM analysed ORDER BY upto_seq DESC LIMIT 1 OFFSET ?", (4 * keep - 1,)
            ).fetchone()
            if oldest is not None:
                for table in ("run_key", "run_part"):
                    self._db.execute(
                        f"DELETE FROM {table} WHERE (tenant, trace_id) IN"  # noqa: S608 - our own words
                        " (SELECT tenant, trace_id FROM analysed WHERE upto_seq < ?)",
                        oldest,
                    )
                self._db.execute("DELETE FROM analysed WHERE upto_seq < ?", oldest)
            self._forget_keys(most_keys)
            self._forget_places(keep, most_place_bytes)

    def _forget_keys(self, most: int) -> None:
        """Delete the run keys of the traces that were analysed first, down to the bound."""
        excess = self._db.execute("SELECT count(*) FROM run_key").fetchone()[0] - most
        if excess > 0:
            self._db.execute(
                "DELETE FROM run_key WHERE (tenant, trace_id) IN (SELECT tenant, trace_id FROM"
                " (SELECT tenant, trace_id,"
                " sum(keys) OVER (ORDER BY upto_seq, tenant, trace_id) - keys AS gone FROM analysed"
                " JOIN (SELECT tenant, trace_id, count(*) AS keys FROM run_key GROUP BY 1, 2) AS counted"
                " USING (tenant, trace_id)) AS oldest WHERE gone < ?)",
                (excess,),
            )

    def _forget_places(self, keep: int, most_bytes: int) -> None:
        """Delete the span positions of the oldest runs beyond the bounds on runs and bytes."""
        self._db.keep_newest("place", "id", keep)
        taken = self._db.execute("SELECT coalesce(sum(size), 0) FROM place").fetchone()[0]
        if taken > most_bytes:
            self._db.keep_bytes("place", "id DESC", most_bytes)

    def outbox(
        self, signal: Signal | Lane, skip: Iterable[Tenant] = (), *, limit: int = OUTBOX_BATCH
    ) -> list[Outgoing]:
        """Return the undelivered entries of one signal or sink, oldest first, leaving out some tenants."""
        if not self._db.leads():  # another process sends for all that share the store
            return []
        skipped = tuple(skip)
        but = f" AND tenant NOT IN ({', '.join('?' * len(skipped))})" if skipped else ""
        rows = self._db.execute(
            "SELECT id, tenant, body, ended_ns FROM outbox"  # noqa: S608 - our own words
            f" WHERE signal = ?{but} ORDER BY id LIMIT ?",
            (signal, *skipped, limit),
        )
        return [
            Outgoing(id=row[0], tenant=Tenant(row[1]), signal=signal, body=row[2], ended_ns=row[3])
            for row in rows
        ]

    def keep_lanes(self, lanes: Iterable[Lane]) -> None:
        """Delete the entries of sinks other than these, which nothing would send."""
        kept = tuple(lanes)
        but = f" AND signal NOT IN ({', '.join('?' * len(kept))})" if kept else ""
        with self.transaction():
            self._db.execute(f"DELETE FROM outbox WHERE signal LIKE ?{but}", (f"{LANES}%", *kept))  # noqa: S608 - our own words

    def outbox_size(self) -> int:
        """Return the number of undelivered entries."""
        count: int = self._db.execute("SELECT count(*) FROM outbox").fetchone()[0]
        return count

    def delivered(self, ids: Sequence[int]) -> None:
        """Delete entries that the backend has accepted, or permanently refused."""
        with self.transaction(Flush.LATER):  # after a power cut, sent again: the same bytes
            self._db.executemany("DELETE FROM outbox WHERE id = ?", [(id_,) for id_ in ids])

    def rewrites(self) -> list[tuple[int, bytes]]:
        """Return the held rows whose replacement was decided but perhaps not yet applied."""
        return self._db.execute("SELECT seq, body FROM rewrite ORDER BY seq").fetchall()

    def rewritten(self, seqs: Iterable[int]) -> None:
        """Delete replacements that the journal has applied."""
        with self.transaction():
            self._db.executemany("DELETE FROM rewrite WHERE seq = ?", [(seq,) for seq in seqs])

    def rewrites_refused(self, seqs: Iterable[int]) -> None:
        """Give up replacements that the journal cannot apply: their carriers are sent after the originals."""
        with self.transaction():
            for seq in seqs:
                self._db.execute(
                    "INSERT INTO outbox (tenant, signal, body)"
                    " SELECT tenant, ?, late FROM rewrite WHERE seq = ? AND late IS NOT NULL",
                    (Signal.TRACES, seq),
                )
                self._db.execute("DELETE FROM rewrite WHERE seq = ?", (seq,))

    def _select(self, where: str, values: tuple[object, ...]) -> list[StoredVerdict]:
        rows = self._db.execute(f"SELECT {_ALL_COLUMNS} FROM verdict {where}", values)  # noqa: S608
        return list(map(_verdict, rows))


def post(db: StoreConnection, entries: Iterable[Outgoing]) -> None:
    """Add entries to the outbox."""
    db.write_rows(
        insert("outbox", "tenant, signal, body, ended_ns"),
        [(out.tenant, out.signal, out.body, out.ended_ns) for out in entries],
    )


def _rewrites(commit: Commit) -> Iterable[tuple[int, bytes, str, bytes | None]]:
    late = dict(commit.late)
    for seq, body in commit.rewrites:
        out = late.get(seq)
        yield seq, body, out.tenant if out else "", out.body if out else None


def _verdict(row: Sequence[Any]) -> StoredVerdict:
    fields = dict(zip(_COLUMNS, row, strict=True))
    return StoredVerdict(**fields | {"is_provisional": bool(fields["is_provisional"])})
