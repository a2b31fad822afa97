"""Reads pages of the list of runs: rows, filters, and searches of texts. Not pure; for one thread.

A list is read along the index of its order, by key, and a filter examines at most ``MOST_FILTERED`` runs per
page. A search finds a rare text by the index of trigrams, among all runs. A common text, which most pages of
the list have, and one that the index cannot find are compared along the list, with the texts of at most
``MOST_COMPARED`` runs. The page says where it stopped: a hundred thousand runs cost as much as a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from analyzer.issues.labels.kept_run import ends_of
from analyzer.issues.labels.label_store import LabelStore
from analyzer.web.reads.documents import RunPage, RunRow, row_of
from analyzer.web.reads.run_query import (
    TOTALS,
    VERDICT,
    Condition,
    Order,
    RunKey,
    RunName,
    RunQuery,
    joined,
    on_index,
    on_row,
    totals_in,
)
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.database.driver import Rows
from collector_processor.store.run_text import IS_KEPT, RunTextRows, folded

ITS_VERDICT: Final = (
    "verdict.tenant = run_totals.tenant AND verdict.run_id = run_totals.run_id"
    " AND verdict.version = run_totals.version"
)
MOST_COMPARED: Final = 3_000
"""Runs whose indexed texts are compared for a page: some 50 ms."""
MOST_FOUND: Final = 1_000
"""Runs found by the index that are read and sorted for a page; with more, the text is common."""
MOST_FILTERED: Final = 20_000
"""Runs that a filter examines for a page."""
_ENDS: Final = 300
"""Characters read of a run's task and answer: more than a page shows, so that it says where it cuts."""
_HEADS: Final = "tenant, run_id, substr(packed, 1, 16384)"
"""The beginning of a packed run, which always contains the shown part of its task."""
_COLUMNS: Final = ", ".join(
    [*(f"verdict.{name}" for name in VERDICT), *(f"run_totals.{name}" for name in TOTALS)]
)
_PLACE: Final = "run_totals.{}, run_totals.tenant, run_totals.run_id"
_ITS_TEXT: Final = "run_text.tenant = run_totals.tenant AND run_text.run_id = run_totals.run_id"
_WITH_VERDICT: Final = "CROSS JOIN verdict"


class RunLists:
    """Reads the list of runs on one connection."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db
        self._labels: Final = LabelStore(db)
        self._texts: Final = RunTextRows(db)

    def page(self, query: RunQuery) -> RunPage:
        """Return a page of the runs of a query; with a text, those that contain it."""
        order, conditions = Order.of(query), on_row(query)
        start = [order.after(query.before)] if query.before else []
        start += on_index(query)
        if query.text:
            return self._found(query, order, start)
        floor = self._floor(start, order, MOST_FILTERED) if conditions else None
        within = [] if floor is None else [order.within(floor)]
        where = [*start, *within, *conditions]
        columns = f"{_COLUMNS}, run_totals.{order.column}"
        found = self._read(
            columns, _WITH_VERDICT, order, [*where, Condition(ITS_VERDICT)], str(query.limit + 1)
        )
        rows = self._rows(found.fetchall(), has_tasks=query.has_tasks)
        if len(rows) > query.limit:
            return RunPage(rows=tuple(rows[: query.limit]), next=rows[query.limit - 1].key)
        return RunPage(rows=tuple(rows), next=floor, looked_at=MOST_FILTERED if floor else 0)

    def rows(self, names: Sequence[RunName], column: str = "decided_ns") -> list[RunRow]:
        """Return list rows of some runs, in this order; deleted runs are left out.

        ``column``: the number by which the list is sorted.
        """
        keys = "run_totals.tenant, run_totals.run_id"
        columns = f"{_COLUMNS}, run_totals.{column}"
        tables = f"run_totals {_WITH_VERDICT}"
        rows = self._db.read_rows(columns, tables, keys, names, f"AND {ITS_VERDICT}")
        known = {(row[0], row[1]): row for row in rows}
        return self._rows([known[name] for name in names if name in known])

    def _found(self, query: RunQuery, order: Order, start: Sequence[Condition]) -> RunPage:
        """Return the runs whose searched texts contain the text."""
        match = self._texts.match(folded(query.text))
        has = [Condition(_ITS_TEXT), Condition(match.has, match.values[1:]), Condition(IS_KEPT)]
        where = [*start, *on_row(query), *has]
        floor = None
        if self._texts.is_rare(match, MOST_FOUND):
            words, values = joined([Condition(match.found, match.values[:1]), *where])
            keys = self._db.execute(
                f"SELECT {_PLACE.format(order.column)} FROM run_text CROSS JOIN run_totals"  # noqa: S608 - our own words
                f" {words} {order.by} LIMIT {query.limit + 1}",
                values,
            )
        else:
            floor = self._floor(start, order, MOST_COMPARED)
            where += [] if floor is None else [order.within(floor)]
            place, most = _PLACE.format(order.column), str(query.limit + 1)
            keys = self._read(place, "CROSS JOIN run_text", order, where, most)
        found = [RunKey(at=row[0], tenant=Tenant(row[1]), run_id=row[2]) for row in keys]
        rows = tuple(self.rows([(key.tenant, key.run_id) for key in found[: query.limit]], order.column))
        if len(found) > query.limit:
            return RunPage(rows=rows, next=found[query.limit - 1])
        return RunPage(rows=rows, next=floor, looked_at=MOST_COMPARED if floor else 0)

    def _read(self, columns: str, tables: str, order: Order, where: Sequence[Condition], most: str) -> Rows:
        """Read runs along the index of their order; SQLite might sort all runs of a tenant instead."""
        index = "" if self._db.is_postgresql else f"INDEXED BY {order.index}"
        words, values = joined(where)
        return self._db.execute(
            f"SELECT {columns} FROM run_totals {index} {tables} {words} {order.by} LIMIT {most}",  # noqa: S608 - our own words
            values,
        )

    def _floor(self, start: Sequence[Condition], order: Order, most: int) -> RunKey | None:
        """Return the last run within one page's bound, by the index alone; ``None`` if all are."""
        columns = f"run_totals.{order.column}, tenant, run_id"
        row = self._read(columns, "", order, start, f"1 OFFSET {most - 1}").fetchone()
        return None if row is None else RunKey(at=row[0], tenant=Tenant(row[1]), run_id=row[2])

    def _rows(self, found: Sequence[tuple[Any, ...]], *, has_tasks: bool = True) -> list[RunRow]:
        """Return rows with their tasks, answers and labels, fetched by one statement each.

        Each statement releases the interpreter lock and may wait for other threads to get it back:
        with two statements per row, a list takes many times as long while something computes.
        """
        names = [(row[0], row[1]) for row in found]
        packed = self._db.read_rows(_HEADS, "kept_run", "tenant, run_id", names if has_tasks else ())
        ends = {(row[0], row[1]): ends_of(row[2], _ENDS) for row in packed}
        said = self._labels.current(names)
        return [
            row_of(
                verdict_in(row),
                *ends.get(name, ("", "")),
                said.get(name),
                totals=totals_in(row[len(VERDICT) : -1]),
                at=row[-1],
            )
            for name, row in zip(names, found, strict=True)
        ]


def verdict_in(row: tuple[Any, ...]) -> StoredVerdict:
    """Return the verdict in a row's columns ``VERDICT``."""
    fields = dict(zip(VERDICT, row[: len(VERDICT)], strict=True))
    fields["is_provisional"] = bool(fields["is_provisional"])
    return StoredVerdict(**fields)
