"""Runs of agents with chosen outcomes, sent to a service as they happen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

from collector_processor.rebuild.encode import encode
from semconv.model import Resource, Span, TraceId
from tests.e2e.line import Line
from tests.e2e.traffic import Doors, send
from tests.factories import agent, chat, tool, workflow


def work(line: Line | Doors, *agents: str, failing: str | None = None, service: str = "shop") -> TraceId:
    """Let agents do a task one after the other, now; one of them may fail through its tool's error."""
    spans = spans_of(*agents, failing=failing, service=service)
    send(line, encode(spans))
    return spans[0].trace_id


def spans_of(
    *agents: str, failing: str | None = None, service: str = "shop", below: str | None = None
) -> list[Span]:
    """Return such a run's spans, the root first; the spans below it may belong to another service."""
    trace_id, spans = TraceId(uuid4().hex), list(_run(agents, failing))
    shift_ns = time.time_ns() - max(span.end_ns for span in spans)
    for place, one in enumerate(spans):
        start_ns, end_ns = one.start_ns + shift_ns, one.end_ns + shift_ns
        resource = Resource(attributes={"service.name": below if below and one.parent_id else service})
        spans[place] = replace(one, trace_id=trace_id, start_ns=start_ns, end_ns=end_ns, resource=resource)
    return spans


def _run(agents: tuple[str, ...], failing: str | None) -> Iterator[Span]:
    failed = f"{failing} could not look it up" if failing else None
    yield workflow(1, task="How much?", answer="" if failed else "4", error=failed)
    for place, name in enumerate(agents):
        number, begin = 10 * (place + 1), 100.0 * place + 10
        error = "TimeoutError: no answer from the archive" if name == failing else None
        yield agent(number, name, start=begin, end=begin + 80, error=error)
        yield chat(number + 1, parent=number, answer="I look it up.", start=begin + 1, end=begin + 20)
        yield tool(number + 2, "look_up", parent=number, start=begin + 30, end=begin + 60, error=error)
