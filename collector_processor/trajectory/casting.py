"""Who acted, where neither span nor ancestors say.

Tool executors own the calls of others (AG2's ``_Group_Tool_Executor``); plain
functions in langgraph have no agent span, but their answers appear under their
name in later messages; a handoff names the next speaker. What remains is
``unknown``, never a guess.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from collector_processor.trajectory.acts import MODEL_KINDS, Act, Stage
from semconv.dialects import Action, ActionKind
from semconv.dialects.transfers import transfer_target
from semconv.model import AgentSource


def name_by_messages(stage: Stage, steps: Iterable[Act]) -> None:
    """Name model calls after the messages that quote them with a speaker.

    The text must be one speaker's only.
    """
    nameless = [act for act in steps if act.agent is None and act.action.kind is ActionKind.LLM]
    if not nameless:
        return
    speakers: defaultdict[str, set[str]] = defaultdict(set)
    for action in filter(None, stage.actions):
        for message in (*action.heard, *action.said):
            if message.name and message.role == "assistant" and message.text:
                speakers[message.text].add(message.name)
    for act in nameless:
        for message in act.action.said:
            if len(names := speakers.get(message.text, set())) == 1:
                act.agent, act.agent_source = next(iter(names)), AgentSource.METADATA


def name_by_request(steps: Sequence[Act]) -> None:
    """Give a nameless tool call to the agent whose model call asked for it, by call id, else by name.

    So too one whose agent has no model call of its own: a team that runs agents side by side in one
    context (ADK up to 1.x) has their tools under it.
    """
    silent = _without_words(steps)
    asked_by_id: dict[str, Act] = {}
    asked_by_name: dict[str, Act] = {}
    for act in steps:
        for call in act.action.requested:
            asked_by_name[call.name] = act
            if call.call_id:
                asked_by_id[call.call_id] = act
        if act.action.tool is not None and (act.agent is None or act.agent in silent):
            asker = asked_by_id.get(act.action.call_id) or asked_by_name.get(act.action.tool)
            if asker is not None and asker.agent is not None:
                act.agent, act.agent_source = asker.agent, AgentSource.METADATA


def _without_words(steps: Sequence[Act]) -> frozenset[str | None]:
    """Return the agents that only enclose tools."""
    speaking = {act.agent for act in steps if act.action.kind in MODEL_KINDS}
    inherited = {act.agent for act in steps if act.agent_source is AgentSource.ANCESTOR}
    return frozenset(inherited - speaking)


def name_by_handoff(steps: Sequence[Act], groups: Mapping[int, int]) -> None:
    """Give nameless steps to the agent that was handed over to, until the next handoff.

    What a nameless call asked for is that call's agent's, the handoff too. Not inside parallel
    groups, and not to an agent that has steps under its own name elsewhere: then a nameless step is
    somebody else's.
    """
    own = {act.agent for act in steps if act.agent is not None and act.action.kind is not ActionKind.HANDOFF}
    current: str | None = None
    asker, asked = None, frozenset[str]()
    for act in steps:
        if act.agent is None and act.position not in groups:
            is_asked_for = asker is not None and not asked.isdisjoint((act.action.tool, act.action.call_id))
            name = asker.agent if asker is not None and is_asked_for else current
            if name is not None:
                act.agent, act.agent_source = name, AgentSource.HANDOFF
        if act.action.requested:
            asker, asked = act, _asked_for(act.action)
        target = _passes_to(act.action)
        if target is not None:
            current = None if target in own else target


def _asked_for(action: Action) -> frozenset[str]:
    """Return the names and the ids of the tools that a call asked for."""
    named = (each for call in action.requested for each in (call.name, call.call_id))
    return frozenset(filter(None, named))


def _passes_to(action: Action) -> str | None:
    if action.kind is ActionKind.HANDOFF:
        return action.target
    targets = [transfer_target(call.name, call.arguments) for call in action.requested]
    return next(filter(None, targets), None)
