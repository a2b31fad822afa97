"""Verdicts, and what must leave because of them: one SQLite file beside the journal.

The outbox law: a verdict, its version and the exact bytes to send are committed
in one transaction before the first byte leaves; retries send those bytes. So a
crash, or a model that answers differently the second time, never gives a run
two verdicts under one version.

Apart from the ingest files on purpose: an analysis never holds up an
acknowledgement. Synchronous; the caller runs it off the event loop.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from collector_processor.absent_rows import ABSENT_TABLE, AbsentRows
from collector_processor.assembler import TraceKey
from collector_processor.otlp import Signal, Tenant
from collector_processor.runs import TRACE_KEY
from collector_processor.spending import SPENDING_TABLE, SpendingRows
from collector_processor.stored import Commit, Outgoing, Standing, StoredVerdict, ToldRun
from collector_processor.stores import Flush, all_or_nothing, give_back, open_store
from semconv.model import TraceId

RUNS: Final = "runs.sqlite"
"""The store's file in the data directory."""
MAX_RUN_KEYS: Final = 2_000_000
"""Some hundreds of MB: twenty for each trace that there is a verdict on; most have one or two."""
MAX_JOINED: Final = 256
"""Most traces in one run; a key shared by more traces is common to many runs and joins none."""
MAX_PLACES_BYTES: Final = 128 << 20
"""Bytes of stored span positions for later labels, about 100,000 runs; the oldest are dropped."""
OUTBOX_BATCH: Final = 64
"""Entries of the outbox that are read at once."""
_STEPS: Final = (
    """
CREATE TABLE verdict (
  tenant TEXT NOT NULL, run_id TEXT NOT NULL, version INTEGER NOT NULL,
  failure_id TEXT NOT NULL, status TEXT NOT NULL, agent TEXT, step INTEGER, span_id TEXT, trace_id TEXT,
  service TEXT NOT NULL, is_provisional INTEGER NOT NULL, decided_ns INTEGER NOT NULL, document TEXT NOT NULL,
  PRIMARY KEY (tenant, run_id, version)
) WITHOUT ROWID;
CREATE INDEX verdict_by_time ON verdict (decided_ns);
CREATE TABLE analysed (
  tenant TEXT NOT NULL, trace_id TEXT NOT NULL, analyses INTEGER NOT NULL, upto_seq INTEGER NOT NULL,
  PRIMARY KEY (tenant, trace_id)
) WITHOUT ROWID;
CREATE INDEX analysed_by_seq ON analysed (upto_seq);
CREATE TABLE run_key (
  tenant TEXT NOT NULL, key TEXT NOT NULL, trace_id TEXT NOT NULL,
  PRIMARY KEY (tenant, key, trace_id)
) WITHOUT ROWID;
CREATE INDEX run_key_by_trace ON run_key (tenant, trace_id);
CREATE TABLE outbox (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, signal TEXT NOT NULL, body BLOB NOT NULL
);
CREATE INDEX outbox_by_signal ON outbox (signal, id);
CREATE TABLE rewrite (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);
""",
    """
ALTER TABLE rewrite ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE rewrite ADD COLUMN late BLOB;
CREATE TABLE run_part (
  tenant TEXT NOT NULL, trace_id TEXT NOT NULL, run_id TEXT NOT NULL, digest BLOB NOT NULL,
  PRIMARY KEY (tenant, trace_id, run_id)
) WITHOUT ROWID;
""",
    # for a run looked up by its id alone, or its beginning, whoever's it is
    """
CREATE INDEX verdict_by_run ON verdict (run_id);
""",
    SPENDING_TABLE,
    ABSENT_TABLE,
    """
CREATE TABLE place (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, run_id TEXT NOT NULL, size INTEGER NOT NULL,
  packed BLOB NOT NULL
);
CREATE UNIQUE INDEX place_by_run ON place (tenant, run_id);
CREATE INDEX place_by_age ON place (id, size);
CREATE TABLE heeded (label INTEGER NOT NULL);
""",
    # the lag of a verdict is measured when it is delivered
    """
ALTER TABLE outbox ADD COLUMN ended_ns INTEGER NOT NULL DEFAULT 0;
""",
)

_LAST: Final = "\U0010ffff"
"""What no character sorts after."""
IS_CURRENT: Final = """NOT EXISTS (
  SELECT 1 FROM verdict AS later
  WHERE later.tenant = verdict.tenant AND later.run_id = verdict.run_id AND later.version > verdict.version
)"""
"""Of a row of ``verdict``: no later version supersedes it."""


class RunStore:
    """Verdicts and outbox. One owner, one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open or make the store.

        Raises:
            CollectorError: as ``open_store`` says.
        """
        self._db: Final = open_store(path, _STEPS)
        self.spending: Final = SpendingRows(self._db, "the store")
        """What models cost."""
        self.absent: Final = AbsentRows(self._db)
        """Kinds of spans whose parents never arrive."""

    def close(self) -> None:
        """Close the file; everything committed stays."""
        self._db.close()

    def commit(self, commit: Commit) -> None:
        """Write one analysis durably, or nothing of it."""
        self.commit_all((commit,))

    def commit_all(self, commits: Iterable[Commit]) -> None:
        """Write several analyses durably, in one transaction, or nothing of any."""
        with self._transaction():
            for commit in commits:
                self._write(commit)

    def _write(self, commit: Commit) -> None:
        for key, upto_seq in commit.analysed:
            self._db.execute(
                "INSERT INTO analysed VALUES (?, ?, ?, ?) ON CONFLICT (tenant, trace_id) DO UPDATE"
                " SET analyses = max(analyses, excluded.analyses),"
                " upto_seq = max(upto_seq, excluded.upto_seq)",
                (key.tenant, key.trace_id, commit.times, upto_seq),
            )
        self._tell(commit)
        for verdict in commit.verdicts:
            self._insert(verdict)
        self._db.executemany(
            "INSERT INTO outbox (tenant, signal, body, ended_ns) VALUES (?, ?, ?, ?)",
            [(out.tenant, out.signal, out.body, out.ended_ns) for out in commit.outgoing],
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO place (tenant, run_id, size, packed) VALUES (?, ?, ?, ?)",
            [(place.tenant, place.run_id, len(place.packed), place.packed) for place in commit.places],
        )
        if commit.heeded is not None:
            self._db.execute("DELETE FROM heeded")
            self._db.execute("INSERT INTO heeded VALUES (?)", (commit.heeded,))
        late = dict(commit.late)
        self._db.executemany(
            "INSERT OR REPLACE INTO rewrite VALUES (?, ?, ?, ?)",
            [
                (seq, body, out.tenant if (out := late.get(seq)) else "", out.body if out else None)
                for seq, body in commit.rewrites
            ],
        )

    def _tell(self, commit: Commit) -> None:
        """Note which runs the traces are now."""
        if not commit.told:
            return
        tenants = {key.trace_id: key.tenant for key, _ in commit.analysed}
        self._db.executemany(
            "DELETE FROM run_part WHERE tenant = ? AND trace_id = ?",
            [(tenant, trace_id) for trace_id, tenant in tenants.items()],
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO run_part VALUES (?, ?, ?, ?)",
            [
                (tenants[trace_id], trace_id, run.run_id, run.digest)
                for run in commit.told
                for trace_id in run.trace_ids
                if trace_id in tenants
            ],
        )

    def told(self, keys: Iterable[TraceKey]) -> tuple[ToldRun, ...]:
        """Return the runs that these traces were when last analysed, each with these of its traces only."""
        parts: defaultdict[tuple[str, bytes], set[TraceId]] = defaultdict(set)
        for key in keys:
            rows = self._db.execute(
                "SELECT run_id, digest FROM run_part WHERE tenant = ? AND trace_id = ?", key
            )
            for run_id, digest in rows:
                parts[run_id, digest].add(key.trace_id)
        return tuple(
            ToldRun(run_id=run_id, digest=digest, trace_ids=frozenset(found))
            for (run_id, digest), found in parts.items()
        )

    def join(self, key: TraceKey, names: Sequence[str], own: Iterable[TraceId] = ()) -> frozenset[TraceId]:
        """Note that a trace carries these run keys, and return the other traces of its run.

        Args:
            key: the trace.
            names: its run keys.
            own: the other traces known to belong to its run.
        """
        with self._transaction(Flush.LATER):
            self._note_keys(key, names)
            for trace_id in own:  # each finds the others, whichever of them is asked about next
                self._note_keys(TraceKey(key.tenant, trace_id), [f"{TRACE_KEY}{key.trace_id}"])
        return self._siblings(key, names, {key.trace_id, *own})

    def join_all(self, traces: Sequence[tuple[TraceKey, Sequence[str]]]) -> list[frozenset[TraceId]]:
        """Do the same for several; none is noted without the others."""
        # Written anew when a trace is read again, as it is until its verdict is committed.
        with self._transaction(Flush.LATER):
            for key, names in traces:
                self._note_keys(key, names)
        return [self._siblings(key, names, {key.trace_id}) for key, names in traces]

    def _note_keys(self, key: TraceKey, names: Iterable[str]) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO run_key VALUES (?, ?, ?)",
            [(key.tenant, name, key.trace_id) for name in names],
        )

    def _siblings(self, key: TraceKey, names: Iterable[str], own: Container[TraceId]) -> frozenset[TraceId]:
        """Return the traces linked to or from these, and those that share another key.

        A link to the same third trace does not join two traces: the third may be a cron job's. A key
        shared by more traces than a run may have joins none.
        """
        found: set[TraceId] = set()
        for name in names:
            rows = self._db.execute(
                "SELECT trace_id FROM run_key WHERE tenant = ? AND key = ? LIMIT ?",
                (key.tenant, name, MAX_JOINED + 1),
            ).fetchall()
            target = TraceId(name.removeprefix(TRACE_KEY))
            if len(rows) > MAX_JOINED:
                continue
            if name.startswith(TRACE_KEY) and target not in own:
                found.add(target)
            else:
                found.update(TraceId(trace_id) for (trace_id,) in rows)
        return frozenset(found - {key.trace_id})

    def analyses(self, key: TraceKey) -> tuple[int, int]:
        """Return how often a trace was analysed for good, and the highest row seen; (0, -1) if never."""
        row = self._db.execute(
            "SELECT analyses, upto_seq FROM analysed WHERE tenant = ? AND trace_id = ?",
            (key.tenant, key.trace_id),
        ).fetchone()
        return (row[0], row[1]) if row else (0, -1)

    def seen(self, keys: Iterable[TraceKey]) -> Mapping[TraceKey, tuple[int, int]]:
        """Return the same of many traces."""
        return {key: self.analyses(key) for key in keys}

    def standing(self, keys: Iterable[TraceKey], tenant: Tenant, run_ids: Iterable[str]) -> Standing:
        """Return what is known of these traces and runs at one moment."""
        found = ((run_id, self.current(tenant, run_id)) for run_id in run_ids)
        return Standing(
            seen=self.seen(keys),
            verdicts={run_id: verdict for run_id, verdict in found if verdict is not None},
        )

    def current(self, tenant: Tenant, run_id: str) -> StoredVerdict | None:
        """Return the run's highest version, if it has any."""
        found = self._select(
            "WHERE tenant = ? AND run_id = ? ORDER BY version DESC LIMIT 1", (tenant, run_id)
        )
        return found[0] if found else None

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

    def recent(self, limit: int) -> list[StoredVerdict]:
        """Return the newest verdicts, one a run, newest first."""
        return self._select(f"WHERE {IS_CURRENT} ORDER BY decided_ns DESC LIMIT ?", (limit,))

    def find(self, run_id: str) -> list[StoredVerdict]:
        """Return the current verdict of a run, one for each tenant that has a run of this id."""
        return self._select(f"WHERE run_id = ? AND {IS_CURRENT} ORDER BY tenant", (run_id,))

    def starting_with(self, prefix: str, tenant: Tenant | None, limit: int) -> list[StoredVerdict]:
        """Return the current verdicts of the runs whose ids begin like this, of one tenant or of all."""
        return self._select(
            "WHERE run_id BETWEEN ? AND ? AND (? IS NULL OR tenant = ?)"
            f" AND {IS_CURRENT} ORDER BY run_id, tenant LIMIT ?",
            (prefix, prefix + _LAST, tenant, tenant, limit),
        )

    def prune(
        self, keep: int, most_keys: int = MAX_RUN_KEYS, most_place_bytes: int = MAX_PLACES_BYTES
    ) -> None:
        """Forget the oldest verdicts beyond ``keep``, and the oldest analysed traces beyond four times that.

        Far more than the journal keeps spans of, so that what is forgotten cannot come again.
        The disk gets some of the room back.
        """
        with self._transaction():
            self._db.execute(
                "DELETE FROM verdict WHERE decided_ns <"
                " (SELECT decided_ns FROM verdict ORDER BY decided_ns DESC LIMIT 1 OFFSET ?)",
                (keep - 1,),
            )
            oldest = self._db.execute(
                "SELECT upto_seq FROM analysed ORDER BY upto_seq DESC LIMIT 1 OFFSET ?", (4 * keep - 1,)
            ).fetchone()
            if oldest is not None:
                self._db.execute(
                    "DELETE FROM run_key WHERE (tenant, trace_id) IN"
                    " (SELECT tenant, trace_id FROM analysed WHERE upto_seq < ?)",
                    oldest,
                )
                self._db.execute(
                    "DELETE FROM run_part WHERE (tenant, trace_id) IN"
                    " (SELECT tenant, trace_id FROM analysed WHERE upto_seq < ?)",
                    oldest,
                )
                self._db.execute("DELETE FROM analysed WHERE upto_seq < ?", oldest)
            self._forget_keys(most_keys)
            self._forget_places(keep, most_place_bytes)
        give_back(self._db, "the store")

    def _forget_keys(self, most: int) -> None:
        """Forget the run keys of the traces that were analysed first, until there are so many at most."""
        excess = self._db.execute("SELECT count(*) FROM run_key").fetchone()[0] - most
        if excess > 0:
            self._db.execute(
                "DELETE FROM run_key WHERE (tenant, trace_id) IN (SELECT tenant, trace_id FROM"
                " (SELECT tenant, trace_id,"
                " sum(keys) OVER (ORDER BY upto_seq, tenant, trace_id) - keys AS gone FROM analysed"
                " JOIN (SELECT tenant, trace_id, count(*) AS keys FROM run_key GROUP BY 1, 2)"
                " USING (tenant, trace_id)) WHERE gone < ?)",
                (excess,),
            )

    def _forget_places(self, keep: int, most_bytes: int) -> None:
        """Drop the span positions of the oldest runs beyond the bounds on runs and bytes."""
        self._db.execute(
            "DELETE FROM place WHERE id <= (SELECT id FROM place ORDER BY id DESC LIMIT 1 OFFSET ?)", (keep,)
        )
        taken: int = self._db.execute("SELECT coalesce(sum(size), 0) FROM place").fetchone()[0]
        if taken > most_bytes:
            self._db.execute(
                "DELETE FROM place WHERE id IN (SELECT id FROM"
                " (SELECT id, sum(size) OVER (ORDER BY id DESC) AS taken FROM place) WHERE taken > ?)",
                (most_bytes,),
            )

    def outbox(
        self, signal: Signal, skip: Iterable[Tenant] = (), *, limit: int = OUTBOX_BATCH
    ) -> list[Outgoing]:
        """Return what has not been delivered yet of one signal, but of some tenants, oldest first."""
        rows = self._db.execute(
            "SELECT id, tenant, signal, body, ended_ns FROM outbox WHERE signal = ?"
            " AND tenant NOT IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?",
            (signal, json.dumps(list(skip)), limit),
        )
        return [
            Outgoing(id=row[0], tenant=Tenant(row[1]), signal=Signal(row[2]), body=row[3], ended_ns=row[4])
            for row in rows
        ]

    def outbox_size(self) -> int:
        """Return how many entries are undelivered."""
        count: int = self._db.execute("SELECT count(*) FROM outbox").fetchone()[0]
        return count

    def delivered(self, ids: Sequence[int]) -> None:
        """Forget what the backend has taken, or refused for good."""
        with self._transaction(Flush.LATER):  # what comes back is sent once more, the same bytes
            self._db.executemany("DELETE FROM outbox WHERE id = ?", [(id_,) for id_ in ids])

    def rewrites(self) -> list[tuple[int, bytes]]:
        """Return the held rows whose replacement was decided but perhaps not yet applied."""
        return self._db.execute("SELECT seq, body FROM rewrite ORDER BY seq").fetchall()

    def rewritten(self, seqs: Iterable[int]) -> None:
        """Forget replacements that the journal has applied."""
        with self._transaction():
            self._db.executemany("DELETE FROM rewrite WHERE seq = ?", [(seq,) for seq in seqs])

    def rewrites_refused(self, seqs: Iterable[int]) -> None:
        """Give up replacements that the journal cannot apply: what they say goes after the originals."""
        with self._transaction():
            for seq in seqs:
                self._db.execute(
                    "INSERT INTO outbox (tenant, signal, body)"
                    " SELECT tenant, ?, late FROM rewrite WHERE seq = ? AND late IS NOT NULL",
                    (Signal.TRACES, seq),
                )
                self._db.execute("DELETE FROM rewrite WHERE seq = ?", (seq,))

    def _transaction(self, flush: Flush = Flush.AT_ONCE) -> AbstractContextManager[None]:
        return all_or_nothing(self._db, "the store", flush)

    def _insert(self, verdict: StoredVerdict) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO verdict VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                verdict.tenant,
                verdict.run_id,
                verdict.version,
                verdict.failure_id,
                verdict.status,
                verdict.agent,
                verdict.step,
                verdict.span_id,
                verdict.trace_id,
                verdict.service,
                verdict.is_provisional,
                verdict.decided_ns,
                verdict.document,
            ),
        )

    def _select(self, where: str, values: tuple[object, ...]) -> list[StoredVerdict]:
        columns = ", ".join(StoredVerdict.__dataclass_fields__)
        rows = self._db.execute(f"SELECT {columns} FROM verdict {where}", values)  # noqa: S608 - our own words
        names = tuple(StoredVerdict.__dataclass_fields__)
        return [
            StoredVerdict(**(dict(zip(names, row, strict=True)) | {"is_provisional": bool(row[10])}))
            for row in rows
        ]
