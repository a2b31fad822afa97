"""Handoffs: which steps hand over and to which agent, even if no span shows it.

Works after all agents are known, so that a target spelled in a tool's name is recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from collector_processor.trajectory.acts import HANDOFF, LLM, MODEL_KINDS, TOOL, TOOL_KINDS, Act, Ordering
from collector_processor.trajectory.assign_agents import Agents, agents_of
from semconv.dialects import Action, ActionKind, ToolCall
from semconv.dialects.reading.agent_names import plain
from semconv.dialects.reading.messages import last_answer
from semconv.dialects.reading.tools import is_plain_transfer, transfer_target
from semconv.model import Stop
from semconv.record import record, replace

_MOST_BETWEEN: Final = 100
"""Steps examined after a handoff; bounds the cost of a hostile trace."""


def drop_trailing_summaries(ordering: Ordering) -> Ordering:
    """Drop an agent's closing words after its handoff: no other agent receives them.

    Strands' loop lets the model speak once more after ``handoff_to_agent``: the swarm passes on the handoff's
    message, the task and the agents so far, not these words (``Swarm._build_node_input``, 1.62). The last
    call of the agent's run is dropped if it requests no tool, did not fail, came when only tools had run
    since the handoff, and is not quoted by the agent that took over.
    """
    steps = ordering.chosen()
    dropped = {
        found
        for place, act in enumerate(steps)
        if act.action.kind is HANDOFF and (found := _summary_after(steps, place)) is not None
    }
    if not dropped:
        return ordering
    kept = tuple(index for place, index in enumerate(ordering.steps) if place not in dropped)
    return replace(ordering, steps=kept)


def _summary_after(steps: Sequence[Act], place: int) -> int | None:
    """Return the position of the closing words after the handoff at ``place``, if there are any."""
    handoff = steps[place]
    if handoff.action.failed or handoff.runner is None:
        return None
    closing, following = _after(steps, place, handoff.runner)
    if closing is None or following is None:
        return None
    act, taking_over = steps[closing], steps[following]
    is_last = act.action.kind is LLM and not act.action.requested and not act.action.failed
    if is_last and _takes_over(taking_over, handoff, act) and not _quotes(taking_over, act):
        return closing
    return None


def _after(steps: Sequence[Act], handoff: int, runner: int) -> tuple[int | None, int | None]:
    """Return the positions of the first call after a handoff in the same run, and of the next run."""
    closing: int | None = None
    for place in range(handoff + 1, min(len(steps), handoff + _MOST_BETWEEN)):
        act = steps[place]
        if act.runner != runner:
            return closing, place
        if closing is not None:
            return None, None  # the run continued
        if act.action.kind not in TOOL_KINDS:
            closing = place
    return None, None


def _takes_over(act: Act, handoff: Act, closing: Act) -> bool:
    target = handoff.action.target
    is_target = target is None or (act.agent is not None and plain(act.agent) == plain(target))
    return is_target and act.agent != handoff.agent and act.span.start_ns >= closing.span.end_ns


def _quotes(act: Act, closing: Act) -> bool:
    answer = last_answer(closing.action.output_messages) or closing.action.output
    inputs = (act.action.input, *(message.text for message in act.action.input_messages))
    return bool(answer) and any(answer in text for text in inputs)


def add_unseen_handoffs(ordering: Ordering) -> Ordering:
    """Add handoffs that happened but that no span shows.

    The official conventions have no span for them. A transfer that the model requested happened if a later
    call received its result; a transfer that a graph uses only as a routing hint (langgraph's ``goto``) never
    gets one. It is placed right after the call that requested it, on that call's span.
    """
    calls = [call for act in ordering.chosen() for call in act.action.requested]
    if not any(transfer_target(call.name, call.arguments) for call in calls):
        return ordering
    return _Unseen(ordering).added()


class _Unseen:
    """Walks the steps in order, and looks for the transfers that each step requests."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._agents = agents_of(ordering)
        self._results = _answered_calls(ordering)
        self._acts = list(ordering.acts)

    def added(self) -> Ordering:
        """Return the run with the handoffs."""
        speakers = _next_speakers(self._ordering.chosen())
        steps: list[int] = []
        for place, index in enumerate(self._ordering.steps):
            steps.append(index)
            for call in self._acts[index].action.requested:
                named = transfer_target(call.name, call.arguments)
                target = self._agents.find(named, speakers[place]) if named else None
                if target is None or self._is_shown(call, target, place):
                    continue
                if call.call_id in self._results or self._took_over(target, speakers[place]):
                    steps.append(len(self._acts))
                    self._acts.append(_handoff(len(self._acts), self._acts[index], call, target))
        return replace(self._ordering, acts=tuple(self._acts), steps=tuple(steps))

    def _took_over(self, target: str, speaker: str | None) -> bool:
        """Return whether the target speaks next; sufficient only if nothing else shows what happened."""
        return self._ordering.inferred is not None and target == speaker

    def _is_shown(self, call: ToolCall, target: str, place: int) -> bool:
        """Return whether a step before the next model call is the transfer; add its target if missing.

        Traceloop's handoff spans from openai-agents have no target.
        """
        for act in self._until_next_call(place):
            action = act.action
            meant = self._agents.find(action.target or "")
            if action.kind is HANDOFF and meant is None:
                self._acts[act.index] = replace(act, action=replace(action, target=target))
                return True
            is_same_call = bool(call.call_id) and action.call_id == call.call_id
            if meant == target or action.tool == call.name or is_same_call:
                return True
        return False

    def _until_next_call(self, place: int) -> Iterator[Act]:
        steps = self._ordering.steps
        for following in range(place + 1, len(steps)):
            act = self._acts[steps[following]]
            if act.action.kind in MODEL_KINDS:
                return
            yield act


def _answered_calls(ordering: Ordering) -> frozenset[str]:
    """Return the ids of tool calls whose results are in some message."""
    return frozenset(
        call_id
        for action in ordering.actions
        if action is not None
        for message in (*action.input_messages, *action.output_messages)
        for call_id in message.answers
    )


def _next_speakers(steps: Sequence[Act]) -> list[str | None]:
    """Return, for each step, the agent of the next model call."""
    speakers: list[str | None] = []
    speaker: str | None = None
    for act in reversed(steps):
        speakers.append(speaker)
        if act.action.kind in MODEL_KINDS:
            speaker = act.agent
    return speakers[::-1]


def _handoff(index: int, asking: Act, call: ToolCall, target: str) -> Act:
    span = asking.span
    return Act(
        index=index,
        span=replace(span, start_ns=span.end_ns, name=call.name),
        action=Action(
            dialect=asking.action.dialect,
            kind=HANDOFF,
            tool=call.name,
            target=target,
            call_id=call.call_id,
            input=call.arguments,
        ),
        position=asking.position,
        agent=asking.agent,
        agent_source=asking.agent_source,
    )


@record
class Settled:
    """Final kind and target of an act's step."""

    kind: ActionKind
    target: str | None = None
    """The tool called, or the agent handed over to."""


def settle(act: Act, following: Act | None, agents: Agents) -> Settled:
    """Return kind and target of a step, once the run's agents are known.

    A tool named after the agent that speaks next is a handoff (AG2's are plain tools). A tool named like a
    transfer, with arguments of its own and to an agent that is not in the run, is not.
    """
    action = act.action
    if action.kind is HANDOFF:
        known = agents.find(action.target or "", following.agent if following is not None else None)
        target, is_known = known or action.target, known is not None
        if target is None and following is not None and following.agent != act.agent:
            target = following.agent  # hidden arguments: the next speaker is the target
        is_raised = action.stop is Stop.HANDED_OVER
        if action.tool is None or is_known or is_raised or is_plain_transfer(action.input):
            return Settled(kind=HANDOFF, target=target)
        return Settled(kind=TOOL, target=action.tool)
    if action.kind is TOOL:
        if action.target is not None:  # delegated, and nothing shows the delegate at work
            return Settled(kind=HANDOFF, target=agents.find(action.target) or action.target)
        follower = following.agent if following is not None else None
        if follower is not None and follower != act.agent:
            named = agents.named_at_the_end_of(action.tool or "")
            if named == follower:
                return Settled(kind=HANDOFF, target=named)
    return Settled(kind=action.kind, target=action.tool)
