"""Recurring failures, the runs counted in them, and unsent notices: tables of the store, and their rows.

A run is counted in the transaction of its verdict, and a known run is never counted again. A
person's label or a later verdict moves a run from one issue to another, or out of all.

Any number of processes may have it open: people resolve issues on the command line while the service counts.
The constants set the bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeAlias

from analyzer.issues.recurrence import Fingerprint, Issue, IssueState, Notice, read_notice
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StorePlace, connected, insert, upsert
from collector_processor.store.database.driver import Flush
from semconv.model import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedRun:
    """The counted part of an analysed run."""

    tenant: Tenant
    run_id: str
    status: str
    agents: tuple[str, ...]
    blamed: str | None = None
    step: int | None = None
    mark: Fingerprint | None = None
    """The identity of the failure; ``None`` if the run did not fail."""
    text: str = ""
    rules: str = ""
    """As ``Attribution.rules``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRun:
    """A run in the form in which it is counted."""

    tenant: Tenant
    run_id: str
    service: str
    agents: tuple[str, ...]
    blamed: str | None
    step: int | None
    mark: Fingerprint | None
    issue_id: str | None
    """The issue in which it is counted; ``None`` if it is in none."""
    decided_ns: int
    label: str | None = None
    label_agent: str | None = None
    label_step: int | None = None
    status: str = ""
    """The method's verdict."""
    settled_ns: int = 0
    """Time at which its first verdict was settled; a correction keeps it."""
    rules: str = ""
    """Version of the rules that judged it; empty if unknown."""

    @property
    def failed_agent(self) -> str | None:
        """The agent to which a failure is attributed; none for suspected failures."""
        return None if self.status == Status.SUSPECTED else self.blamed


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentNotice:
    """An unsent notice for one receiver."""

    id: int
    notice: Notice


_COUNTED: Final = tuple(field.name for field in fields(CountedRun))
_ISSUE_FIELDS: Final = tuple(field.name for field in fields(Issue))


def noted_document(run: NotedRun) -> str:
    """Return the columns of an uncounted run, except tenant and id."""
    document = asdict(run)
    del document["tenant"], document["run_id"]
    return json.dumps(document)


def as_noted(tenant: str, run_id: str, text: str) -> NotedRun:
    """Read a stored uncounted run."""
    document = json.loads(text)
    decoded = {"mark": _mark(document["mark"]), "agents": tuple(document["agents"])}
    return NotedRun(tenant=Tenant(tenant), run_id=run_id, **(document | decoded))


def counted_row(run: CountedRun) -> tuple[object, ...]:
    """Return the columns of a counted run, in the order of its fields."""
    row = {name: getattr(run, name) for name in _COUNTED}
    encoded = {
        "agents": json.dumps(run.agents),
        "mark": None if run.mark is None else json.dumps(asdict(run.mark)),
    }
    return tuple((row | encoded).values())


def as_counted(row: Sequence[Any]) -> CountedRun:
    """Read the columns of a counted run."""
    values = dict(zip(_COUNTED, row, strict=True))
    mark = None if values["mark"] is None else _mark(json.loads(values["mark"]))
    return CountedRun(**(values | {"agents": tuple(json.loads(values["agents"])), "mark": mark}))


def issue_row(tenant: Tenant, issue: Issue) -> tuple[object, ...]:
    """Return the columns of an issue: tenant and id, then its fields in their order."""
    row = {name: getattr(issue, name) for name in _ISSUE_FIELDS}
    encoded = {"fingerprint": json.dumps(asdict(issue.fingerprint)), "runs": json.dumps(issue.runs)}
    return (tenant, issue.fingerprint.id, *(row | encoded).values())


def as_issue(row: Sequence[Any]) -> Issue:
    """Read the columns of an issue, except tenant and id."""
    values = dict(zip(_ISSUE_FIELDS, row, strict=True))
    decoded = {
        "fingerprint": Fingerprint(**json.loads(values["fingerprint"])),
        "state": IssueState(values["state"]),
        "runs": tuple(json.loads(values["runs"])),
    }
    return Issue(**(values | decoded))


def _mark(document: dict[str, Any] | None) -> Fingerprint | None:
    return None if document is None else Fingerprint(**document)


DAY_NS: Final = 86_400 * 10**9
MAX_ISSUES: Final = 10_000
MAX_RUNS: Final = 200_000
"""Bound on counted runs: twice the bound on verdicts, so that a run deleted here has no verdict left."""
MAX_OUTBOX: Final = 5_000
KEPT_DAYS: Final = 90
_MOST_TRENDS: Final = 500
"""Issues whose failures one statement counts; both databases accept 32,000 values."""
_ISSUE: Final = "mark, state, since_ns, first_ns, last_ns, count, runs, muted_until_ns"
_ISSUE_COLUMNS: Final = f"tenant, {_ISSUE}"
_WRITE_ISSUE: Final = upsert("issue", f"tenant, id, {_ISSUE}", keys=2)
_RUN_COLUMNS: Final = (
    "tenant, run_id, service, agents, blamed, step, mark, issue, decided_ns, label, label_agent, label_step,"
    " status, settled_ns, rules"
)
_WRITE_RUN: Final = upsert("counted_run", _RUN_COLUMNS, keys=2)
_WRITE_TARGET: Final = upsert("target", "name, attempts, next_ns", keys=1)
_WRITE_CURSOR: Final = upsert("cursor", "name, value", keys=1)


class IssueStore:
    """Reads and writes rows in transactions; ``counting.py`` interprets them. One thread at a time."""

    def __init__(self, place: StorePlace) -> None:
        """Open the tables.

        Raises:
            CollectorError: as ``connected``.
        """
        self.db: Final = connected(place)

    def close(self) -> None:
        """Close the connection; everything committed stays."""
        self.db.close()

    def transaction(self, flush: Flush = Flush.AT_ONCE) -> AbstractContextManager[None]:
        """Write all changes made inside, or none.

        Raises:
            StoreError: the disk refuses.
        """
        return self.db.transaction(flush)

    def run(self, tenant: Tenant, run_id: str) -> CountedRun | None:
        """Return the counted state of a run."""
        runs = self._runs("tenant = ? AND run_id = ?", (tenant, run_id))
        return runs[0] if runs else None

    def runs(self, keys: Sequence[tuple[Tenant, str]]) -> list[CountedRun]:
        """Return these runs as they are counted; runs that are not counted are left out."""
        rows = self.db.read_rows(_RUN_COLUMNS, "counted_run", "tenant, run_id", keys)
        return [as_counted(row) for row in rows]

    def issue_ids(self, keys: Sequence[tuple[Tenant, str]]) -> dict[tuple[Tenant, str], str]:
        """Return the ids of the issues that these runs are counted in; runs in none are left out."""
        rows = self.db.read_rows("tenant, run_id, issue", "counted_run", "tenant, run_id", keys)
        return {(Tenant(row[0]), row[1]): row[2] for row in rows if row[2] is not None}

    def runs_of_issue(self, tenant: Tenant, issue_id: str, limit: int) -> list[CountedRun]:
        """Return the newest runs that are counted in an issue, newest first."""
        where = "tenant = ? AND issue = ? ORDER BY decided_ns DESC, run_id LIMIT ?"
        return self._runs(where, (tenant, issue_id, limit))

    def labelled_runs(self, tenant: Tenant, service: str, limit: int = 5_000) -> list[CountedRun]:
        """Return a service's labelled runs, newest first."""
        # Not ``IS NOT NULL``, for which SQLite reads all runs of the tenant in place of the index of labels.
        where = "tenant = ? AND service = ? AND label > '' ORDER BY decided_ns DESC LIMIT ?"
        return self._runs(where, (tenant, service, limit))

    def service_runs(self, tenant: Tenant, service: str, since_ns: int, limit: int) -> list[CountedRun]:
        """Return a service's newest runs decided since ``since_ns``, oldest first."""
        where = "tenant = ? AND service = ? AND decided_ns >= ? ORDER BY decided_ns DESC, run_id LIMIT ?"
        return self._runs(where, (tenant, service, since_ns, limit))[::-1]

    def labelled_services(self, limit: int = 100) -> list[tuple[Tenant, str]]:
        """Return the tenants and services that have labelled runs."""
        rows = self.db.execute(
            "SELECT DISTINCT tenant, service FROM counted_run WHERE label IS NOT NULL LIMIT ?", (limit,)
        )
        return [(Tenant(tenant), service) for tenant, service in rows]

    def write_runs(self, runs: Iterable[CountedRun]) -> None:
        """Write the counted state of runs, each once; call it in a transaction."""
        self.db.write_rows(_WRITE_RUN, [counted_row(run) for run in runs])

    def issue(self, tenant: Tenant, issue_id: str) -> Issue | None:
        """Return an issue as stored; time may have changed its state (``recurrence.age``)."""
        found = self._issues("tenant = ? AND id = ?", (tenant, issue_id))
        return found[0][1] if found else None

    def issues_of(self, keys: Sequence[tuple[Tenant, str]]) -> list[tuple[Tenant, Issue]]:
        """Return the issues of these ids."""
        rows = self.db.read_rows(_ISSUE_COLUMNS, "issue", "tenant, id", keys)
        return [(Tenant(row[0]), as_issue(row[1:])) for row in rows]

    def issues(self, tenant: Tenant | None, limit: int) -> list[tuple[Tenant, Issue]]:
        """Return the issues of one tenant or all, latest failure first."""
        return self._issues(
            "(CAST(? AS TEXT) IS NULL OR tenant = ?) ORDER BY last_ns DESC LIMIT ?", (tenant, tenant, limit)
        )

    def starting_with(
        self, prefix: str, tenant: Tenant | None, limit: int = 20
    ) -> list[tuple[Tenant, Issue]]:
        """Return the issues whose ids begin with ``prefix``."""
        where = "substr(id, 1, ?) = ? AND (CAST(? AS TEXT) IS NULL OR tenant = ?) ORDER BY id, tenant LIMIT ?"
        return self._issues(where, (len(prefix), prefix, tenant, tenant, limit))

    def tenants_of(self, issue_id: str) -> list[Tenant]:
        """Return the tenants that have an issue with this id."""
        rows = self.db.execute("SELECT tenant FROM issue WHERE id = ? ORDER BY 1", (issue_id,))
        return [Tenant(row[0]) for row in rows]

    def write_issues(self, issues: Iterable[tuple[Tenant, Issue]]) -> None:
        """Write issues, each once; call it in a transaction."""
        self.db.write_rows(_WRITE_ISSUE, [issue_row(tenant, issue) for tenant, issue in issues])

    def drop_issue(self, tenant: Tenant, issue_id: str) -> None:
        """Delete an issue without a failure, and its unsent notices; call it in a transaction."""
        self.db.execute("DELETE FROM issue WHERE tenant = ? AND id = ?", (tenant, issue_id))
        self.db.execute("DELETE FROM notice WHERE issue = ?", (f"{tenant}/{issue_id}",))

    def trends(
        self, keys: Sequence[tuple[Tenant, str]], today: int, days: int
    ) -> dict[tuple[Tenant, str], tuple[int, ...]]:
        """Return failures per day of issues, oldest first; the last is ``today`` (days since the epoch).

        One statement for many issues, which counts each day along the index: grouping the runs by day takes
        twice as long.
        """
        shown = range(today - days + 1, today + 1)
        bounds = ", ".join(f"({day * DAY_NS}, {(day + 1) * DAY_NS})" for day in shown)
        counts: dict[tuple[Tenant, str], list[int]] = {}
        for start in range(0, len(keys), _MOST_TRENDS):
            some = keys[start : start + _MOST_TRENDS]
            marks = ", ".join(["(?, ?)"] * len(some))
            rows = self.db.execute(
                f"WITH asked (owner, id) AS (VALUES {marks}),"  # noqa: S608 - numbers and our own words
                f" day (began, ended) AS (VALUES {bounds})"
                " SELECT owner, id, (SELECT count(*) FROM counted_run WHERE tenant = owner AND issue = id"
                " AND decided_ns >= began AND decided_ns < ended)"
                " FROM asked CROSS JOIN day ORDER BY 1, 2, began",
                [value for key in some for value in key],
            )
            for owner, issue_id, count in rows.fetchall():
                counts.setdefault((Tenant(owner), issue_id), []).append(count)
        return {key: tuple(found) for key, found in counts.items()}

    def queue_notice(self, target: str, notice: Notice) -> None:
        """Queue a notice for a receiver; call it in a transaction."""
        row = (target, f"{notice.tenant}/{notice.issue_id}", notice.at_ns, notice.to_json())
        self.db.write_rows(insert("notice", "target, issue, noted_ns, document"), [row])

    def unsent(self, target: str, limit: int = 500) -> list[UnsentNotice]:
        """Return a receiver's unsent notices, oldest first."""
        if not self.db.leads():  # another process notifies for all that share the store
            return []
        rows = self.db.execute(
            "SELECT id, document FROM notice WHERE target = ? ORDER BY id LIMIT ?", (target, limit)
        )
        return [UnsentNotice(id=row[0], notice=read_notice(row[1])) for row in rows]

    def forget_notices(self, target: str, ids: Sequence[int], now_ns: int, *, is_taken: bool) -> None:
        """Delete notices that a receiver accepted or permanently refused."""
        with self.transaction():
            self.db.executemany("DELETE FROM notice WHERE id = ?", [(id_,) for id_ in ids])
            self.db.execute("DELETE FROM target WHERE name = ?", (target,))
            if is_taken:
                self.db.execute("INSERT INTO told (target, at_ns) VALUES (?, ?)", (target, now_ns))

    def sent_since(self, target: str, since_ns: int) -> list[int]:
        """Return the times of the recent messages to a receiver, oldest first."""
        rows = self.db.execute(
            "SELECT at_ns FROM told WHERE target = ? AND at_ns > ? ORDER BY at_ns", (target, since_ns)
        )
        return [row[0] for row in rows]

    def postpone(self, target: str, attempts: int, next_ns: int) -> None:
        """Store the time of the next attempt for a receiver."""
        with self.transaction():
            self.db.write_rows(_WRITE_TARGET, [(target, attempts, next_ns)])

    def next_attempt(self, target: str) -> tuple[int, int]:
        """Return the number of failed attempts for a receiver, and the time of the next attempt."""
        row = self.db.execute("SELECT attempts, next_ns FROM target WHERE name = ?", (target,)).fetchone()
        return (row[0], row[1]) if row else (0, 0)

    def cursor(self, name: str) -> int:
        """Return the position up to which ``name`` was read; 0 if never."""
        row = self.db.execute("SELECT value FROM cursor WHERE name = ?", (name,)).fetchone()
        return row[0] if row else 0

    def move_cursor(self, name: str, value: int) -> None:
        """Store the position up to which ``name`` was read; call it in a transaction."""
        self.db.write_rows(_WRITE_CURSOR, [(name, value)])

    def prune(self, now_ns: int) -> None:
        """Delete rows that are too old or too many, in batches; resolved issues go first."""
        day = now_ns // DAY_NS
        with self.transaction():
            self.db.execute("DELETE FROM agent_day WHERE day < ?", (day - KEPT_DAYS,))
            self.db.execute("DELETE FROM watch WHERE last_day < ?", (day - KEPT_DAYS,))
            self.db.execute("DELETE FROM told WHERE at_ns < ?", (now_ns - DAY_NS,))
            self.db.execute(
                "DELETE FROM counted_run WHERE decided_ns <"
                " (SELECT decided_ns FROM counted_run ORDER BY decided_ns DESC LIMIT 1 OFFSET ?)",
                (MAX_RUNS,),
            )
            self.db.keep_newest("notice", "id", MAX_OUTBOX)
            self.db.execute(
                "DELETE FROM issue WHERE (tenant, id) IN (SELECT tenant, id FROM issue"
                " ORDER BY state = ?, last_ns DESC LIMIT ? OFFSET ?)",
                (IssueState.RESOLVED, MAX_ISSUES, MAX_ISSUES),
            )

    def _issues(self, where: str, values: tuple[object, ...]) -> list[tuple[Tenant, Issue]]:
        rows = self.db.execute(
            f"SELECT {_ISSUE_COLUMNS} FROM issue WHERE {where}",  # noqa: S608 - our own words
            values,
        )
        return [(Tenant(row[0]), as_issue(row[1:])) for row in rows]

    def _runs(self, where: str, values: tuple[object, ...]) -> list[CountedRun]:
        rows = self.db.execute(
            f"SELECT {_RUN_COLUMNS} FROM counted_run WHERE {where}",  # noqa: S608 - as above
            values,
        )
        return [as_counted(row) for row in rows]


Key: TypeAlias = tuple[Tenant, str]
"""A run or an issue, by its id."""


class CountedRows:
    """Rows read and changed in one transaction; call ``write`` before it ends."""

    def __init__(self, store: IssueStore, runs: Iterable[Key]) -> None:
        """Read the counts of these runs."""
        self._store: Final = store
        self._runs: Final = {(run.tenant, run.run_id): run for run in store.runs(list(dict.fromkeys(runs)))}
        self._issues: Final[dict[Key, Issue | None]] = {}
        self._changed_runs: Final[set[Key]] = set()
        self._changed_issues: Final[set[Key]] = set()

    def run(self, key: Key) -> CountedRun | None:
        """Return the current counted state of one of the runs."""
        return self._runs.get(key)

    def set_run(self, run: CountedRun) -> None:
        """Set how a run is counted."""
        self._runs[run.tenant, run.run_id] = run
        self._changed_runs.add((run.tenant, run.run_id))

    def read_issues(self, keys: Iterable[Key]) -> None:
        """Read issues in advance, with one statement."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self._issues]
        issues = self._store.issues_of(wanted)
        self._issues.update(dict.fromkeys(wanted))
        self._issues.update({(tenant, issue.fingerprint.id): issue for tenant, issue in issues})

    def issue(self, key: Key) -> Issue | None:
        """Return an issue in its current state."""
        self.read_issues([key])
        return self._issues[key]

    def set_issue(self, tenant: Tenant, issue: Issue) -> None:
        """Change or open an issue."""
        key = (tenant, issue.fingerprint.id)
        self._issues[key] = issue
        self._changed_issues.add(key)

    def drop_issue(self, key: Key) -> None:
        """Delete an issue without a failure, and its unsent notices."""
        self._store.drop_issue(*key)
        self._issues[key] = None

    def write(self) -> None:
        """Write all changes."""
        self._store.write_runs(self._runs[key] for key in sorted(self._changed_runs))
        issues = [(key[0], self._issues[key]) for key in sorted(self._changed_issues)]
        self._store.write_issues((tenant, issue) for tenant, issue in issues if issue is not None)
        self._changed_runs.clear()
        self._changed_issues.clear()
