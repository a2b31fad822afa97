"""Reader of LlamaIndex's chat messages, and of the stores and buffers that keep them. Pure.

A message has ``blocks`` (before version 0.12 ``content``) beside ``additional_kwargs``, where the id of an
answered call stands, and the calls of versions without ``tool_call`` blocks. A store holds the messages of
each key, which are dialogues of their own.
Source: llama-index-core 0.14.25, ``base/llms/types.py`` and ``storage/chat_store`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import SPEAKERS, Message, Speaker, dialogues_spans
from analyzer.recordings.fields import json_text, text_at, unwrapped
from analyzer.recordings.message_parts import (
    Part,
    Result,
    call_of,
    listed,
    messages_in,
    nested_call,
    text_of,
    turn,
)
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.model import ToolCall

_SPEAKERS: Final = {**SPEAKERS, "model": Speaker.AGENT, "chatbot": Speaker.AGENT}
_LISTS: Final = ("messages", "chat_history")
_RAISED: Final = "Encountered error: "
"""What LlamaIndex writes before an exception of a tool, as the result."""


def is_llama_index(records: Records) -> bool:
    """Tell whether records are messages, or stores of some."""
    return _are_messages(unwrapped(records, *_LISTS)) or all(
        (chats := _chats(record)) and all(map(_are_messages, chats)) for record in records
    )


def _are_messages(found: Sequence[Any]) -> bool:
    return bool(found) and all(
        text_at(one, "role") in _SPEAKERS
        and isinstance(one.get("additional_kwargs"), dict)
        and ("content" in one or _are_blocks(one.get("blocks")))
        for one in found
    )


def _are_blocks(blocks: Any) -> bool:
    return isinstance(blocks, list) and all(text_at(block, "block_type") for block in blocks)


def _chats(document: Any) -> list[Any]:
    """Return the dialogues of a store, or of a buffer with one."""
    holders = [document, document.get("chat_store")] if isinstance(document, dict) else []
    stores = [holder.get("store") for holder in holders if isinstance(holder, dict)]
    return next(([chat for chat in one.values() if chat] for one in stores if isinstance(one, dict)), [])


def read_llama_index(records: Records) -> Spans:
    """Read one dialogue, or those of stores."""
    found = unwrapped(records, *_LISTS)
    chats = [found] if _are_messages(found) else [chat for record in records for chat in _chats(record)]
    return dialogues_spans((messages_in(chat, _of_message) for chat in chats), name="llama_index")


def _of_message(one: Mapping[str, Any]) -> Iterator[Message]:
    speaker, more = _SPEAKERS[one["role"]], one["additional_kwargs"]
    blocks = listed(one.get("blocks"))
    parts: list[Part] = [*map(_part, blocks)] if blocks else [text_of(one.get("content"))]
    if speaker is Speaker.TOOL:
        text = "\n".join(part for part in parts if isinstance(part, str))
        call_id, tool = json_text(more.get("tool_call_id")), json_text(more.get("name"))
        result = Result(text=text, call_id=call_id, tool=tool, failed=text.startswith(_RAISED))
        yield from turn(Message(speaker=Speaker.USER), [result])
        return
    if not any(isinstance(part, ToolCall) for part in parts):
        parts += map(nested_call, listed(more.get("tool_calls")))
    yield from turn(Message(speaker=speaker), parts)


def _part(block: Mapping[str, Any]) -> Part:
    match block["block_type"]:
        case "tool_call":
            return call_of(block.get("tool_name"), block.get("tool_kwargs"), block.get("tool_call_id"))
        case "thinking" | "cache":
            return ""
        case kind:
            return json_text(block.get("text", block.get("content"))) or f"[{kind}]"


LLAMA_INDEX: Final = FileFormat(
    name="LlamaIndex chat messages",
    example="llama-index-messages.json",
    source="llama-index-core, `base/llms/types.py`",
    how='`json.dumps([each.model_dump(mode="json") for each in memory.get_all()])`',
    recognizes=is_llama_index,
    read=read_llama_index,
)
