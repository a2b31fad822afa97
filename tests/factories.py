"""Builders of spans and traces, with defaults for everything that a test does not need.

Spans are numbered; number n has the span id n in hex. Times are in
milliseconds after an arbitrary origin.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from collector_processor.rebuild.repair import repair
from collector_processor.trajectory import order
from semconv.model import (
    Attributes,
    Completion,
    Event,
    Link,
    Resource,
    Scope,
    Span,
    SpanId,
    SpanStatus,
    Trace,
    TraceId,
    Trajectory,
)

ORIGIN_NS = 1_760_000_000_000_000_000
TRACE = TraceId("0af7651916cd43dd8448eb211c80319c")


def span_id(number: int) -> SpanId:
    return SpanId(f"{number:016x}")


def at(milliseconds: float) -> int:
    return ORIGIN_NS + int(milliseconds * 1_000_000)


def span(
    number: int,
    *,
    parent: int | None = None,
    start: float | None = None,
    end: float | None = None,
    name: str = "span",
    attributes: Attributes | None = None,
    error: str | None = None,
    scope: str = "test",
    service: str = "test",
    trace_id: TraceId = TRACE,
    kind: int = 1,
    events: Sequence[Event] = (),
    links: Sequence[Link] = (),
    logs: Sequence[Event] = (),
    dropped_attributes: int = 0,
    flags: int = 0,
) -> Span:
    """Make a span that by default starts at ``number * 10`` ms and takes 5 ms."""
    begin = number * 10 if start is None else start
    return Span(
        trace_id=trace_id,
        span_id=span_id(number),
        parent_id=None if parent is None else span_id(parent),
        name=name,
        kind=kind,
        start_ns=at(begin),
        end_ns=at(begin + 5 if end is None else end),
        status=SpanStatus.UNSET if error is None else SpanStatus.ERROR,
        status_message=error or "",
        attributes=attributes or {},
        events=tuple(events),
        links=tuple(links),
        logs=tuple(logs),
        scope=Scope(name=scope),
        resource=Resource(attributes={"service.name": service}),
        dropped_attributes=dropped_attributes,
        flags=flags,
    )


def trace(*spans: Span, completion: Completion = Completion.RECORDED) -> Trace:
    return Trace(spans=spans, completion=completion)


def ordered(*spans: Span, completion: Completion = Completion.RECORDED) -> Trajectory:
    """Repair and order the spans."""
    return order(repair(trace(*spans, completion=completion)))


def outline(trajectory: Trajectory) -> list[tuple[str, str]]:
    """Return (agent, kind) of each step, in order."""
    return [(step.agent, step.kind.value) for step in trajectory.steps]


def said(role: str, text: str = "", *calls: tuple[str, str, str], name: str | None = None) -> dict[str, Any]:
    """Make an OpenTelemetry message; calls are (tool, arguments, id)."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    parts += [
        {"type": "tool_call", "name": tool, "arguments": arguments, "id": call_id}
        for tool, arguments, call_id in calls
    ]
    return {"role": role, "parts": parts} | ({"name": name} if name else {})


def messages(*each: Mapping[str, Any]) -> str:
    return json.dumps(each)


def workflow(number: int = 1, *, task: str = "", answer: str = "", end: float = 1000, **more: Any) -> Span:
    attributes = {"gen_ai.operation.name": "invoke_workflow"}
    if task:
        attributes["gen_ai.input.messages"] = messages(said("user", task))
    if answer:
        attributes["gen_ai.output.messages"] = messages(said("assistant", answer))
    return span(number, name="invoke_workflow", attributes=attributes, end=end, **more)


def agent(number: int, name: str, *, parent: int | None = 1, **more: Any) -> Span:
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": name,
        **more.pop("attributes", {}),
    }
    return span(number, name=f"invoke_agent {name}", parent=parent, attributes=attributes, **more)


def chat(
    number: int,
    *,
    parent: int | None = 1,
    heard: Sequence[Mapping[str, Any]] = (),
    answer: str = "",
    calls: Sequence[tuple[str, str, str]] = (),
    agent_name: str | None = None,
    **more: Any,
) -> Span:
    attributes: dict[str, Any] = {"gen_ai.operation.name": "chat", **more.pop("attributes", {})}
    if heard:
        attributes["gen_ai.input.messages"] = messages(*heard)
    if answer or calls:
        attributes["gen_ai.output.messages"] = messages(said("assistant", answer, *calls))
    if agent_name is not None:
        attributes["gen_ai.agent.name"] = agent_name
    return span(number, name="chat model", parent=parent, attributes=attributes, **more)


def tool(
    number: int,
    name: str,
    *,
    parent: int | None = 1,
    arguments: str = "",
    result: str = "",
    call_id: str = "",
    **more: Any,
) -> Span:
    given = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.arguments": arguments,
        "gen_ai.tool.call.result": result,
        "gen_ai.tool.call.id": call_id,
        **more.pop("attributes", {}),
    }
    attributes = {key: value for key, value in given.items() if value}
    return span(number, name=f"execute_tool {name}", parent=parent, attributes=attributes, **more)


def openinference(
    number: int, kind: str, *, parent: int | None = 1, framework: str = "test", **more: Any
) -> Span:
    attributes = {"openinference.span.kind": kind, **more.pop("attributes", {})}
    return span(
        number,
        parent=parent,
        attributes=attributes,
        scope=f"openinference.instrumentation.{framework}",
        **more,
    )
