"""Content blocks of Anthropic's Messages API as messages. Pure.

Source: Anthropic's API reference, ``POST /v1/messages``, as ``anthropic`` 2 types it (2026). The results of
tools are blocks of a user's message; tools that Anthropic runs have call and result in the answer. The blocks
of the Claude Agent SDK are the same without ``type``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.dialogue import Message
from analyzer.recordings.file_format import json_text
from analyzer.recordings.message_parts import Part, Result, call_of, listed, text_of, turn

_STREAMS: Final = ("stdout", "stderr")


def messages_of_blocks(template: Message, content: Any) -> Iterator[Message]:
    """Yield what a message says, calls and returns.

    Args:
        template: who speaks, and when.
        content: a text or blocks.
    """
    if not isinstance(content, list):
        yield from turn(template, [json_text(content)])
        return
    blocks = listed([{"text": one} if isinstance(one, str) else one for one in content])
    is_cited = any(block.get("citations") for block in blocks)  # a sentence is cut at each citation
    yield from turn(template, map(_part, blocks), joint="" if is_cited else "\n")


def is_call(block: Mapping[str, Any]) -> bool:
    """Tell whether a block calls a tool."""
    kind = block.get("type")
    return kind.endswith("tool_use") if isinstance(kind, str) else {"id", "name", "input"} <= block.keys()


def is_result(block: Mapping[str, Any]) -> bool:
    """Tell whether a block answers a call."""
    return "tool_use_id" in block


def is_thought(block: Mapping[str, Any]) -> bool:
    """Tell whether a block holds what the model thought."""
    return "thinking" in block or block.get("type") == "redacted_thinking"


def _part(block: Mapping[str, Any]) -> Part:
    if is_call(block):
        return call_of(block.get("name"), block.get("input"), block.get("id"))
    if is_thought(block):
        return ""
    return _result(block) if is_result(block) else text_of([block])


def _result(block: Mapping[str, Any]) -> Result:
    content = block.get("content")
    failed = block.get("is_error") is True
    if isinstance(content, dict):
        failed = (
            failed or json_text(content.get("type")).endswith("_error") or bool(content.get("return_code"))
        )
        printed = "\n".join(json_text(content[key]) for key in _STREAMS if content.get(key))
        content = printed or content
    elif isinstance(content, list):
        content = [_readable(one) for one in content]
    return Result(text=text_of(content), call_id=json_text(block["tool_use_id"]), failed=failed)


def _readable(found: Any) -> Any:
    """Return an entry of a search's result without what only Anthropic can read."""
    if not isinstance(found, dict) or "encrypted_content" not in found:
        return found
    return {key: value for key, value in found.items() if key != "encrypted_content"}
