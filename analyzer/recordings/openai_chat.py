"""Reader of OpenAI's chat messages: what ``chat.completions`` takes and most programs keep. Pure.

Source: OpenAI's API reference, ``POST /v1/chat/completions``. Messages are kept as a list, one a line, or
under ``messages``, an answer under ``choices`` beside them or alone. Swarm adds the agent
as ``sender``, LiteLLM what is special to a provider, and programs what they need themselves. The roles are
those of the API; a list whose roles or names are agents of a group chat is a conversation log
(``conversation_log``) or a chat of AG2 (``ag2_chats``), and so is a document with a label or a reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.conversation_log import is_labelled
from analyzer.recordings.dialogue import AGENT, SPEAKERS, Message, Speaker, dialogue_spans, dialogues_spans
from analyzer.recordings.fields import in_order, json_text, objects, text_at
from analyzer.recordings.message_parts import (
    dialogues_of,
    ended,
    error_text,
    finish_of,
    is_failed,
    nested_call,
    text_of,
)
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.model import ToolCall
from semconv.record import replace

_ROLES: Final[Mapping[str, Speaker]] = {
    spelling: speaker
    for role, speaker in {
        **SPEAKERS,
        **dict.fromkeys(("human", "customer"), Speaker.USER),
        **dict.fromkeys(("ai", "model", "gpt", "chatgpt", "bot", "chatbot"), Speaker.AGENT),
    }.items()
    for spelling in (role, role.capitalize(), role.upper())
}
"""Speakers by the API's roles and by what other programs call them."""
_OTHER_SPEAKERS: Final = frozenset({"agent", "agent_id", "agent_name", "author", "speaker", "source"})
"""Keys by which messages that only resemble the API's name who speaks."""
_OF_INSPECT: Final = frozenset({"input", "generate", "operator"})
"""What Inspect AI calls the ``source`` of a message."""
_said: Final[Callable[..., Message]] = Message
"""Makes a message of fields in their order: with their names it takes twice as long."""
_PLAIN_PARTS: Final = frozenset({"text", "image_url", "input_audio", "file", "refusal", "think"})


def is_openai_chat(records: Records) -> bool:
    """Tell whether records are messages of the chat API or documents with some, one an answer or an error."""
    records = _spelled(records)
    if _are_messages(records):
        return _has_answer(records)
    is_answered = False
    for record in records:
        held = _held(record)
        if not (_are_messages(held) or (not held and is_failed(record))):
            return False
        is_answered = is_answered or _has_answer(held) or (bool(held) and is_failed(record))
    return is_answered


_CAPITALS: Final = frozenset({"Role", "Messages"})
"""Keys as .NET and Go write those of a class or struct, unless they are told otherwise."""
_HOLDERS: Final = frozenset({"messages", "tool_calls", "function"})
_DEEPEST: Final = 6
"""Objects and lists from a document to the function of a call."""
_WORD_END: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _spelled(records: Records) -> Records:
    """Return records with the API's keys, where theirs begin with capitals (``ToolCalls``).

    Kimi CLI writes what is no message under roles of its own, such as ``_usage``, and one of them first.
    """
    if text_at(records[0], "role").startswith("_"):
        records = [record for record in records if not text_at(record, "role").startswith("_")] or records
    if not isinstance(records[0], dict) or _CAPITALS.isdisjoint(records[0]):
        return records
    return [_with_small_keys(record, _DEEPEST) for record in records]


def _with_small_keys(value: Any, levels: int) -> Any:
    if isinstance(value, list) and levels:
        return [_with_small_keys(one, levels - 1) for one in value]
    if not isinstance(value, dict) or not levels:
        return value
    named = ((_WORD_END.sub("_", key).lower(), inner) for key, inner in value.items())
    return {key: _with_small_keys(inner, levels - 1) if key in _HOLDERS else inner for key, inner in named}


def _are_messages(found: Sequence[Any]) -> bool:
    return bool(found) and all(map(_is_message, found))


def _has_answer(found: Sequence[Any]) -> bool:
    return any(_ROLES[one["role"]] is Speaker.AGENT for one in found)


def _is_message(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("role"), str)
        and one["role"] in _ROLES
        and (_OTHER_SPEAKERS.isdisjoint(one) or text_at(one, "source") in _OF_INSPECT)
        and not (one["role"] in {"user", "tool"} and one.get("name") and "tool_call_id" not in one)
        and ("content" in one or "tool_calls" in one or "function_call" in one)
        and (not isinstance(one.get("content"), list) or all(map(_is_part, one["content"])))
    )


def _asked(document: Mapping[str, Any]) -> Sequence[Any]:
    held = document.get("messages")
    return held if isinstance(held, list) else ()


def _answers(document: Mapping[str, Any]) -> list[Any]:
    choices = objects(document.get("choices"))[:1]
    return [ended(one["message"], one.get("finish_reason")) for one in choices if "message" in one]


def _held(document: Any) -> Sequence[Any]:
    """Return the messages of a request, with the answer that stands beside them."""
    if not isinstance(document, dict) or is_labelled(document):
        return ()
    return [*_asked(document), *_answers(document)]


def _is_part(part: Any) -> bool:
    return text_at(part, "type") in _PLAIN_PARTS


def read_openai_chat(records: Records) -> Spans:
    """Read one dialogue, or one for each document."""
    records = _spelled(records)
    if _is_message(records[0]):
        newest_first = text_at(records[0], "object") == "thread.message"
        return dialogue_spans(
            map(_message, in_order([*records], "created_at") if newest_first else records), name="openai"
        )
    dialogues = dialogues_of(records, _asked, _answers, lambda one: (_message(one),))
    return dialogues_spans(dialogues, name="openai")


def _message(one: Mapping[str, Any]) -> Message:
    speaker = _ROLES[one["role"]]
    content = one.get("content")
    text = content if content.__class__ is str else text_of(content)
    if speaker is AGENT:
        calls = tuple(_calls(one)) if "tool_calls" in one or "function_call" in one else ()
        message = _said(speaker, text or json_text(one.get("refusal")), _name(one), calls)
        return replace(message, finish=finish_of(one["finish_reason"])) if "finish_reason" in one else message
    if speaker is not Speaker.TOOL:
        return _said(speaker, text)
    error = error_text(one["error"]) if "error" in one else ""
    return Message(
        speaker=speaker,
        text=error or text,
        call_id=json_text(one.get("tool_call_id", one.get("id"))),
        tool=_name(one) or text_at(one, "function"),
        failed=bool(error) or one.get("error") is True,
    )


def _name(one: Mapping[str, Any]) -> str:
    return json_text(one.get("name") or one.get("sender") or one.get("tool_name"))


def _calls(one: Mapping[str, Any]) -> Iterator[ToolCall]:
    yield from map(nested_call, objects(one.get("tool_calls")))
    if isinstance(one.get("function_call"), dict):  # the API before tools
        yield nested_call(one["function_call"])


OPENAI_CHAT: Final = FileFormat(
    name="OpenAI chat messages",
    example="openai-chat.json",
    source="OpenAI's API reference, chat completions",
    how=(
        "`json.dumps(messages)` with what you send to `chat.completions` and the last answer; a log of "
        '`{"request": …, "response": …}` or `{"messages": …, "response": …}`, one a line'
    ),
    recognizes=is_openai_chat,
    read=read_openai_chat,
)
