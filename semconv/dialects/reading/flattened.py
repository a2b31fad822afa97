"""Messages flattened into attributes, one attribute per field.

Sources: OpenInference ``llm.{input,output}_messages.<n>.message.*``, with the additions of single
instrumentations; Traceloop's OpenLLMetry until 2025 (``opentelemetry-semantic-conventions-ai`` 0.4):
``gen_ai.prompt.<n>.*`` and ``gen_ai.completion.<n>.*``, before 0.20 ``llm.prompts`` and
``llm.completions``, calls in ``tool_calls.<m>.{id,name,arguments}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semconv.dialects.reading.action import Message
from semconv.dialects.reading.messages import message_of
from semconv.dialects.reading.values import below, mapping, text, words
from semconv.model import AttributeValue, Span, ToolCall

PROMPTS: Final = ("gen_ai.prompt", "llm.prompts")
COMPLETIONS: Final = ("gen_ai.completion", "llm.completions")

_PLAIN_ROLES: Final = ("user", "assistant", "system", "tool")
_STRUCTURED: Final = "[{"
"""Start of content that is a list of parts."""


def flattened(span: Span, prefix: str) -> tuple[Message, ...]:
    """Return OpenInference's ``<prefix>.<index>.message.*`` as messages, in index order, with gaps closed.

    If attributes were evicted (oldest first), a message without a role is incomplete and left out.
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
    """Return a message of one text, the most frequent kind: a fast path, since long runs repeat thousands."""
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
    content = text(piece, "message_content.text")
    kind = text(piece, "message_content.type") or "content"
    return content or ("" if kind == "text" else f"[{kind}]")  # a streamed call has an empty text


def _call(piece: Mapping[str, AttributeValue]) -> ToolCall:
    return ToolCall(
        name=text(piece, "tool_call.function.name") or "",
        arguments=text(piece, "tool_call.function.arguments", "tool_call.function.arguments_json") or "",
        call_id=text(piece, "tool_call.id") or "",
    )


def prompts_of(span: Span) -> tuple[Message, ...]:
    """Return the input messages of one of Traceloop's model calls, in index order, with gaps closed."""
    return _flattened(span, PROMPTS, "user")


def completions_of(span: Span) -> tuple[Message, ...]:
    """Return the output messages of one of Traceloop's model calls."""
    return _flattened(span, COMPLETIONS, "assistant")


def _flattened(span: Span, prefixes: tuple[str, ...], speaker: str) -> tuple[Message, ...]:
    for prefix in prefixes:
        found = [
            _message(fields, speaker)
            for fields in below(span.attributes, prefix).values()
            if "role" in fields or not span.dropped_attributes  # else it is incomplete
        ]
        messages = tuple(message for message in found if message is not None)
        if messages:
            return messages
    return ()


def _message(fields: Mapping[str, AttributeValue], speaker: str) -> Message | None:
    if "role" not in fields and "content" not in fields and not _has_calls(fields):
        return None
    calls = [
        {"name": text(each, "name"), "arguments": text(each, "arguments"), "id": text(each, "id")}
        for each in below(fields, "tool_calls").values()
    ]
    single = text(fields, "function_call.name")
    if single:
        calls.append({"name": single, "arguments": text(fields, "function_call.arguments"), "id": None})
    return message_of(
        {
            "role": text(fields, "role") or speaker,
            "content": None if fields.get("content") == '""' else fields.get("content"),
            "tool_calls": calls,
            "tool_call_id": text(fields, "tool_call_id"),
        }
    )


def _has_calls(fields: Mapping[str, AttributeValue]) -> bool:
    return any(name.startswith(("tool_calls.", "function_call.")) for name in fields)
