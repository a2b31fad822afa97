"""Results of experiments and backtests in every database: the last of each, age, bounds and deletion."""

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
