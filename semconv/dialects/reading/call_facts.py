"""Facts about a model call that its messages do not hold: provider, ids, reasoning, provider-side tools.

A rerun of a recorded run needs them. They are found in the attributes and log events as text, in any
convention: instrumentations keep requests and answers as JSON, in which these marks are the providers' own
field names. Quotes inside a message's text are escaped there, so a mark quoted in a text does not match.
Sources: OpenAI's reference of ``/v1/responses`` (``previous_response_id``, ``background``, ``conversation``,
item types ``…_call``), Anthropic's of ``/v1/messages`` (``thinking``, ``server_tool_use``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from semconv.attributes import (
    GEN_AI_PROVIDER_NAME,
    GEN_AI_REQUEST_MODEL,
    GEN_AI_RESPONSE_ID,
    GEN_AI_RESPONSE_MODEL,
    GEN_AI_SYSTEM,
    GEN_AI_USAGE_INPUT_TOKENS,
)
from semconv.dialects.reading.values import below, text, words
from semconv.model import Attributes, Span
from semconv.record import record

_PROVIDERS: Final = (GEN_AI_PROVIDER_NAME, GEN_AI_SYSTEM, "llm.provider", "llm.system")
_ANSWERING_MODELS: Final = (GEN_AI_RESPONSE_MODEL, "llm.model_name", GEN_AI_REQUEST_MODEL)
_OUTPUT_TOKENS: Final = ("gen_ai.usage.output_tokens", "llm.token_count.completion")
_INPUT_TOKENS: Final = (GEN_AI_USAGE_INPUT_TOKENS, "llm.token_count.prompt")
_EMBEDDINGS: Final = "embedding.embeddings"

_REASONING: Final = re.compile(
    r'"encrypted_content"\s*:\s*"[^"]|"type"\s*:\s*"(?:thinking|redacted_thinking)"|"signature"\s*:\s*"[\w+/=]{40}'
)
_BACKGROUND: Final = re.compile(r'"background"\s*:\s*true')
_CONVERSATION: Final = re.compile(r'"conversation"\s*:\s*(?:\{\s*"id"\s*:\s*)?"conv_')
_PREVIOUS: Final = re.compile(r'"previous_response_id"\s*:\s*"([\w-]{1,200})"')
_RESPONSE_ID: Final = re.compile(r'"id"\s*:\s*"(resp_[\w-]{1,200})"')
_PROVIDER_TOOL: Final = re.compile(
    r'"type"\s*:\s*"(web_search|file_search|code_interpreter|computer|image_generation|local_shell|mcp)_call"'
    r'|"type"\s*:\s*"server_tool_use"[^{}]*"name"\s*:\s*"(\w{1,64})"'
)
_MOST_CHARS: Final = 4_000_000
"""Longer texts are not searched."""


@record
class Embedded:
    """A text and its embedding."""

    text: str
    vector: tuple[float, ...] = ()
    """Empty if only the text was recorded."""


@record
class CallFacts:
    """Facts in a model call's span besides its messages. Empty values mean "not recorded"."""

    provider: str = ""
    model: str = ""
    response_id: str = ""
    previous_response_id: str = ""
    """The earlier response that this call continues: the provider kept the conversation so far."""
    has_reasoning: bool = False
    """The answer came with encrypted reasoning or signed thinking."""
    is_background: bool = False
    in_conversation: bool = False
    """The provider kept the conversation (OpenAI's Conversations)."""
    provider_tools: tuple[str, ...] = ()
    """Tools that the provider itself ran."""
    input_tokens: int = 0
    output_tokens: int = 0


def facts_of(span: Span) -> CallFacts:
    """Return the facts about a model call."""
    attributes, raw = span.attributes, "\n".join(_texts(span))
    previous, response = _PREVIOUS.search(raw), _RESPONSE_ID.search(raw)
    return CallFacts(
        provider=text(attributes, *_PROVIDERS) or "",
        model=text(attributes, *_ANSWERING_MODELS) or "",
        response_id=text(attributes, GEN_AI_RESPONSE_ID) or (response[1] if response else ""),
        previous_response_id=previous[1] if previous else "",
        has_reasoning=_REASONING.search(raw) is not None,
        is_background=_BACKGROUND.search(raw) is not None,
        in_conversation=_CONVERSATION.search(raw) is not None,
        provider_tools=tuple(sorted({one or other for one, other in _PROVIDER_TOOL.findall(raw)})),
        input_tokens=_count(attributes, _INPUT_TOKENS),
        output_tokens=_count(attributes, _OUTPUT_TOKENS),
    )


def embedded_in(span: Span) -> tuple[Embedded, ...]:
    """Return the texts and vectors of an embeddings call, as OpenInference writes them; else empty."""
    found = below(span.attributes, _EMBEDDINGS).values()
    return tuple(
        Embedded(text=words(fields.get("embedding.text")), vector=_vector(fields.get("embedding.vector")))
        for fields in found
    )


def _texts(span: Span) -> Iterator[str]:
    for value in span.attributes.values():
        if isinstance(value, str) and len(value) <= _MOST_CHARS and "{" in value:
            yield value
    for event in (*span.events, *span.logs):
        yield words(event.body)[:_MOST_CHARS]
        for value in event.attributes.values():
            yield words(value)[:_MOST_CHARS]


def _count(attributes: Attributes, names: tuple[str, ...]) -> int:
    value = next((attributes[name] for name in names if name in attributes), 0)
    return value if isinstance(value, int) and value >= 0 else 0


def _vector(value: object) -> tuple[float, ...]:
    return (
        tuple(float(each) for each in value if isinstance(each, (int, float)))
        if isinstance(value, (list, tuple))
        else ()
    )
