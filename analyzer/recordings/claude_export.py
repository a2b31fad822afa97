"""Reader of claude.ai's data export, ``conversations.json``, or of a conversation as its page loads it. Pure.

Blocks are those of Anthropic's messages; older exports give tools and their results no ids. The text of an
attached file was shown to the model. If messages name their parents, those of the newest branch are read.
Source: claude.ai's data export (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.anthropic_messages import messages_of_blocks
from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans
from analyzer.recordings.fields import branch, json_text, nanoseconds, objects, text_at
from analyzer.recordings.message_parts import finish_of
from analyzer.recordings.recording import FileFormat, Records, Spans

_NAME: Final = "Claude"
_SPEAKERS: Final = {"human": Speaker.USER, "assistant": Speaker.AGENT}
_PARENT: Final = "parent_message_uuid"
_TOLD: Final = frozenset({"text", "thinking", "tool_use", "tool_result"})
"""Blocks that are read; others are the page's own."""


def is_claude_export(records: Records) -> bool:
    """Tell whether all records are conversations of claude.ai, one of them with messages."""
    return all(map(_is_conversation, records)) and any(record["chat_messages"] for record in records)


def _is_conversation(one: Any) -> bool:
    said = one.get("chat_messages") if isinstance(one, dict) and "uuid" in one else None
    return isinstance(said, list) and all(
        text_at(each, "sender") in _SPEAKERS and "uuid" in each and ("text" in each or "content" in each)
        for each in said
    )


def read_claude_export(records: Records) -> Spans:
    """Read one run for each conversation."""
    return (span for record in records for span in _conversation(record))


def _conversation(document: Mapping[str, Any]) -> Spans:
    said = document["chat_messages"]
    if said and any(_PARENT in one for one in said):
        by_id = {json_text(one["uuid"]): one for one in said}
        leaf = text_at(document, "current_leaf_message_uuid")
        said = branch(by_id, leaf if leaf in by_id else json_text(said[-1]["uuid"]), _PARENT)
    messages = (message for one in said for message in _messages(one))
    return dialogue_spans(messages, name="claude_ai", key=f"claude_ai {json_text(document['uuid'])}")


def _messages(one: Mapping[str, Any]) -> Iterator[Message]:
    speaker = _SPEAKERS[one["sender"]]
    template = Message(
        speaker=speaker,
        agent=_NAME if speaker is Speaker.AGENT else "",
        time_ns=nanoseconds(one.get("created_at")),
        finish=finish_of(one.get("stop_reason")),
    )
    blocks = [_named(block) for block in objects(one.get("content")) if _is_told(block)]
    files = [
        {"type": "text", "text": f"{text_at(each, 'file_name')}:\n{text_at(each, 'extracted_content')}"}
        for each in objects(one.get("attachments"))
    ]
    told = blocks or [{"type": "text", "text": json_text(one.get("text"))}]
    yield from messages_of_blocks(template, [*told, *files])


def _is_told(block: Mapping[str, Any]) -> bool:
    """Tell whether a block is read: exports leave out what some tools returned."""
    kind = text_at(block, "type")
    return kind in _TOLD and (kind != "tool_result" or bool(block.get("content")))


def _named(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block in which a call and its result have an id: by default the tool's name."""
    key = {"tool_use": "id", "tool_result": "tool_use_id"}.get(block["type"])
    return {**block, key: block.get(key) or block.get("name")} if key else block


CLAUDE_EXPORT: Final = FileFormat(
    name="claude.ai's data export",
    example="claude-export.json",
    source="claude.ai's data export, 2026",
    how="*Settings*, *Privacy*, *Export data*: `conversations.json` in the archive that is sent to you",
    agent=_NAME,
    recognizes=is_claude_export,
    read=read_claude_export,
)
