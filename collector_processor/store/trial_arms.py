"""Trials of experiments kept for comparison, one of each arm: a table of the store. Synchronous.

A trial is not a production run. Its spans are kept in this table alone, which no list, count, issue, spectrum
or alert reads.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection

MOST_BYTES: Final = 64 << 20
"""Packed bytes of all kept trials; the oldest experiments' trials are deleted first."""
_COLUMNS: Final = "tenant, run_id, id, step, is_changed, has_passed"


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


class TrialArmRows:
    """Rows of ``trial_arm``."""

    def __init__(self, db: StoreConnection, most_bytes: int = MOST_BYTES) -> None:
        self._db: Final = db
        self._most_bytes: Final = most_bytes

    def keep(self, arms: Sequence[tuple[TrialArm, bytes]], now_ns: int) -> None:
        """Keep the trials of one experiment, packed, in place of an earlier one's on the same run.

        Raises:
            StoreError: the store refuses.
        """
        with self._db.transaction():
            for tenant, run_id in sorted({(arm.tenant, arm.run_id) for arm, _ in arms}):
                self._db.execute("DELETE FROM trial_arm WHERE tenant = ? AND run_id = ?", (tenant, run_id))
            self._db.executemany(
                f"INSERT INTO trial_arm ({_COLUMNS}, kept_ns, size, packed)"  # noqa: S608 - our own words
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        arm.tenant,
                        arm.run_id,
                        arm.id,
                        arm.step,
                        arm.is_changed,
                        arm.has_passed,
                        now_ns,
                        len(packed),
                        packed,
                    )
                    for arm, packed in arms
                ],
            )
            self._prune()

    def of(self, tenant: Tenant, run_id: str) -> tuple[TrialArm, ...]:
        """Return the kept trials of a run, that with the recorded answer first."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM trial_arm WHERE tenant = ? AND run_id = ? ORDER BY is_changed, id",  # noqa: S608 - as above
            (tenant, run_id),
        )
        return tuple(map(_arm, rows.fetchall()))

    def packed(self, trial: str) -> tuple[TrialArm, bytes] | None:
        """Return a kept trial with its packed spans; ``None`` if not kept."""
        row = self._db.execute(
            f"SELECT {_COLUMNS}, packed FROM trial_arm WHERE id = ?",  # noqa: S608 - as above
            (trial,),
        ).fetchone()
        return None if row is None else (_arm(row), bytes(row[-1]))

    def _prune(self) -> None:
        self._db.execute(
            "DELETE FROM trial_arm WHERE id IN (SELECT id FROM (SELECT id, sum(size) OVER"
            " (ORDER BY kept_ns DESC, id DESC) AS taken FROM trial_arm) AS sized WHERE taken > ?)",
            (self._most_bytes,),
        )


def new_trial() -> str:
    """Return an id for a trial to keep: 128 random bits."""
    return secrets.token_hex(16)


def _arm(row: Sequence[object]) -> TrialArm:
    tenant, run_id, trial, step, is_changed, has_passed = row[:6]
    assert isinstance(step, int)
    return TrialArm(
        tenant=Tenant(str(tenant)),
        run_id=str(run_id),
        id=str(trial),
        step=step,
        is_changed=bool(is_changed),
        has_passed=bool(has_passed),
    )
