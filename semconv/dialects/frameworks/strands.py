"""Strands Agents, by the spans of its own tracer.

Source: strands-agents 1.5 to 1.62, ``strands/telemetry/tracer.py`` and ``strands/multiagent``, seen in
runs of 1.5 and 1.62 (one agent, agents as tools, swarm, graph). It writes the ``gen_ai`` operations and
``execute_event_loop_cycle``, ``invoke_swarm``, ``invoke_graph``. Content is in span events: by default the
older message events with Bedrock's content blocks; with
``OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental`` several details events per span, each with a
part. ``gen_ai_unredacted_attributes=`` hides content as ``[REDACTED]``.

After a swarm's ``handoff_to_agent`` the loop calls the model once more; its answer is part of the swarm's
results, but no other agent receives it (``Swarm._build_node_input``).
"""

from __future__ import annotations

from typing import Any, Final

from semconv.attributes import GEN_AI_INPUT_MESSAGES, GEN_AI_OPERATION_NAME, GEN_AI_OUTPUT_MESSAGES
from semconv.dialects.conventions.otel_genai import KINDS, read_operation
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import STRANDS_SCOPE, STRANDS_TEAMS
from semconv.dialects.reading.values import REDACTED, error_of, text
from semconv.model import Attributes, Span
from semconv.record import replace

NAME: Final = "strands"

OLD_TOOL_STATUS: Final = "tool.status"
OLD_SYSTEM_PROMPT: Final = "system_prompt"

_HIDDEN: Final = "[REDACTED]"
_MESSAGES: Final = frozenset({GEN_AI_INPUT_MESSAGES, GEN_AI_OUTPUT_MESSAGES})


def read_strands(span: Span, _: Surroundings) -> Action | None:
    """Read a span of Strands' own tracer."""
    if span.scope.name != STRANDS_SCOPE:
        return None
    operation = text(span.attributes, GEN_AI_OPERATION_NAME) or ""
    kind = STRANDS_TEAMS.get(operation) or KINDS.get(operation, ActionKind.CONTAINER)
    action = read_operation(_shown(span), kind, NAME)
    if kind in {ActionKind.TOOL, ActionKind.HANDOFF} and span.attributes.get(OLD_TOOL_STATUS) == "error":
        action = replace(action, failed=True, error=action.error or error_of(span) or action.output)
    prompt = text(span.attributes, OLD_SYSTEM_PROMPT)
    return replace(action, instructions=prompt) if prompt and not action.instructions else action


def _shown(span: Span) -> Span:
    """Return the span with hidden content marked as such."""
    hides = any(value == _HIDDEN for value in span.attributes.values())
    if not hides and not any(
        value == _HIDDEN for event in span.events for value in event.attributes.values()
    ):
        return span
    events = tuple(replace(event, attributes=_with_placeholders(event.attributes)) for event in span.events)
    return replace(span, attributes=_with_placeholders(span.attributes), events=events)


def _with_placeholders(attributes: Attributes) -> dict[str, Any]:
    return {name: _hidden(name) if value == _HIDDEN else value for name, value in attributes.items()}


def _hidden(name: str) -> Any:
    """Return the placeholder for hidden content: a message if messages are expected."""
    if name not in _MESSAGES:
        return REDACTED
    role = "user" if name == GEN_AI_INPUT_MESSAGES else "assistant"
    return ({"role": role, "parts": ({"type": "text", "content": REDACTED},)},)


STRANDS: Final = Dialect(name=NAME, read=read_strands, scopes=(STRANDS_SCOPE,))
