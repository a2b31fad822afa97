"""Records of issues and workflows in the API's answers. Pure data.

``analyzer/issues/report.py`` and ``workflow_reports.py`` write them.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.history.versions import Decision
from analyzer.issues.recurrence import IssueState


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCount:
    """Failures on one day."""

    day: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(Estimate):
    """Share of an agent's runs of the last seven days in which it was to blame.

    With labels of its service, the interval allows for the method's own errors; without, it is the
    method's share.
    """

    blamed: int
    """Runs it was blamed for."""
    runs: int
    """Runs it took part in."""
    labelled: int
    """Number of labels by which the method's errors are estimated."""
    told: str
    """The share as text, as commands and pages show it."""
    against_past: Estimate
    """Ratio of its share of blame to that of its own past."""
    against_fellows: Estimate
    """Ratio of its share of blame to that of the other agents of its service."""
    alarm: bool
    """Whether it fails more often than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """A recurring failure."""

    id: str
    state: IssueState
    title: str
    """One line for people."""
    tenant: str
    service: str
    agent: str
    mode: str
    kind: str
    """Kind of the decisive step."""
    suspected: bool
    """Whether its runs reported no failure and are only suspected."""
    tool: str
    """The tool called or the agent handed over to; empty for other kinds."""
    error: str
    """The type of error; empty where there was none."""
    count: int
    """Number of runs that it has broken."""
    first_seen: str
    """ISO 8601, as all times of an issue."""
    last_seen: str
    since: str
    """Time at which it entered its state."""
    trend: tuple[DayCount, ...]
    """Failures per day of the last two weeks, oldest first."""
    examples: tuple[str, ...]
    """Ids of the last runs it broke, newest first."""
    muted: bool
    muted_until: str | None
    share: Share | None
    share_off: str | None
    """The reason why there is no share; empty if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BothSides:
    """A share of a workflow's runs before and after a fix."""

    before: tuple[int, int]
    """Runs counted in the share, and all runs with a known outcome."""
    after: tuple[int, int]
    difference: Bounds
    """Share since minus share before."""
    verdict: str
    """`better`, `worse` or `unclear`; clear only if Fisher's exact test agrees (5 %)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessChange:
    """A change of the share of passing runs among the runs around a fix."""

    at: str
    """Time of the first run after it, in ISO 8601."""
    place: int
    """Number of that run among the runs around the fix."""
    before: tuple[int, int]
    after: tuple[int, int]
    difference: Bounds
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedWorkflow:
    """A workflow that an issue breaks, before and after a fix."""

    service: str
    workflow: str
    at: str
    """Time of the fix, in ISO 8601."""
    passed: BothSides
    """Runs that pass."""
    spared: BothSides
    """Runs that this issue does not break."""
    change: SuccessChange | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueFix:
    """The workflows that an issue breaks, before and after a fix."""

    id: str
    tenant: str
    since: str | None
    """The release or time asked about, `resolved`, or the newest release; null without a fix."""
    releases: tuple[str, ...]
    """Releases of these workflows, newest first."""
    workflows: tuple[FixedWorkflow, ...]


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
