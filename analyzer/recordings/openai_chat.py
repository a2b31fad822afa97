"""Reader of OpenAI's chat messages: what ``chat.completions`` takes and most programs keep. Pure.

Source: OpenAI's API reference, ``POST /v1/chat/completions``. Kept as a list, one a line, or under
``messages``. Swarm adds the agent as ``sender``, LiteLLM what is special to a provider. The roles are those
of the API; a list whose roles or names are agents of a group chat is a conversation log
(``conversation_log``) or a chat of AG2 (``ag2_chats``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.dialogue import SPEAKERS, Message, Speaker, dialogue_spans
from analyzer.recordings.fields import json_text, objects, text_at, unwrapped
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.model import ToolCall

_KEYS: Final = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio"}
    | {"annotations"}
    | {"reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "provider_specific_fields"}
    | {"images", "index", "id", "timestamp", "created_at", "sender", "tool_name"}
)
"""Keys of a message; one with others may be of a format that only resembles this one."""
_PLAIN_PARTS: Final = frozenset({"text", "image_url", "input_audio", "file", "refusal"})


def is_openai_chat(records: Records) -> bool:
    """Tell whether records are messages of the chat API, with an answer among them."""
    messages = unwrapped(records, "messages")
    return all(map(_is_message, messages)) and any(one["role"] == "assistant" for one in messages)


def _is_message(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("role"), str)
        and one["role"] in SPEAKERS
        and _KEYS.issuperset(one)
        and not (one["role"] in {"user", "tool"} and one.get("name") and "tool_call_id" not in one)
        and ("content" in one or "tool_calls" in one or "function_call" in one)
        and (not isinstance(one.get("content"), list) or all(map(_is_part, one["content"])))
    )


def _is_part(part: Any) -> bool:
    return text_at(part, "type") in _PLAIN_PARTS


def read_openai_chat(records: Records) -> Spans:
    """Read one dialogue."""
    return dialogue_spans(map(_message, objects(unwrapped(records, "messages"))), name="openai")


def _message(one: Mapping[str, Any]) -> Message:
    speaker = SPEAKERS[one["role"]]
    named = json_text(one.get("name") or one.get("sender") or one.get("tool_name"))
    return Message(
        speaker=speaker,
        text=_text(one.get("content")) or json_text(one.get("refusal")),
        agent=named if speaker is Speaker.AGENT else "",
        calls=tuple(_calls(one)) if "tool_calls" in one or "function_call" in one else (),
        call_id=json_text(one.get("tool_call_id")),
        tool=named if speaker is Speaker.TOOL else "",
    )


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text", part.get("refusal", "")) if isinstance(part, dict) else part for part in parts]
    return "\n".join(json_text(text) for text in texts if text)


def _calls(one: Mapping[str, Any]) -> Iterator[ToolCall]:
    for call in objects(one.get("tool_calls")):
        asked = call.get("function") or call.get("custom") or {}
        arguments = json_text(asked.get("arguments", asked.get("input")))
        yield ToolCall(
            name=json_text(asked.get("name")), arguments=arguments, call_id=json_text(call.get("id"))
        )
    if isinstance(one.get("function_call"), dict):  # the API before tools
        asked = one["function_call"]
        yield ToolCall(name=json_text(asked.get("name")), arguments=json_text(asked.get("arguments")))


OPENAI_CHAT: Final = FileFormat(
    name="OpenAI chat messages",
    example="openai-chat.json",
    source="OpenAI's API reference, chat completions",
    how="`json.dumps(messages)` with what you send to `chat.completions` and the last answer",
    recognizes=is_openai_chat,
    read=read_openai_chat,
)
