"""A run's spans with what they mean: which act encloses which, and whose each is.

An *act* is an action that is or may enclose a step (model call, tool, handoff,
agent); containers in between are looked through. Everything is one pass over
the forest, parents first, so depth costs nothing but memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from semconv.dialects import Action, ActionKind, Surroundings, read_action
from semconv.model import AgentSource, Span, SpanStatus

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
# Sets of kinds are made once: in Python 3.11 each look-up of an enum's member takes 0.1 µs.
_RUNS: Final = frozenset({ActionKind.AGENT, ActionKind.WORKFLOW})
_NAMELESS: Final = frozenset({ActionKind.WORKFLOW, ActionKind.SETUP, ActionKind.EVALUATION})
"""Kinds whose agent is not the agent of what they enclose."""


@dataclass(slots=True, kw_only=True, eq=False)
class Act:
    """One span with its action and its place among the acts. Filled in while a trajectory is built."""

    span: Span
    action: Action
    position: int
    """Its number in a walk of the forest, parents first: breaks ties."""
    agent: str | None = None
    agent_source: AgentSource = AgentSource.UNKNOWN
    above: Act | None = None
    """The nearest enclosing act."""
    runner: Act | None = None
    """The nearest enclosing agent's act."""
    below: list[Act] = field(default_factory=list)
    """The acts directly enclosed, earliest first."""

    def absorb(self, other: Act) -> None:
        """Take over from a second span of the same act what this one does not say.

        Double instrumentation: AutoGen's own span inside OpenInference's knows the error and
        the call id, the outer one the texts.
        """
        mine, theirs = self.action, other.action
        self.action = replace(
            mine,
            input=mine.input or theirs.input,
            output=mine.output or theirs.output,
            heard=mine.heard or theirs.heard,
            said=mine.said or theirs.said,
            instructions=mine.instructions or theirs.instructions,
            call_id=mine.call_id or theirs.call_id,
            target=mine.target or theirs.target,
            failed=mine.failed or theirs.failed,
            error=mine.error or theirs.error,
            judgements=mine.judgements + theirs.judgements,
        )
        if self.agent is None:
            self.agent, self.agent_source = other.agent, other.agent_source

    @property
    def status(self) -> SpanStatus:
        """The span's status, or error where its dialect says so in another way."""
        return SpanStatus.ERROR if self.action.failed else self.span.status

    @property
    def richness(self) -> int:
        """How much of the act this span tells."""
        action = self.action
        return sum(map(bool, (action.input or action.heard, action.output or action.said)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """All that a run's spans say."""

    surroundings: Surroundings
    spans: Sequence[Span]
    """Every span, parents first."""
    actions: Sequence[Action | None]
    """Each span's action, in the same order."""
    acts: Sequence[Act]
    """The acts among them, parents first."""
    act_of: Sequence[Act | None]
    """Each span's act, in the order of ``spans``."""
    parents: Sequence[int]
    """Position of each span's parent; -1 of a root."""
    tops: Sequence[tuple[Span, Action]]
    """The topmost agents and workflows, earliest first."""


def stage(spans: Sequence[Span]) -> Stage:
    """Read all spans of a run, and find for each act what encloses it and whose it is."""
    surroundings = Surroundings(spans)
    walked = list(surroundings.walk())
    position_of = {id(span): position for position, span in enumerate(walked)}
    parents = [
        -1 if (parent := surroundings.parent(span)) is None else position_of[id(parent)] for span in walked
    ]
    actions = [read_action(span, surroundings) for span in walked]
    act_of = _cast(walked, actions, parents)
    return Stage(
        surroundings=surroundings,
        spans=walked,
        actions=actions,
        acts=[act for act in act_of if act is not None],
        act_of=act_of,
        parents=parents,
        tops=_tops(walked, actions, parents),
    )


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


@dataclass(slots=True)
class _Inherited:
    """What a span passes down."""

    agent: str | None = None
    source: AgentSource = AgentSource.UNKNOWN
    act: Act | None = None
    runner: Act | None = None


def _cast(
    spans: Sequence[Span], actions: Sequence[Action | None], parents: Sequence[int]
) -> list[Act | None]:
    passed: list[_Inherited] = []
    act_of: list[Act | None] = []
    for position, (span, action) in enumerate(zip(spans, actions, strict=True)):
        inherited = passed[parents[position]] if parents[position] >= 0 else _Inherited()
        agent, source = _whose(action, inherited)
        act = None
        if action is not None and action.kind in ACT_KINDS:
            act = Act(
                span=span,
                action=action,
                position=position,
                agent=agent,
                agent_source=source,
                above=inherited.act,
                runner=inherited.runner,
            )
            if act.above is not None:
                act.above.below.append(act)
        act_of.append(act)
        passed.append(_handed_down(act, action, agent, inherited))
    return act_of


def _whose(action: Action | None, inherited: _Inherited) -> tuple[str | None, AgentSource]:
    if action is not None:
        if action.pseudo_agent:
            return None, AgentSource.UNKNOWN
        if action.agent is not None and action.kind not in _NAMELESS:
            return action.agent, action.agent_source
    return inherited.agent, inherited.source


def _handed_down(
    act: Act | None, action: Action | None, agent: str | None, inherited: _Inherited
) -> _Inherited:
    named = agent is not None
    runner = act if act is not None and action is not None and action.kind is ActionKind.AGENT else None
    return _Inherited(
        agent=agent,
        source=AgentSource.ANCESTOR if named else AgentSource.UNKNOWN,
        act=act or inherited.act,
        runner=runner or inherited.runner,
    )
