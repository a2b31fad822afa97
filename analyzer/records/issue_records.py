"""Records of issues in the API's answers: the issue, and its workflows before and after a fix. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

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
