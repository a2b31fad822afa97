"""Reads runs, verdicts and trends for the pages, beside the thread that writes them. Not pure.

Trends count runs and failures by periods of a round length; the last results are cached for a while.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from analyzer.issues.labels.label_store import LabelStore, blamed_steps
from analyzer.web.reads.documents import RunPage, RunRow
from analyzer.web.reads.run_lists import RunLists, verdict_in
from analyzer.web.reads.run_query import VERDICT, Condition, RunName, RunQuery, Sort, joined, on_index, on_row
from collector_processor.core.disk import refusing
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import Database, StoreConnection
from collector_processor.store.small_tables import (
    KeptSpansRows,
    ProofRows,
    StoredProof,
    TrialArm,
    TrialArmRows,
)
from semconv.model import BLAMELESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The runs of a period, counted."""

    since_ns: int
    runs: int
    failed: int
    """Runs that failed, or may have: all but those without a sign of failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Runs and failures over time; periods without runs are included."""

    width_ns: int
    """Length of each period."""
    buckets: tuple[Bucket, ...] = ()
    """Oldest first."""
    is_whole: bool = True
    """Whether all runs that fit are counted, and not only the newest."""


MOST_BUCKETS: Final = 60
FRESH_NS: Final = 30 * 10**9
_EMPTY_NS: Final = FRESH_NS // 10
"""``FRESH_NS`` for a trend without runs, so that the first runs show soon."""
_REMEMBERED: Final = 64
_SECOND: Final = 10**9
_WIDTHS: Final = tuple(
    seconds * _SECOND
    for seconds in (60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
)


def bucket_width(since_ns: int, until_ns: int) -> int:
    """Return the shortest round period that divides a time into at most ``MOST_BUCKETS``."""
    lasts = max(0, until_ns - since_ns)
    fitting = (width for width in _WIDTHS if lasts <= width * (MOST_BUCKETS - 1))
    return next(fitting, max(_WIDTHS[-1], lasts // (MOST_BUCKETS - 1) + 1))


def trend_of(
    rows: Sequence[Sequence[Any]], since_ns: int, until_ns: int, width_ns: int, *, is_whole: bool
) -> Trend:
    """Return the trend of counts: each row a period's number, a status, and how many runs have it."""
    runs: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    for bucket, status, count in rows:
        runs[bucket] += count
        failed[bucket] += count if status not in BLAMELESS else 0
    if not runs:
        return Trend(width_ns=width_ns, is_whole=is_whole)
    numbers = range(since_ns // width_ns, max(until_ns - 1, since_ns) // width_ns + 1)
    buckets = (
        Bucket(since_ns=number * width_ns, runs=runs[number], failed=failed[number]) for number in numbers
    )
    return Trend(width_ns=width_ns, buckets=tuple(buckets), is_whole=is_whole)


@dataclass(slots=True, kw_only=True)
class Trends:
    """Caches trends by their filters."""

    read: Callable[[RunQuery, int], Awaitable[Trend]]
    """Returns the trend of a query at a time."""
    now_ns: Callable[[], int]
    _known: OrderedDict[RunQuery, tuple[int, Trend]] = field(default_factory=OrderedDict)
    _renewing: dict[RunQuery, asyncio.Task[Trend]] = field(default_factory=dict)

    async def of(self, query: RunQuery) -> Trend:
        """Return a query's trend; an old one is returned while it is renewed, unless it has no runs."""
        key, now_ns = _key_of(query), self.now_ns()
        known = self._known.get(key)
        if known is not None and 0 <= now_ns - known[0] < (FRESH_NS if known[1].buckets else _EMPTY_NS):
            return known[1]
        renewing = self._renewing.get(key)
        if renewing is None:
            renewing = self._renewing[key] = asyncio.create_task(self._renewed(key, now_ns))
            renewing.add_done_callback(lambda _task: self._renewing.pop(key, None))
        return known[1] if known is not None and known[1].buckets else await asyncio.shield(renewing)

    async def _renewed(self, key: RunQuery, now_ns: int) -> Trend:
        trend = await self.read(key, now_ns)
        self._known[key] = (now_ns, trend)
        self._known.move_to_end(key)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return trend


def _key_of(query: RunQuery) -> RunQuery:
    """Return the part of a query that its trend depends on; a time that moves on is rounded."""
    since_ns = None if query.since_ns is None else query.since_ns // FRESH_NS * FRESH_NS
    return replace(query, since_ns=since_ns, text="", sort=Sort.NEWEST, before=None, limit=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """The result of one analysis, as far as totals need it."""

    decided_ns: int
    status: str
    cost_usd: float | None
    """``None`` if unknown."""
    calls: int
    duration_s: float


T = TypeVar("T")

MOST_VERSIONS: Final = 50
"""Versions of one verdict that a page shows."""
_OF_VERDICT: Final = ", ".join(VERDICT)
_MOST_BESIDE: Final = 200
"""Most runs of a page that is read on the thread of all pages; longer pages are read like searches."""
MOST_COUNTED: Final = 50_000
"""Runs that a trend counts, the newest; without a filter the index alone is read."""
_MOST_PROOFS: Final = 10
"""Newest results of a service among which a command is looked for: one with a secret is kept without it."""
_COUNTED_FROM: Final = "SELECT decided_ns FROM run_totals ORDER BY decided_ns DESC LIMIT 1 OFFSET ?"
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
        self._proofs: Final = ProofRows(self._db)
        self._lists: Final = RunLists(self._db)
        self._worked: Final[StoreConnection] = database.connect()
        self._searched: Final = RunLists(self._worked)
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pages")
        self._summing: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page-sums")
        """Thread for reading many runs, so that a single run's page does not wait for them."""

    async def page(self, query: RunQuery) -> RunPage:
        """Return a page of the runs of a query."""
        if query.text or query.limit > _MOST_BESIDE:
            return await self._among_many(lambda: self._searched.page(query))
        return await self._beside(lambda: self._lists.page(query))

    async def trend(self, query: RunQuery, now_ns: int) -> Trend:
        """Return the runs and failures over time of a query, whatever its text, order and page."""
        by_time = replace(query, sort=Sort.NEWEST, before=None)
        return await self._among_many(lambda: self._trend(by_time, now_ns))

    async def rows(self, names: Sequence[RunName]) -> Sequence[RunRow]:
        """Return list rows of some runs, in this order; deleted runs are left out."""
        return await self._beside(lambda: self._lists.rows(names))

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

    async def proofs(self, tenant: Tenant, subject: str) -> Sequence[StoredProof]:
        """Return the results of the last experiment and backtest on a run or an issue, newest first."""
        return await self._beside(lambda: self._proofs.of(tenant, subject))

    async def proofs_of_service(self, tenant: Tenant, service: str) -> Sequence[StoredProof]:
        """Return the newest results on a service's runs and issues, newest first."""
        return await self._beside(lambda: self._proofs.of_service(tenant, service, _MOST_PROOFS))

    async def trial_arm(self, trial: str) -> tuple[TrialArm, bytes] | None:
        """Return a kept trial with its packed spans; ``None`` if not kept."""
        return await self._beside(lambda: self._arms.packed(trial))

    async def analyses_since(self, since_ns: int, most: int) -> Sequence[Analysed]:
        """Return the analyses after that time, newest first."""
        return await self._among_many(lambda: self._analyses(since_ns, most))

    def close(self) -> None:
        """Close the connections."""
        self._thread.shutdown(wait=True)
        self._summing.shutdown(wait=True)
        self._db.close()
        self._worked.close()

    async def _beside(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, refusing, read)

    async def _among_many(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._summing, refusing, read)

    def _versions(self, tenant: Tenant, run_id: str) -> list[StoredVerdict]:
        rows = self._db.execute(
            f"SELECT {_OF_VERDICT} FROM verdict WHERE tenant = ? AND run_id = ?"  # noqa: S608 - our own words
            f" ORDER BY version DESC LIMIT {MOST_VERSIONS}",
            (tenant, run_id),
        ).fetchall()
        return [verdict_in(row) for row in rows]

    def _version(self, verdict: StoredVerdict, number: int) -> StoredVerdict | None:
        row = self._db.execute(
            f"SELECT {_OF_VERDICT} FROM verdict WHERE tenant = ? AND run_id = ? AND version = ?",  # noqa: S608 - our own words
            (verdict.tenant, verdict.run_id, number),
        ).fetchone()
        return None if row is None else verdict_in(row)

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
