"""What the Collector's ``genainormalizer`` makes of spans: a copy of its documented mappings. Pure.

Source: opentelemetry-collector-contrib, ``processor/genainormalizerprocessor`` (README,
``internal/openinference`` and ``internal/openllmetry``, 2026). Both sources are configured, in this order. An
existing target is kept.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from semconv.model import Attributes, AttributeValue, Span
from semconv.record import replace

OPENINFERENCE: Final = {
    "llm.token_count.prompt": "gen_ai.usage.input_tokens",
    "llm.token_count.completion": "gen_ai.usage.output_tokens",
    "llm.model_name": "gen_ai.request.model",
    "llm.provider": "gen_ai.provider.name",
    "llm.input_messages": "gen_ai.input.messages",
    "llm.output_messages": "gen_ai.output.messages",
    "embedding.model_name": "gen_ai.request.model",
    "tool.name": "gen_ai.tool.name",
    "tool.description": "gen_ai.tool.description",
    "tool_call.function.arguments": "gen_ai.tool.call.arguments",
    "tool_call.id": "gen_ai.tool.call.id",
    "reranker.model_name": "gen_ai.request.model",
    "agent.name": "gen_ai.agent.name",
    "session.id": "gen_ai.conversation.id",
    "openinference.span.kind": "gen_ai.operation.name",
}
OPENLLMETRY: Final = {
    "llm.usage.prompt_tokens": "gen_ai.usage.input_tokens",
    "llm.usage.completion_tokens": "gen_ai.usage.output_tokens",
    "llm.request.model": "gen_ai.request.model",
    "llm.response.model": "gen_ai.response.model",
    "llm.request.max_tokens": "gen_ai.request.max_tokens",
    "llm.request.temperature": "gen_ai.request.temperature",
    "llm.request.top_p": "gen_ai.request.top_p",
    "llm.top_k": "gen_ai.request.top_k",
    "llm.frequency_penalty": "gen_ai.request.frequency_penalty",
    "llm.presence_penalty": "gen_ai.request.presence_penalty",
    "llm.chat.stop_sequences": "gen_ai.request.stop_sequences",
    "llm.request.functions": "gen_ai.tool.definitions",
    "llm.response.finish_reason": "gen_ai.response.finish_reasons",
    "llm.response.stop_reason": "gen_ai.response.finish_reasons",
    "llm.request.type": "gen_ai.operation.name",
    "traceloop.span.kind": "gen_ai.operation.name",
    "traceloop.entity.name": "gen_ai.agent.name",
    "traceloop.entity.input": "gen_ai.input.messages",
    "traceloop.entity.output": "gen_ai.output.messages",
}
_OPERATIONS: Final = {
    "llm": "chat", "embedding": "embeddings", "chain": "invoke_agent", "retriever": "retrieval",
    "reranker": "retrieval", "tool": "execute_tool", "agent": "invoke_agent", "prompt": "text_completion",
}  # fmt: skip
_LLMETRY_OPERATIONS: Final = {
    "workflow": "invoke_workflow", "task": "invoke_agent", "agent": "invoke_agent", "tool": "execute_tool",
    "completion": "text_completion", "chat": "chat", "rerank": "retrieval", "embedding": "embeddings",
}  # fmt: skip
SOURCES: Final = ((OPENINFERENCE, _OPERATIONS), (OPENLLMETRY, _LLMETRY_OPERATIONS))
_FLAT: Final = re.compile(r"llm\.(input|output)_messages\.(\d+)\.message\.(.+)")
_CALL: Final = re.compile(r"tool_calls\.(\d+)\.tool_call\.(id|function\.name|function\.arguments)")


def normalized(spans: Iterable[Span], *, remove_originals: bool) -> list[Span]:
    """Return the spans as the processor passes them on."""
    return [
        replace(
            span,
            attributes=_attributes(span.attributes, remove_originals=remove_originals),
            events=tuple(
                replace(each, attributes=_attributes(each.attributes, remove_originals=remove_originals))
                for each in span.events
            ),
        )
        for span in spans
    ]


def _attributes(given: Attributes, *, remove_originals: bool) -> dict[str, AttributeValue]:
    found = dict(given)
    for mapping, operations in SOURCES:
        for name in [each for each in found if each in mapping]:
            target = mapping[name]
            if target in found:
                continue
            found[target] = _value(target, found[name], operations)
            if remove_originals:
                del found[name]
    return _with_messages(found, remove_originals=remove_originals)


def _value(target: str, value: AttributeValue, operations: Mapping[str, str]) -> AttributeValue:
    if target == "gen_ai.operation.name" and isinstance(value, str):
        return operations.get(value.lower(), value)
    if target == "gen_ai.response.finish_reasons" and isinstance(value, str):
        return (value,)
    return value


def _with_messages(found: dict[str, AttributeValue], *, remove_originals: bool) -> dict[str, AttributeValue]:
    """Add the flattened messages of OpenInference as JSON."""
    for direction in ("input", "output"):
        target = f"gen_ai.{direction}.messages"
        flat = {name: match for name in found if (match := _FLAT.fullmatch(name)) and match[1] == direction}
        if not flat or target in found:
            continue
        fields: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        for name, match in flat.items():
            value = found[name]
            fields[int(match[2])][match[3]] = value if isinstance(value, str) else json.dumps(value)
        found[target] = json.dumps([_message(fields[place]) for place in sorted(fields)])
        if remove_originals:
            for name in flat:
                del found[name]
    return found


def _message(fields: Mapping[str, str]) -> dict[str, Any]:
    role, content = fields.get("role", ""), fields.get("content", "")
    if fields.get("tool_call_id"):
        part = {"type": "tool_call_response", "id": fields["tool_call_id"], "response": content}
        return {"role": "tool" if role == "user" else role, "parts": [part]}
    calls: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for name, value in fields.items():
        if match := _CALL.fullmatch(name):
            calls[int(match[1])][match[2]] = value
    if calls:
        return {"role": role, "parts": [_call(calls[place]) for place in sorted(calls)]}
    return {"role": role, "parts": [{"type": "text", "content": content}] if content else []}


def _call(fields: Mapping[str, str]) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "tool_call", "name": fields.get("function.name", "")}
    if fields.get("id"):
        part["id"] = fields["id"]
    if given := fields.get("function.arguments"):
        try:
            part["arguments"] = json.loads(given)
        except ValueError:
            part["arguments"] = given
    return part
