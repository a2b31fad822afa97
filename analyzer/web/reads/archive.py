"""Reads runs and verdicts for the pages, beside the thread that writes them. Not pure.

It has read-only connections and threads of its own: pages never wait for commits of analyses, nor commits for
pages. A list is read along the index of its order, by key; a filter examines at most ``MOST_FILTERED`` runs
per page and a search ``MOST_LOOKED_AT``, fewer if they are large, and the page says where it stopped: a
hundred thousand runs cost as much as a few.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from analyzer.issues.labels.kept_run import TextSearch, task_of
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.opinion_store import blamed_steps
from analyzer.web.reads.page_records import (
    Analysed,
    RunKey,
    RunName,
    RunPage,
    RunQuery,
    RunRow,
    Sort,
    Trend,
    row_of,
)
from analyzer.web.reads.run_query import (
    TOTALS,
    VERDICT,
    Condition,
    Order,
    joined,
    on_index,
    on_row,
    totals_in,
)
from analyzer.web.reads.trends import bucket_width, trend_of
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import Rows, StoreConnection, refusing
from collector_processor.store.database.places import Database
from collector_processor.store.kept_spans_table import KeptSpansRows
from collector_processor.store.records import StoredVerdict
from collector_processor.store.small_tables import TrialArm, TrialArmRows

T = TypeVar("T")

MOST_LOOKED_AT: Final = 2_000
"""Runs whose texts a search reads for a page."""
MOST_FILTERED: Final = 20_000
"""Runs that a filter examines for a page."""
MOST_VERSIONS: Final = 50
"""Versions of one verdict that a page shows."""
_TASK: Final = 200
_HEADS: Final = "tenant, run_id, substr(packed, 1, 16384)"
"""Length of the beginning of a packed run that always contains the shown part of its task."""
_OF_VERDICT: Final = ", ".join(VERDICT)
_COLUMNS: Final = ", ".join(
    [*(f"verdict.{name}" for name in VERDICT), *(f"run_totals.{name}" for name in TOTALS)]
)
_ITS_VERDICT: Final = (
    "verdict.tenant = run_totals.tenant AND verdict.run_id = run_totals.run_id"
    " AND verdict.version = run_totals.version"
)
MOST_COUNTED: Final = 50_000
"""Runs that a trend counts, the newest; without a filter the index alone is read."""
_COUNTED_FROM: Final = "SELECT decided_ns FROM run_totals ORDER BY decided_ns DESC LIMIT 1 OFFSET ?"
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
        self._arms: Final = TrialArmRows(self._db)
        self._worked: Final[StoreConnection] = database.connect()
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pages")
        self._summing: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page-sums")
        """Connection for reading many runs, so that a single run's page does not wait for it."""

    async def page(self, query: RunQuery) -> RunPage:
        """Return a page of the runs of a query."""
        return await self._beside(lambda: self._page(query))

    async def trend(self, query: RunQuery, now_ns: int) -> Trend:
        """Return the runs and failures over time of a query, whatever its text, order and page."""
        loop = asyncio.get_running_loop()
        by_time = replace(query, sort=Sort.NEWEST, before=None)
        return await loop.run_in_executor(self._summing, refusing, lambda: self._trend(by_time, now_ns))

    async def rows(self, names: Sequence[RunName]) -> Sequence[RunRow]:
        """Return list rows of some runs, in this order; deleted runs are left out."""
        return await self._beside(
            lambda: self._rows([row for name in names if (row := self._current(name)) is not None])
        )

    async def versions(self, tenant: Tenant, run_id: str) -> Sequence[StoredVerdict]:
        """Return the last versions of a run's verdict, newest first."""
        return await self._beside(lambda: self._versions(tenant, run_id))

    async def version(self, verdict: StoredVerdict, number: int) -> StoredVerdict | None:
        """Return another version of a verdict; ``None`` if there is none of this number."""
        return await self._beside(lambda: self._version(verdict, number))

    async def second_steps(self, names: Sequence[RunName]) -> dict[RunName, tuple[int, ...]]:
        """Return the steps that second opinions on these runs blame; runs without any are left out."""
        return await self._beside(lambda: blamed_steps(self._db, names))

    async def newest(self) -> tuple[int, int]:
        """Return a version that changes whenever a verdict is added or deleted."""
        return await self._beside(self._newest)

    async def kept(self, tenant: Tenant, run_id: str) -> bytes | None:
        """Return a run's kept steps, packed; ``None`` if not kept."""
        return await self._beside(lambda: self._labels.kept(tenant, run_id))

    async def kept_spans(self, tenant: Tenant, run_id: str) -> bytes | None:
        """Return a run's kept spans, packed; ``None`` if not kept."""
        return await self._beside(lambda: self._spans.packed(tenant, run_id))

    async def trial_arms(self, tenant: Tenant, run_id: str) -> Sequence[TrialArm]:
        """Return the kept trials of the last experiment on a run, that with the recorded answer first."""
        return await self._beside(lambda: self._arms.of(tenant, run_id))

    async def trial_arm(self, trial: str) -> tuple[TrialArm, bytes] | None:
        """Return a kept trial with its packed spans; ``None`` if not kept."""
        return await self._beside(lambda: self._arms.packed(trial))

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
        order, conditions = Order.of(query), on_row(query)
        start = [order.after(query.before)] if query.before else []
        start += on_index(query)
        most = MOST_LOOKED_AT if query.text else MOST_FILTERED
        floor = self._floor(start, order, most) if conditions or query.text else None
        if floor is not None:
            conditions = [order.within(floor), *conditions]
        where, values = joined([*start, *conditions])
        found = self._db.execute(
            f"SELECT {_COLUMNS}, run_totals.{order.column} FROM run_totals {self._by(order)}"  # noqa: S608 - our own words
            f" CROSS JOIN verdict {where} {'AND' if where else 'WHERE'} {_ITS_VERDICT} {order.by} LIMIT ?",
            (*values, most if query.text else query.limit + 1),
        )
        fitting = self._fitting(found, query) if query.text else _Fitting(rows=found.fetchall())
        rows = self._rows(fitting.rows)
        if len(rows) > query.limit:
            return RunPage(rows=tuple(rows[: query.limit]), next=rows[query.limit - 1].key)
        if fitting.last is not None:
            return RunPage(rows=tuple(rows), next=_key(fitting.last), looked_at=fitting.looked_at)
        return RunPage(rows=tuple(rows), next=floor, looked_at=most if floor else 0)

    def _fitting(self, found: Rows, query: RunQuery) -> _Fitting:
        """Return the verdicts of runs that contain the text; reads no further than it searches."""
        search, ends = TextSearch(query.text), monotonic() + LONGEST_SEARCH_S
        fitting, before, looked_at, rows = list[tuple[Any, ...]](), None, 0, iter(found)
        while part := tuple(islice(rows, _SEARCHED_AT_ONCE)):
            matches = {(row[0], row[1]): _mentions(row, query.text.lower()) for row in part}
            unread = [name for name, is_match in matches.items() if not is_match]
            packed = self._db.read_rows("tenant, run_id, packed", "kept_run", "tenant, run_id", unread)
            kept = {(row[0], row[1]): row[2] for row in packed}
            for row in part:
                name = (row[0], row[1])
                if search.unpacked_bytes >= MOST_UNPACKED or (search.unpacked_bytes and monotonic() > ends):
                    return _Fitting(rows=fitting, looked_at=looked_at, last=before)
                before, looked_at = row, looked_at + 1
                if matches[name] or (name in kept and search.finds_in(kept[name])):
                    fitting.append(row)
                if len(fitting) > query.limit:
                    return _Fitting(rows=fitting)
        return _Fitting(rows=fitting)

    def _current(self, name: RunName) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._db.execute(
            f"SELECT {_COLUMNS}, run_totals.decided_ns FROM run_totals CROSS JOIN verdict"  # noqa: S608 - our own words
            f" WHERE run_totals.tenant = ? AND run_totals.run_id = ? AND {_ITS_VERDICT}",
            name,
        ).fetchone()
        return row

    def _versions(self, tenant: Tenant, run_id: str) -> list[StoredVerdict]:
        rows = self._db.execute(
            f"SELECT {_OF_VERDICT} FROM verdict WHERE tenant = ? AND run_id = ?"  # noqa: S608 - our own words
            f" ORDER BY version DESC LIMIT {MOST_VERSIONS}",
            (tenant, run_id),
        ).fetchall()
        return [_verdict(row) for row in rows]

    def _version(self, verdict: StoredVerdict, number: int) -> StoredVerdict | None:
        row = self._db.execute(
            f"SELECT {_OF_VERDICT} FROM verdict WHERE tenant = ? AND run_id = ? AND version = ?",  # noqa: S608 - our own words
            (verdict.tenant, verdict.run_id, number),
        ).fetchone()
        return None if row is None else _verdict(row)

    def _floor(self, start: Sequence[Condition], order: Order, most: int) -> RunKey | None:
        """Return the last run within one page's bound, by the index alone; ``None`` if all are."""
        where, values = joined(start)
        row = self._db.execute(
            f"SELECT run_totals.{order.column}, tenant, run_id FROM run_totals"  # noqa: S608 - our own words
            f" {self._by(order)} {where} {order.by} LIMIT 1 OFFSET ?",
            (*values, most - 1),
        ).fetchone()
        return None if row is None else RunKey(at=row[0], tenant=Tenant(row[1]), run_id=row[2])

    def _by(self, order: Order) -> str:
        """Return the clause that names the index; SQLite might sort all runs of a tenant instead."""
        return "" if self._db.is_postgresql else f"INDEXED BY {order.index}"

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
                _verdict(row),
                task_of(heads.get(name, b""), _TASK),
                said.get(name),
                totals=totals_in(row[len(VERDICT) : -1]),
                at=row[-1],
            )
            for name, row in zip(names, found, strict=True)
        ]

    def _trend(self, query: RunQuery, now_ns: int) -> Trend:
        conditions = [*on_row(query), *on_index(query)]
        until_ns = now_ns + 1 if query.until_ns is None else query.until_ns
        oldest = self._worked.execute(_COUNTED_FROM, (MOST_COUNTED - 1,)).fetchone()
        first = self._worked.execute("SELECT min(decided_ns) FROM run_totals").fetchone()[0]
        counted_ns = first if oldest is None else oldest[0]
        since_ns = max(query.since_ns or 0, counted_ns or until_ns)
        width_ns = bucket_width(since_ns, until_ns)
        where, values = joined([*conditions, Condition("run_totals.decided_ns >= ?", (since_ns,))])
        rows = self._worked.execute(
            "SELECT decided_ns / ? AS bucket, status, count(*) FROM run_totals"  # noqa: S608 - our own words
            f" {where} GROUP BY 1, 2",
            (width_ns, *values),
        ).fetchall()
        is_whole = oldest is None or (query.since_ns or 0) >= counted_ns
        return trend_of(rows, since_ns, until_ns, width_ns, is_whole=is_whole)

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
    fields = dict(zip(VERDICT, row[: len(VERDICT)], strict=True))
    return StoredVerdict(**fields | {"is_provisional": bool(fields["is_provisional"])})


def _key(row: tuple[Any, ...]) -> RunKey:
    return RunKey(at=row[-1], tenant=Tenant(row[0]), run_id=row[1])


class _Fitting(NamedTuple):
    """The verdicts that fit, at most one more than the page has."""

    rows: Sequence[tuple[Any, ...]]
    looked_at: int = 0
    """Number of verdicts after which the search stopped; 0 if it did not stop early."""
    last: tuple[Any, ...] | None = None
    """The last of these verdicts."""


_SEARCHED: Final = tuple(VERDICT.index(name) for name in ("document", "run_id", "service", "agent"))


def _mentions(row: tuple[Any, ...], wanted: str) -> bool:
    """Return whether the verdict in a row, or the run's names, contain a text in lower case."""
    return any(wanted in (row[at] or "").lower() for at in _SEARCHED)
