"""Values on OpenInference's tool spans, without what frameworks wrap around them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semconv.attributes import (
    GEN_AI_TOOL_CALL_ID,
)
from semconv.dialects.reading.payloads import content_of
from semconv.dialects.reading.python_repr import message_fields
from semconv.dialects.reading.values import (
    below,
    items,
    mapping,
    text,
    words,
)
from semconv.model import Span

OUTPUT_VALUE: Final = "output.value"
TOOL_CALL_ID: Final = "tool_call.id"
STRANDS_CALL_ID: Final = "tool.call_id"
CLAUDE_CALL_ID: Final = "tool.id"
DOCUMENTS: Final = "retrieval.documents"


def documents_of(span: Span) -> str:
    """Return a retriever's documents as text."""
    documents = below(span.attributes, DOCUMENTS).values()
    return "\n".join(text(fields, "document.content") or "[document]" for fields in documents)


def call_id_of(span: Span, result: str) -> str:
    """Return the call id, which langchain keeps only in the result's tool message."""
    found = text(span.attributes, TOOL_CALL_ID, GEN_AI_TOOL_CALL_ID, STRANDS_CALL_ID, CLAUDE_CALL_ID)
    if found is None and '"tool_call_id"' in result:
        message = mapping(result)
        data = message.get("data") or message.get("kwargs") or message
        found = text(data, "tool_call_id") if isinstance(data, Mapping) else None
    return found or ""


def arguments_in(given: str) -> str:
    """Return a tool's arguments without smolagents' wrapper."""
    value = mapping(given)
    if "sanitize_inputs_outputs" not in value:
        return given
    args, kwargs = value.get("args"), value.get("kwargs")
    if args and kwargs:
        return words({"args": args, **kwargs} if isinstance(kwargs, Mapping) else value)
    return words(kwargs or args or {})


def without_response(got: str) -> str:
    """Return a tool's result without Gemini's function response, which ADK wraps around it."""
    value = mapping(got) if '"response"' in got else {}
    return words(value["response"]) if value.keys() >= {"id", "name", "response"} else got


def result_in(got: str) -> str:
    """Return a tool's result without langchain's tool message or AG2's pair around it."""
    pair = items(got)
    if len(pair) == 2 and isinstance(pair[0], bool) and isinstance(pair[1], dict):
        return content_of(pair[1])
    value = mapping(got)
    if value.keys() == {"output"} and message_fields(words(value["output"])) is not None:
        return content_of(value["output"])
    if isinstance(value.get("data"), Mapping) or value.get("type") == "tool" or "lc" in value:
        return content_of(value)
    return got
