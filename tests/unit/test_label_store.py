"""Labels survive other users of the file, and so do the runs that they are about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.issues.labels.label_store import MAX_LABELS_OF_A_RUN, LabelStore, PackedRun
from analyzer.issues.labels.run_label import Label, LabelKind
from collector_processor.core.disk import StoreError
from collector_processor.otlp import NO_TENANT, CollectorError, Tenant
from semconv.model import SpanId

LABEL = Label(
    tenant=NO_TENANT,
    run_id="run-1",
    kind=LabelKind.CORRECTED,
    version=1,
    service="shop",
    labelled_ns=5,
    agent="clerk",
    step=1,
    span_id=SpanId("b" * 16),
)
OTHER = Tenant("x=b")


def packed(run_id: str, size: int = 10, *, is_failure: bool = True, tenant: Tenant = NO_TENANT) -> PackedRun:
    return PackedRun(tenant=tenant, run_id=run_id, is_failure=is_failure, packed=b"x" * size)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LabelStore]:
    opened = LabelStore(tmp_path / "labels.sqlite", quota=1_000)
    yield opened
    opened.close()


def test_the_newest_label_counts_and_older_ones_are_kept(store: LabelStore) -> None:
    later = replace(LABEL, kind=LabelKind.REJECTED, agent=None, step=None, span_id=None, labelled_ns=4)
    store.keep([packed("run-1")], 1)
    store.add(LABEL)
    store.add(later)
    assert store.labels(NO_TENANT, "run-1") == [later, LABEL], "whatever the clock says"
    assert [one.label for one in store.labelled(NO_TENANT)] == [later]


def test_labelled_runs_come_with_their_newest_kept_steps(store: LabelStore) -> None:
    store.add(LABEL)
    (bare,) = store.labelled(NO_TENANT)
    assert bare.packed is None
    store.keep([packed("run-1")], 1)
    store.keep([packed("run-1", 20)], 2)
    (kept,) = store.labelled(NO_TENANT)
    assert kept.packed == b"x" * 20


def test_tenants_do_not_see_each_other(store: LabelStore) -> None:
    store.keep([packed("run-1", tenant=OTHER)], 1)
    store.add(replace(LABEL, tenant=OTHER))
    assert store.labels(NO_TENANT, "run-1") == []
    assert list(store.labelled(NO_TENANT)) == []
    assert store.kept(NO_TENANT, "run-1") is None
    assert (store.tenants(), len(list(store.labelled(OTHER)))) == ([OTHER], 1)


def test_the_oldest_unlabelled_runs_are_deleted_first_and_passed_ones_before_failed_ones(
    store: LabelStore,
) -> None:
    store.keep([packed("labelled", 300)], 0)
    store.add(replace(LABEL, run_id="labelled"))
    for number in range(40):
        store.keep([packed(f"run-{number}", 100, is_failure=number % 2 == 0)], number + 1)
    kept = [number for number in range(40) if store.kept(NO_TENANT, f"run-{number}")]
    assert kept == [20, 22, 24, 26, 28, 30, 32, 34, 36, 38]
    assert store.kept(NO_TENANT, "labelled") is not None


def test_a_run_kept_again_stays_labelled(store: LabelStore) -> None:
    store.keep([packed("run-1")], 0)
    store.add(LABEL)
    store.keep([packed("run-1", 20)], 1)
    for number in range(40):
        store.keep([packed(f"other-{number}", 100)], number + 2)
    assert store.kept(NO_TENANT, "run-1") == b"x" * 20


def test_a_run_labelled_again_and_again_does_not_fill_the_disk(store: LabelStore) -> None:
    for number in range(MAX_LABELS_OF_A_RUN + 5):
        store.add(replace(LABEL, labelled_ns=number))
    said = store.labels(NO_TENANT, "run-1")
    assert len(said) == MAX_LABELS_OF_A_RUN
    assert said[0].labelled_ns == MAX_LABELS_OF_A_RUN + 4


def test_two_processes_write_at_once(tmp_path: Path, store: LabelStore) -> None:
    beside = LabelStore(tmp_path / "labels.sqlite")
    store.keep([packed("run-1")], 1)
    beside.add(LABEL)
    store.add(replace(LABEL, labelled_ns=6))
    assert [label.labelled_ns for label in beside.labels(NO_TENANT, "run-1")] == [6, 5]
    beside.close()


def test_a_file_that_is_not_a_store_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    path.write_text("my diary, not a database, " * 100)
    with pytest.raises(CollectorError, match="cannot be used as a store"):
        LabelStore(path)
    assert path.read_text().startswith("my diary")


def test_a_full_disk_refuses_the_label_with_words_and_keeps_the_others(store: LabelStore) -> None:
    store.add(LABEL)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="cannot write"):
        store.add(replace(LABEL, agent="a" * 100_000))
    with pytest.raises(StoreError, match="cannot write"):
        store.keep([packed("run-2", 100_000)], 1)
    assert store.labels(NO_TENANT, "run-1") == [LABEL]
