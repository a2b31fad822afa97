"""Builders of stored verdicts, with defaults for everything that a test does not need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import NO_TENANT
from semconv.model import SpanId

_BLAME = StoredVerdict(
    tenant=NO_TENANT,
    run_id="run-1",
    version=1,
    failure_id="f1",
    status="attributed",
    agent="clerk",
    step=1,
    span_id=SpanId(f"{2:016x}"),
    trace_id=None,
    service="shop",
    is_provisional=False,
    decided_ns=5,
    document="{}",
)


def stored(**fields: Any) -> StoredVerdict:
    """Return a verdict that blames step 1 of a run."""
    return replace(_BLAME, **fields)


def stored_without_blame(status: str, **fields: Any) -> StoredVerdict:
    """Return a verdict that blames no agent."""
    return stored(status=status, agent=None, step=None, span_id=None, **fields)
