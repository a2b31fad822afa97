"""An issue's workflows before and after a fix, read back from the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from analyzer.issues.issue_store import DAY_NS, CountedRun, IssueStore
from analyzer.issues.recurrence import Fingerprint, Issue, IssueState, age, resolve
from analyzer.issues.report import iso
from analyzer.issues.workflow_reports import FixReports, fix_json
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.database.connection import Flush, StoreConnection
from tests.contract.test_workflow_rows import HOUR_NS, NOW_NS, keep

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
