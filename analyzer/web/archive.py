"""Runs and verdicts read for the pages, beside whoever writes them. A shell.

Connections of its own, read only, on a thread of its own: a page never waits for
an analysis to be committed, nor the other way round (SQLite's WAL lets readers
be). A list is read along the index of time, by key; a search looks at no more than
``MOST_LOOKED_AT`` runs a page and says where it stopped, so that a hundred
thousand runs cost as much as a few.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from analyzer.labels.kept_run import task_of
from analyzer.labels.store import FILE
from analyzer.tallies.names import CUT
from analyzer.web.sources import Analysed, RowLabel, RunKey, RunName, RunPage, RunQuery, RunRow
from collector_processor.otlp import Tenant
from collector_processor.runstore import IS_CURRENT, RUNS

T = TypeVar("T")

MOST_LOOKED_AT: Final = 2_000
_TASK: Final = 200
_WANTED: Final = (
    "WITH wanted (tenant, run_id) AS"
    " (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))"
)
"""Runs by name, as one parameter; joined in this order (CROSS), each is looked up by its index."""
_HEAD: Final = 16_384
"""Bytes of a packed run that surely hold so much of its task."""
_COLUMNS: Final = (
    "tenant, run_id, version, status, agent, step, service, is_provisional, decided_ns, document"
)
_NEWEST_FIRST: Final = "ORDER BY decided_ns DESC, tenant DESC, run_id DESC"
_AFTER: Final = "(decided_ns, tenant, run_id) < (:decided, :last_tenant, :last_run)"
_WORK: Final = """
SELECT json_group_array(
  json_array(decided_ns, status, json_extract(document, '$.cost_usd', '$.calls', '$.duration_s'))
) FROM (
  SELECT decided_ns, status, document FROM verdict WHERE decided_ns > ? ORDER BY decided_ns DESC LIMIT ?
)
"""
"""A day's analyses as one row: each row costs a turn at the interpreter, which others may want too."""
_WITHIN: Final = "(decided_ns, tenant, run_id) >= (:floor, :floor_tenant, :floor_run)"


class RunArchive:
    """The stores of one data directory, to be read."""

    def __init__(self, data_dir: Path) -> None:
        """Remember where the stores are; they are opened when they are first read."""
        self._data_dir: Final = data_dir
        self._runs: sqlite3.Connection | None = None
        self._kept: sqlite3.Connection | None = None
        self._worked: sqlite3.Connection | None = None
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pages")
        self._summing: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page-sums")
        """Of many runs at once; who looks at a run does not wait for it."""

    async def page(self, query: RunQuery) -> RunPage:
        """Return the runs asked for, newest first."""
        return await self._beside(lambda: self._page(query))

    async def rows(self, names: Sequence[RunName]) -> Sequence[RunRow]:
        """Return some runs as the list shows them, in this order; those that are forgotten are left out."""
        return await self._beside(
            lambda: self._rows([row for name in names if (row := self._current(name)) is not None])
        )

    async def newest(self) -> tuple[int, int]:
        """Return what changes whenever a verdict is added or taken away."""
        return await self._beside(self._newest)

    async def kept(self, tenant: Tenant, run_id: str) -> bytes | None:
        """Return what is kept of a run's steps."""
        return await self._beside(lambda: self._packed(tenant, run_id))

    async def analyses_since(self, since_ns: int, most: int) -> Sequence[Analysed]:
        """Return what was analysed later than that, the newest first."""
        return await asyncio.get_running_loop().run_in_executor(self._summing, self._analyses, since_ns, most)

    def close(self) -> None:
        """Close the files."""
        self._thread.shutdown(wait=True)
        self._summing.shutdown(wait=True)
        for connection in (self._runs, self._kept, self._worked):
            if connection is not None:
                connection.close()

    async def _beside(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, read)

    def _page(self, query: RunQuery) -> RunPage:
        before, conditions = query.before, _conditions(query)
        values: dict[str, Any] = {
            "decided": before.decided_ns if before else None,
            "last_tenant": before.tenant if before else None,
            "last_run": before.run_id if before else None,
            "tenant": query.tenant,
            "status": query.status and query.status.value,
            "text": f"%{_literal(query.text)}%",
            "service": _labelled(query.service),
            "agent": _labelled(query.agent),
        }
        start = [_AFTER] if before else []
        floor = self._floor(start, values) if conditions else None
        if floor is not None:
            conditions = [_WITHIN, *conditions]
            values |= {
                "floor": floor.decided_ns,
                "floor_tenant": floor.tenant,
                "floor_run": floor.run_id,
            }
        wanted = " AND ".join([*start, *conditions, IS_CURRENT])
        found = self._verdicts().execute(
            f"SELECT {_COLUMNS} FROM verdict WHERE {wanted} {_NEWEST_FIRST} LIMIT {query.limit + 1}",  # noqa: S608
            values,
        )
        rows = self._rows(found.fetchall())
        if len(rows) > query.limit:
            return RunPage(rows=tuple(rows[: query.limit]), next=rows[query.limit - 1].key)
        return RunPage(rows=tuple(rows), next=floor, looked_at=MOST_LOOKED_AT if floor else 0)

    def _current(self, name: RunName) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._verdicts().execute(
            f"SELECT {_COLUMNS} FROM verdict WHERE tenant = ? AND run_id = ? ORDER BY version DESC LIMIT 1",  # noqa: S608 - our own words
            name,
        ).fetchone()  # fmt: skip
        return row

    def _floor(self, start: list[str], values: dict[str, Any]) -> RunKey | None:
        """Return the last verdict that one look comes to, by the index alone; ``None``: it comes to all."""
        where = f"WHERE {start[0]}" if start else ""
        row = self._verdicts().execute(
            f"SELECT decided_ns, tenant, run_id FROM verdict {where} {_NEWEST_FIRST}"  # noqa: S608 - our own words
            f" LIMIT 1 OFFSET {MOST_LOOKED_AT - 1}",
            values,
        ).fetchone()  # fmt: skip
        return None if row is None else RunKey(decided_ns=row[0], tenant=Tenant(row[1]), run_id=row[2])

    def _rows(self, found: Sequence[tuple[Any, ...]]) -> list[RunRow]:
        """Return rows with their tasks and labels, which are asked for together.

        Each statement gives up the interpreter, and may get it back only after others have had it
        for a while: with two a row, a list takes many times as long while something computes.
        """
        names = [(row[0], row[1]) for row in found]
        heads, said = self._heads(names), self._said(names)
        return [_row(row, heads.get((row[0], row[1]), b""), said.get((row[0], row[1]))) for row in found]

    def _newest(self) -> tuple[int, int]:
        row = self._verdicts().execute("SELECT max(decided_ns) FROM verdict").fetchone()
        changes = self._verdicts().execute("PRAGMA data_version").fetchone()
        return (row[0] or 0, changes[0])

    def _packed(self, tenant: str, run_id: str) -> bytes | None:
        row = self._labels().execute(
            "SELECT packed FROM run WHERE tenant = ? AND run_id = ?", (tenant, run_id)
        ).fetchone()  # fmt: skip
        return row[0] if row else None

    def _heads(self, names: Sequence[RunName]) -> dict[RunName, bytes]:
        """Return the beginnings of kept runs: their tasks are in them."""
        rows = self._labels().execute(
            f"{_WANTED} SELECT tenant, run_id, substr(packed, 1, {_HEAD})"  # noqa: S608 - our own words
            " FROM wanted CROSS JOIN run USING (tenant, run_id)",
            (_written(names),),
        ).fetchall()  # fmt: skip
        return {(Tenant(row[0]), row[1]): row[2] for row in rows}

    def _said(self, names: Sequence[RunName]) -> dict[RunName, RowLabel]:
        """Return what was last said of runs."""
        rows = self._labels().execute(
            f"{_WANTED} SELECT tenant, run_id, kind, agent, step"  # noqa: S608 - as above
            " FROM wanted CROSS JOIN label USING (tenant, run_id) ORDER BY label.id",
            (_written(names),),
        ).fetchall()  # fmt: skip
        return {(Tenant(row[0]), row[1]): RowLabel(kind=row[2], agent=row[3], step=row[4]) for row in rows}

    def _analyses(self, since_ns: int, most: int) -> list[Analysed]:
        if self._worked is None:
            self._worked = _read_only(self._data_dir / RUNS)
        (written,) = self._worked.execute(_WORK, (since_ns, most)).fetchone()
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

    def _labels(self) -> sqlite3.Connection:
        if self._kept is None:
            self._kept = _read_only(self._data_dir / FILE)
        return self._kept

    def _verdicts(self) -> sqlite3.Connection:
        if self._runs is None:
            self._runs = _read_only(self._data_dir / RUNS)
        return self._runs


def _read_only(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)


def _row(row: tuple[Any, ...], head: bytes, said: RowLabel | None) -> RunRow:
    tenant, run_id, _version, status, agent, step, service, is_provisional, decided_ns, document = row
    return RunRow(
        key=RunKey(decided_ns=decided_ns, tenant=Tenant(tenant), run_id=run_id),
        service=service,
        status=status,
        is_provisional=bool(is_provisional),
        agent=agent,
        step=step,
        task=task_of(head, _TASK) if head else "",
        document=json.loads(document),
        said=said,
    )


def _written(names: Sequence[RunName]) -> str:
    return json.dumps([list(name) for name in names])


def _conditions(query: RunQuery) -> list[str]:
    conditions = []
    if query.tenant:
        conditions.append("tenant = :tenant")
    if query.status:
        conditions.append("status = :status")
    conditions += [
        f"{name} LIKE :{name} ESCAPE '\\'" for name in ("service", "agent") if getattr(query, name)
    ]
    if query.text:
        fields = ("service", "agent", "document")  # the document names the run too
        conditions.append("(" + " OR ".join(f"{name} LIKE :text ESCAPE '\\'" for name in fields) + ")")
    return conditions


def _labelled(name: str) -> str:
    """Return the ``LIKE`` pattern for a name as metrics show it: metrics truncate long names."""
    return f"{_literal(name[:-1])}%" if name.endswith(CUT) else _literal(name)


def _literal(text: str) -> str:
    """Return text that stands for itself in a pattern of LIKE."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
