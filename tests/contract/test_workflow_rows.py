"""Workflows read back from the store: outcomes, versions, change points, regressions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pytest

from analyzer.history import facts
from analyzer.history.elements import elements_of, pack
from analyzer.issues.issue_service import passed_of, regressed_of
from analyzer.issues.issue_store import DAY_NS, IssueStore
from analyzer.issues.report import iso
from analyzer.issues.workflow_reports import DAYS, WorkflowReports, read_fix, to_json
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.run_totals import RunTotals
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.records import Commit
from collector_processor.store.run_history import RunFacts
from collector_processor.store.verdicts import RunStore
from tests.runs import run, step, tool
from tests.verdicts import stored

NOW_NS: Final = 1_000 * DAY_NS
HOUR_NS: Final = DAY_NS // 24
ELEMENTS: Final = pack(elements_of(run(step("planner"), step("clerk"))))
TOTALS: Final = RunTotals(workflow="refunds", steps=2)


def keep(
    db: StoreConnection, said: Sequence[str], *, version: str = "v1", release: str = "1.0", at: int = 0
) -> None:
    """Write a run each hour, the first ``at`` hours after the period began."""
    store, start = RunStore(db), NOW_NS - 20 * DAY_NS
    for number, word in enumerate(said, start=at):
        verdict = stored(run_id=f"{version}-{number:05}", decided_ns=start + number * HOUR_NS)
        store.commit(Commit(analysed=(), verdicts=(verdict,)))
        with db.transaction():
            store.totals.total([(NO_TENANT, verdict.run_id, TOTALS)])
            kept = RunFacts(version=version, release=release, elements=ELEMENTS)
            store.history.note([(NO_TENANT, verdict.run_id, word, kept)])


@pytest.fixture
def reports(db: StoreConnection) -> WorkflowReports:
    return WorkflowReports(IssueStore(db))


def test_a_release_that_fails_more_often_is_a_regression_and_a_change(
    db: StoreConnection, reports: WorkflowReports
) -> None:
    keep(db, ["passed"] * 90 + ["failed"] * 4 + ["passed"] * 6 + ["unsaid"] * 20)
    keep(db, ["failed", "failed", "passed"] * 12, version="v2", release="1.1", at=120)
    (report,) = reports.reports(NOW_NS)
    assert (report.service, report.workflow) == ("shop", "refunds")
    assert report.said == {"passed": 108, "failed": 28, "unsaid": 20}
    assert [(one.version, one.release) for one in report.versions] == [("v1", "1.0"), ("v2", "1.1")]
    compared = report.versions[1].against_before
    assert compared is not None
    assert compared.decision == "different"
    assert [change.point.is_drop for change in report.changes] == [True]
    assert report.newest is not None
    assert report.newest.is_alarm
    assert regressed_of([report]) == {("shop", "refunds", "1.1"): 1}
    assert passed_of([report]) == {("shop", "refunds"): (100 - 28) / 100}
    document = json.loads(json.dumps(to_json(report)))
    assert document["versions"][1]["against_before"]["decision"] == "different"
    assert (document["passed"], document["failed"], document["unsaid"]) == (108, 28, 20)


def test_a_stable_workflow_has_no_change_and_no_alarm(db: StoreConnection, reports: WorkflowReports) -> None:
    keep(db, ["passed"] * 9 + ["failed"])
    keep(db, (["passed"] * 9 + ["failed"]) * 6, version="v2", at=10)
    (report,) = reports.reports(NOW_NS)
    assert report.changes == ()
    assert report.newest is not None
    assert not report.newest.is_alarm
    assert regressed_of([report]) == {}


def test_runs_of_which_nobody_said_anything_are_only_counted(
    db: StoreConnection, reports: WorkflowReports
) -> None:
    keep(db, ["unsaid"] * 30)
    (report,) = reports.reports(NOW_NS)
    assert (report.said, report.changes, report.newest) == ({"unsaid": 30}, (), None)
    assert passed_of([report]) == {}


FIXED_NS: Final = NOW_NS - 20 * DAY_NS + 60 * HOUR_NS


@pytest.mark.parametrize("asked", ["2.0", iso(FIXED_NS), iso(FIXED_NS).removesuffix("Z")])
def test_a_fix_is_compared_by_its_release_or_its_time(
    asked: str, db: StoreConnection, reports: WorkflowReports
) -> None:
    keep(db, ["failed", "passed", "unsaid"] * 20)
    keep(db, ["passed"] * 38 + ["failed"] * 2, version="v2", release="2.0", at=60)
    (report,) = reports.reports(NOW_NS, fix=read_fix(asked))
    assert report.fix is not None
    assert (report.fix.at_ns, report.fix.whole.verdict) == (FIXED_NS, "better")
    assert (report.fix.whole.before, report.fix.whole.after) == ((20, 40), (38, 40))
    document = json.loads(json.dumps(to_json(report)))["fix"]
    assert document["difference"]["low"] > 0.2
    assert document["fewer"] == [{"issue": "", "before": [20, 40], "after": [2, 40], "fall": 0.45}]


def test_what_passing_runs_always_did_is_reported(db: StoreConnection, reports: WorkflowReports) -> None:
    store, start = RunStore(db), NOW_NS - DAY_NS
    for number in range(12):
        found, asked = json.dumps({"seat": f"S-{number}"}), json.dumps({"seat": f"S-{number}"})
        done = run(
            tool("clerk", found, "find"), tool("clerk", "{}", "reserve", input=asked), step("clerk", "ok")
        )
        verdict = stored(run_id=f"run-{number}", decided_ns=start + number)
        store.commit(Commit(analysed=(), verdicts=(verdict,)))
        with db.transaction():
            store.totals.total([(NO_TENANT, verdict.run_id, TOTALS)])
            kept = RunFacts(
                version="v", release="", elements=ELEMENTS, invariants=facts.pack(facts.collect(done))
            )
            store.history.note([(NO_TENANT, verdict.run_id, "passed", kept)])
    (report,) = reports.reports(NOW_NS)
    assert report.always == ()
    rules = to_json(reports.with_always(report))["always"]
    told = {"rule": "`seat` of reserve equalled `seat` of find", "support": 12, "runs": 12, "accuses": True}
    assert rules[0] == told
    assert "find was called once" in [one["rule"] for one in rules]


def test_a_fix_of_another_workflow_is_not_compared(db: StoreConnection, reports: WorkflowReports) -> None:
    keep(db, ["failed", "passed"] * 20)
    (report,) = reports.reports(NOW_NS, fix=read_fix("9.9"))
    assert report.fix is None
    assert to_json(report)["fix"] is None


def test_a_release_that_looks_like_a_date_is_a_release(db: StoreConnection, reports: WorkflowReports) -> None:
    keep(db, ["failed"] * 20)
    keep(db, ["passed"] * 20, version="v2", release="20250101", at=30)
    (report,) = reports.reports(NOW_NS, fix=read_fix("20250101"))
    assert report.fix is not None
    assert report.fix.whole.after == (20, 20)


def test_old_runs_and_other_tenants_are_not_reported(db: StoreConnection, reports: WorkflowReports) -> None:
    keep(db, ["passed"] * 3)
    assert reports.reports(NOW_NS, Tenant("other")) == []
    assert reports.reports(NOW_NS + (DAYS + 1) * DAY_NS) == []
