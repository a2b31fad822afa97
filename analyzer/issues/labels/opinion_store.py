"""Second opinions on runs: a table of the store. Synchronous; one thread at a time.

An opinion that cost money is never requested twice: it is stored with the run's verdict, and found by method,
model and the digest of the analysed content. Bounded; the oldest are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from collector_processor.core.records import fields_of
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection, StorePlace, connected, insert

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


_FIELDS: Final = tuple(Opinion.__dataclass_fields__)
_COLUMNS: Final = ", ".join(_FIELDS)


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
            self._db.write_rows(insert("opinion", _COLUMNS), [[getattr(opinion, name) for name in _FIELDS]])
            self._db.execute(
                "DELETE FROM opinion WHERE id IN (SELECT id FROM opinion WHERE tenant = ? AND run_id = ?"
                " ORDER BY id DESC LIMIT ? OFFSET ?)",
                (opinion.tenant, opinion.run_id, MAX_OF_A_RUN, MAX_OF_A_RUN),
            )
            self._db.keep_newest("opinion", "given_ns", MAX_OPINIONS)

    def of(self, tenant: Tenant, run_id: str) -> list[Opinion]:
        """Return the opinions on a run, newest first."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM opinion WHERE tenant = ? AND run_id = ? ORDER BY id DESC",  # noqa: S608 - as above
            (tenant, run_id),
        )
        return [_opinion(row) for row in rows]

    def by_method(self, tenant: Tenant, method: str, most: int = MAX_OPINIONS) -> list[Opinion]:
        """Return the newest opinions of one method on a tenant's runs, newest first."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM opinion WHERE tenant = ? AND method = ? ORDER BY id DESC LIMIT ?",  # noqa: S608 - as above
            (tenant, method, most),
        )
        return [_opinion(row) for row in rows]

    def on(self, tenant: Tenant, run_ids: Iterable[str]) -> list[Opinion]:
        """Return the opinions on several runs, oldest first."""
        keys = [(tenant, run_id) for run_id in run_ids]
        rows = self._db.read_rows(_COLUMNS, "opinion", "tenant, run_id", keys, "ORDER BY id")
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
    for row in db.read_rows(_COLUMNS, "opinion", "tenant, run_id", runs, "ORDER BY id"):
        opinion = _opinion(row)
        step = opinion.fields.get("step")
        if isinstance(step, int) and not isinstance(step, bool):
            name = (opinion.tenant, opinion.run_id)
            found[name] = (*found.get(name, ()), step)
    return found


def _opinion(row: Sequence[Any]) -> Opinion:
    return Opinion(**dict(zip(_FIELDS, row, strict=True)))
