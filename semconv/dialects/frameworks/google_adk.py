"""Google's Agent Development Kit, by the spans of its own tracer.

Source: google-adk 1.10 (``telemetry.py``) to 2.13 (``telemetry/tracing.py``), seen in runs of 1.10, 1.14,
1.19, 1.25 and 2.13. All of them have the scope ``gcp.vertex.agent``. Changes between versions:

- Up to 1.14 an agent is a span ``agent_run [name]`` without attributes, later an ``invoke_agent``.
- Up to 1.x a model call is a span ``call_llm`` that also encloses the requested tools and the agent handed
  over to. From 1.2x a ``generate_content`` is inside it; from 2.x it replaces it.
- Content was first in ``gcp.vertex.agent.*`` on ``call_llm`` and tools, then also in the older message log
  events; since 2.x it is in attributes or the details log event, if switched on. Content that is switched
  off is ``{}``, or ``<elided>`` in log events.
- Parallel calls have one more span, ``(merged tools)``, which is not a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from semconv.attributes import (
    GEN_AI_INPUT_MESSAGES,
    GEN_AI_OPERATION_NAME,
    GEN_AI_OUTPUT_MESSAGES,
    GEN_AI_SYSTEM_INSTRUCTIONS,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_RESULT,
    GEN_AI_TOOL_DEFINITIONS,
    GEN_AI_TOOL_NAME,
)
from semconv.dialects.conventions.otel_genai import (
    CHOICE_EVENT,
    KINDS,
    MESSAGE_EVENTS,
    operation_kind,
    read_operation,
)
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import ADK_SCOPE
from semconv.dialects.reading.values import REDACTED, events_of, items, mapping, text, words
from semconv.model import AgentSource, Attributes, Event, Span
from semconv.record import replace

NAME: Final = "google_adk"

LLM_REQUEST: Final = "gcp.vertex.agent.llm_request"
LLM_RESPONSE: Final = "gcp.vertex.agent.llm_response"
TOOL_ARGUMENTS: Final = "gcp.vertex.agent.tool_call_args"
TOOL_RESPONSE: Final = "gcp.vertex.agent.tool_response"

_MODEL_SPAN: Final = "call_llm"
_MERGED: Final = "(merged tools)"
_OLD_AGENT: Final = re.compile(r"^agent_run \[(?P<name>.+)\]$")
_OWN_NAME: Final = re.compile(r'You are an agent\. Your internal name is "(?P<name>[^"]+)"')
_NOTHING: Final = frozenset({"", "{}", "N/A", "<not specified>", "<not serializable>"})
_ELIDED: Final = "<elided>"
_SPOKEN: Final = tuple(name for name in MESSAGE_EVENTS if name != "gen_ai.system.message")


def read_google_adk(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span of ADK's own tracer."""
    if span.scope.name != ADK_SCOPE:
        return None
    kind = _kind_of(span, surroundings)
    match kind:
        case ActionKind.LLM:
            return _read_llm(span, surroundings)
        case ActionKind.TOOL:
            span = _with_tool_content(span)
    action = read_operation(span, kind, NAME)
    named = _OLD_AGENT.match(span.name)
    return replace(action, agent=named["name"], agent_source=AgentSource.SPAN_NAME) if named else action


def _kind_of(span: Span, surroundings: Surroundings) -> ActionKind:
    if span.attributes.get(GEN_AI_TOOL_NAME) == _MERGED:
        return ActionKind.CONTAINER
    operation = text(span.attributes, GEN_AI_OPERATION_NAME)
    if operation is not None:
        return KINDS.get(operation, ActionKind.CONTAINER)
    if span.name == _MODEL_SPAN:
        inner = any(operation_kind(child) is ActionKind.LLM for child in surroundings.children(span))
        return ActionKind.CONTAINER if inner else ActionKind.LLM
    if span.name == "invocation":
        return ActionKind.WORKFLOW
    return ActionKind.AGENT if _OLD_AGENT.match(span.name) else ActionKind.CONTAINER


def _read_llm(span: Span, surroundings: Surroundings) -> Action:
    above = surroundings.parent(span)
    holders = (span, above) if above is not None and above.name == _MODEL_SPAN else (span,)
    holder = next((each for each in holders if _given(each, LLM_RESPONSE) or _given(each, LLM_REQUEST)), span)
    response = mapping(_given(holder, LLM_RESPONSE))
    found = {**_from_logs(span), **_from_request(holder), **_from_response(response), **span.attributes}
    action = read_operation(replace(span, attributes=found), ActionKind.LLM, NAME)
    action = replace(_named(action), output_messages=tuple(action.output_messages[-1:]))
    refused = words(response.get("error_message") or response.get("error_code"))
    return replace(action, failed=True, error=action.error or refused) if refused else action


def _named(action: Action) -> Action:
    """Return the action with the agent named in ADK's prompt.

    Up to 1.x, spans of parallel agents lose their agent's span, because they share one context.
    """
    named = _OWN_NAME.search(action.instructions) if action.agent is None else None
    return replace(action, agent=named["name"], agent_source=AgentSource.METADATA) if named else action


def _given(span: Span, name: str) -> Any:
    value = span.attributes.get(name)
    return None if isinstance(value, str) and value in _NOTHING else value


def _from_request(span: Span) -> dict[str, Any]:
    request = mapping(_given(span, LLM_REQUEST))
    config = mapping(request.get("config"))
    found: dict[str, Any] = {}
    if contents := _contents(request.get("contents")):
        found[GEN_AI_INPUT_MESSAGES] = contents
    if instruction := config.get("system_instruction"):
        found[GEN_AI_SYSTEM_INSTRUCTIONS] = words(_text_of(instruction))
    if tools := config.get("tools"):
        found[GEN_AI_TOOL_DEFINITIONS] = tools
    return found


def _from_response(response: Mapping[str, Any]) -> dict[str, Any]:
    content = response.get("content")
    return {GEN_AI_OUTPUT_MESSAGES: _contents([content])} if content else {}


def _from_logs(span: Span) -> dict[str, Any]:
    """Return the messages of the older log events, whose bodies hold Gemini's contents."""
    found: dict[str, Any] = {}
    for name, wanted in ((GEN_AI_INPUT_MESSAGES, _SPOKEN), (GEN_AI_OUTPUT_MESSAGES, (CHOICE_EVENT,))):
        if messages := [message for event in events_of(span, *wanted) for message in _message_in(event)]:
            found[name] = messages
    system = [_body(event).get("content") for event in events_of(span, "gen_ai.system.message")]
    if system and system[0]:
        found[GEN_AI_SYSTEM_INSTRUCTIONS] = words(_text_of(system[0])).replace(_ELIDED, REDACTED)
    return found


def _message_in(event: Event) -> Iterator[Mapping[str, Any]]:
    content = _body(event).get("content")
    role = MESSAGE_EVENTS.get(event.name, "assistant")
    if content == _ELIDED:
        yield {"role": role, "parts": ({"type": "text", "content": REDACTED},)}
    elif content:
        yield {"role": role, **_without_blanks(mapping(content))}


def _body(event: Event) -> Attributes:
    return {**mapping(event.body), **event.attributes}


def _contents(value: Any) -> list[Mapping[str, Any]]:
    return [_without_blanks(mapping(each)) for each in items(value) if mapping(each)]


def _without_blanks(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return Gemini's content without unset keys; a part lists the keys of every type."""
    pieces = map(mapping, items(content.get("parts")))
    parts = [{key: value for key, value in piece.items() if value is not None} for piece in pieces]
    return {"role": content.get("role") or "user", "parts": parts}


def _text_of(instruction: Any) -> Any:
    parts = items(mapping(instruction).get("parts"))
    return "\n".join(words(mapping(part).get("text")) for part in parts) if parts else instruction


def _with_tool_content(span: Span) -> Span:
    older = {
        GEN_AI_TOOL_CALL_ARGUMENTS: _given(span, TOOL_ARGUMENTS),
        GEN_AI_TOOL_CALL_RESULT: _given(span, TOOL_RESPONSE),
    }
    found = {name: value for name, value in older.items() if value is not None}
    return replace(span, attributes={**found, **span.attributes}) if found else span


GOOGLE_ADK: Final = Dialect(name=NAME, read=read_google_adk, scopes=(ADK_SCOPE,))
