"""Reports on workflows over time: runs that passed and failed, versions, change points, regressions, fixes.

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
from analyzer.history.broken import rule, told
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
from analyzer.history.facts import Facts
from analyzer.history.invariants import Broken, Held, Run, check
from analyzer.history.mining import LEAST_RUNS, MAX_RUNS, Mined, mine
from analyzer.history.spectrum import Said, spectrum_of
from analyzer.history.versions import Equality, equality
from analyzer.inquiry.errors import AnalyzerError
from analyzer.issues.issue_store import DAY_NS, IssueStore
from analyzer.issues.recurrence import Issue, is_resolved_by_hand
from analyzer.issues.report import SAMPLED, iso
from analyzer.telemetry.metric_table import MAX_WORKFLOWS
from collector_processor.core.records import HistoryRow, WorkflowRow
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.run_history import RunHistoryRows
from semconv.record import record, replace

DAYS: Final = 30
"""Days of runs that are reported."""
MOST_RUNS: Final = 1_000
"""Newest runs of a workflow that are read."""
RECENT: Final = 100
MOST_VERSIONS: Final = 50
"""Newest versions of a workflow that are reported: a prompt with a user's name makes each run a version."""
MOST_EXAMPLES: Final = 5
"""Runs that are named for each invariant, of those that hold it and of those that break it."""
NOT_FAIR: Final = f"shares of runs are {SAMPLED}"
"""Why no workflow is reported if the sample is unfair."""
NO_WORKFLOW: Final = f"no such workflow in the last {DAYS} days"
SEVERAL: Final = (
    "several tenants have a workflow of this name: name the tenant, by its header or with --tenant"
)
_MOST_WORKFLOWS: Final = 3
_AROUND: Final = 200
"""Runs before and after the fix among which a change point is looked for."""
_MOST_RELEASES: Final = 10


class WorkflowRefused(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """A workflow is not reported; the text says why."""


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
    kept_by: tuple[str, ...]
    """Ids of passing runs that did it, newest first, at most ``MOST_EXAMPLES``."""
    broken_by: tuple[str, ...]
    """Ids of passing runs that had occasion to and did not, likewise."""


@record
class WorkflowReport:
    """One workflow."""

    tenant: Tenant
    service: str
    workflow: str
    said: Counter[str]
    versions: tuple[VersionReport, ...]
    """The newest ``MOST_VERSIONS``, by their first run, oldest first."""
    changes: tuple[ChangeReport, ...]
    recent: tuple[int, int]
    """Runs that passed, and all, of the newest ``RECENT`` with a known outcome."""
    newest: Regression | None
    """Comparison of the newest version's runs with the others'; ``None`` if there is no other one."""
    always: tuple[AlwaysReport, ...] = ()
    """What it always does, by its passing runs; empty until ``with_always`` reads it."""
    basis: tuple[str, ...] = ()
    """Ids of the passing runs that ``always`` is mined from, newest first; below ten, nothing is mined."""
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
        of = {} if tenant is None else {"tenant": tenant}
        return [
            self._report(one, since_ns, fix) for one in self._history.workflows(since_ns, MAX_WORKFLOWS, **of)
        ]

    def only(
        self, service: str, workflow: str, now_ns: int, tenant: Tenant | None = None
    ) -> WorkflowRow | None:
        """Return the workflow of this name, also one beyond ``MAX_WORKFLOWS``; ``None`` if there is none.

        Raises:
            WorkflowRefused: several tenants have one.
        """
        of = {} if tenant is None else {"tenant": tenant}
        since_ns = now_ns - DAYS * DAY_NS
        rows = self._history.workflows(since_ns, 2, service=service, workflow=workflow, **of)
        if len(rows) > 1:
            raise WorkflowRefused(SEVERAL)
        return rows[0] if rows else None

    def report(self, row: WorkflowRow, now_ns: int) -> WorkflowReport:
        """Return one workflow, of the last ``DAYS`` days."""
        return self._report(row, now_ns - DAYS * DAY_NS, None)

    def with_always(self, report: WorkflowReport) -> WorkflowReport:
        """Return the report with what the workflow always does, mined anew: up to a quarter of a second."""
        rows = _basis(self._history.told(report.tenant, report.service, report.workflow, MOST_RUNS))
        return replace(report, always=_always(rows), basis=tuple(row.run_id for row in rows))

    def is_current(self, report: WorkflowReport) -> bool:
        """Return whether all runs that ``always`` is mined from are still kept."""
        return self._history.has_all(report.tenant, report.basis)

    def titles(self, report: WorkflowReport) -> dict[str, str]:
        """Return the titles of the issues that explain its changes, by id; forgotten ones are left out."""
        ids = sorted({issue.issue for change in report.changes for issue in change.issues if issue.issue})
        issues = self._store.issues_of([(report.tenant, issue) for issue in ids])
        return {issue.fingerprint.id: issue.fingerprint.title for _, issue in issues}

    def _report(self, row: WorkflowRow, since_ns: int, fix: Fix | None) -> WorkflowReport:
        tenant, service, workflow = row.tenant, row.service, row.workflow
        rows = self._history.of_workflow(tenant, service, workflow, MOST_RUNS)
        runs = [row for row in reversed(rows) if row.decided_ns >= since_ns]
        history_rows = [row for row in runs if row.said != Said.UNSAID]
        return WorkflowReport(
            tenant=tenant,
            service=service,
            workflow=workflow,
            said=Counter(row.said for row in runs),
            versions=_versions(runs),
            changes=self._changes(tenant, history_rows),
            recent=(
                sum(row.said == Said.PASSED for row in history_rows[-RECENT:]),
                len(history_rows[-RECENT:]),
            ),
            newest=_newest(history_rows),
            fix=None if fix is None else self._fixed(tenant, history_rows, fix),
        )

    def _fixed(self, tenant: Tenant, rows: Sequence[HistoryRow], fix: Fix) -> FixReport | None:
        at_ns = next((row.decided_ns for row in rows if row.release == fix.release), fix.at_ns)
        if at_ns is None:
            return None
        before = [row for row in rows if row.decided_ns < at_ns]
        after = [row for row in rows if row.decided_ns >= at_ns]
        issues = issues_of(self._store, tenant, before), issues_of(self._store, tenant, after)
        passed = ([each is None for each in part] for part in issues)
        return FixReport(at_ns=at_ns, whole=before_and_after(*passed), fewer=explain(issues[1], issues[0]))

    def _changes(self, tenant: Tenant, rows: Sequence[HistoryRow]) -> tuple[ChangeReport, ...]:
        points = change_points([row.said == Said.PASSED for row in rows])
        if not points:
            return ()
        issues = issues_of(self._store, tenant, rows)
        return tuple(
            ChangeReport(
                at_ns=rows[point.place].decided_ns,
                point=point,
                issues=explain(*_around(issues, point)) if point.is_drop else (),
            )
            for point in points
        )


def passing_facts(db: StoreConnection, tenant: Tenant, service: str, workflow: str) -> tuple[Facts, ...]:
    """Return the facts about the passing runs from which it is mined what a workflow always does."""
    rows = _basis(RunHistoryRows(db).told(tenant, service, workflow, MOST_RUNS))
    return tuple(facts.unpack(row.invariants) for row in rows)


def issues_of(store: IssueStore, tenant: Tenant, rows: Sequence[HistoryRow]) -> list[str | None]:
    """Return each run's issue: empty if it did not pass but is in none, ``None`` if it passed."""
    issue_of = store.issue_ids([(tenant, row.run_id) for row in rows])
    return [None if row.said == Said.PASSED else issue_of.get((tenant, row.run_id), "") for row in rows]


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
    order = list(own)
    first = max(0, len(order) - MOST_VERSIONS)
    spectra = {
        version: spectrum_of((Said(row.said), unpack(row.elements)) for row in own[version])
        for version in order[max(0, first - 1) :]
    }
    return tuple(
        VersionReport(
            version=version,
            release=own[version][0].release,
            first_ns=own[version][0].decided_ns,
            said=Counter(row.said for row in own[version]),
            against_before=equality(spectra[order[at - 1]], spectra[version]) if at else None,
        )
        for at, version in enumerate(order[first:], start=first)
    )


def _basis(rows: Sequence[HistoryRow]) -> list[HistoryRow]:
    """Return the passing runs of the newest version, or those of all versions if it has fewer than ten.

    ``rows`` are the newest first.
    """
    passed = [row for row in rows if row.said == Said.PASSED and row.invariants]
    own = [row for row in passed if row.version == passed[0].version]
    return (own if len(own) >= LEAST_RUNS else passed)[:MAX_RUNS]


def _always(rows: Sequence[HistoryRow]) -> tuple[AlwaysReport, ...]:
    """Return what these runs did; with fewer than ten, nothing is known."""
    known = [facts.unpack(row.invariants) for row in rows]
    mined, checked = mine(known), _CheckedRuns(rows, known)
    return tuple(_always_report(one, mined, checked.examples(one)) for one in told(mined))


def _always_report(one: Held, mined: Mined, examples: _Examples) -> AlwaysReport:
    return AlwaysReport(
        rule=rule(one.invariant),
        support=one.support,
        runs=one.support + one.broken,
        accuses=mined.accuses(one),
        kept_by=tuple(examples.kept[:MOST_EXAMPLES]),
        broken_by=tuple(examples.broken[:MOST_EXAMPLES]),
    )


@record
class _Examples:
    """Ids of runs that keep and that break an invariant, newest first."""

    kept: list[str]
    broken: list[str]

    def are_enough(self, one: Held) -> bool:
        """Return whether no further run is needed."""
        kept, broken = min(MOST_EXAMPLES, one.support), min(MOST_EXAMPLES, one.broken)
        return len(self.kept) >= kept and len(self.broken) >= broken


class _CheckedRuns:
    """Runs that are checked from the newest on; each is indexed when it is first needed."""

    def __init__(self, rows: Sequence[HistoryRow], known: Sequence[Facts]) -> None:
        self._rows: Final = rows
        self._known: Final = known
        self._runs: Final[list[Run]] = []

    def examples(self, one: Held) -> _Examples:
        """Return the newest runs that keep and that break an invariant; checks no more runs than needed."""
        examples = _Examples(kept=[], broken=[])
        for place, row in enumerate(self._rows):
            if examples.are_enough(one):
                break
            result = check(one.invariant, self._run(place))
            if isinstance(result, Broken):
                examples.broken.append(row.run_id)
            elif result:
                examples.kept.append(row.run_id)
        return examples

    def _run(self, place: int) -> Run:
        while len(self._runs) <= place:
            self._runs.append(Run(self._known[len(self._runs)]))
        return self._runs[place]


def _newest(rows: Sequence[HistoryRow]) -> Regression | None:
    """Return the comparison of the newest version's runs with all runs before it."""
    first: dict[str, int] = {}
    for place, row in enumerate(rows):
        first.setdefault(row.version, place)
    if len(first) < 2:
        return None
    version, place = max(first.items(), key=lambda one: one[1])
    before = rows[:place]
    failed = sum(row.said == Said.FAILED for row in before)
    since = [row.said == Said.FAILED for row in rows[place:] if row.version == version]
    return regression((failed, len(before)), since)


def to_json(report: WorkflowReport) -> dict[str, Any]:
    """Return a workflow as JSON for programs, always with the same keys."""
    return {
        **listed_json(report),
        "mined_runs": len(report.basis),
        "always": [asdict(always_report) for always_report in report.always],
        "fix": None if report.fix is None else _fix_json(report.fix),
    }


def listed_json(report: WorkflowReport) -> dict[str, Any]:
    """Return what a list has of a workflow: all but what it always does, and a fix."""
    newest = report.newest
    return {
        "tenant": report.tenant,
        "service": report.service,
        "workflow": report.workflow,
        **_said(report.said),
        "versions": [
            {
                "version": version.version,
                "release": version.release,
                "first": iso(version.first_ns),
                **_said(version.said),
                "against_before": None if version.against_before is None else asdict(version.against_before),
            }
            for version in report.versions
        ],
        "changes": [
            {"at": iso(one.at_ns), **asdict(one.point), "issues": [asdict(issue) for issue in one.issues]}
            for one in report.changes
        ],
        "newest_version": None if newest is None else asdict(newest),
    }


def _fix_json(fix: FixReport) -> dict[str, Any]:
    fewer = [
        {"issue": one.issue, "before": one.after, "after": one.before, "fall": one.rise} for one in fix.fewer
    ]
    return {"at": iso(fix.at_ns), **asdict(fix.whole), "fewer": fewer}


def _said(counts: Counter[str]) -> dict[str, int]:
    return {said.value: counts[said.value] for said in Said}


@record
class FixedWorkflow:
    """A workflow that an issue breaks, before and after the fix."""

    service: str
    workflow: str
    at_ns: int
    whole: BeforeAfter
    """Runs that pass."""
    spared: BeforeAfter
    """Runs that this issue does not break."""
    change: ChangePoint | None
    """The largest change of the share of passing runs among those around the fix, if there is any."""
    changed_ns: int | None
    """Time of the first run after that change."""


@record
class IssueFix:
    """What a fix did to the workflows that an issue breaks."""

    since: str
    """The release or time that was asked about, ``resolved``, or the newest release; empty without any."""
    workflows: tuple[FixedWorkflow, ...]
    releases: tuple[str, ...]
    """Releases of these workflows, newest first."""


class FixReports:
    """Reads fixes from a store's connection; one thread at a time."""

    def __init__(self, store: IssueStore) -> None:
        self._store: Final = store
        self._history: Final = RunHistoryRows(store.db)

    def of(self, tenant: Tenant, issue: Issue, since: str, now_ns: int) -> IssueFix:
        """Return an issue's workflows before and after a fix.

        Args:
            tenant: the owner of the issue.
            issue: the issue, as it stands now.
            since: a release or a time (ISO 8601); if empty, the time when a person resolved the issue, or
                without one the newest release.
            now_ns: Unix ns.
        """
        places = self._history.workflows_of(tenant, issue.runs)[:_MOST_WORKFLOWS]
        known = {place: self._known(tenant, *place, now_ns - DAYS * DAY_NS) for place in places}
        began: dict[str, int] = {}
        for row in sorted((row for rows in known.values() for row in rows), key=lambda row: row.decided_ns):
            if row.release:
                began.setdefault(row.release, row.decided_ns)
        fix = _fix(since, issue, tuple(began))
        workflows = [
            self._fixed(tenant, issue, place, rows, fix) for place, rows in known.items() if fix is not None
        ]
        return IssueFix(
            since="" if fix is None else fix.release,
            workflows=tuple(workflow for workflow in workflows if workflow is not None),
            releases=tuple(reversed(began))[:_MOST_RELEASES],
        )

    def _known(self, tenant: Tenant, service: str, workflow: str, since_ns: int) -> list[HistoryRow]:
        rows = self._history.of_workflow(tenant, service, workflow, MOST_RUNS)
        return [row for row in reversed(rows) if row.decided_ns >= since_ns and row.said != Said.UNSAID]

    def _fixed(
        self, tenant: Tenant, issue: Issue, place: tuple[str, str], rows: Sequence[HistoryRow], fix: Fix
    ) -> FixedWorkflow | None:
        at_ns = next((row.decided_ns for row in rows if row.release == fix.release), fix.at_ns)
        if at_ns is None:
            return None
        split = sum(row.decided_ns < at_ns for row in rows)
        failed_by = issues_of(self._store, tenant, rows)
        passed = [one is None for one in failed_by]
        spared = [one != issue.fingerprint.id for one in failed_by]
        first = max(0, split - _AROUND)
        points = change_points(passed[first : split + _AROUND])
        change = max(points, key=lambda one: abs(one.difference.low + one.difference.high), default=None)
        return FixedWorkflow(
            service=place[0],
            workflow=place[1],
            at_ns=at_ns,
            whole=before_and_after(passed[:split], passed[split:]),
            spared=before_and_after(spared[:split], spared[split:]),
            change=change,
            changed_ns=None if change is None else rows[first + change.place].decided_ns,
        )


def _fix(since: str, issue: Issue, releases: Sequence[str]) -> Fix | None:
    """Return the fix around which runs are compared; ``None`` if no fix is known."""
    if since:
        return read_fix(since)
    if is_resolved_by_hand(issue):
        return Fix(release="resolved", at_ns=issue.since_ns)
    return Fix(release=releases[-1]) if len(releases) > 1 else None


def fix_json(fix: IssueFix) -> dict[str, Any]:
    """Return a fix as JSON for programs, always with the same keys."""
    return {
        "since": fix.since or None,
        "releases": list(fix.releases),
        "workflows": [
            {
                "service": workflow.service,
                "workflow": workflow.workflow,
                "at": iso(workflow.at_ns),
                "passed": asdict(workflow.whole),
                "spared": asdict(workflow.spared),
                "change": None
                if workflow.change is None or workflow.changed_ns is None
                else {"at": iso(workflow.changed_ns), **asdict(workflow.change)},
            }
            for workflow in fix.workflows
        ],
    }
