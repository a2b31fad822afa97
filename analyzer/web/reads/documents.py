"""Stored verdicts as the pages and the API read them: documents, and rows of lists. Pure.

A damaged document is shown as an error verdict: SQLite keeps no checksums of its pages, so a flipped bit on
the disk may be in any text.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Required

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict  # before 3.12, pydantic does not take that of ``typing``

from analyzer.inquiry.verdict import to_json
from analyzer.issues.labels.run_label import Label
from analyzer.web.reads.run_query import RunKey
from collector_processor.core.records import StoredVerdict, stated_certainty
from collector_processor.core.runs import RunTotals
from semconv.model import Abstention, Attribution, Status, Trajectory
from semconv.record import record

logger = logging.getLogger(__name__)
DAMAGED: Final = (
    "the stored verdict cannot be read: the store is damaged, `blamespan doctor` says how to mend it"
)
_WITH_OTHERS: Final = ConfigDict(extra="allow")


@with_config(_WITH_OTHERS)
class _Evidence(TypedDict, total=False):
    step: Required[int]
    quote: Required[str]


@with_config(_WITH_OTHERS)
class _Candidate(TypedDict, total=False):
    step: Required[int]
    agent: Required[str]
    probability: Required[float]


@with_config(_WITH_OTHERS)
class _Link(TypedDict, total=False):
    step: Required[int]
    value: Required[str]
    change: Required[str]


@with_config(_WITH_OTHERS)
class _Value(TypedDict, total=False):
    value: Required[str]
    origin: Required[str]
    step: int | None
    path: str | None
    formula: str | None
    chain: Required[list[_Link]]


@with_config(_WITH_OTHERS)
class _StepSet(TypedDict, total=False):
    steps: Required[list[int]]
    coverage: Required[float]
    observed: Required[float]
    interval: Required[tuple[float, float]]
    n: Required[int]


@with_config(_WITH_OTHERS)
class _NamedStep(TypedDict):
    step: int
    agent: str


@with_config(_WITH_OTHERS)
class _Pooled(TypedDict):
    model: _NamedStep
    without_model: _NamedStep
    weight: float
    right: float
    labelled: float


@with_config(_WITH_OTHERS)
class _Document(TypedDict, total=False):
    """The fields whose types the pages rely on; there may be others."""

    run_id: str
    status: str
    agent: str | None
    step: int | None
    span_id: str | None
    trace_id: str | None
    confidence: float | None
    reason: str
    fix: str | None
    mode: str | None
    evidence: list[_Evidence]
    ranking: list[_Candidate]
    method: str
    model: str | None
    fallback: str | None
    truncated: bool
    coverage: float
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    duration_s: float
    error: str | None
    checked: list[str]
    lineage: list[_Value]
    failed_probability: float | None
    set: _StepSet | None
    pooled: _Pooled | None
    notes: list[str]
    early_warning: dict[str, Any] | None


_READ: Final = TypeAdapter(_Document).validate_json
"""One pass over the text: reads a list of 500 runs in half the time that building models takes."""


@cache
def _damaged() -> Mapping[str, Any]:
    verdict = Abstention(status=Status.ERROR, reason=DAMAGED)
    return to_json(
        Attribution(run_id="", verdict=verdict, method="", error=DAMAGED),
        Trajectory(run_id="", steps=()),
    )


def read_document(text: str, run_id: str) -> dict[str, Any]:
    """Return a verdict's document with all its fields; an ``error`` verdict if it is damaged."""
    damaged = {**_damaged(), "run_id": run_id, "evidence": [], "ranking": [], "checked": [], "lineage": []}
    try:
        found = _READ(text)
    except ValueError:
        logger.warning("a stored verdict is damaged", extra={"run_id": run_id})
        return damaged
    return {**damaged, "reason": "", "error": None, **found}


@record
class RunRow:
    """One run in the list."""

    key: RunKey
    task: str
    """Beginning of the task; empty if the run is not kept."""
    answer: str
    """Beginning of the answer; empty if it is not kept."""
    document: dict[str, Any]
    """The verdict as JSON."""
    verdict: StoredVerdict
    """The verdict as stored."""
    totals: RunTotals | None = None
    """``None`` if they are not known: the run is from before they were kept, or still in progress."""
    said: Label | None = None
    """The newest label by a person."""

    @property
    def certainty(self) -> float | None:
        """The probability that the list is filtered and sorted by."""
        return stated_certainty(self.document)


def row_of(
    verdict: StoredVerdict,
    task: str = "",
    answer: str = "",
    label: Label | None = None,
    *,
    totals: RunTotals | None = None,
    at: float | None = None,
) -> RunRow:
    """Return a stored verdict as a row of the list; ``at`` is its place if not by time."""
    return RunRow(
        key=RunKey(at=verdict.decided_ns if at is None else at, tenant=verdict.tenant, run_id=verdict.run_id),
        totals=totals,
        task=task,
        answer=answer,
        document=read_document(verdict.document, verdict.run_id),
        verdict=verdict,
        said=label,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """One page of runs, and the position of the next."""

    rows: tuple[RunRow, ...]
    next: RunKey | None = None
    """``None`` if there are no more."""
    looked_at: int = 0
    """Runs examined for these rows; a search stops after a bounded number."""
