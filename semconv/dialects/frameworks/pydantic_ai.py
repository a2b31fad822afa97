"""Pydantic AI's own spans: the GenAI conventions, with differences per format version.

Source: ``pydantic_ai/_instrumentation.py`` and ``capabilities/instrumentation.py`` of 2.68
(``InstrumentationSettings(version=2..6)``), ``models/instrumented.py`` of 0.8 and 1.107; recorded.

- Version 1 (``event_mode``): messages as log events, or as a list of events in ``events`` on the model call
  and ``all_messages_events`` on the agent.
- Version 2: spans ``agent run`` and ``running tool``, with ``tool_arguments`` and ``tool_response``.
- From 3: ``invoke_agent X``, ``execute_tool X``, ``gen_ai.tool.call.*``; from 5 a deferred tool is not an
  error. Before 1.0 an agent has no operation name, and calls and tools have no agent: they inherit it.

An agent used as a tool runs below the caller's tool, which is then not a step. An output function
(``final_result``) delivers an agent's answer and is a step only if it fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from semconv.attributes import GEN_AI_OPERATION_NAME, GEN_AI_TOOL_NAME
from semconv.dialects.conventions.otel_genai import KINDS, read_operation
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Message, Surroundings
from semconv.dialects.reading.control_flow import DEFERRAL
from semconv.dialects.reading.messages import last_request, message_of, messages_of, system_text
from semconv.dialects.reading.payloads import answered
from semconv.dialects.reading.tools import delegation_target, transfer_target
from semconv.dialects.reading.values import is_redacted, items, mapping, text, words
from semconv.model import Span
from semconv.record import replace

NAME: Final = "pydantic_ai"

SCOPES: Final = frozenset({"pydantic-ai", "pydantic_ai"})
AGENT_NAME: Final = "agent_name"
ALL_MESSAGES: Final = "pydantic_ai.all_messages"
ALL_EVENTS: Final = "all_messages_events"
EVENTS: Final = "events"
FINAL_RESULT: Final = "final_result"
TOOL_ARGUMENTS: Final = "tool_arguments"
TOOL_RESPONSE: Final = "tool_response"
RETRY_CAUSES: Final = ("pydantic_ai.tool.retry.cause", "pydantic_ai.output.retry.cause")
LOGFIRE_MESSAGE: Final = "logfire.msg"

_OLD_NAMES: Final[Mapping[str, ActionKind]] = {
    "agent run": ActionKind.AGENT,
    "running tool": ActionKind.TOOL,
    "running output function": ActionKind.TOOL,
}
_OUTPUT_FUNCTION: Final = "running output function"
_CHOICE: Final = "gen_ai.choice"


def read_pydantic_ai(span: Span, _: Surroundings) -> Action | None:
    """Read a span of Pydantic AI's own scope."""
    if span.scope.name not in SCOPES:
        return None
    operation = text(span.attributes, GEN_AI_OPERATION_NAME)
    kind = _OLD_NAMES.get(span.name) if operation is None else KINDS.get(operation)
    action = read_operation(span, kind or ActionKind.CONTAINER, NAME)
    match action.kind:
        case ActionKind.LLM:
            return _read_llm(action, span)
        case ActionKind.TOOL | ActionKind.HANDOFF:
            return _read_tool(action, span)
        case ActionKind.AGENT:
            return _read_agent(action, span)
        case _:
            return action


def _read_llm(action: Action, span: Span) -> Action:
    """Add the messages of version 1, stored as a list of events."""
    if action.input_messages or action.output_messages or EVENTS not in span.attributes:
        return action
    events = [mapping(event) for event in items(span.attributes[EVENTS])]
    input_messages = _messages(event for event in events if not _is_choice(event))
    output_messages = _messages(event for event in events if _is_choice(event))
    system = system_text(input_messages)
    return replace(
        action,
        input_messages=input_messages,
        output_messages=output_messages,
        input="",
        output="",
        instructions=action.instructions or system,
    )


def _is_choice(event: Mapping[str, Any]) -> bool:
    return event.get("event.name") == _CHOICE


def _messages(events: Any) -> tuple[Message, ...]:
    return tuple(filter(None, (message_of(event.get("message") or event) for event in events)))


def _read_tool(action: Action, span: Span) -> Action:
    name = text(span.attributes, GEN_AI_TOOL_NAME) or action.tool or ""
    arguments = action.input or text(span.attributes, TOOL_ARGUMENTS) or ""
    result = action.output or text(span.attributes, TOOL_RESPONSE) or ""
    target = transfer_target(name, arguments)
    failed = action.failed and DEFERRAL not in span.attributes  # waiting for a person is not a failure
    cause = text(span.attributes, *RETRY_CAUSES)
    kind = action.kind if target is None else ActionKind.HANDOFF
    return replace(
        action,
        kind=ActionKind.CONTAINER if _gives_answer(span) and not failed else kind,
        tool=name,
        target=target or delegation_target(name, arguments),
        input=arguments,
        output=result,
        failed=failed or cause is not None,
        error=(action.error or cause or "") if failed or cause is not None else "",
        redacted=action.redacted or is_redacted(arguments, result),
    )


def _gives_answer(span: Span) -> bool:
    return (text(span.attributes, LOGFIRE_MESSAGE) or span.name).startswith(_OUTPUT_FUNCTION)


def _read_agent(action: Action, span: Span) -> Action:
    input_messages = _whole_conversation(span)
    result = text(span.attributes, FINAL_RESULT)
    task = action.task or last_request(input_messages)
    return replace(
        action,
        agent=action.agent or text(span.attributes, AGENT_NAME),
        task=task,
        input=action.input or task,
        answer=answered(result) if result else action.answer,
        output=words(result) if result else action.output,
        input_messages=(),
        output_messages=(),
    )


def _whole_conversation(span: Span) -> Sequence[Message]:
    """Return an agent's whole conversation, including its history of earlier runs."""
    messages = messages_of(span.attributes.get(ALL_MESSAGES))
    return messages or _messages(mapping(event) for event in items(span.attributes.get(ALL_EVENTS)))


PYDANTIC_AI: Final = Dialect(name=NAME, read=read_pydantic_ai, scopes=tuple(SCOPES))
