"""Verdicts and outbox are committed together or not at all, and never twice."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from analyzer.web.reads.run_query import Order, RunQuery, Sort
from collector_processor.core.disk import StoreError
from collector_processor.core.records import AbsentParent, Commit, Outgoing, RunIdentity, StoredVerdict
from collector_processor.otlp import NO_TENANT, CollectorError, Signal, Tenant, TraceKey
from collector_processor.store.database import sqlite_driver
from collector_processor.store.database.sqlite_driver import SqliteDriver
from collector_processor.store.database.upgrade import SCHEMA, schema_of
from collector_processor.store.schema import METADATA
from collector_processor.store.small_tables import MAX_ABSENT
from collector_processor.store.verdicts import MOST_PRUNED, RunStore
from semconv.model import SpanId, TraceId
from tests.run_store import analyses_of, joined

KEY = TraceKey(NO_TENANT, TraceId("a" * 32))
VERDICT = StoredVerdict(
    tenant=NO_TENANT,
    run_id="run-1",
    version=1,
    failure_id="f1",
    status="attributed",
    agent="calculator",
    step=7,
    span_id=SpanId("b" * 16),
    trace_id=KEY.trace_id,
    service="shop",
    is_provisional=False,
    decided_ns=5,
    document="{}",
)

IDENTITY = RunIdentity(run_id="run-1", trace_ids=frozenset((KEY.trace_id,)), digest=b"d")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    opened = RunStore(tmp_path / "runs.sqlite")
    yield opened
    opened.close()


def test_delivered_entries_are_gone_and_others_stay(store: RunStore) -> None:
    entries = tuple(Outgoing(signal=Signal.TRACES, body=bytes([number])) for number in range(3))
    store.commit(Commit(analysed=(), outgoing=entries))
    first, *others = store.outbox(Signal.TRACES)
    store.delivered([first.id])
    assert store.outbox(Signal.TRACES) == others


def test_the_highest_version_is_current_and_each_run_is_listed_once(store: RunStore) -> None:
    later = replace(VERDICT, version=2, agent="writer", decided_ns=9)
    other = replace(VERDICT, run_id="run-2", decided_ns=7)
    store.commit(Commit(analysed=(), verdicts=(VERDICT, later, other)))
    assert store.current(NO_TENANT, "run-1") == later
    assert store.starting_with("", None, 10) == [later, other]
    assert store.find("run-2") == [other]
    assert store.find("run-3") == []


def test_a_provisional_verdict_is_replaced_by_the_real_one(store: RunStore) -> None:
    store.commit(Commit(analysed=(), verdicts=(replace(VERDICT, is_provisional=True),)))
    store.commit(Commit(analysed=(), verdicts=(VERDICT,)))
    assert store.starting_with("", None, 10) == [VERDICT]


def test_analyses_are_counted_and_the_highest_row_kept(store: RunStore) -> None:
    store.commit(Commit(analysed=((KEY, 5),), times=2))
    store.commit(Commit(analysed=((KEY, 4),), times=1))
    assert analyses_of(store, KEY) == (2, 5)


def test_a_run_is_looked_up_without_reading_all_verdicts(store: RunStore) -> None:
    """SQLite's query plan: a scan would read a hundred thousand documents for each page of a run."""
    asked: list[str] = []
    driver = store._db._driver
    assert isinstance(driver, SqliteDriver)
    driver._db.set_trace_callback(asked.append)
    store.find("run-1")
    store.starting_with("run", None, 5)
    driver._db.set_trace_callback(None)
    for statement in asked:
        plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert not [line for line in plan if line.startswith("SCAN")], plan


def test_each_index_of_the_runs_serves_a_list_or_a_comparison(store: RunStore) -> None:
    """Every verdict writes a page or two of each: one that no query names, or needs, would be waste."""
    asked: list[str] = []
    driver = store._db._driver
    assert isinstance(driver, SqliteDriver)
    driver._db.set_trace_callback(asked.append)
    store.history.told(NO_TENANT, "shop", "refunds", 5)
    driver._db.set_trace_callback(None)
    plan = str(store._db.execute(f"EXPLAIN QUERY PLAN {asked[0]}").fetchall())
    compared = set(re.findall(r"INDEX (run_totals_by_\w+)", plan))
    queries = [RunQuery(tenant=Tenant(tenant), sort=sort) for tenant in ("", "t") for sort in Sort]
    listed = {Order.of(query).index for query in queries}  # SQLite refuses a list whose index it cannot use
    assert {index.name for index in METADATA.tables["run_totals"].indexes} == listed | compared


def test_what_a_trace_was_is_replaced_as_a_whole(store: RunStore) -> None:
    store.commit(Commit(analysed=((KEY, 3),), identities=(IDENTITY, replace(IDENTITY, run_id="run-2"))))
    assert {run.run_id for run in store.identities([KEY])[KEY]} == {"run-1", "run-2"}
    store.commit(Commit(analysed=((KEY, 3),), identities=(replace(IDENTITY, digest=b"e"),)))
    assert store.identities([KEY])[KEY] == (replace(IDENTITY, digest=b"e"),)
    store.commit(Commit(analysed=((KEY, 4),)))  # given up: nothing new is known
    assert store.identities([KEY])[KEY] == (replace(IDENTITY, digest=b"e"),)


def test_a_run_of_two_tenants_is_two_runs(store: RunStore) -> None:
    other = replace(VERDICT, tenant=Tenant("x=b"), agent="writer")
    store.commit(Commit(analysed=(), verdicts=(VERDICT, other)))
    assert store.find("run-1") == [VERDICT, other]


def test_what_is_forgotten_comes_back_to_the_disk(tmp_path: Path, store: RunStore) -> None:
    path = tmp_path / "runs.sqlite"
    documents = [replace(VERDICT, run_id=f"run-{number}", document="x" * (1 << 20)) for number in range(24)]
    aged = tuple(replace(one, decided_ns=number) for number, one in enumerate(documents))
    store.commit(Commit(analysed=(), verdicts=aged))
    store.prune(keep=100)
    before = path.stat().st_size
    for _ in range(10):  # some each time
        store.prune(keep=2)
    assert before > 24 << 20
    assert path.stat().st_size < before // 3
    assert store.current(NO_TENANT, "run-23") == aged[-1]


def test_the_store_keeps_the_newest_and_forgets_the_rest(store: RunStore) -> None:
    keys = [TraceKey(NO_TENANT, TraceId(f"{number:032x}")) for number in range(20)]
    for key in keys:
        joined(store, key, [f"autogen:{key.trace_id}"])
    for number, key in enumerate(keys):
        verdict = replace(VERDICT, run_id=f"run-{number}", decided_ns=number)
        store.commit(Commit(analysed=((key, number),), verdicts=(verdict,)))
    store.prune(keep=3)
    assert [verdict.run_id for verdict in store.starting_with("", None, 99)] == ["run-17", "run-18", "run-19"]
    assert [analyses_of(store, key)[0] for key in keys] == [0] * 8 + [1] * 12
    assert joined(store, keys[19], [f"autogen:{keys[7].trace_id}"]) == frozenset()
    assert joined(store, keys[19], [f"autogen:{keys[8].trace_id}"]) == {keys[8].trace_id}


def test_many_old_verdicts_are_forgotten_a_part_at_a_time_the_oldest_first(store: RunStore) -> None:
    most = MOST_PRUNED + 5
    aged = tuple(replace(VERDICT, run_id=f"run-{number}", decided_ns=number) for number in range(most + 1))
    store.commit(Commit(analysed=(), verdicts=aged))
    assert store.prune(keep=1)
    assert store.current(NO_TENANT, f"run-{MOST_PRUNED - 1}") is None
    assert store.current(NO_TENANT, f"run-{MOST_PRUNED}") is not None
    assert not store.prune(keep=1)
    assert store.starting_with("", None, 99) == [aged[-1]]
    assert store._db.execute("SELECT run_id FROM run_totals").fetchall() == [(f"run-{most}",)]


def test_the_run_keys_analysed_first_are_deleted_beyond_the_limit(store: RunStore) -> None:
    keys = [TraceKey(NO_TENANT, TraceId(f"{number:032x}")) for number in range(6)]
    names = {key: [f"autogen:{number}-{key.trace_id}" for number in range(10)] for key in keys}
    for number, key in enumerate(keys):
        joined(store, key, names[key])
        store.commit(Commit(analysed=((key, number),)))
    store.prune(keep=100, most_keys=60)
    assert all(joined(store, other, names[key]) for key, other in zip(keys, reversed(keys), strict=True))
    store.commit(Commit(analysed=()))
    store.prune(keep=100, most_keys=60)  # each trace has twenty by now
    assert store._db.execute("SELECT count(*) FROM run_key").fetchone() == (60,)
    assert store._db.execute(
        "SELECT count(*) FROM run_key WHERE trace_id = ?", (keys[0].trace_id,)
    ).fetchone() == (0,)


def test_run_keys_are_found_at_once_and_written_with_the_next_commit_or_when_they_are_many(
    store: RunStore,
) -> None:
    keys = [TraceKey(NO_TENANT, TraceId(f"{number:032x}")) for number in range(2)]
    count = "SELECT count(*) FROM run_key"
    assert joined(store, keys[0], ["autogen:team"]) == frozenset()
    assert joined(store, keys[1], ["autogen:team"]) == {keys[0].trace_id}
    assert store._db.execute(count).fetchone() == (0,)
    unbound = Outgoing(signal=Signal.LOGS, body=cast("bytes", object()))
    with pytest.raises(sqlite3.ProgrammingError):
        store.commit(Commit(analysed=((keys[0], 1),), outgoing=(unbound,)))
    assert store._db.execute(count).fetchone() == (0,)
    store.commit(Commit(analysed=((keys[0], 1),)))
    assert store._db.execute(count).fetchone() == (2,)
    joined(store, keys[0], [f"autogen:{number}" for number in range(1_500)])
    assert store._db.execute(count).fetchone() == (1_502,)


def test_a_run_key_that_the_database_rejects_fails_no_commit(store: RunStore) -> None:
    keys = [TraceKey(NO_TENANT, TraceId(f"{number:032x}")) for number in range(2)]
    joined(store, keys[0], ["autogen:team"])
    with pytest.raises(UnicodeEncodeError):
        joined(store, keys[1], ["autogen:team", "litellm:half \ud800"])
    store.commit(Commit(analysed=((keys[0], 1),)))
    assert store._db.execute("SELECT trace_id FROM run_key").fetchall() == [(keys[0].trace_id,)]


def test_a_full_disk_refuses_with_words_and_what_comes_after_it_is_kept(store: RunStore) -> None:
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={pages}")
    large = replace(VERDICT, document="x" * 100_000)
    for _ in range(2):
        with pytest.raises(StoreError, match="full"):
            store.commit(Commit(analysed=((KEY, 3),), verdicts=(large,)))
    assert analyses_of(store, KEY) == (0, -1)
    store._db.execute("PRAGMA max_page_count=1000000")
    store.commit(Commit(analysed=((KEY, 3),), verdicts=(large,)))
    assert analyses_of(store, KEY) == (1, 3)


def test_a_file_that_is_not_a_store_is_refused_with_words(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(CollectorError, match="cannot be used as a store"):
        RunStore(path)


def test_a_store_of_a_newer_version_is_refused_with_words(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    store = RunStore(path)
    store._db.execute("UPDATE alembic_version SET version_num = '9999'")
    store.close()
    with pytest.raises(CollectorError, match=r"runs\.sqlite was written by a newer .* \(schema 9999;"):
        RunStore(path)


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE verdict (x)")
    before = path.read_bytes()
    with pytest.raises(CollectorError, match="is not a store of blamespan: move it, or use another"):
        RunStore(path)
    assert sqlite3.connect(path).execute("SELECT name FROM sqlite_master").fetchall() == [("verdict",)]
    assert len(path.read_bytes()) == len(before)


@pytest.mark.usefixtures("migrations")
def test_a_new_store_that_another_process_makes_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.sqlite"
    looked = schema_of

    def made_after_the_look(driver: SqliteDriver) -> str | None:
        monkeypatch.setattr(sqlite_driver, "schema_of", looked)
        found = looked(driver)
        with closing(SqliteDriver(path)) as other:
            other.create_tables()
        return found

    monkeypatch.setattr(sqlite_driver, "schema_of", made_after_the_look)
    with closing(sqlite_driver.open_file(path)) as opened:
        assert looked(opened) == SCHEMA


class TestParentsThatNeverArrive:
    ABSENT = AbsentParent(tenant=NO_TENANT, kind=7, service="shop", scope="planner", name="plan", since_ns=1)

    def test_are_bounded_in_number(self, store: RunStore) -> None:
        many = [replace(self.ABSENT, kind=number, since_ns=number) for number in range(MAX_ABSENT + 5)]
        store.absent.add(many)
        assert len(store.absent.all()) == MAX_ABSENT
        assert store.absent.all()[-1].kind == 5
        for number in range(MAX_ABSENT + 5):
            store.absent.arrived([(NO_TENANT, 10_000 + number)], now_ns=number)
        assert (len(store.absent.arriving()), len(store.absent.all())) == (MAX_ABSENT, MAX_ABSENT)
