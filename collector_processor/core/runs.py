"""A run: its spans and steps, its totals, and the words that name it and its kin. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from semconv.attributes import GEN_AI_WORKFLOW_NAME
from semconv.dialects import USUAL, Reader
from semconv.model import Span, Trace, Trajectory

TRACE_KEY: Final = "trace:"
"""Prefix of run keys that are trace ids."""
MAY_JOIN: Final = "may be one run with "
"""Beginning of the note on a run that may continue another."""
MOST_NAME: Final = 200
"""Characters of a workflow's name."""
_CHANGING: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22,}|[0-9a-f]{12,}|\d{4,}", re.IGNORECASE)
"""Parts of a name that differ in every run: ids, times, long numbers."""
CleanRun: TypeAlias = Callable[[Trajectory], Trajectory]
"""Returns a run without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: its repaired spans and its steps."""

    trace: Trace
    trajectory: Trajectory
    reader: Reader = field(default=USUAL, compare=False, repr=False)
    """Reader of its spans; use it to read them again."""


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


def workflow_of(spans: Iterable[Span]) -> str:
    """Return the name that all runs of a workflow share: the first declared name, else the first root span's.

    Parts that differ in every run are replaced: ``Crew_4f0c….kickoff`` becomes ``Crew_*.kickoff``.
    """
    ordered = sorted(spans, key=lambda span: span.start_ns)
    span_ids = {span.span_id for span in ordered}
    declared = (span.attributes.get(GEN_AI_WORKFLOW_NAME) for span in ordered)
    roots = (span.name for span in ordered if span.parent_id is None or span.parent_id not in span_ids)
    names = [name for name in (*declared, *roots) if isinstance(name, str)]
    plain = ("".join(filter(str.isprintable, name[: 4 * MOST_NAME])).strip() for name in names)
    return _CHANGING.sub("*", next(filter(None, plain), ""))[:MOST_NAME]
