"""A sound trace → the ordered steps of the run.

Reads every span through its dialect (``acts``), keeps the leaves (``leaves``),
names who acted (``casting``), marks what ran side by side (``parallel``), and
leaves out what was said before (``novelty``). Order is by start in integer
nanoseconds; ties are broken by place in the tree, never by arrival. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from collector_processor.trajectory.acts import Act, Stage, stage
from collector_processor.trajectory.borrowing import lend
from collector_processor.trajectory.bystanders import adopt
from collector_processor.trajectory.casting import name_by_handoff, name_by_messages, name_by_request
from collector_processor.trajectory.epilogues import without_epilogues
from collector_processor.trajectory.handoffs import Agents, Settled, settle, with_unseen_handoffs
from collector_processor.trajectory.leaves import leaves
from collector_processor.trajectory.novelty import Novelty, said_in_words, shortened
from collector_processor.trajectory.outline import ending_of, is_whole, output_of, stated_outcome, task_of
from collector_processor.trajectory.parallel import groups
from collector_processor.trajectory.ties import causes
from semconv.dialects import ActionKind
from semconv.dialects.toolbox import Lists, lists_of, tools_in
from semconv.markers import ATTRIBUTE_PREFIXES, SCOPE_PREFIXES
from semconv.model import UNKNOWN_AGENT, AgentSource, ContentState, Span, Step, StepKind, Trace, Trajectory

_LOSSES: Final = frozenset({ContentState.DROPPED, ContentState.TRUNCATED})
_STEP_KINDS: Final[Mapping[ActionKind, StepKind]] = {
    ActionKind.LLM: StepKind.LLM,
    ActionKind.TOOL: StepKind.TOOL,
    ActionKind.HANDOFF: StepKind.HANDOFF,
    ActionKind.HUMAN: StepKind.HUMAN,
    ActionKind.OTHER: StepKind.OTHER,
    ActionKind.GUARDRAIL: StepKind.OTHER,
    ActionKind.AGENT: StepKind.LLM,  # stands for model calls that nothing else shows
}


def order(trace: Trace) -> Trajectory:
    """Return the run's steps in order, and what it says of itself.

    Expects what ``repair`` returns; ``trace`` may hold several trace ids that are one run.
    A trace without steps gives an empty trajectory with a warning that says why.
    """
    scene = stage(trace.spans)
    adopt(scene.acts)
    found = without_epilogues(leaves(scene))
    acts = [leaf.act for leaf in found]
    lend(acts)
    together = groups(found, scene.parents)
    name_by_messages(scene, acts)
    name_by_request(acts)
    name_by_handoff(acts, together)
    agents = _agents(scene, acts)
    acts = with_unseen_handoffs(scene, acts, agents)
    steps = _steps(acts, agents, together, causes(scene, acts))
    stated, ending = stated_outcome(scene), ending_of(scene, acts)
    return Trajectory(
        run_id=trace.run_id or _run_id(trace.spans),
        steps=steps,
        task=shortened(task_of(scene, acts)),
        output=shortened(output_of(scene, acts)),
        reference=stated.reference,
        outcome=stated.outcome,
        outcome_source=stated.source,
        complete=is_whole(trace, acts),
        agents=_unique(step.agent for step in steps if step.agent != UNKNOWN_AGENT),
        dialects=_unique(action.dialect for action in scene.actions if action is not None),
        warnings=(*trace.warnings, *_warnings(scene, steps)),
        root_trace_id=ending.root.trace_id if ending.root else None,
        root_span_id=ending.root.span_id if ending.root else None,
        root_status=ending.status,
        root_error=shortened(ending.error),
    )


def _run_id(spans: Sequence[Span]) -> str:
    """Return the trace id; of several, that of the earliest span."""
    return min(spans, key=lambda span: (span.start_ns, span.trace_id)).trace_id if spans else ""


def _agents(scene: Stage, acts: Iterable[Act]) -> Agents:
    return Agents(act.agent for act in chain(scene.acts, acts) if act.agent is not None)


def _steps(
    acts: Sequence[Act], agents: Agents, together: Mapping[int, int], tied: Sequence[tuple[int, ...]]
) -> tuple[Step, ...]:
    novelty, toolbox = Novelty(), _Toolbox()
    steps: list[Step] = []
    for index, act in enumerate(acts):
        following = acts[index + 1] if index + 1 < len(acts) else None
        heard = novelty.take(act) if act.action.heard else act.action.input
        settled = settle(act, following, agents)
        place = _Place(index=index, group=together.get(act.position), causes=tied[index])
        steps.append(_step(place, act, settled, heard, toolbox.of(act)))
    novelty.recover_answers(acts)
    for index, act in enumerate(acts):
        if act.action.kind is ActionKind.LLM and act.position in novelty.recovered:
            steps[index] = _recovered(steps[index], novelty.recovered[act.position])
    return tuple(steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a step stands among the others."""

    index: int
    group: int | None
    causes: tuple[int, ...]


class _Toolbox:
    """The tools that agents could call; a list is read once, on however many steps it stands."""

    def __init__(self) -> None:
        self._of_turn: dict[int, str] = {}
        self._known: dict[Lists, str] = {}

    def of(self, act: Act) -> str:
        own = self._read(act.span)
        if own or act.runner is None:
            return own
        turn = act.runner
        if turn.position not in self._of_turn:
            self._of_turn[turn.position] = self._read(turn.span)
        return self._of_turn[turn.position]

    def _read(self, span: Span) -> str:
        lists = lists_of(span)
        if not lists:
            return ""
        try:
            known = self._known.get(lists)
        except TypeError:  # objects instead of their JSON: nothing to find them again by
            return tools_in(lists)
        if known is None:
            known = self._known[lists] = tools_in(lists)
        return known


def _step(place: _Place, act: Act, settled: Settled, heard: str, tools: str) -> Step:
    action, span = act.action, act.span
    said = said_in_words(action.said) if action.said else action.output
    kept_heard, kept_said = shortened(heard), shortened(said)
    is_cut = kept_heard is not heard or kept_said is not said
    return Step(
        index=place.index,
        agent=act.agent or UNKNOWN_AGENT,
        kind=_STEP_KINDS[settled.kind],
        agent_source=act.agent_source if act.agent is not None else AgentSource.UNKNOWN,
        trace_id=span.trace_id,
        span_id=span.span_id,
        name=span.name,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        status=act.status,
        error=shortened(action.error),
        input=kept_heard,
        output=kept_said,
        target=settled.target,
        content=_content(act, has_words=bool(heard or said), has_said=bool(said), is_cut=is_cut),
        instructions=shortened(action.instructions),
        tools=tools,
        group=place.group,
        causes=place.causes,
    )


def _content(act: Act, *, has_words: bool, has_said: bool, is_cut: bool) -> ContentState:
    if act.action.redacted:
        return ContentState.REDACTED
    if act.span.dropped_attributes:
        return ContentState.TRUNCATED if has_said or act.action.failed else ContentState.DROPPED
    if not has_words and not act.action.failed and act.action.kind is not ActionKind.HANDOFF:
        return ContentState.ABSENT
    return ContentState.TRUNCATED if is_cut else ContentState.COMPLETE


def _recovered(step: Step, said: str) -> Step:
    is_cut = step.content is ContentState.DROPPED or shortened(said) is not said
    return replace(step, output=shortened(said), content=ContentState.TRUNCATED if is_cut else step.content)


def _warnings(scene: Stage, steps: Sequence[Step]) -> tuple[str, ...]:
    if not steps:
        if any(action is not None for action in scene.actions):
            return ("no steps: the agent spans enclose no model call, tool or handoff",)
        strange = sorted(
            {span.scope.name or "no scope" for span in scene.spans if _looks_like_an_agents(span)}
        )
        if strange:
            return (f"no steps: agent spans of a dialect that is not known ({', '.join(strange[:5])})",)
        return ("no steps: no agent span among these",)
    dropped = sum(1 for step in steps if step.content in _LOSSES)
    return (f"{dropped} of {len(steps)} steps lost content to limits",) if dropped else ()


def _looks_like_an_agents(span: Span) -> bool:
    return span.scope.name.startswith(SCOPE_PREFIXES) or any(
        name.startswith(ATTRIBUTE_PREFIXES) for name in span.attributes
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
