"""What a tool was given and gave back, where only the model calls around it tell.

Google ADK writes content into the model calls' log events alone; others leave it out of tool spans by
default. The call that asked holds the arguments, the next call of the agent that heard it the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from collector_processor.trajectory.acts import Act
from semconv.dialects import Action, ActionKind, ToolCall
from semconv.dialects.payloads import reported_failure, unwrapped
from semconv.dialects.transfers import transfer_target

_TOOLS: Final = frozenset({ActionKind.TOOL, ActionKind.HANDOFF})


def lend(acts: Sequence[Act]) -> None:
    """Give each tool call that tells nothing its arguments and result, by call id."""
    silent = [act for act in acts if act.action.kind in _TOOLS and _is_silent(act.action)]
    if not silent:
        return
    asked = {call.call_id: call for act in acts for call in act.action.requested if call.call_id}
    heard = _results(acts)
    for act in silent:
        call = asked.get(act.action.call_id)
        if call is not None and call.name == act.action.tool:
            act.action = _with_loan(act.action, call, heard)


def _is_silent(action: Action) -> bool:
    return bool(action.call_id) and not action.redacted and not (action.input or action.output)


def _results(acts: Sequence[Act]) -> Mapping[str, str]:
    """Return what model calls heard as results; a message that answers several calls at once is no use."""
    return {
        message.answers[0]: message.text
        for act in acts
        for message in act.action.heard
        if len(message.answers) == 1
    }


def _with_loan(action: Action, call: ToolCall, heard: Mapping[str, str]) -> Action:
    result = "" if action.output else heard.get(action.call_id, "")
    complaint = reported_failure(result)
    return replace(
        action,
        input=action.input or call.arguments,
        output=action.output or unwrapped(result),
        target=action.target or transfer_target(call.name, call.arguments),
        failed=action.failed or bool(complaint),
        error=complaint or action.error,
    )
