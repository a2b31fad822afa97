"""Mastra, the TypeScript framework, as its exporter writes spans: ``mastra.*`` beside the conventions.

Source: npm ``@mastra/otel-exporter``, seen from 1.4. Every span has its ``mastra.span.type``. A model
call (``model_inference``) tells its answer's text alone; what it heard, and the tools it asked for, stand
on the ``model_step`` around it, as ``mastra.model_step.input`` and ``.output``. The question and the
answer of an agent or a workflow are ``mastra.agent_run.*`` and ``mastra.workflow_run.*``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.model_calls import heard_in, said_in
from semconv.dialects.otel_genai import read_operation
from semconv.dialects.payloads import answered, asked
from semconv.dialects.reading import is_redacted, mapping, text, words
from semconv.dialects.support import Support, gives, lacks
from semconv.dialects.surroundings import Surroundings
from semconv.model import Span

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
"""Types by name; any other is a container (a generation and its steps, chunks, a workflow's control flow)."""


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
    """Return a model call with what only the step around it tells."""
    given, got = _payload(step, _STEP)
    heard = action.heard or heard_in(given)
    said = action.said if action.requested else said_in(_reply(got)) or action.said
    return replace(
        action,
        heard=heard,
        said=said,
        input="" if heard else words(given),
        instructions=action.instructions
        or "\n".join(message.text for message in heard if message.role == "system"),
        redacted=is_redacted(words(given), words(got)),
    )


def _reply(got: Any) -> Any:
    """Return an answer of the AI SDK's as a message of the model's."""
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


MASTRA: Final = Dialect(
    name=NAME,
    read=read_mastra,
    support=(
        Support(
            framework="Mastra",
            instrumentation="built in, npm `@mastra/otel-exporter` 1.4",
            source="recorded",
            agent=gives("`gen_ai.agent.name` on agents and calls"),
            text=gives("`mastra.model_step.input`, `.output` around each call"),
            tools=gives("`gen_ai.tool.call.*`"),
            handoff=lacks("there is none; an agent that is asked runs below the tool that asks"),
            task=gives("`mastra.agent_run.*` or `mastra.workflow_run.*` on the root"),
            errors=gives("span status, `exception` event"),
            scopes=("@mastra/",),
        ),
    ),
)
