"""Vercel's AI SDK for TypeScript, whose telemetry writes ``ai.*`` spans.

Source: npm ``ai`` 4 to 6, ``packages/ai/src/telemetry`` and ``generate-text``, and its telemetry page; seen
from 6.0.326. ``ai.generateText`` (``streamText``, ``generateObject`` …) is one run of a loop of model calls
and tools. Below it, ``….doGenerate`` or ``….doStream`` is a model call, ``ai.toolCall`` a tool. No span is
marked as an agent; ``functionId`` is the name that users give to a run. Version 7 writes the ``gen_ai``
conventions instead.
"""

from __future__ import annotations

from typing import Any, Final

from semconv.dialects.reading.action import Action, ActionKind, Dialect, Message, Surroundings
from semconv.dialects.reading.agent_names import Found
from semconv.dialects.reading.messages import messages_of
from semconv.dialects.reading.observations import Observation, action_of
from semconv.dialects.reading.values import items, mapping, text
from semconv.model import Span

NAME: Final = "vercel_ai"

OPERATION_ID: Final = "ai.operationId"
FUNCTION_ID: Final = "ai.telemetry.functionId"
PROMPT: Final = "ai.prompt"
PROMPT_MESSAGES: Final = "ai.prompt.messages"
TOOL_NAME: Final = "ai.toolCall.name"
TOOL_CALL_ID: Final = "ai.toolCall.id"
TOOL_ARGUMENTS: Final = "ai.toolCall.args"
TOOL_RESULT: Final = "ai.toolCall.result"
RESPONSE_TEXTS: Final = ("ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object")
RESPONSE_CALLS: Final = ("ai.response.toolCalls", "ai.result.toolCalls")
"""``ai.result`` is the name before version 4."""

_TOOL_CALL: Final = "ai.toolCall"
_MODEL_CALLS: Final = (".doGenerate", ".doStream")
_RUNS: Final = frozenset({"ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject"})


def read_vercel_ai(span: Span, _: Surroundings) -> Action | None:
    """Read a span that names its ``ai.operationId``."""
    operation = text(span.attributes, OPERATION_ID)
    if operation is None:
        return None
    return action_of(span, _observed(span, _kind_of(operation)))


def _kind_of(operation: str) -> ActionKind:
    if operation == _TOOL_CALL:
        return ActionKind.TOOL
    if operation.endswith(_MODEL_CALLS):
        return ActionKind.LLM
    return ActionKind.AGENT if operation in _RUNS else ActionKind.CONTAINER


def _observed(span: Span, kind: ActionKind) -> Observation:
    attributes = span.attributes
    prompt = attributes.get(PROMPT)
    is_call = kind is ActionKind.LLM
    return Observation(
        dialect=NAME,
        kind=kind,
        agent=Found(text(attributes, FUNCTION_ID)),
        given=attributes.get(TOOL_ARGUMENTS) if kind is ActionKind.TOOL else _without_prompt(prompt),
        got=attributes.get(TOOL_RESULT) if kind is ActionKind.TOOL else text(attributes, *RESPONSE_TEXTS),
        input_messages=messages_of(attributes.get(PROMPT_MESSAGES)) if is_call else (),
        output_messages=_output_messages(span) if is_call else (),
        tool=text(attributes, TOOL_NAME) or "",
        call_id=text(attributes, TOOL_CALL_ID) or "",
        instructions=text(mapping(prompt), "system") or "",
    )


def _without_prompt(prompt: Any) -> Any:
    """Return a run's input: its question, or the conversation up to it."""
    given = mapping(prompt)
    return given.get("prompt") or given.get("messages") or prompt


def _output_messages(span: Span) -> tuple[Message, ...]:
    calls = next(filter(None, (items(span.attributes.get(key)) for key in RESPONSE_CALLS)), ())
    reply = {"role": "assistant", "content": text(span.attributes, *RESPONSE_TEXTS), "tool_calls": calls}
    return tuple(message for message in messages_of(reply) if message.text or message.calls)


VERCEL_AI: Final = Dialect(name=NAME, read=read_vercel_ai, keys=frozenset({OPERATION_ID}))
