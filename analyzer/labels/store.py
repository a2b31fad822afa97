"""Labels and the runs they are about: one SQLite file beside the run store.

Any number of processes may have it open: the service keeps runs while a person at
the command line labels them. What is kept of a run follows the disk when the
system likes; a label is committed with ``synchronous=FULL``, which takes along
all that was written before it. So a crash may cost a run that nobody labelled,
and never a label or what it is about.

Runs that nobody labelled have a quota of their own: the oldest go first, those
that did not fail before those that did. Labelled runs stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analyzer.labels.label import Label, LabelKind
from collector_processor.otlp import Tenant
from collector_processor.stores import Flush, StoreError, all_or_nothing, open_store
from semconv.model import SpanId

FILE: Final = "labels.sqlite"
MAX_UNLABELLED_BYTES: Final = 256 << 20
MAX_LABELLED_BYTES: Final = 1 << 30
MAX_LABELS_OF_A_RUN: Final = 100
_PRUNE_EVERY: Final = 1 / 16
"""Of the quota: how much may be written between two looks at it."""
_STEPS: Final = (
    """
CREATE TABLE run (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, run_id TEXT NOT NULL, is_failure INTEGER NOT NULL,
  is_labelled INTEGER NOT NULL DEFAULT 0, kept_ns INTEGER NOT NULL, size INTEGER NOT NULL,
  packed BLOB NOT NULL
);
CREATE UNIQUE INDEX run_by_id ON run (tenant, run_id);
CREATE INDEX run_by_age ON run (is_labelled, is_failure, kept_ns, size);
CREATE TABLE label (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, run_id TEXT NOT NULL, kind TEXT NOT NULL,
  version INTEGER NOT NULL, service TEXT NOT NULL, labelled_ns INTEGER NOT NULL,
  agent TEXT, step INTEGER, span_id TEXT
);
CREATE INDEX label_by_run ON label (tenant, run_id, id);
""",
)
_COLUMNS: Final = "tenant, run_id, kind, version, service, labelled_ns, agent, step, span_id"
_IS_CURRENT: Final = """NOT EXISTS (
  SELECT 1 FROM label AS later
  WHERE later.tenant = label.tenant AND later.run_id = label.run_id AND later.id > label.id
)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRun:
    """A run to be kept; ``kept_run.py`` knows what is in it."""

    tenant: Tenant
    run_id: str
    is_failure: bool
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRun:
    """A label that counts, and its run where it is kept."""

    label: Label
    packed: bytes | None


class LabelStore:
    """Labels and kept runs. One thread at a time; other processes may have the file open too."""

    def __init__(self, path: Path, *, quota: int = MAX_UNLABELLED_BYTES) -> None:
        """Open or make the store.

        Args:
            path: the file.
            quota: bytes of runs that nobody labelled.

        Raises:
            CollectorError: as ``open_store`` says.
        """
        self._quota: Final = quota
        self._unpruned = 0
        self._db: Final = open_store(path, _STEPS)

    def close(self) -> None:
        """Close the file; everything committed stays."""
        self._db.close()

    def keep(self, run: PackedRun, now_ns: int) -> None:
        """Keep a run, in place of what was kept of it before.

        Raises:
            StoreError: the disk refuses.
        """
        self.keep_all((run,), now_ns)

    def keep_all(self, runs: Iterable[PackedRun], now_ns: int) -> None:
        """Do the same with several, all or none.

        Raises:
            StoreError: the disk refuses.
        """
        kept = tuple(runs)
        with self._transaction(Flush.LATER):
            self._db.executemany(
                "INSERT INTO run (tenant, run_id, is_failure, kept_ns, size, packed)"
                " VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (tenant, run_id) DO UPDATE SET is_failure = excluded.is_failure,"
                " kept_ns = excluded.kept_ns, size = excluded.size, packed = excluded.packed",
                [
                    (run.tenant, run.run_id, run.is_failure, now_ns, len(run.packed), run.packed)
                    for run in kept
                ],
            )
            self._unpruned += sum(len(run.packed) for run in kept)
            if self._unpruned > self._quota * _PRUNE_EVERY:
                self._prune()
                self._unpruned = 0

    def kept(self, tenant: Tenant, run_id: str) -> bytes | None:
        """Return what is kept of a run."""
        row = self._db.execute(
            "SELECT packed FROM run WHERE tenant = ? AND run_id = ?", (tenant, run_id)
        ).fetchone()
        return row[0] if row else None

    def add(self, label: Label) -> None:
        """Write a label durably; it is the run's current one from now on.

        Raises:
            StoreError: the disk refuses, or the labelled runs have grown beyond their bound.
        """
        labelled = self._db.execute("SELECT coalesce(sum(size), 0) FROM run WHERE is_labelled").fetchone()[0]
        if labelled > MAX_LABELLED_BYTES:
            raise StoreError(f"labelled runs take {labelled >> 20} MiB: no more are taken")
        with self._transaction(Flush.AT_ONCE):
            self._db.execute(
                f"INSERT INTO label ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own words
                (
                    label.tenant,
                    label.run_id,
                    label.kind,
                    label.version,
                    label.service,
                    label.labelled_ns,
                    label.agent,
                    label.step,
                    label.span_id,
                ),
            )
            run = (label.tenant, label.run_id)
            self._db.execute("UPDATE run SET is_labelled = 1 WHERE tenant = ? AND run_id = ?", run)
            self._db.execute(
                "DELETE FROM label WHERE id IN (SELECT id FROM label WHERE tenant = ? AND run_id = ?"
                " ORDER BY id DESC LIMIT -1 OFFSET ?)",
                (*run, MAX_LABELS_OF_A_RUN),
            )

    def labels(self, tenant: Tenant, run_id: str) -> list[Label]:
        """Return what was said of a run, the newest first: that one counts."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM label WHERE tenant = ? AND run_id = ? ORDER BY id DESC",  # noqa: S608 - as above
            (tenant, run_id),
        )
        return [_label(row) for row in rows]

    def since(self, last_id: int, limit: int = 1_000) -> list[tuple[int, Label]]:
        """Return the labels of all tenants given after the one of this number, in order."""
        rows = self._db.execute(
            f"SELECT id, {_COLUMNS} FROM label WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608 - as above
            (last_id, limit),
        )
        return [(row[0], _label(row[1:])) for row in rows]

    def tenants(self) -> list[Tenant]:
        """Return whose runs were labelled."""
        return [Tenant(row[0]) for row in self._db.execute("SELECT DISTINCT tenant FROM label ORDER BY 1")]

    def labelled(self, tenant: Tenant) -> Iterator[LabelledRun]:
        """Yield the labels of a tenant that count, in the order in which they were given."""
        columns = ", ".join(f"label.{name.strip()}" for name in _COLUMNS.split(","))
        rows = self._db.execute(
            f"SELECT {columns}, run.packed FROM label LEFT JOIN run USING (tenant, run_id)"  # noqa: S608 - as above
            f" WHERE label.tenant = ? AND {_IS_CURRENT} ORDER BY label.id",
            (tenant,),
        )
        for *label, packed in rows:
            yield LabelledRun(label=_label(label), packed=packed)

    def _prune(self) -> None:
        """Let the oldest runs go that nobody labelled, successes first, until the rest is in the quota."""
        self._db.execute(
            "DELETE FROM run WHERE id IN (SELECT id FROM (SELECT id, sum(size) OVER"
            " (ORDER BY is_failure DESC, kept_ns DESC, id DESC) AS taken FROM run WHERE NOT is_labelled)"
            " WHERE taken > ?)",
            (self._quota,),
        )

    def _transaction(self, flush: Flush) -> AbstractContextManager[None]:
        return all_or_nothing(self._db, "the label store", flush)


def open_labels(data_dir: Path) -> LabelStore:
    """Open the label store of a data directory; raises ``CollectorError`` where it cannot be used."""
    return LabelStore(data_dir / FILE)


def _label(row: list[object] | tuple[object, ...]) -> Label:
    tenant, run_id, kind, version, service, labelled_ns, agent, step, span_id = row
    assert isinstance(version, int)
    assert isinstance(labelled_ns, int)
    assert step is None or isinstance(step, int)
    return Label(
        tenant=Tenant(str(tenant)),
        run_id=str(run_id),
        kind=LabelKind(str(kind)),
        version=version,
        service=str(service),
        labelled_ns=labelled_ns,
        agent=None if agent is None else str(agent),
        step=step,
        span_id=None if span_id is None else SpanId(str(span_id)),
    )
