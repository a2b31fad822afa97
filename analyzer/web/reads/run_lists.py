"""Reads pages of the list of runs: rows, filters, and searches of texts. Not pure; for one thread.

A list is read along the index of its order, by key, and a filter examines at most ``MOST_FILTERED`` runs per
page. A search finds a rare text by the index of trigrams, among all runs; a common text, which most pages of
the list have, along the list in at most ``MOST_COMPARED`` runs. What the index does not have, because it is
too short or not indexed, is searched in the kept texts of ``MOST_LOOKED_AT`` runs, fewer if they are large.
The page says where it stopped: a hundred thousand runs cost as much as a few.

The texts of the newest runs that were searched stay in memory: reading and unpacking those of 2,000 runs
takes 50 ms, searching them 10, and people search more than once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any, Final

from analyzer.issues.labels.kept_run import TextSearch, ends_of, searchable
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
from collector_processor.store.run_text import IS_KEPT, TRIGRAM, RunTextRows, folded

MOST_UNPACKED: Final = 64 << 20
"""Bytes of kept runs that a search goes through for a page, in about 0.3 s; the last is searched whole."""
LONGEST_SEARCH_S: Final = 2.0
"""Seconds after which a search ends its page too, on a busy machine."""
MOST_REMEMBERED: Final = 32 << 20
"""Bytes of texts in memory."""
_AT_ONCE: Final = 50
"""Runs whose texts are read together: kept runs of at most 13 MB packed."""
LISTED: Final = (
    "run_totals.tenant, run_totals.run_id, run_totals.version, run_totals.decided_ns,"
    " kept_run.kept_ns, kept_run.size"
)
WITH_KEPT: Final = (
    "LEFT JOIN kept_run ON kept_run.tenant = run_totals.tenant AND kept_run.run_id = run_totals.run_id"
)
"""Tables of a search's list, which tells by ``LISTED`` whether a run's texts have changed."""
_TEXTS: Final = (
    "run_totals.tenant, run_totals.run_id, verdict.document, verdict.service, verdict.agent, kept_run.packed"
)
_ALL_TABLES: Final = (
    "run_totals CROSS JOIN verdict LEFT JOIN kept_run"
    " ON kept_run.tenant = verdict.tenant AND kept_run.run_id = verdict.run_id"
)
ITS_VERDICT: Final = (
    "verdict.tenant = run_totals.tenant AND verdict.run_id = run_totals.run_id"
    " AND verdict.version = run_totals.version"
)
_Stamp = tuple[Any, ...]
MOST_LOOKED_AT: Final = 2_000
"""Runs whose texts a search reads for a page."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The places of the runs that contain a text, at most as many as asked for."""

    keys: Sequence[RunKey]
    looked_at: int = 0
    """Number of runs after which the search stopped; 0 if it did not stop early."""
    last: RunKey | None = None
    """The last of these runs."""


@dataclass(slots=True, kw_only=True)
class _Texts:
    """The texts of a run, in lower case."""

    stamp: _Stamp
    """Versions of the verdict and of the kept run that they were read from."""
    names: str
    """The verdict, and the run's names."""
    steps: bytes | None
    """The kept run; ``None`` if it is so long that it is unpacked in parts, each time."""
    turn: int = 0
    """The last search that used them."""

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return len(self.names) + len(self.steps or b"")


class RunSearch:
    """Searches runs on one connection."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db
        self._known: Final[OrderedDict[RunName, _Texts]] = OrderedDict()
        """Texts, the least recently used first."""
        self._size = 0
        self._turn = 0

    def find(self, text: str, listed: Iterable[tuple[Any, ...]], most: int) -> Found:
        """Return the first runs of a list that contain a text; reads no further than it searches.

        Args:
            text: the text; the case of ASCII letters is ignored.
            listed: rows of the columns ``LISTED`` and the run's place in the list.
            most: number of runs after which it stops.
        """
        self._turn += 1
        search, names, ends = TextSearch(text), text.lower(), monotonic() + LONGEST_SEARCH_S
        keys: list[RunKey] = []
        last, looked_at, rows = None, 0, iter(listed)
        while part := tuple(islice(rows, _AT_ONCE)):
            for row, texts, packed in self._with_texts(part):
                if search.unpacked_bytes >= MOST_UNPACKED or (search.unpacked_bytes and monotonic() > ends):
                    return Found(keys=keys, looked_at=looked_at, last=last)
                last, looked_at = RunKey(at=row[-1], tenant=Tenant(row[0]), run_id=row[1]), looked_at + 1
                if names in texts.names or _is_in_steps(search, texts, packed):
                    keys.append(last)
                if len(keys) >= most:
                    return Found(keys=keys)
        return Found(keys=keys)

    def clear(self) -> None:
        """Drop all texts in memory."""
        self._known.clear()
        self._size = 0

    def _with_texts(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], _Texts, bytes]]:
        """Yield rows with their texts, and the packed run if its texts are not in memory."""
        found = {(row[0], row[1]): self._remembered(row) for row in rows}
        unread = [name for name, texts in found.items() if texts is None]
        read = self._db.read_rows(
            _TEXTS, _ALL_TABLES, "run_totals.tenant, run_totals.run_id", unread, f"AND {ITS_VERDICT}"
        )
        fresh = {(row[0], row[1]): row[2:] for row in read}
        for row in rows:
            name = (row[0], row[1])
            texts = found[name]
            if texts is not None:
                yield row, texts, b""
            elif name in fresh:
                document, service, agent, packed = fresh[name]
                yield row, self._remember(name, row[2:-1], (document, row[1], service, agent), packed), packed

    def _remembered(self, row: tuple[Any, ...]) -> _Texts | None:
        texts = self._known.get((row[0], row[1]))
        if texts is None or texts.stamp != row[2:-1]:
            return None
        texts.turn = self._turn
        self._known.move_to_end((row[0], row[1]))
        return texts

    def _remember(
        self, name: RunName, stamp: _Stamp, names: Sequence[str | None], packed: bytes | None
    ) -> _Texts:
        """Return a run's texts; keep them unless texts that this search used would have to go."""
        texts = _Texts(
            stamp=stamp,
            names="\0".join(one or "" for one in names).lower(),
            steps=searchable(packed) if packed else b"",
            turn=self._turn,
        )
        before = self._known.pop(name, None)
        self._size -= 0 if before is None else before.size
        while self._size + texts.size > MOST_REMEMBERED and self._known:
            oldest = next(iter(self._known))
            if self._known[oldest].turn == self._turn:
                return texts
            self._size -= self._known.pop(oldest).size
        if texts.steps is not None and texts.size <= MOST_REMEMBERED:
            self._known[name] = texts
            self._size += texts.size
        return texts


def _is_in_steps(search: TextSearch, texts: _Texts, packed: bytes) -> bool:
    return search.finds_in(packed) if texts.steps is None else search.finds_in_text(texts.steps)


class RunLists:
    """Reads the list of runs on one connection."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db
        self._labels: Final = LabelStore(db)
        self._search: Final = RunSearch(db)
        self._texts: Final = RunTextRows(db)

    def page(self, query: RunQuery) -> RunPage:
        """Return a page of the runs of a query; with a text, those that contain it."""
        order, conditions = Order.of(query), on_row(query)
        indexed = self._indexed(query, order)
        if indexed is not None:
            return indexed
        start = [order.after(query.before)] if query.before else []
        start += on_index(query)
        most = MOST_LOOKED_AT if query.text else MOST_FILTERED
        floor = self._floor(start, order, most) if conditions or query.text else None
        within = [] if floor is None else [order.within(floor)]
        where = [*start, *within, *conditions]
        if query.text:
            return self._found(query, order, where, floor)
        columns = f"{_COLUMNS}, run_totals.{order.column}"
        found = self._read(
            columns, _WITH_VERDICT, order, [*where, Condition(ITS_VERDICT)], str(query.limit + 1)
        )
        rows = self._rows(found.fetchall(), has_tasks=query.has_tasks)
        if len(rows) > query.limit:
            return RunPage(rows=tuple(rows[: query.limit]), next=rows[query.limit - 1].key)
        return RunPage(rows=tuple(rows), next=floor, looked_at=most if floor else 0)

    def clear(self) -> None:
        """Drop the texts that searches keep in memory."""
        self._search.clear()

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

    def _indexed(self, query: RunQuery, order: Order) -> RunPage | None:
        """Return the runs whose indexed texts contain the text; ``None`` if the index has none."""
        text = folded(query.text)
        if len(text) < TRIGRAM or not self._texts.is_indexed():
            return None
        match = self._texts.match(text)
        start = [order.after(query.before)] if query.before else []
        start += on_index(query)
        has = [Condition(_ITS_TEXT), Condition(match.has, match.values[1:]), Condition(IS_KEPT)]
        where = [*start, *on_row(query), *has]
        floor = None
        if self._texts.is_common(match, MOST_FOUND):
            floor = self._floor(start, order, MOST_COMPARED)
            where += [] if floor is None else [order.within(floor)]
            place, most = _PLACE.format(order.column), str(query.limit + 1)
            keys = self._read(place, "CROSS JOIN run_text", order, where, most)
        else:
            words, values = joined([Condition(match.found, match.values[:1]), *where])
            keys = self._db.execute(
                f"SELECT {_PLACE.format(order.column)} FROM run_text CROSS JOIN run_totals"  # noqa: S608 - our own words
                f" {words} {order.by} LIMIT {query.limit + 1}",
                values,
            )
        found = [RunKey(at=row[0], tenant=Tenant(row[1]), run_id=row[2]) for row in keys]
        rows = tuple(self.rows([(key.tenant, key.run_id) for key in found[: query.limit]], order.column))
        if len(found) > query.limit:
            return RunPage(rows=rows, next=found[query.limit - 1])
        if floor is not None:
            return RunPage(rows=rows, next=floor, looked_at=MOST_COMPARED)
        return RunPage(rows=rows) if rows else None

    def _found(
        self, query: RunQuery, order: Order, where: Sequence[Condition], floor: RunKey | None
    ) -> RunPage:
        """Return the runs that contain the text; reads no further than it searches."""
        listed = self._read(
            f"{LISTED}, run_totals.{order.column}", WITH_KEPT, order, where, str(MOST_LOOKED_AT)
        )
        found = self._search.find(query.text, listed, query.limit + 1)
        names = [(key.tenant, key.run_id) for key in found.keys[: query.limit]]
        rows = tuple(self.rows(names, order.column))
        if len(found.keys) > query.limit:
            return RunPage(rows=rows, next=found.keys[query.limit - 1])
        if found.last is not None:
            return RunPage(rows=rows, next=found.last, looked_at=found.looked_at)
        return RunPage(rows=rows, next=floor, looked_at=MOST_LOOKED_AT if floor else 0)

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
