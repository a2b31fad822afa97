"""Agents of steps: names in any spelling, agents of steps that name none, and handoffs between them.

If neither a span nor its ancestors name the agent, other steps may: a tool executor runs the
calls of others (AG2's ``_Group_Tool_Executor``); plain functions in langgraph have no agent span,
but their answers appear under their name in later messages; a handoff names the next speaker.
If none of these names the agent, it stays ``unknown``.

Which steps hand over, and to which agent, is decided after all agents are known, so that a target spelled in
a tool's name is recognised.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from collector_processor.trajectory.acts import (
    AGENT,
    HANDOFF,
    LLM,
    MODEL_KINDS,
    TOOL,
    TOOL_KINDS,
    Act,
    Ordering,
)
from semconv.dialects import Action, ActionKind, Message, ToolCall
from semconv.dialects.reading.agent_names import plain, titled_in_prompt
from semconv.dialects.reading.messages import last_answer
from semconv.dialects.reading.tools import is_plain_transfer, transfer_target
from semconv.model import AgentSource, Stop
from semconv.record import record, replace

_NUMBER: Final = re.compile(r"_\d+$")
_LONGEST_NAME: Final = 100
"""Letters of a tool's name to compare; model APIs allow 64."""


def _spellings(name: str) -> tuple[str, str, str]:
    """Return a name as it is, plain, and reduced to the ASCII letters that APIs allow in a tool's name."""
    stem = plain(name)
    return name, stem, stem if stem.isascii() else "".join(filter(str.isascii, stem))


class Agents:
    """The names of a run's agents, found in any spelling."""

    def __init__(self, names: Iterable[str]) -> None:
        self._plain: dict[str, str] = {}
        self._spelled: defaultdict[str, list[str]] = defaultdict(list)
        for name in dict.fromkeys(names):
            spellings = _spellings(name)
            if spellings[1]:
                self._plain[spellings[1]] = name
            for spelling in dict.fromkeys(spellings):
                self._spelled[spelling].append(name)

    def find(self, name: str, likely: str | None = None) -> str | None:
        """Return the agent called ``name``, or ``None``.

        A tool's name has only ASCII letters: ``transfer_to__v_nements`` means ``Événements``. If several
        agents are spelled alike, the result is ``likely`` if that is one of them. AG2 numbers the transfers
        to an agent: ``transfer_to_analyst_1``.
        """
        if not name:
            return None
        unnumbered = _NUMBER.sub("", name)
        for spelling in (*_spellings(name), unnumbered, plain(unnumbered)):
            found = self._spelled.get(spelling) or []
            if len(found) == 1 or likely in found:
                return likely if likely in found else found[0]
        return None

    def named_at_the_end_of(self, tool: str) -> str | None:
        """Return the agent that a tool like ``go_researcher`` or ``call-analyst`` is named after."""
        stem = plain(tool[-_LONGEST_NAME:])
        ends = (stem[start:] for start in range(1, len(stem)))  # the longest name first
        return next((self._plain[end] for end in ends if end in self._plain), None)


def agents_of(ordering: Ordering) -> Agents:
    """Return the agents of a run, in the order of their acts."""
    return Agents(act.agent for act in ordering.acts if act.agent is not None)


def name_by_messages(ordering: Ordering) -> Ordering:
    """Assign agents to model calls from later messages that quote the calls under a speaker's name.

    Only a text with a single speaker counts; a call without a text is quoted by the ids of its tool calls.
    """
    nameless = [act for act in ordering.chosen() if act.agent is None and act.action.kind is LLM]
    if not nameless:
        return ordering
    speakers: defaultdict[str, set[str]] = defaultdict(set)
    for action in filter(None, ordering.actions):
        for message in (*action.input_messages, *action.output_messages):
            if message.name and message.role == "assistant":
                for words in _quoted(message):
                    speakers[words].add(message.name)
    named = [
        _named(act, next(iter(names)), AgentSource.METADATA)
        for act in nameless
        for message in act.action.output_messages
        for words in _quoted(message)
        if len(names := speakers.get(words, set())) == 1
    ]
    return ordering.with_acts(named) if named else ordering


def _quoted(message: Message) -> Iterable[str]:
    """Return what a later message quotes of this one: its text, and the ids of its tool calls."""
    return [message.text] * bool(message.text) + [call.call_id for call in message.calls if call.call_id]


def name_by_instructions(ordering: Ordering) -> Ordering:
    """Assign a nameless model call to the agent whose other calls have the same instructions.

    An instrumentation may name the agent only on the calls that answer, or on those that ask for tools. The
    instructions make the agent: calls with equal ones are one agent's, unless two names share them.
    """
    calls = [act for act in ordering.chosen() if act.action.kind is LLM and act.action.instructions]
    names: defaultdict[str, set[str]] = defaultdict(set)
    for act in calls:
        if act.agent is not None:
            names[act.action.instructions].add(act.agent)
    named = [
        _named(act, next(iter(known)), AgentSource.METADATA)
        for act in calls
        if act.agent is None and len(known := names.get(act.action.instructions, set())) == 1
    ]
    return ordering.with_acts(named) if named else ordering


def _named(act: Act, agent: str, source: AgentSource) -> Act:
    return replace(act, agent=agent, agent_source=source)


def name_by_request(ordering: Ordering) -> Ordering:
    """Assign a nameless tool call to the agent whose model call requested it, by call id, else by name.

    The same applies to a tool call under an agent without a model call of its own: a team that runs
    agents side by side in one context (ADK up to 1.x) has their tools under it.
    """
    acts = list(ordering.acts)
    silent = _without_words(ordering)
    asked_by_id: dict[str, int] = {}
    asked_by_name: dict[str, int] = {}
    for index in ordering.steps:
        act = acts[index]
        action = act.action
        for call in action.requested:
            asked_by_name[call.name] = index
            if call.call_id:
                asked_by_id[call.call_id] = index
        if action.tool is not None and (act.agent is None or act.agent in silent):
            asking = asked_by_id.get(action.call_id, asked_by_name.get(action.tool))
            agent = acts[asking].agent if asking is not None else None
            if agent is not None:
                acts[index] = _named(act, agent, AgentSource.METADATA)
    return replace(ordering, acts=tuple(acts))


def _without_words(ordering: Ordering) -> frozenset[str | None]:
    """Return the agents that have tools below them and no model call of their own."""
    steps = ordering.chosen()
    speaking = {act.agent for act in steps if act.action.kind in MODEL_KINDS}
    inherited = {act.agent for act in steps if act.agent_source is AgentSource.ANCESTOR}
    return frozenset(inherited - speaking)


def name_by_handoff(ordering: Ordering) -> Ordering:
    """Assign nameless steps to the target of the last handoff.

    Everything that a nameless call requested belongs to that call's agent, including the handoff. Steps
    inside parallel groups stay nameless, and so do steps after a handoff to an agent that has steps under its
    own name elsewhere: in that case a nameless step is another agent's.
    """
    acts = list(ordering.acts)
    if all(acts[index].agent is not None for index in ordering.steps):
        return ordering
    own = _agents_with_steps(ordering.chosen())
    current: str | None = None
    asker, asked = None, frozenset[str]()
    for index in ordering.steps:
        act = acts[index]
        if act.agent is None and act.position not in ordering.groups:
            is_asked_for = asker is not None and not asked.isdisjoint((act.action.tool, act.action.call_id))
            name = acts[asker].agent if asker is not None and is_asked_for else current
            if name is not None:
                acts[index] = _named(act, name, AgentSource.HANDOFF)
        if act.action.requested:
            asker, asked = index, _asked_for(act.action)
        target = _passes_to(act.action)
        if target is not None:
            current = None if target in own else target
    return replace(ordering, acts=tuple(acts))


_ENCLOSING: Final = TOOL_KINDS | {AGENT}
LEAD: Final = "lead-agent"
"""Our name for an agent that neither a span nor its prompt names and others work for; its source is
``unknown``."""


def name_lead(ordering: Ordering) -> Ordering:
    """Name the one agent without a name whose tools or whose span enclose other agents' work.

    The invocation of another agent names it (``gen_ai.caller.name``), or its prompt does, else the name is
    ours. Calls with different instructions belong to several agents and stay nameless; so do tools that it
    did not request.
    """
    acts = ordering.acts
    nameless = [acts[index] for index in ordering.steps if acts[index].agent is None]
    if not nameless:
        return ordering
    speaking = [act for act in nameless if act.action.kind in MODEL_KINDS]
    instructions = {act.action.instructions for act in speaking if act.action.instructions}
    if not speaking or len(instructions) > 1 or not _is_led(ordering):
        return ordering
    asked = frozenset[str]().union(*(_asked_for(act.action) for act in speaking))
    leading = [
        act
        for act in nameless
        if act.action.kind in MODEL_KINDS or not asked.isdisjoint((act.action.tool, act.action.call_id))
    ]
    callers = {action.caller for action in ordering.actions if action is not None and action.caller}
    own = callers - _agents_with_steps(ordering.chosen())
    title = next(iter(own)) if len(own) == 1 else titled_in_prompt(next(iter(instructions), ""))
    name, source = (title, AgentSource.METADATA) if title else (LEAD, AgentSource.UNKNOWN)
    return ordering.with_acts([_named(act, name, source) for act in leading])


def _is_led(ordering: Ordering) -> bool:
    """Say whether an agent without a name, or its tool call, encloses a named agent's work."""
    acts = ordering.acts
    return any(
        act.agent is not None
        and act.above is not None
        and acts[act.above].agent is None
        and acts[act.above].action.kind in _ENCLOSING
        for act in acts
    )


def _agents_with_steps(steps: Sequence[Act]) -> frozenset[str | None]:
    return frozenset(act.agent for act in steps if act.agent is not None and act.action.kind is not HANDOFF)


def _asked_for(action: Action) -> frozenset[str]:
    """Return the names and ids of the tools that a call requested."""
    named = (each for call in action.requested for each in (call.name, call.call_id))
    return frozenset(filter(None, named))


def _passes_to(action: Action) -> str | None:
    if action.kind is HANDOFF:
        return action.target
    targets = [transfer_target(call.name, call.arguments) for call in action.requested]
    return next(filter(None, targets), None)


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
