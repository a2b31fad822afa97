"""Which steps hand over, to whom, and the handoffs that have no span of their own.

Knows the run's agents, so that a target spelled in a tool's name is recognised
as the agent it means.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from collector_processor.trajectory.acts import MODEL_KINDS, Act, Stage
from semconv.dialects import Action, ActionKind, ToolCall
from semconv.dialects.transfers import is_plain_transfer, transfer_target

_NUMBER: Final = re.compile(r"_\d+$")


_LONGEST_NAME: Final = 100
"""Letters of a tool's name that are looked at; APIs take 64."""


def plain(name: str) -> str:
    """Return a name without case, spaces and punctuation: ``Research Agent`` is ``research_agent``."""
    lowered = name.lower()
    return lowered if lowered.isalnum() else "".join(filter(str.isalnum, lowered))


def _ascii(name: str) -> str:
    """Return what is left of a name in the name of a tool, of which APIs take only ASCII letters."""
    stem = plain(name)
    return stem if stem.isascii() else "".join(filter(str.isascii, stem))


class Agents:
    """The names of a run's agents, found again however they are spelled."""

    def __init__(self, names: Iterable[str]) -> None:
        own = dict.fromkeys(names)
        self._plain = {key: name for name in own if (key := plain(name))}
        self._spelled: defaultdict[str, list[str]] = defaultdict(list)
        for name in own:
            for spelling in dict.fromkeys((name, plain(name), _ascii(name))):
                self._spelled[spelling].append(name)

    def find(self, name: str, likely: str | None = None) -> str | None:
        """Return the agent called ``name``, or ``None``.

        A tool's name has only ASCII letters: ``transfer_to__v_nements`` means ``Événements``. Where
        several agents are spelled alike it is ``likely``, if that is one of them. AG2 numbers the
        transfers of an agent: ``transfer_to_analyst_1``.
        """
        if not name:
            return None
        unnumbered = _NUMBER.sub("", name)
        for spelling in (name, plain(name), _ascii(name), unnumbered, plain(unnumbered)):
            found = self._spelled.get(spelling) or []
            if len(found) == 1 or likely in found:
                return likely if likely in found else found[0]
        return None

    def named_at_the_end_of(self, tool: str) -> str | None:
        """Return the agent that a tool like ``go_researcher`` or ``call-analyst`` is named after."""
        stem = plain(tool[-_LONGEST_NAME:])
        ends = (stem[start:] for start in range(1, len(stem)))  # the longest first
        return next((self._plain[end] for end in ends if end in self._plain), None)


@dataclass(frozen=True, slots=True)
class Settled:
    """What kind of step an act is in the end."""

    kind: ActionKind
    target: str | None = None
    """The tool called, or the agent handed over to."""


def settle(act: Act, following: Act | None, agents: Agents) -> Settled:
    """Return kind and target of a step, now that the run's agents are known.

    A tool named after an agent that speaks next is a handoff (AG2's are plain tools); a tool named
    like a transfer, to nobody who is known, with arguments of its own is not.
    """
    action = act.action
    if action.kind is ActionKind.HANDOFF:
        known = agents.find(action.target or "", following.agent if following is not None else None)
        target, is_known = known or action.target, known is not None
        if target is None and following is not None and following.agent != act.agent:
            target = following.agent  # hidden arguments: who speaks next was handed over to
        if action.tool is None or is_known or is_plain_transfer(action.input):
            return Settled(ActionKind.HANDOFF, target)
        return Settled(ActionKind.TOOL, action.tool)
    if action.kind is ActionKind.TOOL:
        if action.target is not None:  # delegated, and nothing shows the delegate at work
            return Settled(ActionKind.HANDOFF, agents.find(action.target) or action.target)
        named = agents.named_at_the_end_of(action.tool or "")
        if named is not None and named != act.agent and following is not None and following.agent == named:
            return Settled(ActionKind.HANDOFF, named)
    return Settled(action.kind, action.tool)


def with_unseen_handoffs(stage: Stage, acts: Sequence[Act], agents: Agents) -> list[Act]:
    """Return the steps with the handoffs that happened and that no span shows.

    The official conventions have no span for them. A transfer that the model asked for happened if
    a later call has heard its result; one that a graph takes only as a hint where to go (langgraph's
    ``goto``) never gets one. It stands right after the call that asked, on that call's span.
    """
    results = {
        call_id
        for action in stage.actions
        if action is not None
        for message in (*action.heard, *action.said)
        for call_id in message.answers
    }
    speakers = _next_speakers(acts)
    found: list[Act] = []
    for index, act in enumerate(acts):
        found.append(act)
        for call in act.action.requested:
            target = agents.find(transfer_target(call.name, call.arguments) or "", speakers[index])
            if target is None or _is_shown(call, target, _until_next_call(acts, index), agents):
                continue
            if call.call_id in results:
                found.append(_handoff(act, call, target))
    return found


def _next_speakers(acts: Sequence[Act]) -> list[str | None]:
    """Return, for each step, whose the next model call is."""
    speakers: list[str | None] = []
    speaker: str | None = None
    for act in reversed(acts):
        speakers.append(speaker)
        if act.action.kind in MODEL_KINDS:
            speaker = act.agent
    return speakers[::-1]


def _until_next_call(acts: Sequence[Act], index: int) -> Iterator[Act]:
    """Yield the steps up to the next model call."""
    for following in range(index + 1, len(acts)):
        if acts[following].action.kind in MODEL_KINDS:
            return
        yield acts[following]


def _is_shown(call: ToolCall, target: str, following: Iterable[Act], agents: Agents) -> bool:
    """Say whether one of the steps that follow is the transfer, and tell it its target if it lost it.

    Traceloop's handoff spans from openai-agents have no target.
    """
    for act in following:
        action = act.action
        meant = agents.find(action.target or "")
        if action.kind is ActionKind.HANDOFF and meant is None:
            act.action = replace(action, target=target)
            return True
        if meant == target or action.tool == call.name or (call.call_id and action.call_id == call.call_id):
            return True
    return False


def _handoff(asking: Act, call: ToolCall, target: str) -> Act:
    span = asking.span
    return Act(
        span=replace(span, start_ns=span.end_ns, name=call.name),
        action=Action(
            dialect=asking.action.dialect,
            kind=ActionKind.HANDOFF,
            tool=call.name,
            target=target,
            call_id=call.call_id,
            input=call.arguments,
        ),
        position=asking.position,
        agent=asking.agent,
        agent_source=asking.agent_source,
    )
