"""Totals of a run, by which runs are listed, filtered and sorted: steps, time, tokens, cost, workflow. Pure.

All numbers are as recorded: nothing is estimated, and what no span says is ``None``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from collector_processor.rebuild.stages import Run
from semconv.attributes import GEN_AI_WORKFLOW_NAME
from semconv.dialects.reading.usage import ModelCall, model_call
from semconv.model import Span, SpanId, StepKind, TraceId

Number = TypeVar("Number", int, float)

MOST_NAME: Final = 200
"""Characters of a workflow's name."""
_MOST: Final = (1 << 61) - 1
"""Largest count: spans may hold any, and their sums must fit into 64 bits."""
_LATEST_NS: Final = (1 << 63) - 1
_CHANGING: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22,}|[0-9a-f]{12,}|\d{4,}", re.IGNORECASE)
"""Parts of a name that differ in every run: ids, times, long numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """Totals of one run."""

    workflow: str = ""
    """Name that all runs of the same workflow share; empty if no span has one."""
    steps: int
    started_ns: int | None = None
    """Start of the first step, Unix ns."""
    duration_ns: int | None = None
    """From the start of the first step to the end of the last."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    """The cost that the instrumentation recorded."""


def total_up(run: Run) -> RunTotals:
    """Return a run's totals; each span's tokens count once."""
    steps = run.trajectory.steps
    starts = [step.start_ns for step in steps if 0 < step.start_ns <= _LATEST_NS]
    ends = [step.end_ns for step in steps if 0 < step.end_ns <= _LATEST_NS]
    calls = list(_calls(run))
    return RunTotals(
        workflow=workflow_of(run.trace.spans),
        steps=len(steps),
        started_ns=min(starts, default=None),
        duration_ns=max(0, max(ends) - min(starts)) if starts and ends else None,
        input_tokens=_sum(call.input_tokens for call in calls),
        output_tokens=_sum(call.output_tokens for call in calls),
        cost_usd=_sum(call.cost_usd for call in calls),
    )


def workflow_of(spans: Iterable[Span]) -> str:
    """Return the name that all runs of a workflow share: the first declared name, else the first root span's.

    Parts that differ in every run are replaced: ``Crew_4f0c….kickoff`` becomes ``Crew_*.kickoff``.
    """
    ordered = sorted(spans, key=lambda span: span.start_ns)
    known = {span.span_id for span in ordered}
    declared = (span.attributes.get(GEN_AI_WORKFLOW_NAME) for span in ordered)
    roots = (span.name for span in ordered if span.parent_id is None or span.parent_id not in known)
    names = [name for name in (*declared, *roots) if isinstance(name, str)]
    plain = ("".join(filter(str.isprintable, name[: 4 * MOST_NAME])).strip() for name in names)
    return _CHANGING.sub("*", next(filter(None, plain), ""))[:MOST_NAME]


def _calls(run: Run) -> Iterator[ModelCall]:
    """Yield the model calls of a run, one a span."""
    asking: set[tuple[TraceId | None, SpanId | None]] = {
        (step.trace_id, step.span_id) for step in run.trajectory.steps if step.kind is StepKind.LLM
    }
    return (model_call(span) for span in run.trace.spans if (span.trace_id, span.span_id) in asking)


def _sum(numbers: Iterable[Number | None]) -> Number | None:
    known = [number for number in numbers if number is not None]
    return min(sum(known), _MOST) if known else None
