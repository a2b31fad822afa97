"""Spans as their instrumentation wrote them, before the Collector's ``genainormalizer`` rewrote them. Pure.

The processor copies attributes of OpenInference and of Traceloop's OpenLLMetry to ``gen_ai.*``, and with
``remove_originals`` deletes what it copied. The copies say less: a CHAIN becomes an agent, the name of a tool
or a task that of an agent, and any input a list of messages. So what it added is taken away where the
original stands beside it, and an original is restored where only the copy is left. A span counts as rewritten
only if each attribute that the processor knows has its copy: instrumentations that write both never write
all.
Source: opentelemetry-collector-contrib, ``processor/genainormalizerprocessor`` 0.159 (2026).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from semconv import attributes as names
from semconv.dialects.reading.values import items, mapping
from semconv.model import Attributes, AttributeValue, Span
from semconv.record import replace

ENTITY_NAME: Final = "traceloop.entity.name"
ENTITY_INPUT: Final = "traceloop.entity.input"
ENTITY_OUTPUT: Final = "traceloop.entity.output"
TRACELOOP_KIND: Final = "traceloop.span.kind"

_TRACELOOP: Final[Mapping[str, str]] = {
    TRACELOOP_KIND: names.GEN_AI_OPERATION_NAME,
    ENTITY_NAME: names.GEN_AI_AGENT_NAME,
    ENTITY_INPUT: names.GEN_AI_INPUT_MESSAGES,
    ENTITY_OUTPUT: names.GEN_AI_OUTPUT_MESSAGES,
}
_TRACELOOP_OPERATIONS: Final = {
    "workflow": "invoke_workflow",
    "task": "invoke_agent",
    "agent": "invoke_agent",
    "tool": "execute_tool",
}
_PREFIX: Final = "traceloop."
_TRACELOOP_NAMES: Final = {"invoke_workflow": "workflow", "invoke_agent": "task", "execute_tool": "tool"}
_NAMELESS_KINDS: Final = frozenset({"task", "tool"})
"""Kinds of spans that name no agent."""
_SCOPES: Final = ("opentelemetry.instrumentation.", "@traceloop/")
_AGENT_NAME: Final = "agent.name"
_TOOL_NAME: Final = "tool.name"
"""Also written by Traceloop's instrumentation of LlamaIndex."""
_OPENINFERENCE: Final[Mapping[str, str]] = {
    _AGENT_NAME: names.GEN_AI_AGENT_NAME,
    _TOOL_NAME: names.GEN_AI_TOOL_NAME,
    "tool.description": names.GEN_AI_TOOL_DESCRIPTION,
    "tool_call.function.arguments": names.GEN_AI_TOOL_CALL_ARGUMENTS,
    "tool_call.id": names.GEN_AI_TOOL_CALL_ID,
    "llm.model_name": names.GEN_AI_REQUEST_MODEL,
    "llm.token_count.prompt": names.GEN_AI_USAGE_INPUT_TOKENS,
    "llm.token_count.completion": names.GEN_AI_USAGE_OUTPUT_TOKENS,
    "session.id": names.GEN_AI_CONVERSATION_ID,
}
_KINDS: Final = {
    "chat": "LLM",
    "embeddings": "EMBEDDING",
    "retrieval": "RETRIEVER",
    "execute_tool": "TOOL",
    "text_completion": "PROMPT",
}
_AGENT, _CHAIN, _INVOKE = "AGENT", "CHAIN", "invoke_agent"
_SCOPE: Final = re.compile(r"openinference[.-]instrumentation[.-]([\w-]+)")
_AGENT_SPANS: Final[Mapping[str, re.Pattern[str]]] = {
    "smolagents": re.compile(r"\.run$"),
    "autogen_agentchat": re.compile(r"\.on_messages(?:_stream)?$"),
    "claude_agent_sdk": re.compile(r"^ClaudeAgentSDK\."),
    "openai-agents": re.compile(r"^(?!turn$)"),
    "openai_agents": re.compile(r"^(?!turn$)"),
    "crewai": re.compile(r"\._execute_core$|^Agent\."),
    "agno": re.compile(r"\.a?run$"),
}
"""By library, the names of spans of agents that have no ``agent.name``; all else that invokes is a CHAIN."""
_MESSAGES: Final = {
    names.GEN_AI_INPUT_MESSAGES: "llm.input_messages",
    names.GEN_AI_OUTPUT_MESSAGES: "llm.output_messages",
}


def denormalized(span: Span) -> Span:
    """Return a span with the attributes of its instrumentation; others, and most, unchanged."""
    given = span.attributes
    if names.GEN_AI_OPERATION_NAME not in given:
        return span
    if TRACELOOP_KIND in given:
        found = _without_copies(given)
    elif (library := _SCOPE.search(span.scope.name)) is not None:
        found = given if names.OPENINFERENCE_SPAN_KIND in given else _openinference(span, library[1])
    elif (kind := _traceloop_kind(span)) is not None:
        found = _moved({**given, TRACELOOP_KIND: kind}, {**_TRACELOOP, _TOOL_NAME: names.GEN_AI_TOOL_NAME})
        del found[names.GEN_AI_OPERATION_NAME]
    else:
        return span
    return span if found is given else replace(span, attributes=found)


def _without_copies(given: Attributes) -> Attributes:
    """Return the attributes without copies of those of Traceloop, whose kind still stands there."""
    present = {name: copy for name, copy in _TRACELOOP.items() if name in given}
    if len(present) > 1 and all(copy in given for copy in present.values()):
        copies = {copy for name, copy in present.items() if given[copy] == _copied(name, given[name])}
        return {name: value for name, value in given.items() if name not in copies}
    lost = {
        name: copy
        for name, copy in _TRACELOOP.items()
        if name not in given and copy in given and _is_lost(name, given, given[copy])
    }
    return _moved(given, lost) if lost else given


def _is_lost(original: str, given: Attributes, copy: AttributeValue) -> bool:
    """Tell whether a value can only be that of a removed attribute: no instrumentation writes it so."""
    if original == ENTITY_NAME:
        return str(given[TRACELOOP_KIND]) in _NAMELESS_KINDS
    return not any("role" in mapping(each) for each in items(copy))


def _moved(given: Attributes, originals: Mapping[str, str]) -> dict[str, AttributeValue]:
    """Return the attributes with originals in place of their copies, where only the copy is left."""
    found = dict(given)
    for original, copy in originals.items():
        if copy in found and original not in found:
            found[original] = found.pop(copy)
    return found


def _traceloop_kind(span: Span) -> str | None:
    """Return the kind that a span of Traceloop has lost; ``None`` for other spans.

    Its spans are named after their entity and kind (``look_up.tool``), which also tells agents from tasks.
    """
    operation = str(span.attributes[names.GEN_AI_OPERATION_NAME])
    ending = span.name.rpartition(".")[2]
    if _TRACELOOP_OPERATIONS.get(ending) == operation and span.scope.name.startswith(_SCOPES):
        return ending
    is_marked = any(name.startswith(_PREFIX) for name in span.attributes)
    return _TRACELOOP_NAMES.get(operation) if is_marked else None


def _copied(name: str, value: AttributeValue) -> AttributeValue:
    if name == TRACELOOP_KIND and isinstance(value, str):
        return _TRACELOOP_OPERATIONS.get(value.lower(), value)
    return value


def _openinference(span: Span, library: str) -> Attributes:
    """Return the attributes with those of OpenInference in place of their copies."""
    found = _moved(span.attributes, _OPENINFERENCE)
    operation = str(found.pop(names.GEN_AI_OPERATION_NAME))
    kind = _KINDS.get(operation, operation)
    if operation == _INVOKE:
        is_agent = _AGENT_NAME in found or _is_agent_span(span.name, library)
        kind = _AGENT if is_agent else _CHAIN
    found[names.OPENINFERENCE_SPAN_KIND] = kind
    for copy, prefix in _MESSAGES.items():
        if copy in found and not any(name.startswith(f"{prefix}.") for name in found):
            found |= _flat(prefix, found.pop(copy))
    return found


def _is_agent_span(name: str, library: str) -> bool:
    pattern = _AGENT_SPANS.get(library)
    return pattern is not None and pattern.search(name) is not None


def _flat(prefix: str, value: AttributeValue) -> dict[str, AttributeValue]:
    """Return messages in the flattened form of OpenInference."""
    found: dict[str, AttributeValue] = {}
    for place, each in enumerate(items(value)):
        message = mapping(each)
        start = f"{prefix}.{place}.message"
        found |= {f"{start}.{name}": each for name, each in _fields(message)}
    return found


def _fields(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "role", str(message.get("role") or "")
    calls = 0
    for part in map(mapping, items(message.get("parts"))):
        match part.get("type"):
            case "text":
                yield "content", str(part.get("content") or "")
            case "tool_call_response":
                yield "content", str(part.get("response") or "")
                yield "tool_call_id", str(part.get("id") or "")
            case "tool_call":
                start = f"tool_calls.{calls}.tool_call"
                calls += 1
                arguments = part.get("arguments")
                text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
                yield f"{start}.id", str(part.get("id") or "")
                yield f"{start}.function.name", str(part.get("name") or "")
                yield f"{start}.function.arguments", "" if arguments is None else text
