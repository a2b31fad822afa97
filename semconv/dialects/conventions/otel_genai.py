"""OpenTelemetry's own GenAI conventions, from whatever scope.

Source: open-telemetry/semantic-conventions-genai as of November 2026 (all in
*Development*), seen from ``opentelemetry.instrumentation.genai.*`` 1.3b0.
Several frameworks (Google ADK, agent-framework, AG2) write the
same with small additions. Content may sit in attributes (JSON or structured),
in span events (the older ``gen_ai.*.message``) or in joined log events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from semconv.attributes import (
    EVENT_GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS,
    GEN_AI_AGENT_NAME,
    GEN_AI_INPUT_MESSAGES,
    GEN_AI_OPERATION_NAME,
    GEN_AI_OUTPUT_MESSAGES,
    GEN_AI_PROVIDER_NAME,
    GEN_AI_SYSTEM_INSTRUCTIONS,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_ID,
    GEN_AI_TOOL_CALL_RESULT,
    GEN_AI_TOOL_NAME,
)
from semconv.dialects.action import Action, ActionKind, Dialect, Message
from semconv.dialects.conversation import body_of, last_answer, last_request
from semconv.dialects.guardrails import GUARDRAIL_NAME, GUARDRAIL_TRIGGERED, as_guardrail
from semconv.dialects.judging import read_judgements
from semconv.dialects.langgraph import PLUMBING_NODES
from semconv.dialects.messages import message_of, messages_of
from semconv.dialects.otel_genai_support import OTEL_GENAI_SUPPORT
from semconv.dialects.payloads import reported_failure, unwrapped
from semconv.dialects.reading import (
    error_of,
    events_of,
    is_failed,
    is_redacted,
    items,
    mapping,
    structured,
    text,
    words,
)
from semconv.dialects.surroundings import Surroundings
from semconv.dialects.transfers import delegation_target, is_silent_transfer, transfer_target
from semconv.model import AgentSource, Attributes, Event, Span

NAME: Final = "otel_genai"

TOOL_STATUS: Final = "gen_ai.tool.status"
MCP_METHOD: Final = "mcp.method.name"
"""On spans of the Model Context Protocol itself."""
HANDOFF_FROM: Final = "gen_ai.handoff.from_agent"
HANDOFF_TO: Final = "gen_ai.handoff.to_agent"
CHOICE_EVENT: Final = "gen_ai.choice"
TOOL_MESSAGE_EVENT: Final = "gen_ai.tool.message"
MESSAGE_EVENTS: Final[Mapping[str, str]] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    TOOL_MESSAGE_EVENT: "tool",
}

KINDS: Final[Mapping[str, ActionKind]] = {
    "chat": ActionKind.LLM,
    "text_completion": ActionKind.LLM,
    "generate_content": ActionKind.LLM,
    "execute_tool": ActionKind.TOOL,
    "execute_code": ActionKind.TOOL,
    "retrieval": ActionKind.TOOL,
    "agent_handoff": ActionKind.HANDOFF,
    "handoff": ActionKind.HANDOFF,
    "await_human_input": ActionKind.HUMAN,
    "guardrail_check": ActionKind.GUARDRAIL,
    "invoke_agent": ActionKind.AGENT,
    "plan": ActionKind.AGENT,
    "invoke_workflow": ActionKind.WORKFLOW,
    "conversation": ActionKind.WORKFLOW,
    "create_agent": ActionKind.SETUP,
}
"""Operations by name; any other is a container (turns, cycles, embeddings)."""


def read_otel_genai(span: Span, _: Surroundings) -> Action | None:
    """Read a span that names its ``gen_ai.operation.name``."""
    operation = text(span.attributes, GEN_AI_OPERATION_NAME)
    if operation is None:
        return None
    kind = KINDS.get(operation, ActionKind.CONTAINER)
    if kind is ActionKind.AGENT and _is_node(span):
        return Action(dialect=NAME, kind=ActionKind.CONTAINER)
    return read_operation(span, kind)


def _is_node(span: Span) -> bool:
    """Say whether an agent is but a node of one: OpenLIT calls each node of a graph an agent."""
    is_graph = span.attributes.get(GEN_AI_PROVIDER_NAME) in {"langgraph", "langchain"}
    return is_graph and text(span.attributes, GEN_AI_AGENT_NAME) in PLUMBING_NODES


def read_operation(span: Span, kind: ActionKind, dialect: str = NAME) -> Action:
    """Read ``gen_ai.*`` as an action of ``kind``; for dialects that add to these conventions."""
    match kind:
        case ActionKind.LLM:
            return _read_llm(span, dialect)
        case ActionKind.TOOL:
            return _read_tool(span, dialect)
        case ActionKind.HANDOFF:
            return _read_handoff(span, dialect)
        case ActionKind.AGENT | ActionKind.WORKFLOW:
            return _read_agent(span, kind, dialect)
        case ActionKind.GUARDRAIL:
            name = text(span.attributes, GUARDRAIL_NAME) or span.name
            return as_guardrail(
                _about(span, kind, dialect),
                name=name,
                tripped=span.attributes.get(GUARDRAIL_TRIGGERED) is True,
            )
        case _:
            return _about(span, kind, dialect)


def _about(span: Span, kind: ActionKind, dialect: str, **more: Any) -> Action:
    """Return an action with what every kind carries: agent, error, judgements."""
    name = text(span.attributes, GEN_AI_AGENT_NAME)
    failed = more.pop("failed", False) or is_failed(span) or span.attributes.get(TOOL_STATUS) == "error"
    return Action(
        dialect=dialect,
        kind=kind,
        agent=name,
        agent_source=AgentSource.SPAN,
        failed=failed,
        error=more.pop("error", "") or (error_of(span) if failed else ""),
        judgements=read_judgements(span),
        **more,
    )


def _read_llm(span: Span, dialect: str) -> Action:
    heard, said = conversation_of(span)
    system = "\n".join(message.text for message in heard if message.role == "system")
    return _about(
        span,
        ActionKind.LLM,
        dialect,
        heard=heard,
        said=said,
        # JSON that a length limit cut short is still worth reading as it stands.
        input="" if heard else text(span.attributes, GEN_AI_INPUT_MESSAGES) or "",
        output="" if said else text(span.attributes, GEN_AI_OUTPUT_MESSAGES) or "",
        instructions=instructions_of(span) or system,
        redacted=is_redacted(*(message.text for message in (*heard, *said))),
    )


def _read_tool(span: Span, dialect: str) -> Action:
    name = text(span.attributes, GEN_AI_TOOL_NAME) or _after_operation(span.name)
    arguments = text(span.attributes, GEN_AI_TOOL_CALL_ARGUMENTS) or _event_text(
        span, TOOL_MESSAGE_EVENT, "content"
    )
    result = span.attributes.get(GEN_AI_TOOL_CALL_RESULT)
    if result is None:
        result = _event_text(span, CHOICE_EVENT, "message")
    complaint = reported_failure(result)
    target = transfer_target(name, arguments)
    return _about(
        span,
        ActionKind.HANDOFF if target or is_silent_transfer(name, arguments) else ActionKind.TOOL,
        dialect,
        tool=name,
        target=target or delegation_target(name, arguments),
        call_id=text(span.attributes, GEN_AI_TOOL_CALL_ID) or "",
        input=arguments,
        output=unwrapped(result),
        failed=bool(complaint),
        error=complaint,
        is_delivery=MCP_METHOD in span.attributes,
        redacted=is_redacted(arguments, words(result)),
    )


def _read_handoff(span: Span, dialect: str) -> Action:
    source, target = text(span.attributes, HANDOFF_FROM), text(span.attributes, HANDOFF_TO)
    heard, said = conversation_of(span)
    action = _about(
        span, ActionKind.HANDOFF, dialect, target=target, input=last_request(heard), output=last_answer(said)
    )
    return action if source is None else replace(action, agent=source, agent_source=AgentSource.HANDOFF)


def _read_agent(span: Span, kind: ActionKind, dialect: str) -> Action:
    heard, said = conversation_of(span)
    task = last_request(heard)
    return _about(
        span,
        kind,
        dialect,
        instructions=instructions_of(span),
        task=task,
        answer=_closing_words(said),
        input=task,
        output=body_of(said[-1]) if said else "",
        heard=heard,
        said=said,
    )


def _closing_words(said: Sequence[Message]) -> str:
    """Return an agent's or team's last words; AG2 files its whole history as output, the last as user's."""
    last = said[-1] if said else None
    return last.text if last is not None and last.text and last.role != "tool" else last_answer(said)


def instructions_of(span: Span) -> str:
    """Return the system instructions, from attributes or a joined details event."""
    value = span.attributes.get(GEN_AI_SYSTEM_INSTRUCTIONS)
    if not value:
        told = (each.get(GEN_AI_SYSTEM_INSTRUCTIONS) for each in _details(span))
        value = next((each for each in told if each), None)
    parts = items(value)
    if not parts:
        return words(value)
    message = message_of({"role": "system", "parts": parts})
    return message.text if message else ""


def conversation_of(span: Span) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the messages heard and said: from attributes, else details events, else message events.

    Details may be told in several events, each with a part of them.
    """
    heard = messages_of(span.attributes.get(GEN_AI_INPUT_MESSAGES))
    said = messages_of(span.attributes.get(GEN_AI_OUTPUT_MESSAGES))
    if not span.events and not span.logs:
        return heard, said
    for source in _details(span):
        heard = heard or messages_of(source.get(GEN_AI_INPUT_MESSAGES))
        said = said or messages_of(source.get(GEN_AI_OUTPUT_MESSAGES))
    return (heard, said) if heard or said else _event_messages(span)


def _details(span: Span) -> Iterator[Attributes]:
    """Yield what is told of a call in events beside its span's own attributes."""
    for event in events_of(span, EVENT_GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS):
        yield _fields(event)


def _event_messages(span: Span) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    heard = [
        message_of({"role": MESSAGE_EVENTS[event.name], **_spoken(event)})
        for event in events_of(span, *MESSAGE_EVENTS)
    ]
    said = [message_of({"role": "assistant", **_spoken(event)}) for event in events_of(span, CHOICE_EVENT)]
    return tuple(filter(None, heard)), tuple(filter(None, said))


def _fields(event: Event) -> Attributes:
    """Return an event's attributes; a log event may keep them in its body instead."""
    return {**mapping(event.body), **event.attributes} if event.body is not None else event.attributes


def _spoken(event: Event) -> dict[str, Any]:
    """Return what a message event says; a tool's, also which call it answers."""
    fields = _fields(event)
    answered = {"tool_call_id": fields.get("id")} if event.name == TOOL_MESSAGE_EVENT else {}
    content = structured(fields.get("message", fields.get("content")))
    if isinstance(content, Mapping) and ("content" in content or "tool_calls" in content):
        return {"content": content.get("content"), "tool_calls": content.get("tool_calls"), **answered}
    return {"content": content, "tool_calls": fields.get("tool_calls"), **answered}


def _event_text(span: Span, name: str, key: str) -> str:
    return next((words(_fields(event).get(key)) for event in events_of(span, name)), "")


def _after_operation(span_name: str) -> str:
    return span_name.partition(" ")[2] or span_name


OTEL_GENAI: Final = Dialect(name=NAME, read=read_otel_genai, support=OTEL_GENAI_SUPPORT)
