"""Records of workflows in the API's answers: counts, versions, changes, and what a workflow always does.

Pure data; ``analyzer/issues/workflow_reports.py`` writes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.history.versions import Decision
from analyzer.records.issue_records import Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsCompared:
    """Whether a version behaves like the one that began before it."""

    decision: Decision
    """`unknown`: too few runs to tell."""
    reason: str
    """One line for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowVersion:
    """Runs of a workflow with the same prompts, tools, models and `service.version`."""

    version: str
    """A digest of these."""
    release: str
    """`service.version`; empty if its resource has none."""
    first: str
    """Time of its first run, in ISO 8601."""
    passed: int
    failed: int
    unsaid: int
    """Runs without a statement that they passed or failed."""
    against_before: VersionsCompared | None
    """Compared with the version before; null for the first version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuePart:
    """The part of one issue in a fall of success."""

    issue: str
    """The issue's id; empty for failures of no issue."""
    before: tuple[int, int]
    """Runs that failed because of it before the change, and all runs."""
    after: tuple[int, int]
    rise: float
    """Rise of the share of runs that fail because of it."""
    interval: Bounds
    part: float
    """Its part in the whole rise of failures; above 1 if other issues fell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowChange:
    """A moment from which a workflow succeeds more or less often."""

    at: str
    """Time of the first run after it, in ISO 8601."""
    place: int
    """Number of that run among the runs with a known outcome, oldest first."""
    before: tuple[int, int]
    """Runs that passed, and all, since the change before."""
    after: tuple[int, int]
    difference: Bounds
    """Share of passing runs after minus before."""
    p_value: float
    issues: tuple[IssuePart, ...]
    """The issues that explain a fall, the largest rise first; empty for a rise of success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestVersion:
    """The runs of the newest version against all runs before it."""

    is_alarm: bool
    """Whether it fails more often."""
    place: int | None
    """Number of the run since then at which the alarm was raised."""
    evidence: float
    """The largest value of the bets on more failures; an alarm from 200 on."""
    before: tuple[int, int]
    """Runs that failed, and all, before it."""
    after: tuple[int, int]
    share: Bounds
    """Share of its runs that fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A workflow in its last 30 days, of at most its newest 1,000 runs."""

    tenant: str
    service: str
    workflow: str
    """Its name; empty if no span has one."""
    passed: int
    """Runs that an evaluator, a check, a rule or a person says passed."""
    failed: int
    unsaid: int
    """Runs without a statement that they passed or failed."""
    versions: tuple[WorkflowVersion, ...]
    """The newest 50, by their first run, oldest first."""
    changes: tuple[WorkflowChange, ...]
    """Oldest first."""
    newest_version: NewestVersion | None
    """Null if there is only one version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysRule:
    """Something that the passing runs of a workflow always do, or nearly always."""

    rule: str
    """What they did, as a clause in the past tense."""
    support: int
    """Passing runs that did it."""
    runs: int
    """Passing runs that had occasion to."""
    accuses: bool
    """Whether a run that reports no failure is suspected for not doing it."""
    kept_by: tuple[str, ...]
    """Ids of the newest passing runs that did it, at most five."""
    broken_by: tuple[str, ...]
    """Ids of the newest passing runs that did not, at most five."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInFull(Workflow):
    """A workflow with what it always does."""

    mined_runs: int
    """Passing runs that `always` is mined from: those of the newest version, or of all versions if it has
    fewer than ten. With fewer than ten in all, `always` is empty."""
    always: tuple[AlwaysRule, ...]
    """At most 20, those with the most structure first."""
    fix: None
    """Always null here; `blamespan workflows --fix` and `/api/issues/{issue_id}/fix` compare a fix."""
