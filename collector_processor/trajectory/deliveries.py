"""Tool calls that are seen twice: where the agent makes them, and on their way over the wire (MCP).

The Model Context Protocol's own library writes a span for each request. Where the agent's
instrumentation shows the call too, that is the step, and the delivery is none; where it does not,
the delivery is all there is. The two need not be related in the tree: the Claude Agent SDK serves
tools in a task whose parent is the run. So a delivery belongs to a call of the same tool that runs
around it. Source: runs of mcp 2.3 under the Claude Agent SDK; the GenAI conventions' page on MCP.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from collector_processor.trajectory.acts import Act
from collector_processor.trajectory.handoffs import plain
from semconv.dialects import ActionKind

_NEAREST: Final = 64
"""How many calls of a tool that began before a delivery are looked at: those that may still run."""


class Deliveries:
    """Knows the tool calls of a run that deliveries may belong to."""

    def __init__(self, acts: Iterable[Act]) -> None:
        tools = [act for act in acts if act.action.kind is ActionKind.TOOL]
        self._calls: defaultdict[str, list[Act]] = defaultdict(list)
        if any(act.action.is_delivery for act in tools):
            for act in sorted(tools, key=lambda each: each.span.start_ns):
                if not act.action.is_delivery:
                    self._calls[bare(act.action.tool or "")].append(act)

    def is_shown_by_another(self, act: Act) -> bool:
        """Say whether ``act`` delivers a call that is a step of its own."""
        if not act.action.is_delivery:
            return False
        calls = self._calls.get(bare(act.action.tool or ""), [])
        begun = bisect_right(calls, act.span.start_ns, key=lambda call: call.span.start_ns)
        nearest = calls[max(0, begun - _NEAREST) : begun]
        return any(call.span.end_ns >= act.span.end_ns for call in nearest)


def bare(tool: str) -> str:
    """Return a tool's name without its server's: ``mcp__register__look_up`` is ``look_up``."""
    return plain(tool.rpartition("__")[2])
