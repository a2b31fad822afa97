"""Reader of Bedrock's Converse messages, which Strands keeps too. Pure.

Messages stand in a list, one a line, or under ``messages`` beside ``system``; an answer of the API under
``output``. Strands' ``FileSessionManager`` writes a message as ``{"message", "message_id", "created_at"}``.
Source: Amazon Bedrock's API reference, ``Converse``; strands-agents 1.62, ``types`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogues_spans
from analyzer.recordings.fields import json_text, nanoseconds, object_at, text_at
from analyzer.recordings.message_parts import (
    Part,
    Result,
    call_of,
    dialogues_of,
    ended,
    finish_of,
    is_failed,
    listed,
    text_of,
    turn,
)
from analyzer.recordings.recording import FileFormat, Records, Spans

_SPEAKERS: Final[Mapping[str, Speaker]] = {"user": Speaker.USER, "assistant": Speaker.AGENT}
_UNSAID: Final = frozenset({"reasoningContent", "cachePoint"})
_TOLD: Final = frozenset({"toolUse", "toolResult", "citationsContent", "guardContent"}) | _UNSAID
_PLAIN: Final = frozenset({"text", "image", "document", "video", "audio", "json", "searchResult"})


def is_bedrock(records: Records) -> bool:
    """Tell whether records are messages, or documents with some: other APIs' blocks have a type."""
    return (_are_messages(records) and _has_answer(records)) or all(map(_is_document, records))


def _is_document(one: Any) -> bool:
    held = [*_asked(one), *_answers(one)] if isinstance(one, dict) else []
    return _are_messages(held) and (_has_answer(held) or is_failed(one))


def _are_messages(found: Sequence[Any]) -> bool:
    return bool(found) and all(map(_is_message, found))


def _has_answer(found: Sequence[Any]) -> bool:
    return any(_inner(one)["role"] == "assistant" for one in found)


def _is_message(one: Any) -> bool:
    message = _inner(one)
    return (
        isinstance(message, dict)
        and text_at(message, "role") in _SPEAKERS
        and isinstance(message.get("content"), list)
        and all(isinstance(block, dict) and _is_block(block) for block in message["content"])
    )


def _is_block(block: Mapping[str, Any]) -> bool:
    return bool(block) and "type" not in block and block.keys() <= _TOLD | _PLAIN


def _inner(one: Any) -> Any:
    """Return a message, also of a session's record; a redacted one in the words that replaced it."""
    held = one.get("redact_message") or one.get("message") if isinstance(one, dict) else None
    return held if isinstance(held, dict) else one


def _asked(document: Mapping[str, Any]) -> list[Any]:
    asked = document.get("messages")
    return asked if isinstance(asked, list) else []


def _answers(document: Mapping[str, Any]) -> list[Any]:
    """Return the answer that stands beside a request, with the reason if it was cut off."""
    answer = object_at(document, "output").get("message")
    return [ended(answer, document.get("stopReason"))] if isinstance(answer, dict) else []


def read_bedrock(records: Records) -> Spans:
    """Read one dialogue, or one for each document."""
    documents = [{"messages": [*records]}] if _are_messages(records) else records
    return dialogues_spans(dialogues_of(documents, _asked, _answers, _of_message), name="bedrock")


def _of_message(one: Mapping[str, Any]) -> Iterator[Message]:
    message = _inner(one)
    template = Message(
        speaker=_SPEAKERS[message["role"]],
        time_ns=nanoseconds(one.get("created_at")),
        finish=finish_of(message.get("finish_reason")),
    )
    yield from turn(template, map(_part, listed(message["content"])))


def _part(block: Mapping[str, Any]) -> Part:
    asked, answered = block.get("toolUse"), block.get("toolResult")
    if asked is not None:
        return call_of(asked.get("name"), asked.get("input"), asked.get("toolUseId"))
    if answered is not None:
        return Result(
            text=text_of(answered.get("content")),
            call_id=json_text(answered.get("toolUseId")),
            failed=answered.get("status") == "error",
        )
    told = block.get("citationsContent") or block.get("guardContent")
    if told is not None:
        return text_of(told.get("content", [told.get("text")]))
    return "" if _UNSAID & block.keys() else text_of([block])


BEDROCK: Final = FileFormat(
    name="Bedrock Converse or Strands messages",
    example="bedrock-messages.json",
    source="Amazon Bedrock's API reference, Converse; strands-agents",
    how=(
        "Strands: `json.dumps(agent.messages)`, or the files of `FileSessionManager`; Converse: "
        "`json.dumps(messages)`"
    ),
    recognizes=is_bedrock,
    read=read_bedrock,
)
