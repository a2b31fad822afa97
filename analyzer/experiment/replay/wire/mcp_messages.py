"""The part of MCP's JSON-RPC that a trial needs: harmless requests, and results of tools. Pure.

Source: modelcontextprotocol.io, specifications 2025-06-18 and 2026-07-28, "Streamable HTTP", "Tools".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from analyzer.experiment.replay.canonical import canonical_value
from analyzer.experiment.replay.tape import RecordedTool
from analyzer.experiment.replay.wire.format import is_one_of
from semconv.json_text import read_json
from semconv.record import record

CALL: Final = "tools/call"
LIST: Final = "tools/list"
_READING: Final = frozenset(
    {"initialize", "server/discover", "ping", LIST, "prompts/list", "prompts/get", "resources/list"}
    | {"resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe"}
    | {"subscriptions/listen", "completion/complete", "logging/setLevel"}
)
"""Methods that change nothing; all others except notifications are refused."""
_NOTIFICATION: Final = "notifications/"
_BLOCKS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_COMPLETE: Final = {"resultType": "complete"}
"""Required since 2026-07-28; older clients ignore it."""
_REFUSED: Final = -32_000
"""JSON-RPC code for an error defined by the implementation."""


@record
class ToolCalled:
    """A request to execute a tool."""

    id: Any
    name: str
    arguments: str
    """Arguments as ``canonical_value`` writes them."""


def is_harmless(message: Mapping[str, Any]) -> bool:
    """Return whether a message may be forwarded; one without a method answers the server's own request."""
    method = message.get("method")
    return method is None or (
        isinstance(method, str) and (method in _READING or method.startswith(_NOTIFICATION))
    )


def tool_called(message: Mapping[str, Any]) -> ToolCalled | None:
    """Return the execution requested by a message; ``None`` for other messages."""
    if message.get("method") != CALL:
        return None
    given = message.get("params")
    params = given if isinstance(given, dict) else {}
    arguments = params.get("arguments") or {}
    return ToolCalled(
        id=message.get("id"), name=str(params.get("name")), arguments=canonical_value(arguments)
    )


def result(called: ToolCalled, recorded: RecordedTool) -> Mapping[str, Any]:
    """Return a recorded result as the server's answer."""
    answer = {**_COMPLETE, **_result_of(recorded.result)}
    if recorded.failed:
        answer = {**answer, "isError": True}
    return {"jsonrpc": "2.0", "id": called.id, "result": answer}


def refusal(message_id: Any, reason: str) -> Mapping[str, Any]:
    """Return the answer to a refused message."""
    error = {"code": _REFUSED, "message": f"blamespan: {reason}"}
    return {"jsonrpc": "2.0", "id": message_id, "error": error}


def _result_of(text: str) -> dict[str, Any]:
    """Return the original result of a recorded text: frameworks record results, blocks, or their text."""
    try:
        value = read_json(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and _are_blocks(value.get("content")):
        return value
    blocks = value if isinstance(value, list) else [value]
    if _are_blocks(blocks):
        return {"content": blocks, "isError": False}
    return {"content": [{"type": "text", "text": text}], "isError": False}


def _are_blocks(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(block, dict) and is_one_of(block.get("type"), _BLOCKS) for block in value)
    )
