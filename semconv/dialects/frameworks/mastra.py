"""Mastra, the TypeScript framework: ``mastra.*`` beside the GenAI conventions.

Source: npm ``@mastra/otel-exporter``, seen with 1.4. Every span has a ``mastra.span.type``. A model call
(``model_inference``) has only its answer's text; its input and the requested tools are on the enclosing
``model_step``, as ``mastra.model_step.input`` and ``.output``. The question and answer of an agent or a
workflow are ``mastra.agent_run.*`` and ``mastra.workflow_run.*``.
"""

from __future__ import annotations

from typing import Any, Final

from semconv.dialects.conventions.otel_genai import read_operation
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.messages import system_text
from semconv.dialects.reading.observations import input_messages_in, output_messages_in
from semconv.dialects.reading.payloads import answered, asked
from semconv.dialects.reading.values import is_redacted, mapping, text, words
from semconv.model import Span
from semconv.record import replace

NAME: Final = "mastra"

SPAN_TYPE: Final = "mastra.span.type"

_INFERENCE: Final = "model_inference"
_STEP: Final = "model_step"
_KINDS: Final = {
    _INFERENCE: ActionKind.LLM,
    "tool_call": ActionKind.TOOL,
    "mcp_tool_call": ActionKind.TOOL,
    "agent_run": ActionKind.AGENT,
    "workflow_run": ActionKind.WORKFLOW,
}
"""Span types; any other is a container (a generation and its steps, chunks, control flow)."""


def read_mastra(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span that names its ``mastra.span.type``."""
    span_type = text(span.attributes, SPAN_TYPE)
    if span_type is None:
        return None
    kind = _KINDS.get(span_type, ActionKind.CONTAINER)
    action = read_operation(span, kind, NAME)
    if kind is ActionKind.LLM:
        parent = surroundings.parent(span)
        return action if parent is None else _with_step(action, parent)
    if kind in {ActionKind.AGENT, ActionKind.WORKFLOW}:
        return _with_question(action, *_payload(span, span_type))
    return action


def _with_step(action: Action, step: Span) -> Action:
    """Return a model call, completed from the step around it."""
    given, got = _payload(step, _STEP)
    input_messages = action.input_messages or input_messages_in(given)
    output_messages = (
        action.output_messages
        if action.requested
        else output_messages_in(_reply(got)) or action.output_messages
    )
    return replace(
        action,
        input_messages=input_messages,
        output_messages=output_messages,
        input="" if input_messages else words(given),
        instructions=action.instructions or system_text(input_messages),
        redacted=is_redacted(words(given), words(got)),
    )


def _reply(got: Any) -> Any:
    """Return the AI SDK's answer as a model's message."""
    fields = mapping(got)
    if not fields:
        return got
    return {"role": "assistant", "content": fields.get("text"), "tool_calls": fields.get("toolCalls")}


def _with_question(action: Action, given: Any, got: Any) -> Action:
    task, answer = asked(given), answered(got)
    return replace(
        action,
        task=action.task or task,
        answer=action.answer or answer,
        input=action.input or task,
        output=action.output or answer,
    )


def _payload(span: Span, span_type: str) -> tuple[Any, Any]:
    given, got = (span.attributes.get(f"mastra.{span_type}.{side}") for side in ("input", "output"))
    return given, got


MASTRA: Final = Dialect(name=NAME, read=read_mastra, keys=frozenset({SPAN_TYPE}))
