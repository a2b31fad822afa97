"""Facts about frameworks that their own dialect and a convention read alike: scopes, helper agents, teams.

Source: ``autogen/agentchat/group/group_tool_executor.py``, ``group_utils.py`` and ``groupchat.py`` of
AG2 0.14; ``strands/multiagent`` of strands-agents 1.62. OpenInference's instrumentation of these frameworks
keeps their names, and for Google ADK and Strands their scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semconv.dialects.reading.action import ActionKind
from semconv.dialects.reading.values import mapping

ADK_SCOPE: Final = "gcp.vertex.agent"
STRANDS_SCOPE: Final = "strands.telemetry.tracer"
STRANDS_TEAMS: Final[Mapping[str, ActionKind]] = {
    "invoke_swarm": ActionKind.WORKFLOW,
    "invoke_graph": ActionKind.WORKFLOW,
}
_AG2_HELPERS: Final = frozenset({"chat_manager", "checking_agent"})
"""A group chat's manager, and the agent that counts the speakers named by the model; neither calls a model.

The others start with an underscore: ``_User`` stands for the caller, ``_Group_Tool_Executor`` runs every
agent's tools.
"""


def is_ag2_helper(name: str | None) -> bool:
    """Say whether ``name`` belongs to AG2 itself, not to one of the user's agents."""
    return name is not None and (name in _AG2_HELPERS or name.startswith("_"))


def is_ag2_tool_reply(reply: str) -> bool:
    """Say whether an AG2 agent's JSON reply only passes on its tools' results."""
    return '"tool"' in reply and mapping(reply).get("role") == "tool"
