"""Model, parameters, tokens and cost of a model call, in any convention.

Conventions name these attributes differently, some inside a JSON text. Absent values stay ``None`` or empty;
nothing is estimated. Sources: ``gen_ai.*`` (OpenTelemetry), ``llm.*`` (OpenInference, Traceloop),
``langfuse.observation.*``, ``langsmith.metadata.*``, ``mlflow.*``, ``ai.*`` (Vercel), ``operation.cost``
(Logfire, Pydantic AI), ``gen_ai.cost.*`` (LiteLLM), and the bare names of Claude Code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from semconv.attributes import (
    GEN_AI_PROVIDER_NAME,
    GEN_AI_REQUEST_MODEL,
    GEN_AI_RESPONSE_ID,
    GEN_AI_RESPONSE_MODEL,
    GEN_AI_SYSTEM,
    GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS,
    GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS,
    GEN_AI_USAGE_INPUT_TOKENS,
    GEN_AI_USAGE_OUTPUT_TOKENS,
)
from semconv.dialects.reading.values import below, structured, text, words
from semconv.model import Attributes, Span
from semconv.record import record

Scalar: TypeAlias = "str | bool | int | float"

_PROVIDERS: Final = (GEN_AI_PROVIDER_NAME, GEN_AI_SYSTEM, "llm.provider", "llm.system")
_MODELS: Final = (
    GEN_AI_RESPONSE_MODEL,
    "llm.model_name",
    GEN_AI_REQUEST_MODEL,
    "langfuse.observation.model.name",
    "langsmith.metadata.ls_model_name",
    "mlflow.llm.model",
    "ai.model.id",
    "model",
)
_INPUT_TOKENS: Final = (
    GEN_AI_USAGE_INPUT_TOKENS,
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
    "ai.usage.promptTokens",
    "ai.usage.inputTokens",
    "input_tokens",
)
_OUTPUT_TOKENS: Final = (
    GEN_AI_USAGE_OUTPUT_TOKENS,
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "llm.usage.completion_tokens",
    "ai.usage.completionTokens",
    "ai.usage.outputTokens",
    "output_tokens",
)
_CACHED: Final = (
    (GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, "gen_ai.usage.cache_read_input_tokens", "cache_read_tokens"),
    (
        GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS,
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "cache_creation_tokens",
    ),
)
"""Tokens of the prompt that were read from and written to a cache, by their present and former names."""
_COSTS: Final = ("gen_ai.usage.cost", "gen_ai.cost.total_cost", "llm.cost.total", "operation.cost")
_USAGES: Final = (
    "langfuse.observation.usage_details",
    "langsmith.metadata.usage_metadata",
    "mlflow.chat.tokenUsage",
)
"""Attributes with the counts as JSON."""
_COST_DETAILS: Final = "langfuse.observation.cost_details"
_PARAMETERS: Final = ("llm.invocation_parameters", "langfuse.observation.model.parameters")
"""Attributes with the request's parameters as JSON."""
_REQUEST: Final = "gen_ai.request."
_NOT_PARAMETERS: Final = frozenset({"model", "model_name", "messages", "tools", "functions", "input"})
_MOST_PARAMETERS: Final = 50
_LONGEST_PARAMETER: Final = 500
"""Characters; a longer value is content, not a parameter."""


@record
class ModelCall:
    """One call to a model, besides its messages."""

    provider: str = ""
    model: str = ""
    """The model that answered, else the requested one."""
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    """Parameters of the request, such as ``temperature``, by their name in the convention."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    """The cost that the instrumentation recorded."""


def model_call(span: Span) -> ModelCall:
    """Return the facts about a model call in its span."""
    attributes = span.attributes
    usages = [found for name in _USAGES if isinstance(found := structured(attributes.get(name)), Mapping)]
    return ModelCall(
        provider=text(attributes, *_PROVIDERS) or "",
        model=model_of(span),
        parameters=dict(_parameters(attributes)),
        input_tokens=_with_cached(
            attributes, _count(attributes, _INPUT_TOKENS, usages, ("input_tokens", "input"))
        ),
        output_tokens=_count(attributes, _OUTPUT_TOKENS, usages, ("output_tokens", "output")),
        cost_usd=_cost(attributes),
    )


def model_of(span: Span) -> str:
    """Return the model that answered, else the requested one; empty if the span names none."""
    model = structured(text(span.attributes, *_MODELS) or "")  # MLflow writes it as a JSON string
    return model if isinstance(model, str) else ""


def _parameters(attributes: Attributes) -> Iterator[tuple[str, Scalar]]:
    found: dict[str, Any] = {}
    for name in _PARAMETERS:
        counts = structured(attributes.get(name))
        found |= counts if isinstance(counts, Mapping) else {}
    found |= {name[len(_REQUEST) :]: value for name, value in attributes.items() if name.startswith(_REQUEST)}
    kept = 0
    for name, value in found.items():
        is_scalar = isinstance(value, str | bool | int | float)
        if is_scalar and name not in _NOT_PARAMETERS and len(f"{name}{value}") <= _LONGEST_PARAMETER:
            kept += 1
            if kept <= _MOST_PARAMETERS:
                yield name, value


def _count(
    attributes: Attributes, names: tuple[str, ...], usages: list[Mapping[str, Any]], inside: tuple[str, ...]
) -> int | None:
    found = [attributes.get(name) for name in names] + [one.get(name) for one in usages for name in inside]
    return next((value for value in found if _is_number(value) and isinstance(value, int)), None)


def _with_cached(attributes: Attributes, tokens: int | None) -> int | None:
    """Return the tokens of the whole prompt.

    The conventions count cached tokens in; Anthropic's API does not, and some instrumentations copy its
    number. Then the cached part may be larger than the whole, which shows it.
    """
    if tokens is None:
        return None
    cached = sum(_count(attributes, names, [], ()) or 0 for names in _CACHED)
    return tokens + cached if cached > tokens else tokens


def _cost(attributes: Attributes) -> float | None:
    details = structured(attributes.get(_COST_DETAILS))
    total = details.get("total") if isinstance(details, Mapping) else None
    found = [*(attributes.get(name) for name in _COSTS), total]
    return next((float(value) for value in found if _is_number(value)), None)  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    """Tell whether it is a finite amount; spans may hold any value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


# --- facts besides the messages ---
#
# Facts about a model call that its messages do not hold: provider, ids, reasoning, provider-side tools.
#
# A rerun of a recorded run needs them. They are found in the attributes and log events as text, in any
# convention: instrumentations keep requests and answers as JSON, in which these marks are the providers' own
# field names. Quotes inside a message's text are escaped there, so a mark quoted in a text does not match.
# Sources: OpenAI's reference of ``/v1/responses`` (``previous_response_id``, ``background``,
# ``conversation``, item types ``…_call``), Anthropic's of ``/v1/messages`` (``thinking``,
# ``server_tool_use``).


_CALL_PROVIDERS: Final = (GEN_AI_PROVIDER_NAME, GEN_AI_SYSTEM, "llm.provider", "llm.system")
_ANSWERING_MODELS: Final = (GEN_AI_RESPONSE_MODEL, "llm.model_name", GEN_AI_REQUEST_MODEL)
_CALL_OUTPUT_TOKENS: Final = ("gen_ai.usage.output_tokens", "llm.token_count.completion")
_CALL_INPUT_TOKENS: Final = (GEN_AI_USAGE_INPUT_TOKENS, "llm.token_count.prompt")
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
        provider=text(attributes, *_CALL_PROVIDERS) or "",
        model=text(attributes, *_ANSWERING_MODELS) or "",
        response_id=text(attributes, GEN_AI_RESPONSE_ID) or (response[1] if response else ""),
        previous_response_id=previous[1] if previous else "",
        has_reasoning=_REASONING.search(raw) is not None,
        is_background=_BACKGROUND.search(raw) is not None,
        in_conversation=_CONVERSATION.search(raw) is not None,
        provider_tools=tuple(sorted({one or other for one, other in _PROVIDER_TOOL.findall(raw)})),
        input_tokens=_call_count(attributes, _CALL_INPUT_TOKENS),
        output_tokens=_call_count(attributes, _CALL_OUTPUT_TOKENS),
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


def _call_count(attributes: Attributes, names: tuple[str, ...]) -> int:
    value = next((attributes[name] for name in names if name in attributes), 0)
    return value if isinstance(value, int) and value >= 0 else 0


def _vector(value: object) -> tuple[float, ...]:
    return (
        tuple(float(each) for each in value if isinstance(each, (int, float)))
        if isinstance(value, (list, tuple))
        else ()
    )
