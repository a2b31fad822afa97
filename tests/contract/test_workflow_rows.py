"""Workflows read back from the store: outcomes, versions, change points, regressions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from analyzer.history.elements import elements_of, pack
from analyzer.issues.issue_service import passed_of, regressed_of
from analyzer.issues.issue_store import DAY_NS, CountedRun, IssueStore
from analyzer.issues.recurrence import Fingerprint, Issue, IssueState, age, resolve
from analyzer.issues.report import iso
from analyzer.issues.workflow_reports import (
    DAYS,
    MOST_EXAMPLES,
    MOST_VERSIONS,
    FixReports,
    WorkflowRefused,
    WorkflowReports,
    fix_json,
    read_fix,
    to_json,
)
from analyzer.telemetry.metric_table import MAX_WORKFLOWS
from collector_processor.core.records import Commit, RunFacts
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.database.driver import Flush
from collector_processor.store.deletion import delete_run
from collector_processor.store.verdicts import RunStore
from tests.runs import run, step
from tests.verdicts import stored
from tests.workflows import RULE, Place, keep_runs

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


def test_runs_without_a_stated_outcome_are_only_counted(
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


RECENT: Final = Place(start_ns=NOW_NS - DAY_NS)


def always(reports: WorkflowReports, tenant: Tenant | None = None) -> list[dict[str, Any]]:
    (report,) = reports.reports(NOW_NS, tenant)
    found: list[dict[str, Any]] = json.loads(json.dumps(to_json(reports.with_always(report))))["always"]
    return found


def test_what_passing_runs_always_did_is_reported(db: StoreConnection, reports: WorkflowReports) -> None:
    names = keep_runs(db, RECENT, ["passed"] * 12)
    assert [one.always for one in reports.reports(NOW_NS)] == [()]
    rules = always(reports)
    assert rules[0] == {
        "rule": RULE,
        "support": 12,
        "runs": 12,
        "accuses": True,
        "kept_by": names[: -MOST_EXAMPLES - 1 : -1],
        "broken_by": [],
    }
    assert "find was called once" in [one["rule"] for one in rules]


def test_a_rule_names_the_newest_runs_that_keep_and_that_break_it(
    db: StoreConnection, reports: WorkflowReports
) -> None:
    names = keep_runs(db, RECENT, ["failed", *["passed"] * 45, "failed"], other_seats=[0, 3, 45, 46])
    rule = next(one for one in always(reports) if one["rule"] == RULE)
    assert (rule["support"], rule["runs"]) == (43, 45)
    assert rule["broken_by"] == [names[45], names[3]], "failed runs are not mined"
    assert rule["kept_by"] == [names[44], names[43], names[42], names[41], names[40]]


def test_a_deleted_run_is_not_shown_as_an_example(db: StoreConnection, reports: WorkflowReports) -> None:
    names = keep_runs(db, RECENT, ["passed"] * 12)
    (report,) = reports.reports(NOW_NS)
    mined = reports.with_always(report)
    assert reports.is_current(mined)
    delete_run(db, NO_TENANT, names[-1])
    assert not reports.is_current(mined)
    assert names[-1] in json.dumps(to_json(mined))
    rules = always(reports)
    assert rules[0]["support"] == 11
    assert names[-1] not in json.dumps(rules)


def test_with_nine_passing_runs_nothing_is_mined(db: StoreConnection, reports: WorkflowReports) -> None:
    keep_runs(db, RECENT, ["passed"] * 9 + ["unsaid"] * 9)
    (report,) = reports.reports(NOW_NS)
    mined = reports.with_always(report)
    assert (mined.always, len(mined.basis), to_json(mined)["mined_runs"]) == ((), 9, 9)


def test_no_tenant_crowds_out_anothers_workflows(db: StoreConnection, reports: WorkflowReports) -> None:
    keep_runs(db, replace(RECENT, tenant=Tenant("calm"), workflow="old"), ["passed"])
    busy = replace(RECENT, tenant=Tenant("busy"), start_ns=NOW_NS - 1)
    for number in range(MAX_WORKFLOWS + 1):
        keep_runs(db, replace(busy, workflow=f"w{number}"), ["passed"], prefix=f"w{number}")
    assert {one.tenant for one in reports.reports(NOW_NS)} == {"busy"}
    assert [one.workflow for one in reports.reports(NOW_NS, Tenant("calm"))] == ["old"]
    assert len(reports.reports(NOW_NS, Tenant("busy"))) == MAX_WORKFLOWS
    assert [reports.only("shop", f"w{number}", NOW_NS) for number in range(MAX_WORKFLOWS + 1)].count(
        None
    ) == 0


def test_a_workflow_is_found_by_its_whole_name_and_tenant(
    db: StoreConnection, reports: WorkflowReports
) -> None:
    hostile = "a/../b?c=d&e#<b>' OR 1=1 --\0"
    tenants = Tenant("one"), Tenant("other")
    for tenant in tenants:
        keep_runs(db, replace(RECENT, tenant=tenant, service=hostile, workflow=hostile), ["passed"])
    for tenant in tenants:
        row = reports.only(hostile, hostile, NOW_NS, tenant)
        assert row is not None
        assert row.tenant == tenant
        assert reports.report(row, NOW_NS).said == {"passed": 1}
    with pytest.raises(WorkflowRefused, match="several tenants"):
        reports.only(hostile, hostile, NOW_NS)
    assert reports.only(hostile, hostile, NOW_NS, Tenant("third")) is None
    assert reports.only(hostile, "", NOW_NS) is None
    assert reports.only(hostile, hostile, NOW_NS + (DAYS + 1) * DAY_NS) is None


def test_only_the_newest_versions_are_reported(db: StoreConnection, reports: WorkflowReports) -> None:
    """A prompt that names its user makes each run a version."""
    for number in range(MOST_VERSIONS + 3):
        keep(db, ["passed"], version=f"v{number}", release=f"1.{number}", at=number)
    (report,) = reports.reports(NOW_NS)
    assert [one.release for one in report.versions] == [
        f"1.{number}" for number in range(3, MOST_VERSIONS + 3)
    ]
    assert report.versions[0].against_before is not None
    assert report.said == {"passed": MOST_VERSIONS + 3}


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


START_NS: Final = NOW_NS - 20 * DAY_NS
MARK: Final = Fingerprint(service="shop", agent="clerk", mode="", kind="tool", tool="pay", error="")


def broken(db: StoreConnection, run_ids: Sequence[str]) -> Issue:
    """Count these runs in the issue; return it."""
    store = IssueStore(db)
    with store.transaction(Flush.LATER):
        store.write_runs(
            CountedRun(
                tenant=NO_TENANT, run_id=run_id, service="shop", agents=("clerk",), blamed="clerk", step=1,
                mark=MARK, issue_id=MARK.id, decided_ns=START_NS,
            )
            for run_id in run_ids
        )  # fmt: skip
    return Issue(
        fingerprint=MARK, since_ns=START_NS, first_ns=START_NS, last_ns=START_NS + 50 * HOUR_NS,
        count=len(run_ids), runs=tuple(run_ids[:20]), state=IssueState.ONGOING,
    )  # fmt: skip


def released(db: StoreConnection, before: Sequence[str], after: Sequence[str]) -> Issue:
    """Keep runs of release 1.0, then of 2.0; each that failed is broken by the issue."""
    keep(db, before)
    keep(db, after, version="v2", release="2.0", at=len(before))
    names = [f"v1-{number:05}" for number, word in enumerate(before) if word == "failed"]
    names += [f"v2-{len(before) + at:05}" for at, word in enumerate(after) if word == "failed"]
    return broken(db, names)


def test_the_newest_release_is_compared_by_itself(db: StoreConnection) -> None:
    issue = released(db, ["failed", "passed", "unsaid"] * 20, ["passed"] * 38 + ["failed"] * 2)
    found = FixReports(IssueStore(db)).of(NO_TENANT, issue, "", NOW_NS)
    (one,) = found.workflows
    assert (found.since, found.releases) == ("2.0", ("2.0", "1.0"))
    assert (one.workflow, one.at_ns) == ("refunds", START_NS + 60 * HOUR_NS)
    assert (one.whole.before, one.whole.after, one.whole.verdict) == ((20, 40), (38, 40), "better")
    assert (one.spared.before, one.spared.after) == ((20, 40), (38, 40))
    assert one.change is not None
    assert not one.change.is_drop
    document = json.loads(json.dumps(fix_json(found)))
    assert document["workflows"][0]["passed"]["difference"]["low"] > 0.2
    assert document["workflows"][0]["change"]["at"] > iso(START_NS)


def test_failures_of_other_issues_are_not_counted(db: StoreConnection) -> None:
    keep(db, ["failed"] * 20)
    keep(db, ["failed"] * 20, version="v2", release="2.0", at=20)
    issue = broken(db, [f"v1-{number:05}" for number in range(20)])
    (one,) = FixReports(IssueStore(db)).of(NO_TENANT, issue, "", NOW_NS).workflows
    assert (one.whole.verdict, one.change) == ("unclear", None)
    assert (one.spared.before, one.spared.after, one.spared.verdict) == ((0, 20), (20, 20), "better")


@pytest.mark.parametrize("asked", ["2.0", iso(START_NS + 20 * HOUR_NS)])
def test_a_release_or_a_time_can_be_asked_about(asked: str, db: StoreConnection) -> None:
    issue = released(db, ["failed"] * 20, ["passed"] * 20)
    found = FixReports(IssueStore(db)).of(NO_TENANT, issue, asked, NOW_NS)
    assert found.since == asked
    assert found.workflows[0].whole.after == (20, 20)


def test_an_unknown_release_compares_nothing_and_names_the_known_ones(db: StoreConnection) -> None:
    issue = released(db, ["failed"] * 20, ["passed"] * 20)
    found = FixReports(IssueStore(db)).of(NO_TENANT, issue, "9.9", NOW_NS)
    assert (found.workflows, found.releases) == ((), ("2.0", "1.0"))


def test_an_issue_that_a_person_resolved_is_compared_since_then(db: StoreConnection) -> None:
    keep(db, ["failed"] * 20 + ["passed"] * 20)
    issue = broken(db, [f"v1-{number:05}" for number in range(20)])
    at_ns = START_NS + 20 * HOUR_NS
    found = FixReports(IssueStore(db)).of(NO_TENANT, resolve(issue, at_ns), "", NOW_NS)
    assert (found.since, found.workflows[0].at_ns) == ("resolved", at_ns)
    assert found.workflows[0].whole.verdict == "better"


def test_an_issue_that_only_went_quiet_is_not_fixed(db: StoreConnection) -> None:
    """Its own absence since is what resolved it, so that every comparison would praise it."""
    keep(db, ["failed"] * 20 + ["passed"] * 20)
    issue = broken(db, [f"v1-{number:05}" for number in range(20)])
    quiet = age(issue, NOW_NS)
    assert quiet.state is IssueState.RESOLVED
    assert FixReports(IssueStore(db)).of(NO_TENANT, quiet, "", NOW_NS).since == ""


def test_a_fix_without_a_run_since_decides_nothing(db: StoreConnection) -> None:
    keep(db, ["failed"] * 20)
    issue = resolve(broken(db, ["v1-00003"]), NOW_NS)
    (one,) = FixReports(IssueStore(db)).of(NO_TENANT, issue, "", NOW_NS).workflows
    assert (one.whole.after, one.whole.verdict, one.change) == ((0, 0), "unclear", None)


def test_runs_of_another_tenant_and_forgotten_ones_have_no_workflow(db: StoreConnection) -> None:
    issue = released(db, ["failed"] * 5, ["passed"] * 5)
    reports = FixReports(IssueStore(db))
    assert reports.of(Tenant("other"), issue, "", NOW_NS).workflows == ()
    assert reports.of(NO_TENANT, replace(issue, runs=("gone",)), "", NOW_NS).releases == ()
