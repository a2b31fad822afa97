"""Messages shown as the ``repr`` of an object: ``ChatMessage(_role=<ChatRole.TOOL: 'tool'>, _content=[…])``.

Haystack's, by their fields: a text, a tool call (``tool_name``, ``arguments``, ``id``), or a tool's result
with the call that it answers (``result``, ``origin``). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semconv.dialects.reading.action import Message
from semconv.dialects.reading.python_repr import object_in
from semconv.dialects.reading.values import items, mapping, words
from semconv.model import ToolCall


def with_bodies(messages: tuple[Message, ...], given: str) -> tuple[Message, ...]:
    """Return ``messages`` with the bodies that only ``given`` holds: JSON with the same list as objects.

    OpenInference's attributes of Haystack's messages have the role of a tool's result and of a request, and
    neither text nor calls. Nothing is taken from a list of another length or with other roles.
    """
    if all(map(_has_body, messages)):
        return messages
    told = [message_in(words(each)) for each in items(mapping(given).get("messages"))]
    found = [each for each in told if each is not None]
    if [each.role for each in found] != [message.role for message in messages]:
        return messages
    return tuple(
        message if _has_body(message) else other for message, other in zip(messages, found, strict=True)
    )


def message_in(shown: str) -> Message | None:
    """Return the message whose ``repr`` is ``shown``, or ``None`` if it is not one."""
    fields = {name.lstrip("_"): value for name, value in object_in(shown).items()}
    role, content = fields.get("role"), fields.get("content")
    if not isinstance(role, str) or not isinstance(content, list):
        return None
    parts = [part for part in content if isinstance(part, Mapping)]
    origins = [origin for part in parts if isinstance(origin := part.get("origin"), Mapping)]
    return Message(
        role=role,
        text="\n".join(_texts(parts)),
        calls=tuple(
            [
                ToolCall(
                    name=words(part["tool_name"]),
                    arguments=words(part.get("arguments")),
                    call_id=words(part.get("id") or ""),
                )
                for part in parts
                if part.get("tool_name")
            ]
        ),
        answers=tuple([words(origin["id"]) for origin in origins if origin.get("id")]),
    )


def _texts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [words(part[key]) for part in parts for key in ("text", "result") if part.get(key)]


def _has_body(message: Message) -> bool:
    return bool(message.text or message.calls or message.answers)
