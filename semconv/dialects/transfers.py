"""Which tools hand control to another agent, as frameworks name them.

Source: openai-agents ``transfer_to_X``, AutoGen, AG2, langgraph-swarm and
agent-framework likewise; ADK ``transfer_to_agent`` and Strands
``handoff_to_agent`` name the agent in an argument; CrewAI delegates to a
``coworker``, agno to a ``member_id``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from semconv.dialects.reading import mapping, words

_NAMED: Final = re.compile(
    r"^(?:transfer|hand_?-?off|hand_?over|switch|route)(?:_back)?"
    r"[_ -]+to[_ -]+(?:the[_ -]+)?(?P<agent>.+?)(?:[_ -]tool)?$",
    re.IGNORECASE,
)
_BY_ARGUMENT: Final = frozenset({"transfer_to_agent", "handoff_to_agent", "hand_off_to_agent", "handoff"})
_DELEGATIONS: Final = frozenset(
    {"delegate_work_to_coworker", "ask_question_to_coworker", "transfer_task_to_member"}
    | {"delegate_task_to_member", "delegate_task_to_members"}
    | {"adelegate_task_to_member", "adelegate_task_to_members"}
)
_ARGUMENTS: Final = (
    "agent_name",
    "agent",
    "coworker",
    "member_id",
    "target",
    "target_agent",
    "to",
    "to_agent",
)
_COURTESIES: Final = frozenset(
    {"reason", "message", "task", "task_description", "context", "input", "content", "description", "summary"}
    | {"instructions", "request", "query", "tool_call_id", "state"}
)
"""Arguments of a transfer that carry words along; any other is a sign of an ordinary tool."""


def transfer_target(tool: str, arguments: Any) -> str | None:
    """Return the agent that takes over when ``tool`` is called; ``None`` for an ordinary tool."""
    name = tool.strip()
    if _is_by_argument(name):
        return _named_in(arguments)
    named = _NAMED.match(name)
    return named["agent"] if named else None


def is_silent_transfer(tool: str, arguments: Any) -> bool:
    """Say whether ``tool`` hands over to an agent that it does not tell, since arguments are hidden."""
    return _is_by_argument(tool.strip()) and not mapping(arguments)


def _is_by_argument(name: str) -> bool:
    return name.replace(" ", "_").lower() in _BY_ARGUMENT


def delegation_target(tool: str, arguments: Any) -> str | None:
    """Return the agent that ``tool`` has do a part of the work, control returning to the caller."""
    return _named_in(arguments) if is_delegation(tool) else None


def is_delegation(tool: str) -> bool:
    """Say whether ``tool`` has other agents do a part of the work, whoever they are."""
    return tool.strip().replace(" ", "_").lower() in _DELEGATIONS


def _named_in(arguments: Any) -> str | None:
    given = mapping(arguments)
    return next((words(given[key]) for key in _ARGUMENTS if given.get(key)), None)


def is_plain_transfer(arguments: Any) -> bool:
    """Say whether the arguments are those of a transfer: none, or words to take along.

    ``transfer_to_savings({"amount": 5})`` is named like a handoff and is none.
    """
    return mapping(arguments).keys() <= _COURTESIES | set(_ARGUMENTS)
