"""A tool call that is recorded both by its caller and by MCP is one step."""

from __future__ import annotations

from typing import Any

from semconv.model import Span
from tests.factories import ordered, span


def call(number: int, tool: str, *, parent: int = 1, start: float, end: float) -> Span:
    named = {"openinference.span.kind": "TOOL", "tool.name": tool, "output.value": "made"}
    return span(number, parent=parent, start=start, end=end, name=tool, attributes=named)


def delivery(number: int, tool: str, *, parent: int = 1, start: float, end: float) -> Span:
    named: dict[str, Any] = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool"}
    named["gen_ai.tool.name"] = tool
    return span(number, parent=parent, start=start, end=end, name=f"tools/call {tool}", attributes=named)


def root() -> Span:
    return span(1, end=999, attributes={"openinference.span.kind": "AGENT", "agent.name": "a"})


def targets(*spans: Span) -> list[tuple[str | None, str]]:
    return [(step.target, step.output) for step in ordered(root(), *spans).steps]


def test_a_delivery_beside_the_call_that_runs_around_it_is_no_step() -> None:
    made = call(2, "mcp__register__look_up", start=10, end=40)
    assert targets(made, delivery(3, "look_up", start=20, end=30)) == [("mcp__register__look_up", "made")]


def test_a_delivery_below_its_call_is_no_step() -> None:
    made = call(2, "mcp__register__look_up", start=10, end=40)
    inside = delivery(3, "look_up", parent=2, start=20, end=30)
    assert targets(made, inside) == [("mcp__register__look_up", "made")]


def test_a_delivery_that_no_call_shows_is_the_step() -> None:
    assert targets(delivery(2, "look_up", start=20, end=30)) == [("look_up", "")]


def test_a_delivery_of_another_tool_or_at_another_time_is_a_step() -> None:
    made = call(2, "mcp__register__look_up", start=10, end=40)
    other, later = delivery(3, "write", start=20, end=30), delivery(4, "look_up", start=50, end=60)
    assert [target for target, _ in targets(made, other, later)] == [
        "mcp__register__look_up",
        "write",
        "look_up",
    ]


def test_two_calls_side_by_side_hide_both_their_deliveries() -> None:
    made = [call(2, "s__look_up", start=10, end=40), call(3, "s__look_up", start=15, end=50)]
    sent = [delivery(4, "look_up", start=20, end=30), delivery(5, "look_up", start=25, end=45)]
    assert len(targets(*made, *sent)) == len(made)
