"""Builders of runs, with defaults for everything that a test does not need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from semconv.dialects.reading.action import Message
from semconv.dialects.reading.messages import render
from semconv.model import SpanId, SpanStatus, Step, StepKind, ToolCall, Trajectory


def step(agent: str, output: str = "", kind: StepKind = StepKind.LLM, **fields: Any) -> Step:
    """Return a step whose index ``run`` sets."""
    return Step(index=-1, agent=agent, kind=kind, output=output, **fields)


def calling(agent: str, *calls: tuple[str, str], words: str = "", **fields: Any) -> Step:
    """Return a model call that requests tools: pairs of name and arguments."""
    asked = tuple(ToolCall(name=name, arguments=arguments) for name, arguments in calls)
    lines = [*filter(None, [words]), *(f"call {call.name}({call.arguments})" for call in asked)]
    return step(agent, "\n".join(lines), calls=asked, **fields)


def hearing(one: Step, *messages: tuple[str, str], author: str = "") -> Step:
    """Return a step that hears messages: pairs of role and text, all by one author."""
    asked = [Message(role=role, text=text, name=author) for role, text in messages]
    text, heard = render(asked)
    return replace(one, input=text, heard=heard)


def tool(agent: str, output: str = "", target: str = "lookup", **fields: Any) -> Step:
    """Return a tool step."""
    return step(agent, output, StepKind.TOOL, target=target, **fields)


def failed_tool(agent: str, error: str = "TimeoutError", target: str = "lookup", **fields: Any) -> Step:
    """Return a tool step whose span has the status ERROR."""
    return tool(agent, "", target, status=SpanStatus.ERROR, error=error, **fields)


def run(*steps: Step, **fields: Any) -> Trajectory:
    """Return a trajectory of the steps, numbered from 0."""
    numbered = tuple(_numbered(s, index) for index, s in enumerate(steps))
    fields.setdefault("run_id", "run-1")
    fields.setdefault("agents", tuple(dict.fromkeys(s.agent for s in numbered)))
    return Trajectory(steps=numbered, **fields)


def _numbered(one: Step, index: int) -> Step:
    return replace(one, index=index, span_id=one.span_id or SpanId(f"{index + 1:016x}"))
