"""Reports on workflows over time: passed and failed runs, versions, change points, regressions.

Read from the store when asked: nothing is kept beside the runs, so labels and corrected verdicts count at
once. Synchronous; the caller passes the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from analyzer.history import facts
from analyzer.history.changes import (
    BeforeAfter,
    ChangePoint,
    Explanation,
    Regression,
    before_and_after,
    change_points,
    explain,
    regression,
)
from analyzer.history.elements import unpack
from analyzer.history.mining import LEAST_RUNS, MAX_RUNS, mine
from analyzer.history.spectrum import Said, spectrum_of
from analyzer.history.versions import Equality, equality
from analyzer.history.wording import rule, told
from analyzer.issues.issue_store import DAY_NS, IssueStore
from analyzer.issues.report import iso
from analyzer.telemetry.issue_metrics import MAX_WORKFLOWS
from collector_processor.otlp import Tenant
from collector_processor.store.run_history import HistoryRow, RunHistoryRows, WorkflowRow
from semconv.record import record, replace

DAYS: Final = 30
"""Days of runs that are reported."""
MOST_RUNS: Final = 1_000
"""Newest runs of a workflow that are read."""
RECENT: Final = 100


@record
class VersionReport:
    """One version of a workflow."""

    version: str
    release: str
    first_ns: int
    said: Counter[str]
    against_before: Equality | None
    """Compared with the version that began before it; ``None`` for the first one."""


@record
class ChangeReport:
    """A change point, and the issues that explain it if it is a drop."""

    at_ns: int
    point: ChangePoint
    issues: tuple[Explanation, ...]


@record
class FixReport:
    """A workflow before and after a fix."""

    at_ns: int
    whole: BeforeAfter
    fewer: tuple[Explanation, ...]
    """The issues that became rarer, the largest fall first; ``rise`` is positive for a fall."""


@record
class AlwaysReport:
    """Something that a workflow always does."""

    rule: str
    support: int
    """Passing runs that did it."""
    runs: int
    """Passing runs that had occasion to."""
    accuses: bool
    """Whether a run that reports nothing is suspected for not doing it."""


@record
class WorkflowReport:
    """One workflow."""

    tenant: Tenant
    service: str
    workflow: str
    said: Counter[str]
    versions: tuple[VersionReport, ...]
    """By their first run, oldest first."""
    changes: tuple[ChangeReport, ...]
    recent: tuple[int, int]
    """Runs that passed, and all, of the newest ``RECENT`` with a known outcome."""
    newest: Regression | None
    """Comparison of the newest version's runs with the others'; ``None`` if there is no other one."""
    always: tuple[AlwaysReport, ...] = ()
    """What it always does, by its passing runs; empty until ``with_always`` reads it."""
    fix: FixReport | None = None
    """The runs before and after a fix; ``None`` if none was asked about, or it is not of this workflow."""


@record
class Fix:
    """A fix that is asked about."""

    release: str
    """The ``service.version`` that brought it, if any run has it."""
    at_ns: int | None = None
    """Its time, if no run has that release."""


def read_fix(text: str) -> Fix:
    """Read a release, or a time in ISO 8601 (UTC if it names no zone)."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return Fix(release=text)
    moment = at if at.tzinfo else at.replace(tzinfo=UTC)
    return Fix(release=text, at_ns=int(moment.timestamp()) * 10**9)


class WorkflowReports:
    """Reads workflows from a store's connection; one thread at a time."""

    def __init__(self, store: IssueStore) -> None:
        self._store: Final = store
        self._history: Final = RunHistoryRows(store.db)

    def reports(
        self, now_ns: int, tenant: Tenant | None = None, fix: Fix | None = None
    ) -> list[WorkflowReport]:
        """Return the workflows with runs in the last ``DAYS`` days, latest run first.

        Args:
            now_ns: Unix ns.
            tenant: only this tenant's.
            fix: also compare the runs before and after this.
        """
        since_ns = now_ns - DAYS * DAY_NS
        return [
            self._report(one, since_ns, fix)
            for one in self._history.workflows(since_ns, MAX_WORKFLOWS)
            if tenant is None or one.tenant == tenant
        ]

    def with_always(self, report: WorkflowReport) -> WorkflowReport:
        """Return the report with what the workflow always does, mined anew: up to a quarter of a second."""
        rows = self._history.told(report.tenant, report.service, report.workflow, MOST_RUNS)
        return replace(report, always=_always(rows))

    def _report(self, row: WorkflowRow, since_ns: int, fix: Fix | None) -> WorkflowReport:
        tenant, service, workflow = row.tenant, row.service, row.workflow
        rows = self._history.of_workflow(tenant, service, workflow, MOST_RUNS)
        runs = [row for row in reversed(rows) if row.decided_ns >= since_ns]
        known = [row for row in runs if row.said != Said.UNSAID]
        return WorkflowReport(
            tenant=tenant,
            service=service,
            workflow=workflow,
            said=Counter(row.said for row in runs),
            versions=_versions(runs),
            changes=self._changes(tenant, known),
            recent=(sum(row.said == Said.PASSED for row in known[-RECENT:]), len(known[-RECENT:])),
            newest=_newest(known),
            fix=None if fix is None else self._fixed(tenant, known, fix),
        )

    def _fixed(self, tenant: Tenant, known: Sequence[HistoryRow], fix: Fix) -> FixReport | None:
        at_ns = next((row.decided_ns for row in known if row.release == fix.release), fix.at_ns)
        if at_ns is None:
            return None
        before = [row for row in known if row.decided_ns < at_ns]
        after = [row for row in known if row.decided_ns >= at_ns]
        issues = issues_of(self._store, tenant, before), issues_of(self._store, tenant, after)
        passed = ([each is None for each in part] for part in issues)
        return FixReport(at_ns=at_ns, whole=before_and_after(*passed), fewer=explain(issues[1], issues[0]))

    def _changes(self, tenant: Tenant, known: Sequence[HistoryRow]) -> tuple[ChangeReport, ...]:
        points = change_points([row.said == Said.PASSED for row in known])
        if not points:
            return ()
        issues = issues_of(self._store, tenant, known)
        return tuple(
            ChangeReport(
                at_ns=known[point.place].decided_ns,
                point=point,
                issues=explain(*_around(issues, point)) if point.is_drop else (),
            )
            for point in points
        )


def issues_of(store: IssueStore, tenant: Tenant, known: Sequence[HistoryRow]) -> list[str | None]:
    """Return each run's issue: empty if it did not pass but is in none, ``None`` if it passed."""
    issue_of = store.issue_ids([(tenant, row.run_id) for row in known])
    return [None if row.said == Said.PASSED else issue_of.get((tenant, row.run_id), "") for row in known]


def _around(
    issues: Sequence[str | None], point: ChangePoint
) -> tuple[Sequence[str | None], Sequence[str | None]]:
    return (
        issues[point.place - point.before[1] : point.place],
        issues[point.place : point.place + point.after[1]],
    )


def _versions(runs: Sequence[HistoryRow]) -> tuple[VersionReport, ...]:
    own: dict[str, list[HistoryRow]] = {}
    for row in runs:
        own.setdefault(row.version, []).append(row)
    spectra = {
        version: spectrum_of((Said(row.said), unpack(row.elements)) for row in each)
        for version, each in own.items()
    }
    order = list(own)
    return tuple(
        VersionReport(
            version=version,
            release=own[version][0].release,
            first_ns=own[version][0].decided_ns,
            said=Counter(row.said for row in own[version]),
            against_before=equality(spectra[order[at - 1]], spectra[version]) if at else None,
        )
        for at, version in enumerate(order)
    )


def _always(rows: Sequence[HistoryRow]) -> tuple[AlwaysReport, ...]:
    """Return what the passing runs of the newest version did, or those of all versions if it has few.

    With fewer than ten passing runs, nothing is known. ``rows`` are the newest first.
    """
    passed = [row for row in rows if row.said == Said.PASSED and row.invariants]
    own = [row for row in passed if row.version == passed[0].version]
    basis = own if len(own) >= LEAST_RUNS else passed
    mined = mine([facts.unpack(row.invariants) for row in basis[:MAX_RUNS]])
    return tuple(
        AlwaysReport(
            rule=rule(one.invariant),
            support=one.support,
            runs=one.support + one.broken,
            accuses=mined.accuses(one),
        )
        for one in told(mined)
    )


def _newest(known: Sequence[HistoryRow]) -> Regression | None:
    """Return the comparison of the newest version's runs with all runs before it."""
    first: dict[str, int] = {}
    for place, row in enumerate(known):
        first.setdefault(row.version, place)
    if len(first) < 2:
        return None
    version, place = max(first.items(), key=lambda one: one[1])
    before = known[:place]
    failed = sum(row.said == Said.FAILED for row in before)
    since = [row.said == Said.FAILED for row in known[place:] if row.version == version]
    return regression((failed, len(before)), since)


def to_json(report: WorkflowReport) -> dict[str, Any]:
    """Return a workflow as JSON for programs, always with the same keys."""
    newest = report.newest
    return {
        "tenant": report.tenant,
        "service": report.service,
        "workflow": report.workflow,
        **_said(report.said),
        "versions": [
            {
                "version": one.version,
                "release": one.release,
                "first": iso(one.first_ns),
                **_said(one.said),
                "against_before": None if one.against_before is None else asdict(one.against_before),
            }
            for one in report.versions
        ],
        "changes": [
            {"at": iso(one.at_ns), **asdict(one.point), "issues": [asdict(each) for each in one.issues]}
            for one in report.changes
        ],
        "newest_version": None if newest is None else asdict(newest),
        "always": [asdict(one) for one in report.always],
        "fix": None if report.fix is None else _fix_json(report.fix),
    }


def _fix_json(fix: FixReport) -> dict[str, Any]:
    fewer = [
        {"issue": one.issue, "before": one.after, "after": one.before, "fall": one.rise} for one in fix.fewer
    ]
    return {"at": iso(fix.at_ns), **asdict(fix.whole), "fewer": fewer}


def _said(counts: Counter[str]) -> dict[str, int]:
    return {said.value: counts[said.value] for said in Said}
