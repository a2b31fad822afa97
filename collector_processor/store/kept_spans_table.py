"""Kept spans and logs of runs: a table of the store. Synchronous; one thread at a time.

Failed and passed runs have a quota of bytes each; the oldest are deleted first. ``rebuild/kept_spans.py``
packs them. Every call raises ``StoreError`` if the store refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import Flush, StoreConnection, upsert

_DAY_NS: Final = 86_400 * 10**9
_WRITE: Final = upsert("kept_spans", "tenant, run_id, is_failure, kept_ns, size, packed", keys=2)
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
            _WRITE,
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
