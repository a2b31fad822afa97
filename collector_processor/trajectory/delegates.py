"""Calls that only stand for an agent's run beside them in the tree: the run is the step, the call is none.

agno's members run beside the call that asks for them; Traceloop's of openai-agents puts the call beside
the agent that calls. Where a delegation returns a generator, the delegate begins only after it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from collector_processor.trajectory.acts import Act, Stage
from collector_processor.trajectory.handoffs import plain
from semconv.dialects import ActionKind
from semconv.dialects.transfers import is_delegation

_MOST_AFTER: Final = 16
"""Agents looked at after a delegation."""


class Delegates:
    """Knows the agents of a run by the span that they are directly below."""

    def __init__(self, stage: Stage) -> None:
        self._parents = stage.parents
        self._families = _families(stage)

    def work_beside(self, act: Act) -> bool:
        """Say whether an agent beside a call, or beside the agent that calls, does what the call asks for.

        A delegation that names nobody is to all members, or its arguments are hidden.
        """
        places = (act.position,) if act.runner is None else (act.position, act.runner.position)
        found = [self._families.get(self._parents[place]) for place in places]
        families = [family for family in found if family is not None]
        if not families:
            return False
        if any(_is_left_to(act, agent) for family in families for agent in family.after(act)):
            return True
        beside = [agent for family in families for agent in family.during(act)]
        called = plain(f"{act.action.target or ''} {act.action.tool} {act.action.input}") if beside else ""
        is_to_any = bool(beside) and act.action.target is None and is_delegation(act.action.tool or "")
        return any(
            agent.agent is not None
            and (is_to_any or plain(agent.agent) in called)
            and agent.span.end_ns <= act.span.end_ns
            for agent in beside
        )


class _Family:
    """Agents directly below one span, in order of their starts: a root may have thousands."""

    def __init__(self, agents: Sequence[Act]) -> None:
        self._agents = agents
        self._starts = [agent.span.start_ns for agent in agents]

    def during(self, act: Act) -> Sequence[Act]:
        """Return those that begin while ``act`` runs."""
        first = bisect_left(self._starts, act.span.start_ns)
        return self._agents[first : bisect_right(self._starts, act.span.end_ns)]

    def after(self, act: Act) -> Sequence[Act]:
        """Return the next that begin when ``act`` has ended; enough for delegations at once."""
        first = bisect_right(self._starts, act.span.end_ns)
        return self._agents[first : first + _MOST_AFTER]


def _families(stage: Stage) -> Mapping[int, _Family]:
    found: defaultdict[int, list[Act]] = defaultdict(list)
    for act in stage.acts:
        if act.action.kind is ActionKind.AGENT:
            found[stage.parents[act.position]].append(act)
    return {parent: _Family(agents) for parent, agents in found.items()}


def _is_left_to(act: Act, agent: Act) -> bool:
    """Say whether a delegation that has returned already is the work of ``agent``."""
    target = act.action.target
    is_open = act.action.kind is ActionKind.TOOL and target is not None and not act.action.failed
    return is_open and agent.agent is not None and plain(agent.agent) == plain(target or "")
