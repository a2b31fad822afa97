"""Messages flattened into attributes, as OpenInference writes them.

Source: ``llm.{input,output}_messages.<n>.message.*`` of the specification, and
what single instrumentations add to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semconv.dialects.action import Message, ToolCall
from semconv.dialects.messages import message_of
from semconv.dialects.reading import below, mapping, text, words
from semconv.model import AttributeValue, Span

_PLAIN_ROLES: Final = ("user", "assistant", "system", "tool")
_STRUCTURED: Final = "[{"
"""Begins content that is a list of parts."""


def flattened(span: Span, prefix: str) -> tuple[Message, ...]:
    """Return ``<prefix>.<index>.message.*`` as messages, in index order, gaps closed.

    Where attributes were evicted, oldest first, a message whose role is gone is not whole and left out.
    """
    pieces = below(span.attributes, prefix).values()
    return tuple(
        message
        for fields in pieces
        if ("message.role" in fields or not span.dropped_attributes)
        and (message := _unflatten(fields)) is not None
    )


def _unflatten(fields: Mapping[str, AttributeValue]) -> Message | None:
    plain = _plain_text(fields)
    return _unflatten_any(fields) if plain is None else plain


def _plain_text(fields: Mapping[str, AttributeValue]) -> Message | None:
    """Return a message that is one text, as most are; long runs repeat them by the ten thousand."""
    if len(fields) != 2:
        return None
    role, content = fields.get("message.role"), fields.get("message.content")
    if not isinstance(role, str) or not isinstance(content, str) or role not in _PLAIN_ROLES:
        return None
    return None if content.startswith(_STRUCTURED) else Message(role=role, text=content)


def _unflatten_any(fields: Mapping[str, AttributeValue]) -> Message | None:
    parts: list[object] = []
    content = fields.get("message.content")
    pieces = below(fields, "message.contents")
    if pieces:
        parts.extend(_content_part(piece) for piece in pieces.values())
    elif content is not None:
        parts.append(content if isinstance(content, (list, tuple, Mapping)) else words(content))
    else:  # the Claude Agent SDK's blocks
        parts.extend(value for name, value in fields.items() if name.startswith("message.content."))
    parts.extend(mapping(value) for name, value in fields.items() if name.startswith("function."))  # AutoGen
    body = parts[0] if len(parts) == 1 else parts or None
    message = message_of({"role": words(fields.get("message.role")), "content": body})
    if message is None:
        return None
    calls = [_call(piece) for piece in below(fields, "message.tool_calls").values()]
    single = text(fields, "message.function_call_name")
    if single:
        calls.append(
            ToolCall(name=single, arguments=text(fields, "message.function_call_arguments_json") or "")
        )
    name = text(fields, "message.name") if message.role == "assistant" else None
    answered_call = text(fields, "message.tool_call_id")
    return Message(
        role=message.role,
        text=message.text,
        calls=(*message.calls, *calls),
        name=name or message.name,
        answers=message.answers if answered_call is None else (answered_call,),
    )


def _content_part(piece: Mapping[str, AttributeValue]) -> str:
    said = text(piece, "message_content.text")
    kind = text(piece, "message_content.type") or "content"
    return said or ("" if kind == "text" else f"[{kind}]")  # a streamed call comes with an empty text


def _call(piece: Mapping[str, AttributeValue]) -> ToolCall:
    return ToolCall(
        name=text(piece, "tool_call.function.name") or "",
        arguments=text(piece, "tool_call.function.arguments", "tool_call.function.arguments_json") or "",
        call_id=text(piece, "tool_call.id") or "",
    )
