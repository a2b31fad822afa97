"""Acts of a run: the spans that are or may enclose a step, read through the dialects.

An *act* is a model call, tool call, handoff or agent. Containers between acts are skipped.
Records are immutable and refer to each other by index, so that a pass returns replacements.
Everything is one pass over the forest, parents first, so depth costs only memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from collector_processor.trajectory.blobs import name_blobs
from collector_processor.trajectory.plain_tools import with_requested_tools
from semconv.dialects import USUAL, Action, ActionKind, Inferred, Reader, Surroundings
from semconv.model import AgentSource, Span, SpanStatus, Stop
from semconv.record import record, replace

# Members and sets of kinds are looked up once: an enum's attribute costs 0.1 to 0.3 µs in Python 3.11.
LLM: Final = ActionKind.LLM
TOOL: Final = ActionKind.TOOL
HANDOFF: Final = ActionKind.HANDOFF
AGENT: Final = ActionKind.AGENT
GUARDRAIL: Final = ActionKind.GUARDRAIL
_ERROR: Final = SpanStatus.ERROR
_UNKNOWN: Final = AgentSource.UNKNOWN
_ANCESTOR: Final = AgentSource.ANCESTOR
ACT_KINDS: Final = frozenset(
    {
        ActionKind.LLM,
        ActionKind.TOOL,
        ActionKind.HANDOFF,
        ActionKind.HUMAN,
        ActionKind.OTHER,
        ActionKind.GUARDRAIL,
        ActionKind.AGENT,
    }
)
MODEL_KINDS: Final = frozenset({ActionKind.LLM, ActionKind.AGENT})
"""Kinds whose steps are the model's own words."""
TOOL_KINDS: Final = frozenset({ActionKind.TOOL, ActionKind.HANDOFF})
_RUNS: Final = frozenset({ActionKind.AGENT, ActionKind.WORKFLOW})
_NAMELESS: Final = frozenset({ActionKind.WORKFLOW, ActionKind.SETUP, ActionKind.EVALUATION})
"""Kinds whose agent is not the agent of what they enclose."""
_UNENDED: Final = "no end of this call was sent, as happens when a call fails or its process dies"


@record
class Act:
    """One span with its action, its agent and its place among the acts."""

    index: int
    """Its place in ``Ordering.acts``."""
    position: int
    """The position of its span in ``Ordering.spans``; two acts share it if one has no span of its own."""
    span: Span
    action: Action
    agent: str | None = None
    agent_source: AgentSource = AgentSource.UNKNOWN
    above: int | None = None
    """Index of the nearest enclosing act."""
    runner: int | None = None
    """Index of the nearest enclosing agent's act."""
    is_duplicate: bool = False
    """True if another act represents the same call and has taken over the facts of this one."""

    @property
    def status(self) -> SpanStatus:
        """The span's status, or error if its dialect reports the failure elsewhere; unset after a stop."""
        if self.action.stop is not None:
            return SpanStatus.UNSET
        return _ERROR if self.action.failed else self.span.status

    @property
    def richness(self) -> int:
        """Whether it holds input and output: 0 for neither, 1 for one, 2 for both."""
        action = self.action
        return bool(action.input or action.input_messages) + bool(action.output or action.output_messages)


def merge(act: Act, other: Act) -> Act:
    """Return ``act`` completed with the facts that only ``other``, a second span of the same call, has.

    With double instrumentation, AutoGen's own span inside OpenInference's has the error and the call id, and
    the outer one has the texts.
    """
    mine, theirs = act.action, other.action
    action = replace(
        mine,
        input=mine.input or theirs.input,
        output=mine.output or theirs.output,
        input_messages=mine.input_messages or theirs.input_messages,
        output_messages=mine.output_messages or theirs.output_messages,
        instructions=mine.instructions or theirs.instructions,
        call_id=mine.call_id or theirs.call_id,
        target=mine.target or theirs.target,
        failed=mine.failed or theirs.failed,
        error=mine.error or theirs.error,
        stop=mine.stop or theirs.stop,
        judgements=mine.judgements + theirs.judgements,
    )
    named = act if act.agent is not None else other
    return replace(act, action=action, agent=named.agent, agent_source=named.agent_source)


@record
class Ordering:
    """Intermediate state of a run that is being ordered: its spans, and the results of the passes so far."""

    surroundings: Surroundings
    spans: Sequence[Span]
    """Every span, parents first."""
    parents: Sequence[int]
    """Position of each span's parent; -1 for a root."""
    actions: Sequence[Action | None]
    """Each span's action, as its dialect reads it; ``None`` if no dialect does."""
    tops: Sequence[tuple[Span, Action]]
    """The topmost agents and workflows, earliest first."""
    acts: Sequence[Act]
    """The acts, parents first; then the handoffs without a span of their own."""
    below: Mapping[int, Sequence[int]]
    """The acts directly enclosed by an act, earliest first; acts that enclose none are left out."""
    steps: Sequence[int] = ()
    """The acts that are steps, in order."""
    closing_ns: Mapping[int, int] = field(default_factory=dict)
    """Time that orders a step after the steps it encloses; all other steps are ordered by their start."""
    groups: Mapping[int, int] = field(default_factory=dict)
    """Group number of steps that overlap in time, by the position of their span."""
    stops: Mapping[int, Stop] = field(default_factory=dict)
    """Why spans ended early on purpose, by position; dialects need not read them."""
    inferred: Inferred | None = None
    """Not ``None`` if no dialect reads the run and its actions were inferred."""

    def chosen(self) -> list[Act]:
        """Return the steps' acts, in order."""
        acts = self.acts
        return [acts[index] for index in self.steps]

    def with_acts(self, changed: Iterable[Act]) -> Ordering:
        """Return a copy in which ``changed`` replaces the acts of the same index."""
        acts = list(self.acts)
        for act in changed:
            acts[act.index] = act
        return replace(self, acts=tuple(acts))


Pass: TypeAlias = Callable[[Ordering], Ordering]
"""One transformation of a run that is being ordered. Pure, and linear in the spans."""


def read_acts(spans: Sequence[Span], reader: Reader = USUAL) -> Ordering:
    """Read all spans of a run, and find each act's enclosing act and agent."""
    surroundings = Surroundings(spans)
    walked, parents = surroundings.walked, surroundings.parents
    read, inferred = reader.actions(surroundings)
    actions = list(map(name_blobs, with_requested_tools(walked, parents, read)))
    acts = _acts(walked, actions, parents)
    return Ordering(
        surroundings=surroundings,
        spans=walked,
        parents=parents,
        actions=actions,
        tops=_tops(walked, actions, parents),
        acts=acts,
        below=_below(acts),
        inferred=inferred,
    )


def fail_unended(ordering: Ordering) -> Ordering:
    """Mark the acts of a finished run as failed whose end was never sent."""
    unended = [act for act in ordering.acts if act.action.is_unended]
    failed = (
        replace(act, action=replace(act.action, failed=True, error=act.action.error or _UNENDED))
        for act in unended
    )
    return ordering.with_acts(failed) if unended else ordering


def _tops(
    spans: Sequence[Span], actions: Sequence[Action | None], parents: Sequence[int]
) -> list[tuple[Span, Action]]:
    tops: list[tuple[Span, Action]] = []
    covered = [False] * len(spans)
    for position, action in enumerate(actions):
        parent = parents[position]
        covered[position] = parent >= 0 and covered[parent]
        if action is not None and action.kind in _RUNS:
            if not covered[position]:
                tops.append((spans[position], action))
            covered[position] = True
    return tops


def _below(acts: Sequence[Act]) -> Mapping[int, Sequence[int]]:
    below: defaultdict[int, list[int]] = defaultdict(list)
    for act in acts:
        if act.above is not None:
            below[act.above].append(act.index)
    return dict(below)


def _acts(spans: Sequence[Span], actions: Sequence[Action | None], parents: Sequence[int]) -> list[Act]:
    passed: list[tuple[str | None, int | None, int | None]] = []
    """For each span, the facts its children inherit: agent, nearest act and nearest agent's act."""
    acts: list[Act] = []
    for position, action in enumerate(actions):
        parent = parents[position]
        agent, above, runner = passed[parent] if parent >= 0 else (None, None, None)
        if action is not None:
            kind = action.kind
            agent, source = _agent_of(action, agent)
            if kind in ACT_KINDS:
                index = len(acts)
                acts.append(
                    Act(
                        index=index,
                        position=position,
                        span=spans[position],
                        action=action,
                        agent=agent,
                        agent_source=source,
                        above=above,
                        runner=runner,
                    )
                )
                above = index
                if kind is AGENT:
                    runner = index
        passed.append((agent, above, runner))
    return acts


def _agent_of(action: Action, inherited: str | None) -> tuple[str | None, AgentSource]:
    if action.pseudo_agent:
        return None, _UNKNOWN
    if action.agent is not None and action.kind not in _NAMELESS:
        return action.agent, action.agent_source
    return inherited, _UNKNOWN if inherited is None else _ANCESTOR
