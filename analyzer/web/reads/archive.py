"""Reads runs and verdicts for the pages, beside the thread that writes them. Not pure.

It has read-only connections and threads of its own: pages never wait for commits of analyses, nor commits for
pages. A list is read along the time index, by key; a search examines at most ``MOST_LOOKED_AT`` runs per
page, fewer if they are large, and says where it stopped: a hundred thousand runs cost as much as a few.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from analyzer.labels.kept_run import TextSearch, task_of
from analyzer.labels.label_store import LabelStore
from analyzer.telemetry.metric import CUT
from analyzer.web.reads.sources import Analysed, RunKey, RunName, RunPage, RunQuery, RunRow, row_of
from collector_processor.otlp import Tenant
from collector_processor.store.connection import StoreConnection, refusing
from collector_processor.store.kept_spans import KeptSpansRows
from collector_processor.store.places import Database
from collector_processor.store.records import StoredVerdict
from collector_processor.store.verdicts import IS_CURRENT

T = TypeVar("T")

MOST_LOOKED_AT: Final = 2_000
MOST_VERSIONS: Final = 50
"""Versions of one verdict that a page shows."""
_TASK: Final = 200
_HEADS: Final = "tenant, run_id, substr(packed, 1, 16384)"
"""Length of the beginning of a packed run that always contains the shown part of its task."""
_FIELDS: Final = tuple(StoredVerdict.__dataclass_fields__)
_COLUMNS: Final = ", ".join(_FIELDS)
_KEY: Final = "(decided_ns, tenant, run_id)"
_SEARCHED_AT_ONCE: Final = 50
"""Kept runs that a search reads together, at most 13 MB packed."""
MOST_UNPACKED: Final = 64 << 20
"""Bytes of kept runs that a search unpacks for a page, in about 0.3 s; the last run is searched whole."""
LONGEST_SEARCH_S: Final = 2.0
"""Seconds after which a search ends its page too, on a busy machine."""
_RECENT: Final = (
    "SELECT decided_ns, status, document FROM verdict WHERE decided_ns > ? ORDER BY decided_ns DESC LIMIT ?"
)
_WORK_IN_SQLITE: Final = f"""
SELECT json_group_array(
  json_array(decided_ns, status, json_extract(document, '$.cost_usd', '$.calls', '$.duration_s'))
) FROM ({_RECENT}) AS recent WHERE json_valid(document)
"""  # noqa: S608 - our own words
"""Query for a day's analyses as one row, because each row takes the interpreter lock once."""
_WORK_IN_POSTGRESQL: Final = f"""
SELECT coalesce(json_agg(json_build_array(decided_ns, status, json_build_array(
  document::json -> 'cost_usd', document::json -> 'calls', document::json -> 'duration_s'
))), '[]')::text FROM ({_RECENT}) AS recent
"""  # noqa: S608 - our own words
_CHANGES_IN_SQLITE: Final = "PRAGMA data_version"
_CHANGES_IN_POSTGRESQL: Final = "SELECT txid_snapshot_xmax(txid_current_snapshot())"
"""Query for a value that changes at the latest when another connection commits."""


class RunArchive:
    """Read access to the store."""

    def __init__(self, database: Database) -> None:
        """Open two connections.

        Raises:
            CollectorError: as ``Database.connect``.
        """
        self._db: Final[StoreConnection] = database.connect()
        self._labels: Final = LabelStore(self._db)
        self._spans: Final = KeptSpansRows(self._db)
        self._worked: Final[StoreConnection] = database.connect()
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pages")
        self._summing: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page-sums")
        """Connection for reading many runs, so that a single run's page does not wait for it."""

    async def page(self, query: RunQuery) -> RunPage:
        """Return a page of the runs of a query."""
        return await self._beside(lambda: self._page(query))

    async def rows(self, names: Sequence[RunName]) -> Sequence[RunRow]:
        """Return list rows of some runs, in this order; deleted runs are left out."""
        return await self._beside(
            lambda: self._rows([row for name in names if (row := self._current(name)) is not None])
        )

    async def versions(self, tenant: Tenant, run_id: str) -> Sequence[StoredVerdict]:
        """Return the last versions of a run's verdict, newest first."""
        return await self._beside(lambda: self._versions(tenant, run_id))

    async def newest(self) -> tuple[int, int]:
        """Return a version that changes whenever a verdict is added or deleted."""
        return await self._beside(self._newest)

    async def kept(self, tenant: Tenant, run_id: str) -> bytes | None:
        """Return a run's kept steps, packed; ``None`` if not kept."""
        return await self._beside(lambda: self._labels.kept(tenant, run_id))

    async def kept_spans(self, tenant: Tenant, run_id: str) -> bytes | None:
        """Return a run's kept spans, packed; ``None`` if not kept."""
        return await self._beside(lambda: self._spans.packed(tenant, run_id))

    async def analyses_since(self, since_ns: int, most: int) -> Sequence[Analysed]:
        """Return the analyses after that time, newest first."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._summing, refusing, lambda: self._analyses(since_ns, most))

    def close(self) -> None:
        """Close the connections."""
        self._thread.shutdown(wait=True)
        self._summing.shutdown(wait=True)
        self._db.close()
        self._worked.close()

    async def _beside(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, refusing, read)

    def _page(self, query: RunQuery) -> RunPage:
        order = _Order.of(query)
        start = [_place(order.after, query.before)] if query.before else []
        start += _within_time(query)
        conditions = _conditions(query)
        is_read = bool(query.text) or query.least_confidence is not None or query.most_confidence is not None
        floor = self._floor(start, order) if conditions or is_read else None
        if floor is not None and query.tenant:  # that run may be another tenant's: only its time is told
            floor = RunKey(decided_ns=floor.decided_ns, tenant=query.tenant, run_id="")
        if floor is not None:
            conditions = [_place(order.within, floor), *conditions]
        where, values = _joined([*start, *conditions, _Condition(IS_CURRENT)])
        found = self._db.execute(
            f"SELECT {_COLUMNS} FROM verdict {where} {order.by} LIMIT ?",  # noqa: S608 - our own words
            (*values, MOST_LOOKED_AT if is_read else query.limit + 1),
        ).fetchall()
        fitting = self._fitting(found, query) if is_read else _Fitting(rows=found)
        rows = self._rows(fitting.rows)
        if len(rows) > query.limit:
            return RunPage(rows=tuple(rows[: query.limit]), next=rows[query.limit - 1].key)
        if fitting.looked_at:
            last = row_of(_verdict(found[fitting.looked_at - 1])).key
            return RunPage(rows=tuple(rows), next=last, looked_at=fitting.looked_at)
        return RunPage(rows=tuple(rows), next=floor, looked_at=MOST_LOOKED_AT if floor else 0)

    def _fitting(self, found: Sequence[tuple[Any, ...]], query: RunQuery) -> _Fitting:
        """Return the verdicts that pass the filters on their content: confidence, and a text of the run."""
        sure = [(place, row) for place, row in enumerate(found) if _is_as_sure(_verdict(row), query)]
        if not query.text:
            return _Fitting(rows=[row for _, row in sure[: query.limit + 1]])
        search, ends, fitting = (
            TextSearch(query.text),
            monotonic() + LONGEST_SEARCH_S,
            list[tuple[Any, ...]](),
        )
        for at in range(0, len(sure), _SEARCHED_AT_ONCE):
            part = sure[at : at + _SEARCHED_AT_ONCE]
            matches = {(row[0], row[1]): _mentions(_verdict(row), query.text) for _, row in part}
            unread = [name for name, is_match in matches.items() if not is_match]
            packed = self._db.read_rows("tenant, run_id, packed", "kept_run", "tenant, run_id", unread)
            kept = {(row[0], row[1]): row[2] for row in packed}
            for place, row in part:
                name = (row[0], row[1])
                if search.unpacked_bytes >= MOST_UNPACKED or (search.unpacked_bytes and monotonic() > ends):
                    return _Fitting(rows=fitting, looked_at=place)
                if matches[name] or (name in kept and search.finds_in(kept[name])):
                    fitting.append(row)
                if len(fitting) > query.limit:
                    return _Fitting(rows=fitting)
        return _Fitting(rows=fitting)

    def _current(self, name: RunName) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._db.execute(
            f"SELECT {_COLUMNS} FROM verdict WHERE tenant = ? AND run_id = ? ORDER BY version DESC LIMIT 1",  # noqa: S608 - our own words
            name,
        ).fetchone()  # fmt: skip
        return row

    def _versions(self, tenant: Tenant, run_id: str) -> list[StoredVerdict]:
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM verdict WHERE tenant = ? AND run_id = ?"  # noqa: S608 - our own words
            f" ORDER BY version DESC LIMIT {MOST_VERSIONS}",
            (tenant, run_id),
        ).fetchall()
        return [_verdict(row) for row in rows]

    def _floor(self, start: Sequence[_Condition], order: _Order) -> RunKey | None:
        """Return the last verdict that one page may examine, by the index alone; ``None`` for all."""
        where, values = _joined(start)
        row = self._db.execute(
            f"SELECT decided_ns, tenant, run_id FROM verdict {where} {order.by}"  # noqa: S608 - our own words
            " LIMIT 1 OFFSET ?",
            (*values, MOST_LOOKED_AT - 1),
        ).fetchone()  # fmt: skip
        return None if row is None else RunKey(decided_ns=row[0], tenant=Tenant(row[1]), run_id=row[2])

    def _rows(self, found: Sequence[tuple[Any, ...]]) -> list[RunRow]:
        """Return rows with their tasks and labels, fetched by one statement each.

        Each statement releases the interpreter lock and may wait for other threads to get it back:
        with two statements per row, a list takes many times as long while something computes.
        """
        names = [(row[0], row[1]) for row in found]
        packed = self._db.read_rows(_HEADS, "kept_run", "tenant, run_id", names)
        heads = {(row[0], row[1]): row[2] for row in packed}
        said = self._labels.current(names)
        return [
            row_of(
                _verdict(row), task_of(heads.get((row[0], row[1]), b""), _TASK), said.get((row[0], row[1]))
            )
            for row in found
        ]

    def _newest(self) -> tuple[int, int]:
        row = self._db.execute("SELECT max(decided_ns) FROM verdict").fetchone()
        changes = _CHANGES_IN_POSTGRESQL if self._db.is_postgresql else _CHANGES_IN_SQLITE
        return (row[0] or 0, self._db.execute(changes).fetchone()[0])

    def _analyses(self, since_ns: int, most: int) -> list[Analysed]:
        work = _WORK_IN_POSTGRESQL if self._worked.is_postgresql else _WORK_IN_SQLITE
        (written,) = self._worked.execute(work, (since_ns, most)).fetchone()
        return [
            Analysed(
                decided_ns=decided_ns,
                status=status,
                cost_usd=cost_usd,
                calls=calls or 0,
                duration_s=float(duration_s or 0.0),
            )
            for decided_ns, status, (cost_usd, calls, duration_s) in json.loads(written)
        ]


def _verdict(row: tuple[Any, ...]) -> StoredVerdict:
    fields = dict(zip(_FIELDS, row, strict=True))
    return StoredVerdict(**fields | {"is_provisional": bool(fields["is_provisional"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """Direction of a list: its SQL."""

    by: str
    after: str
    """Condition on places after a given one."""
    within: str
    """Condition on places up to a given one."""

    @staticmethod
    def of(query: RunQuery) -> _Order:
        direction, after, within = ("ASC", ">", "<=") if query.is_oldest_first else ("DESC", "<", ">=")
        by = ", ".join(f"{name} {direction}" for name in ("decided_ns", "tenant", "run_id"))
        return _Order(
            by=f"ORDER BY {by}", after=f"{_KEY} {after} (?, ?, ?)", within=f"{_KEY} {within} (?, ?, ?)"
        )


class _Fitting(NamedTuple):
    """The verdicts that fit, at most one more than the page has."""

    rows: Sequence[tuple[Any, ...]]
    looked_at: int = 0
    """Number of verdicts after which the search stopped; 0 if it did not stop early."""


class _Condition(NamedTuple):
    """Part of a WHERE clause, with its values."""

    sql: str
    values: tuple[Any, ...] = ()


def _place(sql: str, key: RunKey) -> _Condition:
    return _Condition(sql, (key.decided_ns, key.tenant, key.run_id))


def _joined(conditions: Sequence[_Condition]) -> tuple[str, list[Any]]:
    where = " AND ".join(condition.sql for condition in conditions)
    return f"WHERE {where}" if where else "", [value for one in conditions for value in one.values]


def _conditions(query: RunQuery) -> list[_Condition]:
    conditions = []
    if query.tenant:
        conditions.append(_Condition("tenant = ?", (query.tenant,)))
    if query.statuses:
        marks = ", ".join("?" for _ in query.statuses)
        conditions.append(_Condition(f"status IN ({marks})", tuple(one.value for one in query.statuses)))
    for name, wanted in (("service", query.service), ("agent", query.agent)):
        if wanted:
            conditions.append(_Condition(_like(name), (_labelled(wanted),)))
    return conditions


def _within_time(query: RunQuery) -> list[_Condition]:
    since, until = query.since_ns, query.until_ns
    found = [] if since is None else [_Condition("decided_ns >= ?", (since,))]
    return found if until is None else [*found, _Condition("decided_ns < ?", (until,))]


def _is_as_sure(verdict: StoredVerdict, query: RunQuery) -> bool:
    """Return whether the verdict's confidence is in the range; only a blame has one."""
    least, most = query.least_confidence, query.most_confidence
    if least is None and most is None:
        return True
    sure = verdict.fields.get("confidence")
    if not isinstance(sure, int | float):
        return False
    return (least is None or sure >= least) and (most is None or sure <= most)


def _mentions(verdict: StoredVerdict, text: str) -> bool:
    """Return whether the verdict or the run's names contain a text."""
    fields = (verdict.run_id, verdict.service, verdict.agent or "", verdict.document)
    wanted = text.lower()
    return any(wanted in field.lower() for field in fields)


def _like(column: str) -> str:
    """Return a comparison with a pattern that ignores case in ASCII."""
    return f"lower({column}) LIKE lower(?) ESCAPE '\\'"


def _labelled(name: str) -> str:
    """Return the ``LIKE`` pattern of a name from the metrics, which truncate long names."""
    return f"{_literal(name[:-1])}%" if name.endswith(CUT) else _literal(name)


def _literal(text: str) -> str:
    """Escape text for a LIKE pattern."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
