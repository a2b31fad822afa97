"""Describe a multi-agent run by the convention, from any Python code, in any framework or none.

``run``, ``agent``, ``llm``, ``tool`` and ``handoff`` are context managers and decorators, for plain
functions, coroutines and generators of both kinds::

    with run("trip", task=question) as attempt:
        with agent("planner"):
            with llm("gpt-4o", messages=messages) as call:
                reply = client.chat.completions.create(model="gpt-4o", messages=messages)
                call.output(reply.choices[0].message)
        attempt.output(answer)

What is inside inherits from what is around it: parent, agent, capture of content, tracer provider.
An exception that leaves a block is recorded on its span and goes on. Telemetry never raises.

*Content* (messages, arguments, results, task, answer) is recorded only where the user asks for it:
with OpenTelemetry's ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` (``SPAN_ONLY`` is what
blamespan reads best), or in code with ``run(..., capture="SPAN_ONLY")``.

*Threads* start without a context: give the pool ``carry(function)``, or ``parent=handle``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal, TypeAlias

# The logs part of the API; the underscore is OpenTelemetry's mark for "may still change".
from opentelemetry._logs import Logger, LoggerProvider, get_logger
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider, get_tracer, set_span_in_context

from semconv import attributes as names
from semconv.attributes import GenAiOperationName, HandoffMode
from semconv.emit.content import ContentCapture, capture_mode, name_of, text_of
from semconv.emit.handle import (
    AgentHandle,
    Handle,
    HandoffHandle,
    ModelHandle,
    RunHandle,
    Surroundings,
    ToolHandle,
    current_run_in,
    surroundings_in,
    with_surroundings,
)
from semconv.emit.operation import Operation, carry, context_of

__all__ = [
    "AgentHandle",
    "ContentCapture",
    "Handle",
    "HandoffHandle",
    "ModelHandle",
    "Operation",
    "RunHandle",
    "ToolHandle",
    "agent",
    "carry",
    "current_run",
    "handoff",
    "llm",
    "run",
    "tool",
]

Parent: TypeAlias = Handle | Context
CaptureWord: TypeAlias = ContentCapture | Literal["NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"]
ModeWord: TypeAlias = HandoffMode | Literal["pass_control", "return_to_caller"]
SpanAttributes: TypeAlias = dict[str, str]

_MESSAGES: Final = "messages"
"""The parameter of a decorated model call or agent that holds its messages, if there is one."""


def run(  # noqa: PLR0913 - each is optional and named
    name: str = "",
    *,
    task: object = None,
    reference: object = None,
    task_id: str | None = None,
    conversation_id: str | None = None,
    parent: Parent | None = None,
    capture: CaptureWord | None = None,
    tracer_provider: TracerProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> Operation[RunHandle]:
    """One attempt of the whole system at one task; the root of the trace, or part of a web request's.

    Args:
        name: The system's name; a decorated function's own if left out.
        task: The task, as it was given.
        reference: The right answer, if known; an answer that differs then counts as a failure.
        task_id: The same for every run of the same task, so that runs can be compared.
        conversation_id: The conversation that the run is part of.
        parent: Where in a trace it belongs; by default where it is now.
        capture: Whether content is recorded, here and inside; by default as the environment says.
        tracer_provider: Where spans go, here and inside; by default the global one.
        logger_provider: Where events go, here and inside; by default the global one.
    """
    _check_name(name, run)

    def begin(function_name: str) -> RunHandle:
        context = context_of(parent)
        around = _around(context, capture, tracer_provider, logger_provider)
        label = name_of(name or function_name)
        attributes = {
            names.GEN_AI_OPERATION_NAME: GenAiOperationName.INVOKE_WORKFLOW.value,
            names.GEN_AI_WORKFLOW_NAME: label,
        }
        if task_id is not None:
            attributes[names.TASK_ID] = name_of(task_id)
        if conversation_id is not None:
            attributes[names.GEN_AI_CONVERSATION_ID] = name_of(conversation_id)
        span = _start(around, context, f"invoke_workflow {label}", SpanKind.INTERNAL, attributes)
        handle = RunHandle(span, context, around.capture)
        handle.context = _inside(span, context, around, agent=None, run=handle)
        _given(task, handle.input)
        _given(reference, handle.reference)
        return handle

    return Operation(
        begin=begin, accept=_accept_task, answer=lambda handle, result: _given(result, handle.output)
    )


def agent(  # noqa: PLR0913 - each is optional and named
    name: str = "",
    *,
    message: object = None,
    instructions: object = None,
    description: str | None = None,
    agent_id: str | None = None,
    parent: Parent | None = None,
    capture: CaptureWord | None = None,
    tracer_provider: TracerProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> Operation[AgentHandle]:
    """One turn of one agent; the model and tool calls inside are its own.

    Args:
        name: The agent's name; a decorated function's own if left out.
        message: What the agent is told.
        instructions: Its system instructions.
        description: What it is for.
        agent_id: Its identifier, if it has one.
        parent: Where in the trace it belongs, for agents on other threads; by default where it is now.
        capture: As for `run`, for agents without a run around them.
        tracer_provider: As for `run`.
        logger_provider: As for `run`.
    """
    _check_name(name, agent)

    def begin(function_name: str) -> AgentHandle:
        context = context_of(parent)
        around = _around(context, capture, tracer_provider, logger_provider)
        label = name_of(name or function_name)
        attributes = {
            names.GEN_AI_OPERATION_NAME: GenAiOperationName.INVOKE_AGENT.value,
            names.GEN_AI_AGENT_NAME: label,
        }
        if description is not None:
            attributes[names.GEN_AI_AGENT_DESCRIPTION] = text_of(description)
        if agent_id is not None:
            attributes[names.GEN_AI_AGENT_ID] = name_of(agent_id)
        span = _start(around, context, f"invoke_agent {label}", SpanKind.INTERNAL, attributes)
        handle = AgentHandle(
            span, _inside(span, context, around, agent=label, run=around.run), around.capture
        )
        _given(instructions, handle.instructions)
        _given(message, handle.input)
        return handle

    return Operation(
        begin=begin, accept=_accept_messages, answer=lambda handle, result: _given(result, handle.output)
    )


def llm(
    model: str,
    *,
    messages: object = None,
    instructions: object = None,
    provider: str | None = None,
    parent: Parent | None = None,
) -> Operation[ModelHandle]:
    """One call of a language model.

    Args:
        model: The model asked for.
        messages: What is sent: a text, or messages as OpenAI's or Anthropic's API takes them.
        instructions: System instructions, where they are apart from the messages.
        provider: Who serves the model, as upstream names it: ``openai``, ``anthropic``, ….
        parent: Where in the trace it belongs; by default where it is now.
    """
    _check_name(model, llm)

    def begin(_: str) -> ModelHandle:
        context = context_of(parent)
        around = _around(context)
        label = name_of(model)
        attributes = {
            names.GEN_AI_OPERATION_NAME: GenAiOperationName.CHAT.value,
            names.GEN_AI_REQUEST_MODEL: label,
            **_agent_name(around),
        }
        if provider is not None:
            attributes[names.GEN_AI_PROVIDER_NAME] = name_of(provider)
        span = _start(around, context, f"chat {label}", SpanKind.CLIENT, attributes)
        inner = set_span_in_context(span, context)
        handle = ModelHandle(span, inner, around.capture, around.logger, attributes)
        _given(instructions, handle.instructions)
        _given(messages, handle.input)
        return handle

    return Operation(
        begin=begin, accept=_accept_messages, answer=lambda handle, result: _given(result, handle.output)
    )


def tool(
    name: str = "",
    *,
    arguments: object = None,
    call_id: str | None = None,
    kind: str | None = None,
    parent: Parent | None = None,
) -> Operation[ToolHandle]:
    """One execution of a tool.

    Args:
        name: The tool's name; a decorated function's own if left out.
        arguments: What it is called with; a decorated function's are taken by themselves.
        call_id: The identifier of the model's request for it.
        kind: Upstream's type of tool: ``function``, ``extension`` or ``datastore``.
        parent: Where in the trace it belongs; by default where it is now.
    """
    _check_name(name, tool)

    def begin(function_name: str) -> ToolHandle:
        context = context_of(parent)
        around = _around(context)
        label = name_of(name or function_name)
        attributes = {
            names.GEN_AI_OPERATION_NAME: GenAiOperationName.EXECUTE_TOOL.value,
            names.GEN_AI_TOOL_NAME: label,
            **_agent_name(around),
        }
        if call_id is not None:
            attributes[names.GEN_AI_TOOL_CALL_ID] = name_of(call_id)
        if kind is not None:
            attributes[names.GEN_AI_TOOL_TYPE] = name_of(kind)
        span = _start(around, context, f"execute_tool {label}", SpanKind.INTERNAL, attributes)
        handle = ToolHandle(span, set_span_in_context(span, context), around.capture)
        _given(arguments, handle.arguments)
        return handle

    return Operation(begin=begin, accept=ToolHandle.arguments, answer=ToolHandle.result)


def handoff(
    target: str,
    *,
    source: str | None = None,
    message: object = None,
    mode: ModeWord = HandoffMode.PASS_CONTROL,
    parent: Parent | None = None,
) -> Operation[HandoffHandle]:
    """One agent hands the work to another.

    Passing control on has no duration: ``handoff("writer", message=notes).record()``. An agent that is
    called like a function runs inside: ``with handoff("critic", mode="return_to_caller") as asked: …``.

    Args:
        target: The agent that is handed to.
        source: The agent that hands over; by default the one whose turn it is.
        message: What the target is told.
        mode: Whether control comes back.
        parent: Where in the trace it belongs; by default where it is now.
    """
    _check_name(target, handoff)

    def begin(_: str) -> HandoffHandle:
        context = context_of(parent)
        around = _around(context)
        giver = name_of(source) if source is not None else around.agent
        taker = name_of(target)
        attributes = {names.HANDOFF_TARGET: taker, names.HANDOFF_MODE: name_of(mode)}
        if giver is not None:
            attributes |= {names.HANDOFF_SOURCE: giver, names.GEN_AI_AGENT_NAME: giver}
        title = f"handoff {giver} to {taker}" if giver is not None else f"handoff to {taker}"
        span = _start(around, context, title, SpanKind.INTERNAL, attributes)
        handle = HandoffHandle(span, set_span_in_context(span, context), around.capture)
        _given(message, handle.message)
        return handle

    return Operation(
        begin=begin, accept=_accept_message, answer=lambda handle, result: _given(result, handle.result)
    )


def current_run() -> RunHandle:
    """Return the run around the caller, for code deep inside that learns how it went.

    Outside every run it is a handle that records nothing.
    """
    return current_run_in(get_current())


def _around(
    context: Context,
    capture: CaptureWord | None = None,
    tracer_provider: TracerProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> Surroundings:
    """Return what an operation in ``context`` inherits, with what it says itself put over it."""
    outer = surroundings_in(context)
    if outer is None:
        return Surroundings(
            tracer=_tracer(tracer_provider),
            logger=_logger(logger_provider),
            capture=capture_mode(capture),
        )
    if capture is None and tracer_provider is None and logger_provider is None:
        return outer
    return replace(
        outer,
        tracer=outer.tracer if tracer_provider is None else _tracer(tracer_provider),
        logger=outer.logger if logger_provider is None else _logger(logger_provider),
        capture=outer.capture if capture is None else capture_mode(capture),
    )


def _tracer(provider: TracerProvider | None) -> Tracer:
    return get_tracer(names.SCOPE_INSTRUMENT, _version(), provider)


def _logger(provider: LoggerProvider | None) -> Logger:
    return get_logger(names.SCOPE_INSTRUMENT, _version(), provider)


def _inside(
    span: Span, context: Context, around: Surroundings, *, agent: str | None, run: RunHandle | None
) -> Context:
    """Return the context for what is inside ``span``."""
    surroundings = replace(around, agent=agent, run=run)
    return with_surroundings(set_span_in_context(span, context), surroundings)


def _start(
    around: Surroundings, context: Context, name: str, kind: SpanKind, attributes: SpanAttributes
) -> Span:
    return around.tracer.start_span(name, context, kind, attributes)


def _agent_name(around: Surroundings) -> SpanAttributes:
    return {names.GEN_AI_AGENT_NAME: around.agent} if around.agent is not None else {}


def _given(value: object, record: Callable[[object], None]) -> None:
    if value is not None:
        record(value)


def _accept_task(handle: RunHandle, arguments: Mapping[str, object]) -> None:
    if arguments:
        handle.input(_only(arguments))


def _accept_messages(handle: AgentHandle | ModelHandle, arguments: Mapping[str, object]) -> None:
    if arguments:
        handle.input(arguments[_MESSAGES] if _MESSAGES in arguments else _only(arguments))


def _accept_message(handle: HandoffHandle, arguments: Mapping[str, object]) -> None:
    if arguments:
        handle.message(_only(arguments))


def _only(arguments: Mapping[str, object]) -> object:
    """Return the argument itself if there is but one."""
    return next(iter(arguments.values())) if len(arguments) == 1 else arguments


def _check_name(name: str, operation: Callable[..., object]) -> None:
    if callable(name):
        raise TypeError(f"write @{operation.__name__}(…) with parentheses")


@functools.cache
def _version() -> str:
    try:
        return version("blamespan")
    except PackageNotFoundError:  # run from a copy of the source
        return ""
