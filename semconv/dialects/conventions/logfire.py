"""Logfire's own instrumentations: openai-agents, OpenAI, Anthropic, Gemini.

Source: logfire 3.0 to 5.2 (2024-2026), ``logfire/_internal/integrations/openai_agents.py`` and
``…/llm_providers``, seen with openai-agents 0.24. A span's name is a template (``Agent run: {name!r}``),
and its values are plain attributes. Logfire's other instrumentations (pydantic-ai, OpenInference's
langchain) keep the scopes of their authors and are read by those dialects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from semconv.attributes import GEN_AI_AGENT_NAME, GEN_AI_OPERATION_NAME, GEN_AI_REQUEST_MODEL
from semconv.dialects.conventions.otel_genai import conversation_of
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Message, Surroundings
from semconv.dialects.reading.agent_names import NO_AGENT, Found
from semconv.dialects.reading.guardrails import TRIGGERED
from semconv.dialects.reading.messages import message_of
from semconv.dialects.reading.observations import (
    Observation,
    action_of,
    handoff_of,
    input_messages_in,
    output_messages_in,
)
from semconv.dialects.reading.values import items, mapping, structured, text, words
from semconv.model import Span

NAME: Final = "logfire"

OPENAI_AGENTS_SCOPE: Final = "logfire.openai_agents"
SCOPES: Final = (OPENAI_AGENTS_SCOPE, "logfire.openai", "logfire.anthropic", "logfire.google_genai")
TEMPLATE: Final = "logfire.msg_template"
EVENTS: Final = "events"
REQUEST: Final = "request_data"
RESPONSE: Final = "response_data"

_TEMPLATES: Final[tuple[tuple[str, ActionKind], ...]] = (
    ("OpenAI Agents trace", ActionKind.WORKFLOW),
    ("Agent run", ActionKind.AGENT),
    ("Function", ActionKind.TOOL),
    ("Handoff", ActionKind.HANDOFF),
    ("Guardrail", ActionKind.GUARDRAIL),
    ("Responses API", ActionKind.LLM),
    ("Chat completion", ActionKind.LLM),
)
"""Template prefixes of openai-agents' spans; any other (tasks, turns, custom spans) is a container."""
_ANSWERS: Final = frozenset({"gen_ai.choice", "gen_ai.assistant.message"})


def read_logfire(span: Span, _: Surroundings) -> Action | None:
    """Read a span of one of Logfire's own instrumentations."""
    if not span.scope.name.startswith(SCOPES):
        return None
    if span.scope.name != OPENAI_AGENTS_SCOPE:
        return _read_call(span) if _is_call(span) else None
    match _openai_agents_kind(span):
        case ActionKind.LLM:
            return _read_call(span)
        case ActionKind.TOOL:
            return _read_function(span)
        case ActionKind.HANDOFF:
            return handoff_of(span, NAME, span.attributes)
        case kind:
            triggered = {TRIGGERED: span.attributes[TRIGGERED]} if TRIGGERED in span.attributes else None
            more = {"agent": _agent_of(span, kind), "tool": _name(span), "got": triggered}
            return action_of(span, _observed(span, kind, **more))


def _openai_agents_kind(span: Span) -> ActionKind:
    if text(span.attributes, GEN_AI_OPERATION_NAME) in {"chat", "responses"}:
        return ActionKind.LLM
    template = text(span.attributes, TEMPLATE) or span.name
    return next((kind for start, kind in _TEMPLATES if template.startswith(start)), ActionKind.CONTAINER)


def _observed(span: Span, kind: ActionKind, **more: Any) -> Observation:
    """Return the fields common to all spans; ``error`` is JSON with a message and data."""
    error = structured(span.attributes.get("error"))
    fields = mapping(error)
    message = ": ".join(filter(None, (words(fields.get("message")), words(fields.get("data")))))
    return Observation(
        dialect=NAME, kind=kind, failed=error not in (None, ""), error=message or words(error), **more
    )


def _name(span: Span) -> str:
    return text(span.attributes, "name") or span.name


def _agent_of(span: Span, kind: ActionKind) -> Found:
    if kind is ActionKind.AGENT:
        return Found(_name(span))
    name = text(span.attributes, "agent_name")
    return Found(name) if name is not None else NO_AGENT


def _read_function(span: Span) -> Action:
    given, got = span.attributes.get("input"), span.attributes.get("output")
    return action_of(span, _observed(span, ActionKind.TOOL, tool=_name(span), given=given, got=got))


def _is_call(span: Span) -> bool:
    return REQUEST in span.attributes or GEN_AI_REQUEST_MODEL in span.attributes


def _read_call(span: Span) -> Action:
    input_messages, output_messages = _conversation(span)
    name = text(span.attributes, GEN_AI_AGENT_NAME)
    agent = Found(name) if name is not None else NO_AGENT
    return action_of(
        span,
        _observed(
            span, ActionKind.LLM, agent=agent, input_messages=input_messages, output_messages=output_messages
        ),
    )


def _conversation(span: Span) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return input and output messages: from the event list, the ``gen_ai`` attributes or the request."""
    events = [mapping(each) for each in items(span.attributes.get(EVENTS))]
    if events:
        return _split(events)
    input_messages, output_messages = conversation_of(span)
    if input_messages or output_messages:
        return input_messages, output_messages
    attributes = span.attributes
    given = next((attributes[key] for key in ("raw_input", "input", REQUEST) if attributes.get(key)), None)
    got = next((attributes[key] for key in ("response", "output", RESPONSE) if attributes.get(key)), None)
    return input_messages_in(given), output_messages_in(_raw_answer(got))


def _raw_answer(got: Any) -> Any:
    """Return the answer out of Logfire's summary of a stream (``combined_chunk_content``)."""
    value = structured(got)
    if isinstance(value, dict) and "combined_chunk_content" in value:
        return value["combined_chunk_content"]
    return value


def _split(events: Sequence[Mapping[str, Any]]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return input and output messages: the model's events at the end are its answer."""
    answer = len(events)
    while answer and words(events[answer - 1].get("event.name")) in _ANSWERS:
        answer -= 1
    return _spoken(events[:answer]), _spoken(events[answer:])


def _spoken(events: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    messages = (message_of(event.get("message") or event) for event in events)
    return tuple(message for message in messages if message is not None)


LOGFIRE: Final = Dialect(name=NAME, read=read_logfire, scopes=SCOPES)
