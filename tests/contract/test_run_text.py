"""Contract of the index of searched texts on every database: what a search finds, and what is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

from analyzer.issues.beside_verdicts import TextsBehind
from analyzer.issues.labels.kept_run import MOST_CHARS, searched_text
from analyzer.issues.labels.label_store import PackedRun
from analyzer.web.reads import run_lists
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.run_query import RunQuery, Sort
from collector_processor.core.disk import StoreError
from collector_processor.core.records import Commit
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.database.connection import Database, StoreConnection, open_database
from collector_processor.store.deletion import delete_run, delete_tenant
from collector_processor.store.run_text import RunText, RunTextRows, folded
from collector_processor.store.small_tables import KeepLimits, KeptSpansRows
from semconv.model import Status
from tests.backends.postgresql import PostgresServer
from tests.issues import DAY, Bench
from tests.runs import run, step
from tests.verdicts import stored

OTHER = Tenant("x=b")
T = TypeVar("T")


@dataclass(slots=True)
class Shelf:
    """A store with an index, and its pages."""

    bench: Bench
    rows: RunTextRows
    pages: RunArchive
    count: int = 0

    def add(self, text: str, *, tenant: Tenant = NO_TENANT, status: Status = Status.NO_FAILURE) -> str:
        """Commit a run, keep its steps and write its text; return its id."""
        self.count += 1
        name = f"run-{self.count:03}"
        verdict = stored(
            tenant=tenant, run_id=name, agent=None, status=status.value, decided_ns=self.count, service=""
        )
        self.bench.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
        packed = PackedRun(tenant=tenant, run_id=name, is_failure=False, packed=b"-")
        self.bench.labels.keep([packed], self.count)
        self.rows.write([RunText(tenant=tenant, run_id=name, text=folded(text))])
        return name

    def found(self, text: str, tenant: Tenant = NO_TENANT, **fields: object) -> list[str]:
        """Return the runs of all pages of a search."""
        query = replace(RunQuery(text=text, tenant=tenant), **fields)  # type: ignore[arg-type]
        names: list[str] = []
        while True:
            page = asyncio.run(self.pages.page(query))
            names += [row.key.run_id for row in page.rows]
            if page.next is None:
                return names
            query = replace(query, before=page.next)

    def texts(self) -> int:
        count: int = self.bench.db.execute("SELECT count(*) FROM run_text").fetchone()[0]
        return count


@pytest.fixture
def shelf(db: StoreConnection, database: Database, tmp_path: Path) -> Iterator[Shelf]:
    rows = RunTextRows(db)
    assert rows.create_index()
    with closing(RunArchive(database)) as pages:
        yield Shelf(bench=Bench(folder=tmp_path, place=db), rows=rows, pages=pages)


@pytest.mark.parametrize(
    ("text", "searched"),
    [
        ("The capital is London.", "LONDON"),
        ("order 4712 shipped", "4712"),
        ('he said "stop" twice', '"stop"'),
        ('a""b', '""b'),
        ("see foo* and (bar)", "foo* and (b"),
        ("50% of a_b\\c", "50% of a_b\\c"),
        ("x AND NOT y", "AND NOT"),
        ("text: run_text_index MATCH 'x'", "run_text_index match 'x'"),
        ("東京都庁へ行く", "京都庁"),
        ("مرحبا بالعالم", "بالعا"),
        ("launch 🚀🚀🎉 now", "🚀🚀🎉"),
        ("STRASSE Straße", "straße"),
        ("İstanbul ofisi", "istanbul"),
        ("cafe\u0301 du port", "caf\u00e9 du"),
        ("ΟΔΟΣ", "οδος"),
        ("İstanbul", "İstanbul"),
        ("before\0behind", "behind"),
        ("half \ud800 a character", "a character"),
        ("x" * 10_000 + "needle", "needle"),
        ("é́ combining", "é́ comb"),
    ],
)
def test_a_passed_runs_text_is_found_whatever_its_script(shelf: Shelf, text: str, searched: str) -> None:
    name = shelf.add(text)
    shelf.add("hay")
    shelf.add(text, tenant=OTHER)
    assert shelf.found(searched) == ["run-003", name]  # an empty tenant is everyone's
    assert shelf.found(searched, OTHER) == ["run-003"]
    assert shelf.found(searched + "~") == []


@pytest.mark.parametrize(
    "text", ['"""', "***", "' OR 1=1 --", "%%%", "___", "a" * 10_000, "NEAR(a b)", "^a*:"]
)
def test_no_searched_text_is_syntax(shelf: Shelf, text: str) -> None:
    shelf.add("London")
    assert shelf.found(text) == []
    name = shelf.add(f"London {text} Paris")
    assert shelf.found(text) == [name]


@pytest.mark.parametrize("most", [1, 2_000], ids=["common", "rare"])
@pytest.mark.parametrize("sort", [Sort.NEWEST, Sort.OLDEST])
def test_pages_of_a_search_hold_every_run_once_in_order(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, most: int, sort: Sort
) -> None:
    monkeypatch.setattr(run_lists, "MOST_FOUND", most)
    monkeypatch.setattr(run_lists, "MOST_COMPARED", 4)
    names = [
        shelf.add("the needle" if number % 3 else "the hay", tenant=(NO_TENANT, OTHER)[number % 2])
        for number in range(30)
    ]
    wanted = [name for number, name in enumerate(names) if number % 3]
    of_other = [name for number, name in enumerate(names) if number % 3 and number % 2]
    if sort is Sort.NEWEST:
        wanted.reverse()
        of_other.reverse()
    assert shelf.found("needle", limit=3, sort=sort) == wanted
    assert shelf.found("needle", OTHER, limit=3, sort=sort) == of_other
    assert shelf.found("needle", statuses=(Status.ATTRIBUTED,), sort=sort) == []


def test_two_characters_are_searched_without_the_index(shelf: Shelf) -> None:
    name = shelf.add("hay")
    shelf.add("東京")
    assert shelf.found("AY") == [name]
    assert shelf.found("京") == ["run-002"]
    assert shelf.found("ya") == []


def test_a_store_without_an_index_is_searched_and_one_that_gets_it_later_has_all_texts(
    db: StoreConnection, database: Database, tmp_path: Path
) -> None:
    rows = RunTextRows(db)
    with closing(RunArchive(database)) as pages:
        shelf = Shelf(bench=Bench(folder=tmp_path, place=db), rows=rows, pages=pages)
        name = shelf.add("the needle")
        shelf.add("hay")
        assert shelf.found("NEEDLE") == [name]
        assert rows.create_index()
        assert rows.is_rare(rows.match("needle"), 1)
        assert shelf.found("NEEDLE") == [name]


def test_the_text_of_a_deleted_run_is_gone_at_once(shelf: Shelf) -> None:
    gone, stays = shelf.add("needle one"), shelf.add("needle two")
    shelf.add("needle three", tenant=OTHER)
    delete_run(shelf.bench.db, NO_TENANT, gone)
    delete_tenant(shelf.bench.db, OTHER)
    assert shelf.found("needle") == [stays]
    assert shelf.texts() == 1
    late = [RunText(tenant=NO_TENANT, run_id=gone, text="needle one")]
    shelf.rows.write(late)  # was waiting while the run was deleted
    assert shelf.texts() == 1


def test_the_text_of_an_expired_run_is_not_found_and_then_swept(shelf: Shelf) -> None:
    for number in range(5):
        shelf.add(f"needle {number}")
    shelf.bench.db.execute("UPDATE kept_run SET kept_ns = ? WHERE run_id > 'run-003'", (40 * DAY,))
    KeptSpansRows(shelf.bench.db, KeepLimits(days=30)).expire(41 * DAY)
    assert shelf.found("needle") == ["run-005", "run-004"]
    behind = TextsBehind(shelf.rows)
    for _ in range(20):
        shelf.add("hay")
    while behind.sweep():
        pass
    assert shelf.texts() == 22
    shelf.bench.verdicts.prune(keep=1)
    while behind.sweep():
        pass
    assert shelf.found("hay") == ["run-025"]
    assert shelf.texts() == 1


def test_a_server_without_the_extension_compares_texts(server: PostgresServer, tmp_path: Path) -> None:
    with closing(open_database(server.create("unindexed"))) as database, closing(database.own()) as db:
        db.execute("CREATE SCHEMA hidden")  # as on a server whose extensions the user may not use
        db.execute("CREATE EXTENSION pg_trgm SCHEMA hidden")
        rows = RunTextRows(db)
        assert not rows.create_index()
        with closing(RunArchive(database)) as pages:
            shelf = Shelf(bench=Bench(folder=tmp_path, place=db), rows=rows, pages=pages)
            name = shelf.add("needle")
            assert shelf.found("NEEDLE") == [name]
            assert shelf.found("needles") == []


def test_a_text_is_replaced_and_the_index_can_be_rebuilt(shelf: Shelf) -> None:
    name, kept = shelf.add("needle"), shelf.add("straw")
    shelf.rows.write([RunText(tenant=NO_TENANT, run_id=name, text="thread")])
    assert shelf.found("needle") == []
    assert shelf.found("thread") == [name]
    assert shelf.rows.missing((NO_TENANT, "")) == []
    shelf.rows.clear()
    assert shelf.rows.missing((NO_TENANT, "")) == [(NO_TENANT, name), (NO_TENANT, kept)]
    assert shelf.rows.create_index()
    shelf.rows.write([RunText(tenant=NO_TENANT, run_id=name, text="needle")])
    assert shelf.found("needle") == [name]


def test_texts_of_committed_runs_are_written_behind_until_all_are(shelf: Shelf) -> None:
    behind = TextsBehind(shelf.rows)
    names = [shelf.add("") for _ in range(9)]
    behind.add([RunText(tenant=NO_TENANT, run_id=name, text="first") for name in names])
    behind.add([RunText(tenant=NO_TENANT, run_id=names[0], text="second")])
    while behind.write():
        pass
    assert shelf.found("first") == names[:0:-1]
    assert shelf.found("second") == names[:1]


def test_texts_are_written_where_the_index_is_refused(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> bool:
        raise StoreError("statement timeout")

    async def in_db(work: Callable[[], T]) -> T:
        return work()

    behind, name = TextsBehind(shelf.rows), shelf.add("")
    behind.add([RunText(tenant=NO_TENANT, run_id=name, text="needle")])
    monkeypatch.setattr(shelf.rows, "create_index", refuse)
    with suppress(TimeoutError):
        asyncio.run(asyncio.wait_for(behind.run(in_db), 0.05))
    assert shelf.found("needle") == [name]


def test_one_transaction_writes_several_short_texts_or_few_long_ones(shelf: Shelf) -> None:
    behind = TextsBehind(shelf.rows)
    names = [shelf.add("") for _ in range(9)]
    texts = ["long " * 2_000] * 3 + ["short"] * 6
    behind.add(
        [RunText(tenant=NO_TENANT, run_id=name, text=text) for name, text in zip(names, texts, strict=True)]
    )
    assert behind.write()
    assert shelf.found("long") == names[1::-1]
    assert not behind.write()
    assert shelf.found("short") == names[:2:-1]


def test_the_text_of_a_run_is_bounded_and_has_all_short_texts() -> None:
    long = [step("a", f"{number} " + "x" * 900) for number in range(40)]
    told = run(
        *long, step("b", "order 4712"), step("c", "x", error="Oslo fell"), task="t" * 900, output="London"
    )
    text = searched_text(told, lambda text: text)
    assert len(text) <= MOST_CHARS
    assert all(part in text for part in ("order 4712", "Oslo fell", "London", "t" * 700))
    assert searched_text(told, lambda _text: "").strip() == ""
    assert searched_text(run(step("a", "same"), step("b", "same")), lambda text: text).count("same") == 1
