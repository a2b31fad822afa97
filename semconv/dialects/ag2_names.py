"""How AG2's bookkeeping is told from its agents' work, whoever writes the spans.

Source: ``autogen/agentchat/group/group_tool_executor.py``, ``group_utils.py`` and ``groupchat.py``
of AG2 0.14.
"""

from __future__ import annotations

from typing import Final

from semconv.dialects.reading import mapping

_BOOKKEEPERS: Final = frozenset({"chat_manager", "checking_agent"})
"""A group chat's manager, and who counts the speakers that the model named; both without a model.

The others start with an underscore: ``_User`` stands for whoever asks, ``_Group_Tool_Executor`` runs
every agent's tools.
"""


def is_bookkeeper(name: str | None) -> bool:
    """Say whether ``name`` is the framework's own rather than an agent of the user's."""
    return name is not None and (name in _BOOKKEEPERS or name.startswith("_"))


def said_by_tools(reply: str) -> bool:
    """Say whether an agent's reply, as JSON, only passes its tools' results on."""
    return '"tool"' in reply and mapping(reply).get("role") == "tool"
