"""Reader of Haystack's chat messages, as ``ChatMessage.to_dict()`` writes them. Pure.

A content is a list of parts, each under a key of its own: ``text``, ``tool_call``, ``tool_call_result`` and
others. Older versions of 2 begin the keys of a message with ``_``.
Source: haystack-ai 2, ``dataclasses/chat_message.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import SPEAKERS, Message, Speaker, dialogues_spans
from analyzer.recordings.fields import dialogues_in, json_text, object_at, text_at
from analyzer.recordings.message_parts import (
    Part,
    Result,
    call_of,
    finish_of,
    listed,
    messages_in,
    text_of,
    turn,
)
from analyzer.recordings.recording import FileFormat, Records, Spans

_PARTS: Final = frozenset({"text", "tool_call", "tool_call_result", "reasoning", "image", "file"})


def is_haystack(records: Records) -> bool:
    """Tell whether records are messages, or documents with some under ``messages``."""
    return bool(dialogues_in(records, _are_messages, _held))


def _held(document: Any) -> Sequence[Any]:
    held = document.get("messages") if isinstance(document, dict) else None
    return held if isinstance(held, list) else ()


def _are_messages(found: Sequence[Any]) -> bool:
    return (
        bool(found) and all(map(_is_message, found)) and any(_at(one, "role") == "assistant" for one in found)
    )


def _is_message(one: Any) -> bool:
    if not isinstance(one, dict) or not ("meta" in one or "_meta" in one):
        return False
    content, role = _at(one, "content"), _at(one, "role")
    are_parts = isinstance(content, list) and all(
        isinstance(part, dict) and len(part) == 1 and part.keys() <= _PARTS for part in content
    )
    return are_parts and isinstance(role, str) and role in SPEAKERS


def _at(one: Mapping[str, Any], key: str) -> Any:
    return one.get(key, one.get(f"_{key}"))


def read_haystack(records: Records) -> Spans:
    """Read one dialogue, or one for each document."""
    dialogues = dialogues_in(records, _are_messages, _held)
    return dialogues_spans((messages_in(dialogue, _of_message) for dialogue in dialogues), name="haystack")


def _of_message(one: Mapping[str, Any]) -> Iterator[Message]:
    speaker = SPEAKERS[_at(one, "role")]
    is_agent = speaker is Speaker.AGENT
    template = Message(
        speaker=speaker,
        agent=json_text(_at(one, "name")) if is_agent else "",
        model=text_at(_at(one, "meta"), "model") if is_agent else "",
        finish=finish_of(text_at(_at(one, "meta"), "finish_reason")) if is_agent else "",
    )
    yield from turn(template, map(_part, listed(_at(one, "content"))))


def _part(part: Mapping[str, Any]) -> Part:
    asked, answered = part.get("tool_call"), part.get("tool_call_result")
    if asked is not None:
        return call_of(asked.get("tool_name"), asked.get("arguments"), asked.get("id"))
    if answered is not None:
        origin = object_at(answered, "origin")
        return Result(
            text=text_of(answered.get("result")),
            call_id=json_text(origin.get("id")),
            tool=json_text(origin.get("tool_name")),
            failed=answered.get("error") is True,
        )
    return "" if "reasoning" in part else text_of([part])


HAYSTACK: Final = FileFormat(
    name="Haystack chat messages",
    example="haystack-messages.json",
    source="haystack-ai, `dataclasses/chat_message.py`",
    how='`json.dumps([each.to_dict() for each in result["messages"]])` of an `Agent`',
    recognizes=is_haystack,
    read=read_haystack,
)
