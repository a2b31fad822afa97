"""Labels, the runs they are about, and second opinions on runs: tables of the store.

Any number of processes may have it open: the service keeps runs while a person at the command line labels
them. A run is kept in the transaction of its verdict.

Runs without a label have a quota of their own: passed runs are deleted before failed ones, the oldest first.
Labelled runs stay.

A second opinion that cost money is never requested twice: it is stored with the run's verdict, and found by
method, model and the digest of the analysed content. Bounded; the oldest are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from analyzer.issues.labels.run_label import Label, LabelKind
from collector_processor.core.disk import StoreError
from collector_processor.core.records import fields_of
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import (
    StoreConnection,
    StorePlace,
    connected,
    insert,
    upsert,
)
from collector_processor.store.database.driver import Flush
from collector_processor.store.small_tables import KeptSpansRows
from semconv.model import SpanId

logger = logging.getLogger(__name__)

MAX_UNLABELLED_BYTES: Final = 256 << 20
MAX_LABELLED_BYTES: Final = 1 << 30
MAX_LABELS_OF_A_RUN: Final = 100
_PRUNE_EVERY: Final = 1 / 16
"""Share of the quota that may be written between two checks of the quota."""
_MAX_DAMAGED: Final = 100
"""Bound on damaged labels that are logged."""
_COLUMNS: Final = "tenant, run_id, kind, version, service, labelled_ns, agent, step, span_id, why, author"
_WRITE: Final = insert("label", _COLUMNS)
_WRITE_RUN: Final = upsert("kept_run", "tenant, run_id, is_failure, kept_ns, size, packed", keys=2)
_IS_CURRENT: Final = """NOT EXISTS (
  SELECT 1 FROM label AS later
  WHERE later.tenant = label.tenant AND later.run_id = label.run_id AND later.id > label.id
)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRun:
    """A run to be kept; ``kept_run.py`` defines its content."""

    tenant: Tenant
    run_id: str
    is_failure: bool
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRun:
    """A label that counts, and its run if it is kept."""

    label: Label
    packed: bytes | None
    trust: float = 1.0
    """Weight of the label in training."""
    is_refuted: bool = False
    """True if the label's step is known not to be the decisive one."""


class LabelStore:
    """Labels and kept runs. One thread at a time; other processes may have the store open too."""

    def __init__(self, place: StorePlace, *, quota: int = MAX_UNLABELLED_BYTES) -> None:
        """Open the tables.

        Args:
            place: the store.
            quota: bound in bytes on runs without a label.

        Raises:
            CollectorError: as ``connected``.
        """
        self._quota: Final = quota
        self._unpruned = 0
        self._damaged: Final[set[object]] = set()
        self._db: Final = connected(place)
        self._spans: Final = KeptSpansRows(self._db)

    def close(self) -> None:
        """Close the connection; everything committed stays."""
        self._db.close()

    def transaction(self, flush: Flush = Flush.AT_ONCE) -> AbstractContextManager[None]:
        """Write all changes made inside, or none; raises ``StoreError`` if the store refuses."""
        return self._db.transaction(flush)

    def keep(self, runs: Iterable[PackedRun], now_ns: int) -> None:
        """Store runs, all or none, replacing what was stored of them before.

        Raises:
            StoreError: the disk refuses.
        """
        packed_runs = tuple(runs)
        with self.transaction(Flush.LATER):
            self._db.write_each(
                _WRITE_RUN,
                [
                    (run.tenant, run.run_id, run.is_failure, now_ns, len(run.packed), run.packed)
                    for run in packed_runs
                ],
            )
            self._unpruned += sum(len(run.packed) for run in packed_runs)
            if self._unpruned > self._quota * _PRUNE_EVERY:
                self._prune()
                self._unpruned = 0

    def kept(self, tenant: Tenant, run_id: str) -> bytes | None:
        """Return the kept form of a run."""
        row = self._db.execute(
            "SELECT packed FROM kept_run WHERE tenant = ? AND run_id = ?", (tenant, run_id)
        ).fetchone()
        return row[0] if row else None

    def pin(self, tenant: Tenant, run_id: str) -> None:
        """Keep a run for as long as labelled ones: an experiment decided on one of its steps.

        Raises:
            StoreError: the disk refuses, or the labelled runs have grown beyond their bound.
        """
        self._require_room()
        with self.transaction():
            self._pin(tenant, run_id)

    def _pin(self, tenant: Tenant, run_id: str) -> None:
        self._db.execute(
            "UPDATE kept_run SET is_labelled = true WHERE tenant = ? AND run_id = ?", (tenant, run_id)
        )

    def _require_room(self) -> None:
        total = "SELECT coalesce(sum(size), 0) FROM kept_run WHERE is_labelled"
        labelled = int(self._db.execute(total).fetchone()[0])
        if labelled > MAX_LABELLED_BYTES:
            raise StoreError(f"labelled runs take {labelled >> 20} MiB: no further labels are accepted")

    def add(self, label: Label) -> None:
        """Write a label durably; it becomes the run's current one.

        Raises:
            StoreError: the disk refuses, or the labelled runs have grown beyond their bound.
        """
        self._require_room()
        with self.transaction():
            self._db.write_rows(_WRITE, [[getattr(label, name) for name in _COLUMNS.split(", ")]])
            run = (label.tenant, label.run_id)
            self._pin(*run)
            if label.kind is LabelKind.CORRECTED:
                self._spans.count_as_failed(label.tenant, label.run_id)
            self._db.execute(
                "DELETE FROM label WHERE id IN (SELECT id FROM label WHERE tenant = ? AND run_id = ?"
                " ORDER BY id DESC LIMIT ? OFFSET ?)",
                (*run, MAX_LABELS_OF_A_RUN, MAX_LABELS_OF_A_RUN),
            )

    def labels(self, tenant: Tenant, run_id: str) -> list[Label]:
        """Return the labels of a run, newest first; the newest counts."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM label WHERE tenant = ? AND run_id = ? ORDER BY id DESC",  # noqa: S608 - as above
            (tenant, run_id),
        )
        return [label for row in rows if (label := self._read(row))]

    def current(self, runs: Sequence[tuple[Tenant, str]]) -> dict[tuple[Tenant, str], Label]:
        """Return the current label of each of these runs that has one."""
        rows = self._db.read_rows(_COLUMNS, "label", "tenant, run_id", runs, "ORDER BY id")
        return {(label.tenant, label.run_id): label for row in rows if (label := self._read(row))}

    def newest(self, tenant: Tenant, most: int) -> list[Label]:
        """Return the labels of a tenant that count, newest first, ``most`` at most."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM label WHERE tenant = ? AND {_IS_CURRENT} ORDER BY id DESC LIMIT ?",  # noqa: S608 - as above
            (tenant, most),
        )
        return [label for row in rows if (label := self._read(row))]

    def since(self, last_id: int, limit: int = 1_000) -> list[tuple[int, Label]]:
        """Return the labels of all tenants with higher numbers than this, in order."""
        rows = self._db.execute(
            f"SELECT id, {_COLUMNS} FROM label WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608 - as above
            (last_id, limit),
        )
        return [(row[0], label) for row in rows if (label := self._read(row[1:]))]

    def last(self) -> int:
        """Return the number of the last label; 0 if there is none."""
        row = self._db.execute("SELECT max(id) FROM label").fetchone()
        return row[0] or 0

    def tenants(self) -> list[Tenant]:
        """Return the tenants that have labelled runs."""
        return [Tenant(row[0]) for row in self._db.execute("SELECT DISTINCT tenant FROM label ORDER BY 1")]

    def labelled(self, tenant: Tenant) -> Iterator[LabelledRun]:
        """Yield the labels of a tenant that count, in the order in which they were given."""
        columns = ", ".join(f"label.{name.strip()}" for name in _COLUMNS.split(","))
        rows = self._db.execute(
            f"SELECT {columns}, kept_run.packed FROM label LEFT JOIN kept_run USING (tenant, run_id)"  # noqa: S608 - as above
            f" WHERE label.tenant = ? AND {_IS_CURRENT} ORDER BY label.id",
            (tenant,),
        )
        for *row, packed in rows:
            if label := self._read(row):
                yield LabelledRun(label=label, packed=packed)

    def _read(self, row: list[object] | tuple[object, ...]) -> Label | None:
        """Return the label of a row; ``None``, with a log line, if it is damaged on disk."""
        try:
            return _label(row)
        except (ValueError, TypeError) as error:
            if len(self._damaged) < _MAX_DAMAGED and row[1] not in self._damaged:
                self._damaged.add(row[1])
                about = {"run_id": str(row[1]), "reason": str(error)}
                logger.error("a stored label is damaged and does not count: label the run again", extra=about)  # noqa: TRY400 - the reason is logged
            return None

    def _prune(self) -> None:
        """Delete the oldest runs without a label, successes first, until the rest fits the quota."""
        order = "is_failure DESC, kept_ns DESC, id DESC"
        self._db.keep_bytes("kept_run", order, self._quota, "NOT is_labelled")


def _label(row: list[object] | tuple[object, ...]) -> Label:
    tenant, run_id, kind, version, service, labelled_ns, agent, step, span_id, why, author = row
    if not (isinstance(version, int) and isinstance(labelled_ns, int) and isinstance(step, int | None)):
        raise TypeError("expected whole numbers")
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
        why="" if why is None else str(why),
        author="" if author is None else str(author),
    )


MAX_OF_A_RUN: Final = 50
MAX_OPINIONS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """One analysis of a kept run by a person's choice of method and model."""

    tenant: Tenant
    run_id: str
    method: str
    """The chosen method; the document names the method that answered."""
    model: str
    """The chosen model; empty for the operator's model."""
    run_digest: str
    """Digest of the kept run that was analysed."""
    given_ns: int
    document: str
    """The attribution as JSON."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The parsed document; empty if it is damaged."""
        return fields_of(self.document)

    @property
    def is_answer(self) -> bool:
        """Whether the chosen method itself answered, so that a repetition would be wasted."""
        return bool(self.fields) and not self.fields.get("fallback")


_OF_OPINION: Final = tuple(Opinion.__dataclass_fields__)
_OPINION: Final = ", ".join(_OF_OPINION)


class OpinionStore:
    """Rows of ``opinion``."""

    def __init__(self, place: StorePlace) -> None:
        """Open the table.

        Raises:
            CollectorError: as ``connected``.
        """
        self._db: Final[StoreConnection] = connected(place)

    def add(self, opinion: Opinion) -> None:
        """Store an opinion durably; part of the open transaction, if there is one.

        Raises:
            StoreError: the store refuses.
        """
        with self._db.transaction():
            self._db.write_rows(
                insert("opinion", _OPINION), [[getattr(opinion, name) for name in _OF_OPINION]]
            )
            self._db.execute(
                "DELETE FROM opinion WHERE id IN (SELECT id FROM opinion WHERE tenant = ? AND run_id = ?"
                " ORDER BY id DESC LIMIT ? OFFSET ?)",
                (opinion.tenant, opinion.run_id, MAX_OF_A_RUN, MAX_OF_A_RUN),
            )
            self._db.keep_newest("opinion", "given_ns", MAX_OPINIONS)

    def of(self, tenant: Tenant, run_id: str) -> list[Opinion]:
        """Return the opinions on a run, newest first."""
        rows = self._db.execute(
            f"SELECT {_OPINION} FROM opinion WHERE tenant = ? AND run_id = ? ORDER BY id DESC",  # noqa: S608 - as above
            (tenant, run_id),
        )
        return [_opinion(row) for row in rows]

    def by_method(self, tenant: Tenant, method: str, most: int) -> list[Opinion]:
        """Return the newest opinions of one method on a tenant's runs, newest first."""
        rows = self._db.execute(
            f"SELECT {_OPINION} FROM opinion WHERE tenant = ? AND method = ? ORDER BY id DESC LIMIT ?",  # noqa: S608 - as above
            (tenant, method, most),
        )
        return [_opinion(row) for row in rows]

    def on(self, tenant: Tenant, run_ids: Iterable[str]) -> list[Opinion]:
        """Return the opinions on several runs, oldest first."""
        keys = [(tenant, run_id) for run_id in run_ids]
        rows = self._db.read_rows(_OPINION, "opinion", "tenant, run_id", keys, "ORDER BY id")
        return [_opinion(row) for row in rows]


def of_request(opinions: Iterable[Opinion], method: str, model: str, digest: str) -> Opinion | None:
    """Return the opinion on exactly this request; ``None`` if there is none."""
    wanted = (method, model, digest)
    return next(
        (one for one in opinions if (one.method, one.model, one.run_digest) == wanted and one.is_answer),
        None,
    )


def blamed_steps(
    db: StoreConnection, runs: Sequence[tuple[Tenant, str]]
) -> dict[tuple[Tenant, str], tuple[int, ...]]:
    """Return the steps that the opinions on runs blame, oldest first; runs without any are left out."""
    found: dict[tuple[Tenant, str], tuple[int, ...]] = {}
    for row in db.read_rows(_OPINION, "opinion", "tenant, run_id", runs, "ORDER BY id"):
        opinion = _opinion(row)
        step = opinion.fields.get("step")
        if isinstance(step, int) and not isinstance(step, bool):
            name = (opinion.tenant, opinion.run_id)
            found[name] = (*found.get(name, ()), step)
    return found


def _opinion(row: Sequence[Any]) -> Opinion:
    return Opinion(**dict(zip(_OF_OPINION, row, strict=True)))
