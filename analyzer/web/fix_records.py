"""Records of the API's answer on a fix: an issue's workflows before and since."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BothSides:
    """A share of a workflow's runs before and since a fix."""

    before: tuple[int, int]
    """Runs that count, and all with a known outcome."""
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
    """A workflow that an issue breaks, before and since a fix."""

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
    """The workflows that an issue breaks, before and since a fix."""

    id: str
    tenant: str
    since: str | None
    """The release or time asked about, `resolved`, or the newest release; null without a fix."""
    releases: tuple[str, ...]
    """Releases of these workflows, newest first."""
    workflows: tuple[FixedWorkflow, ...]
