"""OpenTelemetry's GenAI conventions, from any scope.

Source: open-telemetry/semantic-conventions-genai as of November 2026 (all in *Development*), seen with
``opentelemetry.instrumentation.genai.*`` 1.3b0. Several frameworks (Google ADK, agent-framework, AG2) write
the same with small additions. Content may be in attributes (JSON or structured), in span events (the older
``gen_ai.*.message``) or in joined log events. Semantic Kernel for .NET (microsoft/semantic-kernel,
``InternalUtilities/src/Diagnostics/ModelDiagnostics.cs``) has operations of its own, and like Azure's AI
libraries writes an event's message as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from semconv.attributes import (
    EVENT_GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS,
    GEN_AI_AGENT_NAME,
    GEN_AI_CALLER_NAME,
    GEN_AI_CALLER_TYPE,
    GEN_AI_INPUT_MESSAGES,
    GEN_AI_OPERATION_NAME,
    GEN_AI_OUTPUT_MESSAGES,
    GEN_AI_PROVIDER_NAME,
    GEN_AI_RESPONSE_FINISH_REASONS,
    GEN_AI_SYSTEM_INSTRUCTIONS,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_ID,
    GEN_AI_TOOL_CALL_RESULT,
    GEN_AI_TOOL_NAME,
    GEN_AI_TRANSFER_MODE,
    GEN_AI_TRANSFER_TARGET_NAME,
)
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Message, Surroundings
from semconv.dialects.reading.agent_names import PLUMBING_NODES
from semconv.dialects.reading.guardrails import (
    GUARDRAIL_NAME,
    GUARDRAIL_TRIGGERED,
    as_guardrail,
)
from semconv.dialects.reading.messages import (
    body_of,
    last_answer,
    last_request,
    message_of,
    messages_of,
    system_text,
)
from semconv.dialects.reading.payloads import is_record, reported_failure, unwrapped
from semconv.dialects.reading.tools import delegation_target, is_silent_transfer, transfer_target
from semconv.dialects.reading.values import (
    EXCEPTION_EVENT,
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
from semconv.model import AgentSource, Attributes, Event, Span
from semconv.record import replace

NAME: Final = "otel_genai"

TOOL_STATUS: Final = "gen_ai.tool.status"
MCP_METHOD: Final = "mcp.method.name"
"""Attribute of spans of the Model Context Protocol itself."""
HANDOFF_FROM: Final = "gen_ai.handoff.from_agent"
HANDOFF_TO: Final = "gen_ai.handoff.to_agent"
CHOICE_EVENT: Final = "gen_ai.choice"
PROMPT_TEXT: Final = "gen_ai.content.prompt"
COMPLETION_TEXT: Final = "gen_ai.content.completion"
"""All messages as one text: LangChain4j under Quarkus, whose failed calls only record their exception."""
EVENT_CONTENT: Final = "gen_ai.event.content"
"""A whole message as JSON: Azure's AI libraries and Semantic Kernel."""
TOOL_MESSAGE_EVENT: Final = "gen_ai.tool.message"
MESSAGE_EVENTS: Final[Mapping[str, str]] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    TOOL_MESSAGE_EVENT: "tool",
}

KINDS: Final[Mapping[str, ActionKind]] = {
    "chat": ActionKind.LLM,
    "chat.completions": ActionKind.LLM,  # Semantic Kernel for .NET
    "text.completions": ActionKind.LLM,
    "text_completion": ActionKind.LLM,
    "generate_content": ActionKind.LLM,
    "execute_tool": ActionKind.TOOL,
    "execute_code": ActionKind.TOOL,
    "retrieval": ActionKind.TOOL,
    "search_memory": ActionKind.TOOL,
    "create_memory": ActionKind.TOOL,
    "update_memory": ActionKind.TOOL,
    "upsert_memory": ActionKind.TOOL,
    "delete_memory": ActionKind.TOOL,
    "agent_handoff": ActionKind.HANDOFF,
    "handoff": ActionKind.HANDOFF,
    "await_human_input": ActionKind.HUMAN,
    "guardrail_check": ActionKind.GUARDRAIL,
    "invoke_agent": ActionKind.AGENT,
    "agent_invocation": ActionKind.AGENT,  # applications on LangChain4j
    "plan": ActionKind.AGENT,
    "invoke_workflow": ActionKind.WORKFLOW,
    "conversation": ActionKind.WORKFLOW,
    "handle_conversation_turn": ActionKind.WORKFLOW,
    "create_agent": ActionKind.SETUP,
}
"""Operations; any other is a container (turns, cycles, embeddings)."""
_FAILED_FINISH: Final = "error"
_MEMORY: Final = "_memory"
_RETURNS: Final = "return_to_caller"
"""Mode of a transfer that is a call: the agent works as a tool, and its caller goes on."""


def read_otel_genai(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span that names its ``gen_ai.operation.name``, a tool and its call, or a method of A2A."""
    operation = text(span.attributes, GEN_AI_OPERATION_NAME)
    if operation is None:
        is_tool = text(span.attributes, GEN_AI_TOOL_NAME) and text(span.attributes, GEN_AI_TOOL_CALL_ID)
        return read_operation(span, ActionKind.TOOL) if is_tool else read_a2a(span, surroundings)
    kind = KINDS.get(operation, ActionKind.CONTAINER)
    if kind is ActionKind.AGENT and _is_node(span):
        return Action(dialect=NAME, kind=ActionKind.CONTAINER)
    return read_operation(span, kind)


def operation_kind(span: Span) -> ActionKind | None:
    """Return the kind of the span's operation; ``None`` if it has none or the operation is a container."""
    return KINDS.get(text(span.attributes, GEN_AI_OPERATION_NAME) or "")


def _is_node(span: Span) -> bool:
    """Say whether an agent is only a graph's node: OpenLIT marks each node as an agent."""
    is_graph = span.attributes.get(GEN_AI_PROVIDER_NAME) in {"langgraph", "langchain"}
    return is_graph and text(span.attributes, GEN_AI_AGENT_NAME) in PLUMBING_NODES


def read_operation(span: Span, kind: ActionKind, dialect: str = NAME) -> Action:
    """Read ``gen_ai.*`` as an action of ``kind``; used by dialects that extend these conventions."""
    reader = _READERS.get(kind)
    return _about(span, kind, dialect) if reader is None else reader(span, kind, dialect)


def _about(
    span: Span, kind: ActionKind, dialect: str, *, failed: bool = False, error: str = "", **more: Any
) -> Action:
    """Return an action with the fields common to all kinds: agent, error, evaluations."""
    failed = failed or is_failed(span) or span.attributes.get(TOOL_STATUS) == "error"
    return Action(
        dialect=dialect,
        kind=kind,
        agent=text(span.attributes, GEN_AI_AGENT_NAME),
        caller=_caller(span),
        failed=failed,
        error=error or (error_of(span) if failed else ""),
        **more,
    )


def _caller(span: Span) -> str | None:
    """Return the agent that invokes this one; elsewhere ``gen_ai.caller.name`` may be a person's."""
    is_agent = span.attributes.get(GEN_AI_CALLER_TYPE) == "agent"
    return text(span.attributes, GEN_AI_CALLER_NAME) if is_agent else None


def _read_llm(span: Span, kind: ActionKind, dialect: str) -> Action:
    input_messages, output_messages = conversation_of(span)
    system = system_text(input_messages)
    return _about(
        span,
        kind,
        dialect,
        input_messages=input_messages,
        output_messages=output_messages,
        # JSON cut short by a length limit is kept as text.
        input="" if input_messages else text(span.attributes, GEN_AI_INPUT_MESSAGES, PROMPT_TEXT) or "",
        output=""
        if output_messages
        else text(span.attributes, GEN_AI_OUTPUT_MESSAGES, COMPLETION_TEXT) or "",
        failed=_is_without_answer(output_messages) and _broke(span),
        instructions=instructions_of(span) or system,
        redacted=is_redacted(*[message.text for message in (*input_messages, *output_messages)]),
    )


def _is_without_answer(output_messages: Sequence[Message]) -> bool:
    return not any(message.text or message.calls for message in output_messages)


def _broke(span: Span) -> bool:
    """Say whether a call failed although its status is not an error: by finish reason or exception."""
    reasons = items(span.attributes.get(GEN_AI_RESPONSE_FINISH_REASONS))
    return _FAILED_FINISH in reasons or any(event.name == EXCEPTION_EVENT for event in span.events)


def _read_tool(span: Span, kind: ActionKind, dialect: str) -> Action:
    name = text(span.attributes, GEN_AI_TOOL_NAME) or _tool_in_name(span)
    arguments = text(span.attributes, GEN_AI_TOOL_CALL_ARGUMENTS) or _event_text(
        span, TOOL_MESSAGE_EVENT, "content"
    )
    result = span.attributes.get(GEN_AI_TOOL_CALL_RESULT)
    if result is None:
        result = _event_text(span, CHOICE_EVENT, "message")
    complaint = reported_failure(result)
    stated = text(span.attributes, GEN_AI_TRANSFER_TARGET_NAME)
    passes_control = span.attributes.get(GEN_AI_TRANSFER_MODE) != _RETURNS
    target = stated if stated and passes_control else transfer_target(name, arguments)
    return _about(
        span,
        ActionKind.HANDOFF if target or is_silent_transfer(name, arguments) else kind,
        dialect,
        tool=name,
        target=target or stated or delegation_target(name, arguments),
        call_id=text(span.attributes, GEN_AI_TOOL_CALL_ID) or "",
        input=arguments,
        output=unwrapped(result),
        failed=bool(complaint),
        error=complaint,
        is_delivery=MCP_METHOD in span.attributes,
        redacted=is_redacted(arguments, words(result)),
    )


def _tool_in_name(span: Span) -> str:
    """Return the tool of a span without an attribute for it: an operation on memory, or from its name."""
    operation = text(span.attributes, GEN_AI_OPERATION_NAME) or ""
    if operation.endswith(_MEMORY):
        return operation
    return span.name.partition(" ")[2] or span.name


def _read_handoff(span: Span, kind: ActionKind, dialect: str) -> Action:
    source, target = text(span.attributes, HANDOFF_FROM), text(span.attributes, HANDOFF_TO)
    input_messages, output_messages = conversation_of(span)
    action = _about(
        span,
        kind,
        dialect,
        target=target,
        input=last_request(input_messages),
        output=last_answer(output_messages),
    )
    return action if source is None else replace(action, agent=source, agent_source=AgentSource.HANDOFF)


def _read_agent(span: Span, kind: ActionKind, dialect: str) -> Action:
    input_messages, output_messages = conversation_of(span)
    task = last_request(input_messages)
    return _about(
        span,
        kind,
        dialect,
        instructions=instructions_of(span),
        task=task,
        answer=_closing_words(output_messages),
        input=task,
        output=body_of(output_messages[-1]) if output_messages else "",
        input_messages=input_messages,
        output_messages=output_messages,
    )


def _closing_words(output_messages: Sequence[Message]) -> str:
    """Return the final text of an agent or team.

    AG2 outputs its whole history, with the last message as the user's.
    """
    last = output_messages[-1] if output_messages else None
    return (
        last.text if last is not None and last.text and last.role != "tool" else last_answer(output_messages)
    )


def instructions_of(span: Span) -> str:
    """Return the system instructions, from attributes or a joined details event."""
    value = span.attributes.get(GEN_AI_SYSTEM_INSTRUCTIONS)
    if not value:
        if not span.events and not span.logs:
            return ""
        candidates = (detail.get(GEN_AI_SYSTEM_INSTRUCTIONS) for detail in _details(span))
        value = next((candidate for candidate in candidates if candidate), None)
    parts = items(value)
    if not parts:
        return words(value)
    message = message_of({"role": "system", "parts": parts})
    return message.text if message else ""


def conversation_of(span: Span) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return input and output messages: from attributes, else details events, else message events.

    Several details events may each carry a part.
    """
    input_messages = messages_of(span.attributes.get(GEN_AI_INPUT_MESSAGES))
    output_messages = messages_of(span.attributes.get(GEN_AI_OUTPUT_MESSAGES))
    if not span.events and not span.logs:
        return input_messages, output_messages
    for source in _details(span):
        input_messages = input_messages or messages_of(source.get(GEN_AI_INPUT_MESSAGES))
        output_messages = output_messages or messages_of(source.get(GEN_AI_OUTPUT_MESSAGES))
    return (input_messages, output_messages) if input_messages or output_messages else _event_messages(span)


def _details(span: Span) -> Iterator[Attributes]:
    """Yield the contents of a call's details events."""
    for event in events_of(span, EVENT_GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS):
        yield _fields(event)


def _event_messages(span: Span) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    input_messages = [
        message_of({"role": MESSAGE_EVENTS[event.name], **_spoken(event)})
        for event in events_of(span, *MESSAGE_EVENTS)
    ]
    output_messages = [
        message_of({"role": "assistant", **_spoken(event)}) for event in events_of(span, CHOICE_EVENT)
    ]
    return tuple(filter(None, input_messages)), tuple(filter(None, output_messages))


def _fields(event: Event) -> Attributes:
    """Return an event's attributes, which may also be in a log event's body, or JSON in one attribute."""
    whole = event.attributes.get(EVENT_CONTENT)
    if event.body is None and whole is None:
        return event.attributes
    return {**mapping(event.body), **mapping(whole), **event.attributes}


def _spoken(event: Event) -> dict[str, Any]:
    """Return the content of a message event; for a tool's result, also the call it answers."""
    fields = _fields(event)
    answered = {"tool_call_id": fields.get("id")} if event.name == TOOL_MESSAGE_EVENT else {}
    content = structured(fields.get("message", fields.get("content")))
    is_message = isinstance(content, Mapping) and ("content" in content or "tool_calls" in content)
    if is_message and not is_record(content, "content"):
        return {"content": content.get("content"), "tool_calls": content.get("tool_calls"), **answered}
    return {"content": content, "tool_calls": fields.get("tool_calls"), **answered}


def _event_text(span: Span, name: str, key: str) -> str:
    return next((words(_fields(event).get(key)) for event in events_of(span, name)), "")


def _read_guardrail(span: Span, kind: ActionKind, dialect: str) -> Action:
    return as_guardrail(
        _about(span, kind, dialect),
        name=text(span.attributes, GUARDRAIL_NAME) or span.name,
        tripped=span.attributes.get(GUARDRAIL_TRIGGERED) is True,
    )


_READERS: Final[Mapping[ActionKind, Callable[[Span, ActionKind, str], Action]]] = {
    ActionKind.LLM: _read_llm,
    ActionKind.TOOL: _read_tool,
    ActionKind.HANDOFF: _read_handoff,
    ActionKind.AGENT: _read_agent,
    ActionKind.WORKFLOW: _read_agent,
    ActionKind.GUARDRAIL: _read_guardrail,
}

# --- the Agent2Agent protocol ---
#
# Spans of the Agent2Agent protocol (A2A): a client's call of a remote agent, and a server's work on it.
#
# Both have the remote agent's name. A client's span is the only sign of that agent where the server sends no
# spans; below an ``invoke_agent`` span for the same agent it is that call's transport. A task fails while its
# requests succeed: only ``a2a.task.state`` says so, on the request that learns of it, which may be a later
# poll in a trace of its own. Source: open-telemetry/semantic-conventions-genai, ``docs/gen-ai/a2a.md`` and
# ``model/a2a`` (2026, in *Development*); a2a-python's own spans have none of these attributes.


A2A_METHOD: Final = "a2a.method.name"
A2A_TASK_ID: Final = "a2a.task.id"
A2A_TASK_STATE: Final = "a2a.task.state"
_SENDING: Final = frozenset(
    {"SendMessage", "SendStreamingMessage", "message/send", "message/stream", "tasks/send"}
    | {"tasks/sendSubscribe"}
)
"""Methods that set an agent to work, in the protocol's version 1.0, 0.3 and 0.1; the others look after it."""
_STATE: Final = "TASK_STATE_"
_LOST: Final = frozenset({"failed", "rejected"})
_SERVER: Final = 2
"""Span kind."""
_INVOKES: Final = "invoke_agent"


def read_a2a(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span of the protocol; ``None`` for any other."""
    method = text(span.attributes, A2A_METHOD)
    if method is None:
        return None
    agent = text(span.attributes, GEN_AI_AGENT_NAME)
    state = (text(span.attributes, A2A_TASK_STATE) or "").removeprefix(_STATE).casefold()
    error = error_of(span) if is_failed(span) else f"A2A task {state}" if state in _LOST else ""
    is_sent = method in _SENDING
    if (
        (is_sent or state in _LOST)
        and agent is not None
        and (error or not _delivers(span, agent, surroundings))
    ):
        return Action(dialect=NAME, kind=ActionKind.AGENT, agent=agent, failed=bool(error), error=error)
    if error and span.kind != _SERVER:  # a call that its caller makes, as of a tool
        return Action(dialect=NAME, kind=ActionKind.TOOL, tool=method, failed=True, error=error)
    return Action(dialect=NAME, kind=ActionKind.CONTAINER)


def _delivers(span: Span, agent: str, surroundings: Surroundings) -> bool:
    """Say whether a span only transports a call that the agent's framework records around it."""
    return any(
        text(above.attributes, GEN_AI_OPERATION_NAME) == _INVOKES
        and text(above.attributes, GEN_AI_AGENT_NAME) == agent
        for above in surroundings.ancestors(span)
    )


def task_keys(spans: Iterable[Span]) -> Iterator[str]:
    """Yield the ids of the tasks: a client that polls later, or elsewhere, has a trace of its own."""
    for span in spans:
        task = text(span.attributes, A2A_TASK_ID)
        if task is not None:
            yield f"a2a:{task}"


OTEL_GENAI: Final = Dialect(
    name=NAME,
    read=read_otel_genai,
    keys=frozenset({GEN_AI_OPERATION_NAME, GEN_AI_TOOL_CALL_ID, A2A_METHOD}),
    run_keys=task_keys,
)
