"""Reads a blamed trace from Jaeger's query API as a person sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from semconv.attributes import CARRIER, FAILURE_DECISIVE
from tests.backends.jaeger_query import JaegerQuery, JaegerSpan, JaegerTrace, Reference, tags_of
from tests.backends.processes import RunningJaeger
from tests.backends.supervise import BackendError, wait_until
from tests.e2e.spans import Placed, placed_in_json

Parent = tuple[str, str]
"""A reference's type and span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A trace as the UI gets it and as stored."""

    trace: JaegerTrace
    stored: list[Placed]

    @property
    def spans(self) -> dict[str, JaegerSpan]:
        return {span["spanID"]: span for span in self.trace["spans"]}

    def carriers(self) -> list[JaegerSpan]:
        return [span for span in self.trace["spans"] if tags_of(span).get(CARRIER) is True]

    def decisive(self) -> list[JaegerSpan]:
        """Return the spans marked as decisive."""
        return [span for span in self.trace["spans"] if tags_of(span).get(FAILURE_DECISIVE) is True]

    def warnings(self) -> list[str]:
        """Return Jaeger's warnings on the trace and its spans."""
        lists = [self.trace["warnings"], *(span["warnings"] for span in self.trace["spans"])]
        return [warning for warnings in lists for warning in warnings or ()]


def tags(span: JaegerSpan) -> dict[str, Any]:
    return tags_of(span)


def references(span: JaegerSpan) -> list[Parent]:
    """Return a span's references: the parent first, then links."""
    given: list[Reference] = span["references"]
    return [(one["refType"], one["spanID"]) for one in given]


def as_stored(spans: Iterable[Placed]) -> list[Placed]:
    """Return the parts of spans that Jaeger stores: all but schema URLs."""
    return [replace(one, schema_urls=("", "")) for one in spans]


def look(jaeger: RunningJaeger, trace_id: str, *, spans: int) -> Seen:
    """Wait until a trace has this many spans, and return it."""
    query = jaeger.query

    def complete() -> JaegerTrace | None:
        found = query.trace(trace_id)
        return found if found is not None and len(found["spans"]) >= spans else None

    try:
        trace = wait_until(complete, what=f"{spans} spans of {trace_id} in Jaeger")
    except BackendError as error:
        raise BackendError(f"{error}; there are {_names(query, trace_id)}") from None
    stored = query.otlp_trace(trace_id)
    assert stored is not None
    return Seen(trace=trace, stored=placed_in_json(stored))


def _names(query: JaegerQuery, trace_id: str) -> list[str]:
    found = query.trace(trace_id)
    return sorted(span["operationName"] for span in found["spans"]) if found else []


def trace_ids(found: Iterable[JaegerTrace]) -> list[str]:
    return [trace["traceID"] for trace in found]
