"""Relations that the tree does not show: agents that are siblings of their calls, and calls with two spans.

An agent's span may be a sibling of the calls it makes, or of the call that starts it.

Siblings of their calls: two instrumentations that do not know each other write a graph's agents and its calls
below the same parent (OpenLIT's of langgraph and of langchain). Time then tells which agent made a call: an
agent's span that encloses nothing and runs from before a call without an agent's name until after it. This is
done only for dialects known to do so: elsewhere such a call beside an agent is the workflow's own.

Siblings of the call that starts them: agno's members run beside the call that delegates to them; Traceloop's
instrumentation of openai-agents puts that call beside the agent that makes it. If a delegation returns a
generator, the delegate begins only after it. The agent's run is then the step, and the call is not.

Model calls. An instrumentation that does not make its span the current one (Traceloop's of OpenAI and
Anthropic, LiteLLM's callback) leaves another instrumentation's span beside its own, not below it. Two spans
are one call if they are siblings of different scopes, one runs within the other and for most of its time, and
their answers do not differ. Wherever they are, they are one call if they overlap in time and have the same
response id of the provider; a cache gives an id again too, but later.

Tool calls. The Model Context Protocol's own library writes a span for each request, a *delivery*.
If the agent's instrumentation shows the call too, that span is the step; else the delivery is.
The two need not be related in the tree: the Claude Agent SDK serves tools in a task whose parent is
the run. So a delivery belongs to a call of the same tool that runs around it. Source: runs of
mcp 2.3 under the Claude Agent SDK; the GenAI conventions' page on MCP.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final

from collector_processor.trajectory.acts import AGENT, LLM, TOOL, Act, Ordering, merge
from semconv.attributes import GEN_AI_RESPONSE_ID
from semconv.dialects import ActionKind
from semconv.dialects.reading.agent_names import bare, plain
from semconv.dialects.reading.messages import last_answer
from semconv.dialects.reading.tools import is_delegation
from semconv.model import AgentSource, AttributeValue, Span
from semconv.record import replace

_MILLISECOND_NS: Final = 1_000_000
_LEAST_SHARE: Final = 0.5
"""Share of a call's time that a second span of the same call must cover at least."""
_NEAREST: Final = 64
"""Calls of a tool compared with a delivery: the latest that began before it, because they may still run."""


def merge_duplicate_calls(ordering: Ordering) -> Ordering:
    """Merge the spans of each doubled model call into one, and mark the others as duplicates."""
    calls = [act for act in ordering.acts if act.action.kind is LLM and act.index not in ordering.below]
    changed = {act.index: act for act in _of_one_response(calls)}
    families: defaultdict[int, list[Act]] = defaultdict(list)
    for act in calls:
        now = changed.get(act.index, act)
        if not now.is_duplicate:
            families[ordering.parents[act.position]].append(now)
    changed |= {act.index: act for family in families.values() for act in _merged(family)}
    return ordering.with_acts(changed.values()) if changed else ordering


def _of_one_response(calls: Sequence[Act]) -> Iterator[Act]:
    """Yield overlapping calls with one response id: the one that stays, then the duplicate."""
    by_id: defaultdict[AttributeValue, list[Act]] = defaultdict(list)
    for act in calls:
        if isinstance(name := act.span.attributes.get(GEN_AI_RESPONSE_ID), str) and name:
            by_id[name].append(act)
    for same in by_id.values():
        same.sort(key=_by_start)
        kept = same[0]
        for act in same[1:]:
            if act.span.start_ns < kept.span.end_ns:
                stays, other = (act, kept) if act.richness > kept.richness else (kept, act)
                kept = merge(stays, other)
                yield kept
                yield replace(other, is_duplicate=True)
            else:
                kept = act


def _merged(family: Sequence[Act]) -> Iterator[Act]:
    """Yield the calls of one parent that are merged: the one that stays, then the duplicate."""
    if len(family) == 1 or len({act.span.scope.name for act in family}) == 1:
        return
    outer: Act | None = None
    for act in sorted(family, key=lambda each: (each.span.start_ns, -each.span.end_ns, each.index)):
        if outer is None or not _are_one(outer, act):
            outer = act
            continue
        kept, other = (act, outer) if act.richness > outer.richness else (outer, act)
        yield merge(kept, other)
        yield replace(other, is_duplicate=True)
        outer = None


def _are_one(outer: Act, inner: Act) -> bool:
    whole, part = outer.span, inner.span
    is_inside = part.end_ns <= whole.end_ns
    is_most = part.end_ns - part.start_ns >= _LEAST_SHARE * (whole.end_ns - whole.start_ns)
    return is_inside and is_most and part.scope.name != whole.scope.name and not _differ(outer, inner)


def _differ(outer: Act, inner: Act) -> bool:
    first, second = (_answer(act) for act in (outer, inner))
    return bool(first) and bool(second) and first != second


def _answer(act: Act) -> tuple[str, ...]:
    """Return a call's answer in a comparable form: its text, or the tools it requested."""
    if text := (last_answer(act.action.output_messages) or act.action.output).strip():
        return (text,)
    return tuple(call.name for call in act.action.requested)


def lasting_calls(acts: Sequence[Act]) -> frozenset[int]:
    """Return the calls that last over the tools beside them: their answers came after the tools.

    A client that runs the tools itself may write one span for the whole loop, and each tool beside it, not
    below (VoltAgent's). An answer needs the tools' results, so it is that of the agent's last call, which
    began before the tools and ended after them. A reply that is still streamed while its tools run (Claude
    Code) is no such call: another one follows.
    """
    last: dict[tuple[int | None, int | None], Act] = {}
    for act in acts:
        known = last.get(_family_of(act))
        if act.action.kind is LLM and (known is None or _by_start(act) > _by_start(known)):
            last[_family_of(act)] = act
    return frozenset(
        [
            call.index
            for tool in acts
            if tool.action.kind is TOOL
            and (call := last.get(_family_of(tool))) is not None
            and call.span.start_ns < tool.span.start_ns
            and tool.span.end_ns < call.span.end_ns
            and not call.action.requested
        ]
    )


def _family_of(act: Act) -> tuple[int | None, int | None]:
    return act.above, act.runner


class Deliveries:
    """Index of a run's tool calls, by tool and start, to find the call of a delivery."""

    def __init__(self, acts: Sequence[Act]) -> None:
        self._calls: defaultdict[str, list[Act]] = defaultdict(list)
        if any(act.action.is_delivery for act in acts):
            tools = [act for act in acts if act.action.kind is TOOL]
            for act in sorted(tools, key=lambda each: each.span.start_ns):
                if not act.action.is_delivery:
                    self._calls[bare(act.action.tool or "")].append(act)

    def is_shown_by_another(self, act: Act) -> bool:
        """Say whether ``act`` is a delivery of a call that has a step of its own."""
        if not act.action.is_delivery:
            return False
        calls = self._calls.get(bare(act.action.tool or ""), [])
        begun = bisect_right(calls, act.span.start_ns, key=lambda call: call.span.start_ns)
        nearest = calls[max(0, begun - _NEAREST) : begun]
        return any(call.span.end_ns >= act.span.end_ns for call in nearest)


_CALLS: Final = frozenset({ActionKind.LLM, ActionKind.TOOL, ActionKind.HANDOFF})
_MOST_AT_ONCE: Final = 64
"""Number of concurrent agents beyond which time does not tell which agent made a call."""
_MOST_AFTER: Final = 16
"""Agents examined after a delegation."""

_by_start = attrgetter("span.start_ns", "index")


def attach_detached_agents(ordering: Ordering) -> Ordering:
    """Assign nameless calls to the agent whose run surrounds them in time, which is then not a step itself.

    If several agents' runs surround a call, the innermost counts, unless two with different names overlap:
    then the call stays nameless.
    """
    alone = sorted((act for act in ordering.acts if _is_alone(act, ordering)), key=_by_start)
    strays = [act for act in ordering.acts if act.agent is None and _is_call(act)] if alone else []
    changed: dict[int, Act] = {}
    running: list[tuple[int, int, Act]] = []
    begun = 0
    for stray in sorted(strays, key=_by_start):
        while begun < len(alone) and alone[begun].span.start_ns <= stray.span.start_ns:
            host = alone[begun]
            heappush(running, (host.span.end_ns, host.index, host))
            begun += 1
        while running and running[0][0] < stray.span.start_ns:
            heappop(running)
        around = _around(stray, [host for _, _, host in running[: _MOST_AT_ONCE + 1]])
        if around is not None:
            changed[stray.index] = replace(stray, agent=around.agent, agent_source=AgentSource.METADATA)
            changed[around.index] = replace(around, action=replace(around.action, pseudo_agent=True))
    return ordering.with_acts(changed.values()) if changed else ordering


def _is_call(act: Act) -> bool:
    return act.action.kind in _CALLS and not act.action.pseudo_agent


def _is_alone(act: Act, ordering: Ordering) -> bool:
    """Say whether an act is an agent's run that encloses nothing, so that its calls may be its siblings."""
    return act.action.has_calls_beside and act.agent is not None and act.index not in ordering.below


def _around(stray: Act, running: Sequence[Act]) -> Act | None:
    """Return the innermost agent whose run surrounds a call, unless it is ambiguous."""
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


class Delegates:
    """The agents of a run, by the span that they are directly below."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._families = _families(ordering)
        self._errors = _errors_below(ordering) if self._families else frozenset()

    def work_beside(self, act: Act) -> bool:
        """Say whether an agent beside a call, or beside the calling agent, does the requested work.

        A delegation that names no agent counts as a call of each agent beside it: it goes to all members of a
        team, or its arguments are hidden.
        """
        families = self._beside(act)
        if not families:
            return False
        if any(_is_left_to(act, agent) for family in families for agent in family.after(act)):
            return True
        beside = [agent for family in families for agent in family.during(act)]
        called = plain(f"{act.action.target or ''} {act.action.tool} {act.action.input}") if beside else ""
        is_to_any = bool(beside) and act.action.target is None and is_delegation(act.action.tool or "")
        return any(
            agent.agent is not None
            and (is_to_any or plain(agent.agent) in called or self._is_why(agent, act))
            and agent.span.end_ns <= act.span.end_ns + _error_of_ends(agent.span, act.span)
            for agent in beside
        )

    def _is_why(self, agent: Act, act: Act) -> bool:
        """Say whether a call failed with the error of the agent that ran during it.

        The span of a failed tool may lack the tool's name (Traceloop's of LangChain.js).
        """
        return act.action.failed and (agent.index, act.action.error) in self._errors

    def _beside(self, act: Act) -> Sequence[_Family]:
        parents, acts = self._ordering.parents, self._ordering.acts
        places = (act.position,) if act.runner is None else (act.position, acts[act.runner].position)
        return [family for place in places if (family := self._families.get(parents[place]))]


class _Family:
    """Agents directly below one span, ordered by start; a root may have thousands."""

    def __init__(self, agents: Sequence[Act]) -> None:
        self._agents = agents
        self._starts = [agent.span.start_ns for agent in agents]

    def during(self, act: Act) -> Sequence[Act]:
        """Return the agents that begin while ``act`` runs."""
        first = bisect_left(self._starts, act.span.start_ns)
        return self._agents[first : bisect_right(self._starts, act.span.end_ns)]

    def after(self, act: Act) -> Sequence[Act]:
        """Return the next agents to begin after ``act`` has ended; enough for concurrent delegations."""
        first = bisect_right(self._starts, act.span.end_ns)
        return self._agents[first : first + _MOST_AFTER]


def _families(ordering: Ordering) -> Mapping[int, _Family]:
    found: defaultdict[int, list[Act]] = defaultdict(list)
    for act in ordering.acts:
        if act.action.kind is AGENT:
            found[ordering.parents[act.position]].append(act)
    return {parent: _Family(agents) for parent, agents in found.items()}


def _errors_below(ordering: Ordering) -> frozenset[tuple[int, str]]:
    """Return the errors of each agent's calls, as pairs of the agent's index and the error's text."""
    return frozenset(
        (act.runner, act.action.error)
        for act in ordering.acts
        if act.runner is not None and act.action.error and act.action.kind in _CALLS
    )


def _error_of_ends(*spans: Span) -> int:
    """Return the nanoseconds by which the ends of these spans, on one clock, may be out of order.

    OpenTelemetry's SDK for JavaScript truncates starts to the millisecond and adds an exact duration.
    """
    return _MILLISECOND_NS if all(span.start_ns % _MILLISECOND_NS == 0 for span in spans) else 0


def _is_left_to(act: Act, agent: Act) -> bool:
    """Say whether ``agent`` does the work of a delegation that has already returned."""
    target = act.action.target
    is_open = act.action.kind is TOOL and target is not None and not act.action.failed
    return is_open and agent.agent is not None and plain(agent.agent) == plain(target or "")
