"""Messages flattened into attributes, as Traceloop's OpenLLMetry wrote them until 2025.

Source: traceloop/openllmetry, ``opentelemetry-semantic-conventions-ai`` 0.4, and the instrumentations of
that time: ``gen_ai.prompt.<n>.*`` and ``gen_ai.completion.<n>.*``, before 0.20 ``llm.prompts`` and
``llm.completions``. Calls stand in ``tool_calls.<m>.{id,name,arguments}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semconv.dialects.action import Message
from semconv.dialects.messages import message_of
from semconv.dialects.reading import below, text
from semconv.model import AttributeValue, Span

PROMPTS: Final = ("gen_ai.prompt", "llm.prompts")
COMPLETIONS: Final = ("gen_ai.completion", "llm.completions")


def prompts_of(span: Span) -> tuple[Message, ...]:
    """Return the messages that a model call was given, in index order, gaps closed."""
    return _flattened(span, PROMPTS, "user")


def completions_of(span: Span) -> tuple[Message, ...]:
    """Return the messages that a model call answered."""
    return _flattened(span, COMPLETIONS, "assistant")


def _flattened(span: Span, prefixes: tuple[str, ...], speaker: str) -> tuple[Message, ...]:
    for prefix in prefixes:
        found = [
            _message(fields, speaker)
            for fields in below(span.attributes, prefix).values()
            if "role" in fields or not span.dropped_attributes  # else it is not whole
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
