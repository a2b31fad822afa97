"""Recurring failures, the runs counted in them, and what is still to be told: one SQLite file.

A run is noted before its verdict is committed, and counted once it is: whatever a crash
leaves of the two is made good at the next start (``pending``), and a run that is known is
never counted again. What a person or a later verdict says of a run moves it from one
issue to another, or out of all.

Any number of processes may have it open: people resolve issues at the command line while
the service counts. What is bounded, and by how much, stands in the constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from analyzer.issues.rows import (
    CountedRun,
    NotedRow,
    NotedRun,
    Owed,
    as_counted,
    as_issue,
    as_noted,
    counted_row,
    issue_row,
)
from analyzer.recurrence import Issue, IssueState
from analyzer.recurrence.notice import Notice, read_notice
from collector_processor.otlp import Tenant
from collector_processor.stores import Flush, all_or_nothing, give_back, open_store

FILE: Final = "issues.sqlite"
DAY_NS: Final = 86_400 * 10**9
MAX_ISSUES: Final = 10_000
MAX_RUNS: Final = 200_000
"""Twice as many as there are verdicts: what is forgotten here cannot come again."""
MAX_PENDING: Final = 10_000
MAX_OUTBOX: Final = 5_000
KEPT_DAYS: Final = 90
_STEPS: Final = (
    """
CREATE TABLE issue (
  tenant TEXT NOT NULL, id TEXT NOT NULL, mark TEXT NOT NULL, state TEXT NOT NULL, since_ns INTEGER NOT NULL,
  first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL, count INTEGER NOT NULL, runs TEXT NOT NULL,
  muted_until_ns INTEGER NOT NULL, PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX issue_by_time ON issue (last_ns);
CREATE TABLE pending (
  tenant TEXT NOT NULL, run_id TEXT NOT NULL, noted_ns INTEGER NOT NULL, document TEXT NOT NULL,
  PRIMARY KEY (tenant, run_id)
) WITHOUT ROWID;
CREATE TABLE run (
  tenant TEXT NOT NULL, run_id TEXT NOT NULL, service TEXT NOT NULL, agents TEXT NOT NULL, blamed TEXT,
  step INTEGER, mark TEXT, issue TEXT, decided_ns INTEGER NOT NULL, label TEXT, label_agent TEXT,
  label_step INTEGER,
  PRIMARY KEY (tenant, run_id)
) WITHOUT ROWID;
CREATE INDEX run_by_issue ON run (tenant, issue, decided_ns);
CREATE INDEX run_by_time ON run (decided_ns);
CREATE INDEX run_by_label ON run (tenant, service, label);
CREATE TABLE agent_day (
  tenant TEXT NOT NULL, service TEXT NOT NULL, agent TEXT NOT NULL, day INTEGER NOT NULL,
  took_part INTEGER NOT NULL, blamed INTEGER NOT NULL, PRIMARY KEY (tenant, service, agent, day)
) WITHOUT ROWID;
CREATE TABLE watch (
  tenant TEXT NOT NULL, service TEXT NOT NULL, agent TEXT NOT NULL, begun_day INTEGER NOT NULL,
  last_day INTEGER NOT NULL, hits INTEGER NOT NULL, n INTEGER NOT NULL, sums TEXT NOT NULL,
  is_alarm INTEGER NOT NULL, calm_runs INTEGER NOT NULL, alarm_ns INTEGER NOT NULL, run_id TEXT NOT NULL,
  PRIMARY KEY (tenant, service, agent)
) WITHOUT ROWID;
CREATE TABLE outbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT, target TEXT NOT NULL, issue TEXT NOT NULL, noted_ns INTEGER NOT NULL,
  document TEXT NOT NULL
);
CREATE TABLE target (
  name TEXT PRIMARY KEY, attempts INTEGER NOT NULL, next_ns INTEGER NOT NULL
);
CREATE TABLE told (target TEXT NOT NULL, at_ns INTEGER NOT NULL);
CREATE TABLE cursor (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
""",
    """
ALTER TABLE run ADD COLUMN status TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN settled_ns INTEGER NOT NULL DEFAULT 0;
UPDATE run SET settled_ns = decided_ns, status = iif(blamed IS NULL, 'no_failure', 'attributed');
""",
)


class IssueStore:
    """Rows in and out, in transactions; what they mean is ``counting.py``'s. One thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open or make the store.

        Raises:
            CollectorError: as ``open_store`` says.
        """
        self.db: Final = open_store(path, _STEPS)

    def close(self) -> None:
        """Close the file; everything committed stays."""
        self.db.close()

    def transaction(self, flush: Flush = Flush.AT_ONCE) -> AbstractContextManager[None]:
        """Write all that is done inside, or nothing.

        Args:
            flush: when it is sure to survive a power cut.

        Raises:
            StoreError: the disk refuses.
        """
        return all_or_nothing(self.db, "the issue store", flush)

    def note(self, runs: Iterable[NotedRow], now_ns: int) -> None:
        """Remember runs until their verdicts are durable; call it in a transaction."""
        self.db.executemany(
            "INSERT OR REPLACE INTO pending VALUES (?, ?, ?, ?)",
            [(run.tenant, run.run_id, now_ns, run.document) for run in runs],
        )

    def pending(self, since_ns: int, limit: int = 1_000) -> list[NotedRun]:
        """Return what was noted since and is not counted, the oldest first.

        Where there is more, the newest: runs whose verdicts never come would hold up all others.
        """
        rows = self.db.execute(
            "SELECT tenant, run_id, document FROM pending WHERE noted_ns >= ?"
            " ORDER BY noted_ns DESC, tenant DESC, run_id DESC LIMIT ?",
            (since_ns, limit),
        ).fetchall()
        return [as_noted(*row) for row in reversed(rows)]

    def forget_pending(self, run: NotedRun) -> None:
        """It is counted; call it in a transaction."""
        self.db.execute("DELETE FROM pending WHERE tenant = ? AND run_id = ?", (run.tenant, run.run_id))

    def run(self, tenant: Tenant, run_id: str) -> CountedRun | None:
        """Return how a run is counted."""
        found = self._runs("tenant = ? AND run_id = ?", (tenant, run_id))
        return found[0] if found else None

    def labelled_runs(self, tenant: Tenant, service: str, limit: int = 5_000) -> list[CountedRun]:
        """Return the runs of a service that somebody labelled, the newest first."""
        where = "tenant = ? AND service = ? AND label IS NOT NULL ORDER BY decided_ns DESC LIMIT ?"
        return self._runs(where, (tenant, service, limit))

    def service_runs(self, tenant: Tenant, service: str, since_ns: int, limit: int) -> list[CountedRun]:
        """Return the newest runs of a service decided since, the oldest of them first."""
        where = "tenant = ? AND service = ? AND decided_ns >= ? ORDER BY decided_ns DESC, run_id LIMIT ?"
        return self._runs(where, (tenant, service, since_ns, limit))[::-1]

    def labelled_services(self, limit: int = 100) -> list[tuple[Tenant, str]]:
        """Return whose services have labelled runs."""
        found = self.db.execute(
            "SELECT DISTINCT tenant, service FROM run WHERE label IS NOT NULL LIMIT ?", (limit,)
        )
        return [(Tenant(tenant), service) for tenant, service in found]

    def write_run(self, run: CountedRun) -> None:
        """Keep how a run is counted; call it in a transaction."""
        self.db.execute(
            "INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", counted_row(run)
        )

    def issue(self, tenant: Tenant, issue_id: str) -> Issue | None:
        """Return an issue as it was left; time may have changed its state (``recurrence.age``)."""
        found = self._issues("tenant = ? AND id = ?", (tenant, issue_id))
        return found[0][1] if found else None

    def issues(self, tenant: Tenant | None, limit: int) -> list[tuple[Tenant, Issue]]:
        """Return issues of one tenant or of all, the last that failed first."""
        return self._issues(
            "(? IS NULL OR tenant = ?) ORDER BY last_ns DESC LIMIT ?", (tenant, tenant, limit)
        )

    def starting_with(
        self, prefix: str, tenant: Tenant | None, limit: int = 20
    ) -> list[tuple[Tenant, Issue]]:
        """Return the issues whose ids begin like this."""
        where = "substr(id, 1, ?) = ? AND (? IS NULL OR tenant = ?) ORDER BY id, tenant LIMIT ?"
        return self._issues(where, (len(prefix), prefix, tenant, tenant, limit))

    def tenants_of(self, issue_id: str) -> list[Tenant]:
        """Return who has an issue of this id."""
        rows = self.db.execute("SELECT tenant FROM issue WHERE id = ? ORDER BY 1", (issue_id,))
        return [Tenant(row[0]) for row in rows]

    def write_issue(self, tenant: Tenant, issue: Issue) -> None:
        """Keep an issue; call it in a transaction."""
        self.db.execute(
            "INSERT OR REPLACE INTO issue VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", issue_row(tenant, issue)
        )

    def drop_issue(self, tenant: Tenant, issue_id: str) -> None:
        """Forget an issue that never was, and what was to be told of it; call it in a transaction."""
        self.db.execute("DELETE FROM issue WHERE tenant = ? AND id = ?", (tenant, issue_id))
        self.db.execute("DELETE FROM outbox WHERE issue = ?", (f"{tenant}/{issue_id}",))

    def trend(self, tenant: Tenant, issue_id: str, today: int, days: int) -> tuple[int, ...]:
        """Return failures a day, oldest first; the last is ``today`` (days since the epoch)."""
        rows = dict(
            self.db.execute(
                f"SELECT decided_ns / {DAY_NS}, count(*) FROM run WHERE tenant = ? AND issue = ?"  # noqa: S608 - a number
                " AND decided_ns >= ? GROUP BY 1",
                (tenant, issue_id, (today - days + 1) * DAY_NS),
            )
        )
        return tuple(rows.get(day, 0) for day in range(today - days + 1, today + 1))

    def owe(self, target: str, notice: Notice) -> None:
        """Have a receiver told; call it in a transaction."""
        self.db.execute(
            "INSERT INTO outbox (target, issue, noted_ns, document) VALUES (?, ?, ?, ?)",
            (target, f"{notice.tenant}/{notice.issue_id}", notice.at_ns, notice.to_json()),
        )

    def owed(self, target: str, limit: int = 500) -> list[Owed]:
        """Return what a receiver does not have yet, the oldest first."""
        rows = self.db.execute(
            "SELECT id, document FROM outbox WHERE target = ? ORDER BY id LIMIT ?", (target, limit)
        )
        return [Owed(id=row[0], notice=read_notice(row[1])) for row in rows]

    def told(self, target: str, ids: Sequence[int], now_ns: int, *, is_taken: bool) -> None:
        """Strike out what a receiver took, or will never take."""
        with self.transaction():
            self.db.executemany("DELETE FROM outbox WHERE id = ?", [(id_,) for id_ in ids])
            self.db.execute("DELETE FROM target WHERE name = ?", (target,))
            if is_taken:
                self.db.execute("INSERT INTO told VALUES (?, ?)", (target, now_ns))

    def told_since(self, target: str, since_ns: int) -> list[int]:
        """Return when a receiver was told something lately, the oldest first."""
        rows = self.db.execute(
            "SELECT at_ns FROM told WHERE target = ? AND at_ns > ? ORDER BY at_ns", (target, since_ns)
        )
        return [row[0] for row in rows]

    def put_off(self, target: str, attempts: int, next_ns: int) -> None:
        """Remember that a receiver is to be tried again, and when."""
        with self.transaction():
            self.db.execute("INSERT OR REPLACE INTO target VALUES (?, ?, ?)", (target, attempts, next_ns))

    def put_off_until(self, target: str) -> tuple[int, int]:
        """Return how often a receiver was tried in vain, and from when it may be tried again."""
        row = self.db.execute("SELECT attempts, next_ns FROM target WHERE name = ?", (target,)).fetchone()
        return (row[0], row[1]) if row else (0, 0)

    def cursor(self, name: str) -> int:
        """Return how far something was read; 0 if never."""
        row = self.db.execute("SELECT value FROM cursor WHERE name = ?", (name,)).fetchone()
        return row[0] if row else 0

    def move_cursor(self, name: str, value: int) -> None:
        """Remember how far something was read; call it in a transaction."""
        self.db.execute("INSERT OR REPLACE INTO cursor VALUES (?, ?)", (name, value))

    def prune(self, now_ns: int) -> None:
        """Forget what is too old or too much, of issues the resolved first, and give some room back."""
        day = now_ns // DAY_NS
        with self.transaction():
            self.db.execute("DELETE FROM agent_day WHERE day < ?", (day - KEPT_DAYS,))
            self.db.execute("DELETE FROM watch WHERE last_day < ?", (day - KEPT_DAYS,))
            self.db.execute("DELETE FROM told WHERE at_ns < ?", (now_ns - DAY_NS,))
            self.db.execute(
                "DELETE FROM run WHERE decided_ns <"
                " (SELECT decided_ns FROM run ORDER BY decided_ns DESC LIMIT 1 OFFSET ?)",
                (MAX_RUNS,),
            )
            self.db.execute(
                "DELETE FROM pending WHERE noted_ns <"
                " (SELECT noted_ns FROM pending ORDER BY noted_ns DESC LIMIT 1 OFFSET ?)",
                (MAX_PENDING,),
            )
            self.db.execute(
                "DELETE FROM outbox WHERE id <= (SELECT id FROM outbox ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (MAX_OUTBOX,),
            )
            self.db.execute(
                "DELETE FROM issue WHERE (tenant, id) IN (SELECT tenant, id FROM issue"
                " ORDER BY state = ?, last_ns DESC LIMIT -1 OFFSET ?)",
                (IssueState.RESOLVED, MAX_ISSUES),
            )
        give_back(self.db, "the issue store")

    def _issues(self, where: str, values: tuple[object, ...]) -> list[tuple[Tenant, Issue]]:
        rows = self.db.execute(
            "SELECT tenant, mark, state, since_ns, first_ns, last_ns, count, runs, muted_until_ns"  # noqa: S608 - our own words
            f" FROM issue WHERE {where}",
            values,
        )
        return [(Tenant(row[0]), as_issue(row[1:])) for row in rows]

    def _runs(self, where: str, values: tuple[object, ...]) -> list[CountedRun]:
        rows = self.db.execute(
            "SELECT tenant, run_id, service, agents, blamed, step, mark, issue, decided_ns, label,"  # noqa: S608 - as above
            f" label_agent, label_step, status, settled_ns FROM run WHERE {where}",
            values,
        )
        return [as_counted(row) for row in rows]


def open_issues(data_dir: Path) -> IssueStore:
    """Open the issue store of a data directory; raises ``CollectorError`` where it cannot be used."""
    return IssueStore(data_dir / FILE)
