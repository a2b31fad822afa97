"""Workflows before and after the fix of an issue: do more runs pass, is this failure rarer? Synchronous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from analyzer.history.changes import BeforeAfter, ChangePoint, before_and_after, change_points
from analyzer.history.spectrum import Said
from analyzer.issues.issue_store import DAY_NS, IssueStore
from analyzer.issues.recurrence import Issue, is_resolved_by_hand
from analyzer.issues.report import iso
from analyzer.issues.workflow_reports import DAYS, MOST_RUNS, Fix, issues_of, read_fix
from collector_processor.core.records import HistoryRow
from collector_processor.otlp import Tenant
from collector_processor.store.run_history import RunHistoryRows
from semconv.record import record

_MOST_WORKFLOWS: Final = 3
_AROUND: Final = 200
"""Runs before and after the fix among which a change point is looked for."""
_MOST_RELEASES: Final = 10


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
        found = [
            self._fixed(tenant, issue, place, rows, fix) for place, rows in known.items() if fix is not None
        ]
        return IssueFix(
            since="" if fix is None else fix.release,
            workflows=tuple(each for each in found if each is not None),
            releases=tuple(reversed(began))[:_MOST_RELEASES],
        )

    def _known(self, tenant: Tenant, service: str, workflow: str, since_ns: int) -> list[HistoryRow]:
        rows = self._history.of_workflow(tenant, service, workflow, MOST_RUNS)
        return [row for row in reversed(rows) if row.decided_ns >= since_ns and row.said != Said.UNSAID]

    def _fixed(
        self, tenant: Tenant, issue: Issue, place: tuple[str, str], known: Sequence[HistoryRow], fix: Fix
    ) -> FixedWorkflow | None:
        at_ns = next((row.decided_ns for row in known if row.release == fix.release), fix.at_ns)
        if at_ns is None:
            return None
        split = sum(row.decided_ns < at_ns for row in known)
        failed_by = issues_of(self._store, tenant, known)
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
            changed_ns=None if change is None else known[first + change.place].decided_ns,
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
                "service": one.service,
                "workflow": one.workflow,
                "at": iso(one.at_ns),
                "passed": asdict(one.whole),
                "spared": asdict(one.spared),
                "change": None
                if one.change is None or one.changed_ns is None
                else {"at": iso(one.changed_ns), **asdict(one.change)},
            }
            for one in fix.workflows
        ],
    }
