"""Results of experiments and kept trials in every database: read back, bounded, deleted with their run."""

from __future__ import annotations

import json
from typing import Final

from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.deletion import delete_run, delete_tenant
from collector_processor.store.small_tables import (
    MOST_PROOF_CHARS,
    KeepLimits,
    KeptSpansRows,
    ProofRows,
    StoredProof,
    TrialArm,
    TrialArmRows,
)

ACME, OTHER = Tenant("x=acme"), Tenant("x=other")
DAY_NS: Final = 86_400 * 10**9


def proof(
    subject: str, head: str, at: int = 0, *, tenant: Tenant = NO_TENANT, kind: str = "x"
) -> StoredProof:
    document = json.dumps({"head": head})
    return StoredProof(
        tenant=tenant, subject=subject, kind=kind, service="shop", ended_ns=at, document=document
    )


def heads(rows: ProofRows, subject: str, tenant: Tenant = NO_TENANT) -> list[str]:
    return [one.fields["head"] for one in rows.of(tenant, subject)]


def test_the_last_result_of_each_command_stays(db: StoreConnection) -> None:
    rows = ProofRows(db)
    for at, (head, kind) in enumerate((("a", "experiment"), ("b", "backtest"), ("c", "experiment"))):
        assert rows.keep(proof("run", head, at, kind=kind))
    rows.keep(proof("run", "d", 5, tenant=ACME))
    assert heads(rows, "run") == ["c", "b"]
    assert [one.ended_ns for one in rows.of_service(NO_TENANT, "shop", 1)] == [2]
    assert rows.of_service(NO_TENANT, "other", 9) == ()


def test_a_result_that_is_too_long_is_refused_and_a_damaged_one_reads_as_empty(db: StoreConnection) -> None:
    rows = ProofRows(db)
    assert not rows.keep(proof("run", "x" * MOST_PROOF_CHARS))
    for document in ("", "[1]", "{"):
        broken = StoredProof(tenant=ACME, subject="run", kind="x", service="", ended_ns=1, document=document)
        rows.keep(broken)
        assert [one.fields for one in rows.of(ACME, "run")] == [{}]


def test_results_expire_and_are_deleted_with_a_run_that_they_are_about_or_mention(
    db: StoreConnection,
) -> None:
    rows = ProofRows(db)
    for tenant in (ACME, OTHER):
        rows.keep(proof("one", "on the run", tenant=tenant))
        rows.keep(proof("issue", "replayed: one", tenant=tenant))
        rows.keep(proof("two", "another", tenant=tenant))
    delete_run(db, ACME, "%")
    assert heads(rows, "two", ACME) == ["another"], "a run's id is no pattern"
    delete_run(db, ACME, "one")
    assert [heads(rows, each, ACME) for each in ("one", "issue", "two")] == [[], [], ["another"]]
    delete_tenant(db, ACME)
    assert (heads(rows, "two", ACME), heads(rows, "issue", OTHER)) == ([], ["replayed: one"])
    kept = KeptSpansRows(db, KeepLimits(days=30))
    kept.expire(30 * DAY_NS)
    assert heads(rows, "two", OTHER) == ["another"]
    kept.expire(31 * DAY_NS)
    assert heads(rows, "two", OTHER) == []


def arm(trial: str, run_id: str = "run", *, tenant: Tenant = NO_TENANT, changed: bool = False) -> TrialArm:
    return TrialArm(tenant=tenant, run_id=run_id, id=trial, step=3, is_changed=changed, has_passed=changed)


def ids(rows: TrialArmRows, run_id: str = "run", tenant: Tenant = NO_TENANT) -> list[str]:
    return [each.id for each in rows.of(tenant, run_id)]


def test_both_arms_of_a_run_are_read_with_the_recorded_answers_first(db: StoreConnection) -> None:
    rows = TrialArmRows(db)
    changed, recorded = arm("a", changed=True), arm("b")
    rows.keep([(changed, b"changed"), (recorded, b"recorded")], 1)
    assert rows.of(NO_TENANT, "run") == (recorded, changed)
    assert rows.packed("a") == (changed, b"changed")
    assert rows.packed("c") is None


def test_a_later_experiment_replaces_the_trials_of_its_run_only(db: StoreConnection) -> None:
    rows = TrialArmRows(db)
    rows.keep([(arm("a"), b"1"), (arm("b", changed=True), b"1")], 1)
    rows.keep([(arm("c", "other"), b"1")], 1)
    rows.keep([(arm("d", tenant=ACME), b"1")], 1)
    rows.keep([(arm("e"), b"1"), (arm("f", changed=True), b"1")], 2)
    assert (ids(rows), ids(rows, "other"), ids(rows, tenant=ACME)) == (["e", "f"], ["c"], ["d"])


def test_beyond_the_quota_trials_of_the_oldest_experiment_are_deleted_first(db: StoreConnection) -> None:
    rows = TrialArmRows(db, most_bytes=250)
    for number in range(4):
        rows.keep([(arm(f"t{number}", f"run-{number}"), bytes(100))], number)
    assert [ids(rows, f"run-{number}") for number in range(4)] == [[], [], ["t2"], ["t3"]]


def test_trials_expire_and_are_deleted_with_their_run_and_tenant(db: StoreConnection) -> None:
    rows = TrialArmRows(db)
    for trial, run_id, tenant in (("a", "one", ACME), ("b", "two", ACME), ("c", "one", OTHER)):
        rows.keep([(arm(trial, run_id, tenant=tenant), b"1")], 0)
    delete_run(db, ACME, "one")
    assert (ids(rows, "one", ACME), ids(rows, "two", ACME)) == ([], ["b"])
    delete_tenant(db, ACME)
    assert (ids(rows, "two", ACME), ids(rows, "one", OTHER)) == ([], ["c"])
    kept = KeptSpansRows(db, KeepLimits(days=30))
    kept.expire(30 * DAY_NS)
    assert ids(rows, "one", OTHER) == ["c"]
    kept.expire(31 * DAY_NS)
    assert ids(rows, "one", OTHER) == []
