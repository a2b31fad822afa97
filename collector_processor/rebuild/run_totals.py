"""Totals of a run, by which runs are listed, filtered and sorted: steps, time, tokens, cost, workflow. Pure.

All numbers are as recorded: nothing is estimated, and what no span says is ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from collector_processor.core.runs import Run, RunTotals, workflow_of
from semconv.dialects.reading.usage import ModelCall, model_call
from semconv.model import SpanId, StepKind, TraceId

Number = TypeVar("Number", int, float)

_MOST: Final = (1 << 61) - 1
"""Largest count: spans may hold any, and their sums must fit into 64 bits."""
_LATEST_NS: Final = (1 << 63) - 1


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


def _calls(run: Run) -> Iterator[ModelCall]:
    """Yield the model calls of a run, one a span."""
    asking: set[tuple[TraceId | None, SpanId | None]] = {
        (step.trace_id, step.span_id) for step in run.trajectory.steps if step.kind is StepKind.LLM
    }
    return (model_call(span) for span in run.trace.spans if (span.trace_id, span.span_id) in asking)


def _sum(numbers: Iterable[Number | None]) -> Number | None:
    known = [number for number in numbers if number is not None]
    return min(sum(known), _MOST) if known else None
