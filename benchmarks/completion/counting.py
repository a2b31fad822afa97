"""Comparison of verdicts with the truth: the counts of both completion benchmarks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Self

from semconv import attributes as names
from semconv.model import Span, TraceId

PASSED: Final = "no_failure"
BLAMED: Final = "attributed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The truth about a run."""

    culprit: str | None
    """The agent to blame; ``None`` if the run passed."""
    traces: frozenset[TraceId]
    end_s: float
    """End of its last span, in seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One final verdict, and the time at which it first appeared."""

    at_s: float
    run_id: str
    version: int
    status: str
    agent: str | None


@dataclass(slots=True, kw_only=True)
class Seen:
    """The service's verdicts, in order, and the spans it sent."""

    said: list[Said] = field(default_factory=list)
    """Verdicts: each version of each run once."""
    parts: Mapping[str, frozenset[TraceId]] = field(default_factory=dict)
    """Final traces of each run id: those analysed as that run."""
    carriers: tuple[Span, ...] = ()

    def standing(self) -> dict[str, Said]:
        """Return the newest verdict on each run."""
        return {one.run_id: one for one in sorted(self.said, key=lambda one: one.version)}


@dataclass(slots=True, kw_only=True)
class Counts:
    """Counts of runs, unless stated otherwise."""

    runs: int = 0
    wrong: int = 0
    """Runs whose last verdict is wrong or missing."""
    missing: int = 0
    """Of these, runs without a final verdict."""
    innocent: int = 0
    """Runs in which a carrier or final verdict ever blamed an agent other than the culprit."""
    passing_blamed: int = 0
    """Of these, runs that had passed."""
    passed: int = 0
    """Failed runs for which a final verdict ever said ``no_failure``."""
    changed: int = 0
    """Runs with a final verdict that was withdrawn or replaced by a different one."""
    joined: int = 0
    """Runs judged together with another's traces, or in parts."""
    blames: int = 0
    """Number of carriers that blame."""
    withdrawn: int = 0
    """Blames withdrawn by carriers; each has one beside the old mark and one on the root."""
    waits: list[float] = field(default_factory=list)
    """Seconds from a run's end to its right verdict; 0 if it came before the end."""

    def __iadd__(self, other: Counts) -> Self:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))
        return self

    @property
    def withdrawn_share(self) -> float:
        """Share of withdrawn blames among all carriers that blame."""
        return self.withdrawn / self.blames if self.blames else 0.0


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the smallest value that this percentage of values does not exceed; ``None`` for no values."""
    if not values:
        return None
    return round(sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)], 2)


def count(truths: Iterable[Truth], seen: Seen) -> Counts:
    """Return the counts of the runs of one simulation."""
    total, standing = Counts(), seen.standing()
    for truth in truths:
        total += _count(truth, seen, standing)
    return total


def _count(truth: Truth, seen: Seen, verdicts: Mapping[str, Said]) -> Counts:
    own, culprit = truth.traces, truth.culprit
    said = [one for one in seen.said if one.run_id.partition(":")[0] in own]
    parts = {run_id: traces for run_id, traces in seen.parts.items() if traces & own}
    standing = _standing(parts, verdicts)
    carriers = [one for one in seen.carriers if one.trace_id in own]
    blaming = [one for one in carriers if one.attributes.get(names.FAILURE_DECISIVE)]
    accused = {one.agent for one in said if one.agent}
    accused |= {str(one.attributes[names.FAILURE_AGENT_NAME]) for one in blaming}
    right = (PASSED, None) if culprit is None else (BLAMED, culprit)
    is_right = standing is not None and _says(standing) == right
    when = [one.at_s for one in said if standing is not None and _is_same(one, standing)]
    return Counts(
        runs=1,
        wrong=not is_right,
        missing=standing is None,
        innocent=bool(accused - {culprit}),
        passing_blamed=culprit is None and bool(accused),
        passed=culprit is not None and any(one.status == PASSED for one in said),
        changed=len({(one.run_id, *_says(one)) for one in said}) > 1,
        joined=len(parts) > 1 or any(traces != own for traces in parts.values()),
        blames=len(blaming),
        withdrawn=len({one.attributes[names.FAILURE_ID] for one in carriers if is_withdrawal(one)}),
        waits=[max(0.0, when[0] - truth.end_s)] if when and is_right else [],
    )


def is_withdrawal(carrier: Span) -> bool:
    """Return whether a carrier withdraws an earlier blame."""
    return carrier.attributes.get(names.FAILURE_STATUS) == names.FailureStatus.WITHDRAWN


def _standing(parts: Iterable[str], verdicts: Mapping[str, Said]) -> Said | None:
    """Return the verdict on the run of these traces; if there are several, preferably a blame."""
    found = [verdicts[run_id] for run_id in parts if run_id in verdicts]
    return min(found, key=lambda one: one.status != BLAMED, default=None)


def _is_same(one: Said, other: Said) -> bool:
    return (one.run_id, *_says(one)) == (other.run_id, *_says(other))


def _says(said: Said) -> tuple[str, str | None]:
    return said.status, said.agent
