"""Agents' names: recognised in any spelling, and assigned to steps that lack one.

If neither a span nor its ancestors name the agent, other steps may: a tool executor runs the
calls of others (AG2's ``_Group_Tool_Executor``); plain functions in langgraph have no agent span,
but their answers appear under their name in later messages; a handoff names the next speaker.
If none of these names the agent, it stays ``unknown``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from collector_processor.trajectory.acts import AGENT, HANDOFF, LLM, MODEL_KINDS, TOOL_KINDS, Act, Ordering
from semconv.dialects import Action, Message
from semconv.dialects.reading.agent_names import plain, titled_in_prompt
from semconv.dialects.reading.tools import transfer_target
from semconv.model import AgentSource
from semconv.record import replace

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
