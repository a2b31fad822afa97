"""Kept spans in every database: quotas, age, deletion by run and by tenant."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from analyzer.issues.labels.kept_trace import NotKept, kept_trace
from analyzer.issues.labels.label_store import LabelStore, Opinion, OpinionStore, PackedRun
from analyzer.issues.labels.labelling import NoSuchRun
from analyzer.issues.labels.run_label import Label, LabelKind
from collector_processor.core.disk import RUNS
from collector_processor.core.records import Commit
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.kept_spans import SpanKeeper
from collector_processor.rebuild.redaction import ALL_KINDS, make_redactor
from collector_processor.store.database.connection import StoreConnection, open_database
from collector_processor.store.deletion import delete_run, delete_tenant
from collector_processor.store.small_tables import KeepLimits, KeptSpansRows, PackedSpans
from collector_processor.store.verdicts import RunStore
from tests.factories import agent, chat, workflow
from tests.verdicts import stored

ACME, OTHER = Tenant("x=acme"), Tenant("x=other")
DAY_NS: Final = 86_400 * 10**9
RULES: Final = make_redactor(ALL_KINDS)


def spans(number: int, *, failed: bool = True, tenant: Tenant = NO_TENANT, size: int = 100) -> PackedSpans:
    return PackedSpans(
        tenant=tenant, run_id=f"run-{number}", is_failure=failed, packed=bytes([number]) * size
    )


def kept_of(db: StoreConnection) -> list[str]:
    return [row[0] for row in db.execute("SELECT run_id FROM kept_spans ORDER BY id").fetchall()]


def test_failed_and_passed_runs_have_a_quota_each_and_the_oldest_go_first(db: StoreConnection) -> None:
    rows = KeptSpansRows(db, KeepLimits(failed_bytes=300, passed_bytes=200))
    for number in range(1, 9):
        with db.transaction():
            rows.keep_all([spans(number, failed=number > 4)], number)
    assert kept_of(db) == ["run-3", "run-4", "run-6", "run-7", "run-8"]
    with db.transaction():  # late spans: in place of what was kept
        rows.keep_all([spans(6, size=50)], 20)
    assert rows.packed(NO_TENANT, "run-6") == bytes([6]) * 50


def test_a_quota_of_zero_keeps_none_from_the_next_start_on(db: StoreConnection) -> None:
    with db.transaction():
        KeptSpansRows(db).keep_all([spans(1, failed=False), spans(2)], 1)
    KeptSpansRows(db, KeepLimits(passed_bytes=0)).prune_all()
    assert kept_of(db) == ["run-2"]


def test_a_run_that_a_person_blames_counts_as_failed(db: StoreConnection) -> None:
    rows = KeptSpansRows(db, KeepLimits(passed_bytes=0))
    KeptSpansRows(db).keep_all([spans(1, failed=False)], 1)
    LabelStore(db).add(label(1, LabelKind.CORRECTED))
    rows.prune_all()
    assert kept_of(db) == ["run-1"]


def label(number: int, kind: LabelKind, tenant: Tenant = NO_TENANT) -> Label:
    return Label(
        tenant=tenant,
        run_id=f"run-{number}",
        kind=kind,
        version=1,
        service="shop",
        labelled_ns=1,
        agent="clerk",
        step=0,
        span_id=None,
    )


def test_old_runs_expire_with_their_steps_and_labelled_steps_stay(db: StoreConnection) -> None:
    labels, rows = LabelStore(db), KeptSpansRows(db, KeepLimits(days=30))
    for number, day in ((1, 0), (2, 0), (3, 20)):
        rows.keep_all([spans(number)], day * DAY_NS)
        packed = PackedRun(tenant=NO_TENANT, run_id=f"run-{number}", is_failure=True, packed=b"steps")
        labels.keep([packed], day * DAY_NS)
    labels.add(label(2, LabelKind.CONFIRMED))
    rows.expire(31 * DAY_NS)
    assert kept_of(db) == ["run-3"]
    assert [labels.kept(NO_TENANT, f"run-{number}") for number in (1, 2, 3)] == [None, b"steps", b"steps"]


def fill(db: StoreConnection, tenant: Tenant, number: int) -> None:
    """Store every kind of row that a run can have."""
    store, run_id = RunStore(db), f"run-{number}"
    store.commit(Commit(analysed=(), verdicts=(stored(tenant=tenant, run_id=run_id, document="private"),)))
    body = encode([workflow(1, task="private"), agent(2, "clerk"), chat(3, parent=2, answer="private")])
    (packed,) = SpanKeeper(redactor=RULES).pack([body], (), [((), RULES.for_run())], [True])
    assert packed is not None
    store.spans.keep_all([PackedSpans(tenant=tenant, run_id=run_id, is_failure=True, packed=packed)], number)
    LabelStore(db).keep([PackedRun(tenant=tenant, run_id=run_id, is_failure=True, packed=b"private")], number)
    LabelStore(db).add(replace(label(number, LabelKind.CONFIRMED, tenant), why="private", author="private"))
    OpinionStore(db).add(
        Opinion(
            tenant=tenant,
            run_id=run_id,
            method="judge",
            model="",
            run_digest="d",
            given_ns=number,
            document="private",
        )
    )


TABLES: Final = ("verdict", "kept_spans", "kept_run", "opinion")


def rows_of(db: StoreConnection, tenant: Tenant, table: str) -> int:
    count: int = db.execute(f"SELECT count(*) FROM {table} WHERE tenant = ?", (tenant,)).fetchone()[0]
    return count


def test_a_deleted_run_is_gone_and_that_of_another_tenant_by_the_same_id_is_not(db: StoreConnection) -> None:
    fill(db, ACME, 1)
    fill(db, OTHER, 1)
    assert delete_run(db, ACME, "run-1")
    assert not delete_run(db, ACME, "run-1")
    assert [one.why for one in LabelStore(db).labels(ACME, "run-1")] in ([], [""])
    assert [one.why for one in LabelStore(db).labels(OTHER, "run-1")] == ["private"]
    assert [rows_of(db, ACME, table) for table in TABLES] == [0, 0, 0, 0]
    assert [rows_of(db, OTHER, table) for table in TABLES] == [1, 1, 1, 1]


def test_a_tenants_runs_are_deleted_and_no_others(db: StoreConnection) -> None:
    for number in (1, 2):
        fill(db, ACME, number)
    fill(db, OTHER, 3)
    fill(db, NO_TENANT, 4)
    assert delete_tenant(db, ACME) == 2
    assert delete_tenant(db, NO_TENANT) == 1
    assert [rows_of(db, OTHER, table) for table in TABLES] == [1, 1, 1, 1]
    assert kept_of(db) == ["run-3"]


def test_labels_after_a_deletion_take_effect(db: StoreConnection) -> None:
    labels = LabelStore(db)
    fill(db, ACME, 1)
    heeded = labels.last()
    delete_run(db, ACME, "run-1")
    labels.add(label(2, LabelKind.CONFIRMED))
    assert [one.run_id for _, one in labels.since(heeded)] == ["run-2"]


def test_a_kept_trace_is_read_by_the_beginning_of_its_id_and_its_tenant_only(db: StoreConnection) -> None:
    fill(db, ACME, 1)
    found = kept_trace(db, "run", ACME)
    assert found.verdict.run_id == "run-1"
    assert [step.agent for step in found.run().trajectory.steps] == ["clerk"]
    assert found.run().trajectory.run_id == "run-1"
    with pytest.raises(NoSuchRun):
        kept_trace(db, "run-1", OTHER)
    db.execute("DELETE FROM kept_spans")
    with pytest.raises(NotKept, match="its spans are not kept"):
        kept_trace(db, "run-1", ACME)


def test_deleted_texts_are_not_left_in_the_file(tmp_path: Path) -> None:
    marker = bytes(range(7, 250)) * 3
    with closing(open_database(tmp_path / RUNS)) as database, closing(database.own()) as db:
        fill(db, ACME, 1)
        run = PackedSpans(tenant=ACME, run_id="run-1", is_failure=True, packed=marker)
        KeptSpansRows(db).keep_all([run], 1)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert marker in everything_in(tmp_path)
        delete_run(db, ACME, "run-1")
        assert marker not in everything_in(tmp_path)


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
