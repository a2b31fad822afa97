"""Agents whose spans stand beside the calls they make, not around them.

Two instrumentations that do not know of each other write a graph's agents and its calls below the same
parent (OpenLIT's of langgraph and of langchain). Then time tells whose a call is: an agent's span that
encloses nothing, and runs from before the nameless call until after it. Only where the dialect knows of it:
elsewhere a nameless call beside an agent is the workflow's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final

from collector_processor.trajectory.acts import Act
from semconv.dialects import ActionKind
from semconv.model import AgentSource

_CALLS: Final = frozenset({ActionKind.LLM, ActionKind.TOOL, ActionKind.HANDOFF})
_MOST_AT_ONCE: Final = 64
"""Agents running side by side above which time tells nothing."""

_by_start = attrgetter("span.start_ns", "position")


def adopt(acts: Sequence[Act]) -> None:
    """Give nameless calls to the agent that runs around them in time, which then is no step itself.

    Of several the innermost, unless two of different names overlap: then time does not tell.
    """
    strays = sorted((act for act in acts if act.agent is None and _is_call(act)), key=_by_start)
    alone = sorted((act for act in acts if _is_alone(act)), key=_by_start) if strays else []
    running: list[tuple[int, int, Act]] = []
    begun = 0
    for stray in strays:
        while begun < len(alone) and alone[begun].span.start_ns <= stray.span.start_ns:
            host = alone[begun]
            heappush(running, (host.span.end_ns, host.position, host))
            begun += 1
        while running and running[0][0] < stray.span.start_ns:
            heappop(running)
        around = _around(stray, [host for _, _, host in running[: _MOST_AT_ONCE + 1]])
        if around is not None:
            stray.agent, stray.agent_source = around.agent, AgentSource.METADATA
            around.action = replace(around.action, pseudo_agent=True)


def _is_call(act: Act) -> bool:
    return act.action.kind in _CALLS and not act.action.pseudo_agent


def _is_alone(act: Act) -> bool:
    """Say whether an act is an agent's run that encloses nothing, and whose calls may stand beside it."""
    return act.action.has_calls_beside and act.agent is not None and not act.below


def _around(stray: Act, running: Sequence[Act]) -> Act | None:
    """Return the innermost of the agents that run around a call, if it is clear which that is."""
    around = [
        host
        for host in running
        if host.span.end_ns >= stray.span.end_ns and host.span.trace_id == stray.span.trace_id
    ]
    if not around or len(running) > _MOST_AT_ONCE:
        return None
    inner = max(around, key=_by_start)
    is_clear = all(host.agent == inner.agent or host.span.end_ns >= inner.span.end_ns for host in around)
    return inner if is_clear else None
