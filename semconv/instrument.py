"""Record a multi-agent run by the convention, from any Python code, with or without a framework.

``run``, ``agent``, ``llm``, ``tool`` and ``handoff`` are context managers and decorators, for functions,
coroutines, generators and async generators::

    with run("trip", task=question) as attempt:
        with agent("planner"):
            with llm("gpt-4o", messages=messages) as call:
                reply = client.chat.completions.create(model="gpt-4o", messages=messages)
                call.output(reply.choices[0].message)
        attempt.output(answer)

Operations inherit from the enclosing one: parent, agent, capture of content, tracer provider. An exception
that leaves a block is recorded on its span and propagates. Telemetry itself never raises.

*Content* (messages, arguments, results, task, answer) is recorded only if you switch it on, with
OpenTelemetry's ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` (``SPAN_ONLY`` suits blamespan best) or
in code by ``run(..., capture="SPAN_ONLY")``.

*Threads* start without a context: give the pool ``carry(function)``, or pass ``parent=handle``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal, TypeAlias

# The logs API; OpenTelemetry marks it by the underscore as subject to change.
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
from semconv.emit.tool_playback import ToolPlayback, rerun, trial_attributes

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
    "rerun",
    "run",
    "tool",
]

Parent: TypeAlias = Handle | Context
CaptureWord: TypeAlias = ContentCapture | Literal["NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"]
ModeWord: TypeAlias = HandoffMode | Literal["pass_control", "return_to_caller"]

_MESSAGES: Final = "messages"
"""Parameter of a decorated model call or agent that holds its messages."""


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
    """One attempt of the whole system at one task; the trace's root, or part of a web request's trace.

    Args:
        name: The system's name; defaults to the decorated function's.
        task: The task as given to the system.
        reference: The right answer, if known; a different answer then counts as a failure.
        task_id: An identifier shared by all runs of the same task, so that runs can be compared.
        conversation_id: The conversation that the run is part of.
        parent: The parent in the trace; defaults to the current context.
        capture: Where content is recorded, here and inside; defaults to the environment's setting.
        tracer_provider: Receives the spans, here and inside; defaults to the global one.
        logger_provider: Receives the events, here and inside; defaults to the global one.
    """
    _check_name(name, run)

    def begin(function_name: str) -> RunHandle:
        context = context_of(parent)
        around = _around(context, capture, tracer_provider, logger_provider)
        label = name_of(name or function_name)
        attributes = {
            names.GEN_AI_OPERATION_NAME: GenAiOperationName.INVOKE_WORKFLOW.value,
            names.GEN_AI_WORKFLOW_NAME: label,
            **_named({names.TASK_ID: task_id, names.GEN_AI_CONVERSATION_ID: conversation_id}),
            **trial_attributes(),
        }
        span = around.tracer.start_span(f"invoke_workflow {label}", context, SpanKind.INTERNAL, attributes)
        handle = RunHandle(span, context, around.capture)
        handle.context = _inside(span, context, around, agent=None, run=handle)
        _given(task, handle.input)
        _given(reference, handle.reference)
        return handle

    return Operation(begin=begin, accept=_accept_task, answer=_answer)


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
    """One turn of one agent; the model and tool calls inside belong to it.

    Args:
        name: The agent's name; defaults to the decorated function's.
        message: The input to the agent.
        instructions: The agent's system instructions.
        description: The agent's purpose.
        agent_id: The agent's identifier.
        parent: The parent in the trace, for agents on other threads; defaults to the current context.
        capture: As for `run`, for agents outside a run.
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
            **_named({names.GEN_AI_AGENT_ID: agent_id}),
        }
        if description is not None:
            attributes[names.GEN_AI_AGENT_DESCRIPTION] = text_of(description)
        span = around.tracer.start_span(f"invoke_agent {label}", context, SpanKind.INTERNAL, attributes)
        handle = AgentHandle(
            span, _inside(span, context, around, agent=label, run=around.run), around.capture
        )
        _given(instructions, handle.instructions)
        _given(message, handle.input)
        return handle

    return Operation(begin=begin, accept=_accept_messages, answer=_answer)


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
        model: The requested model.
        messages: The input: a text, or messages in the format of OpenAI's or Anthropic's API.
        instructions: System instructions, if separate from the messages.
        provider: The model's provider, by upstream's name: ``openai``, ``anthropic``, ….
        parent: The parent in the trace; defaults to the current context.
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
            **_named({names.GEN_AI_PROVIDER_NAME: provider}),
        }
        span = around.tracer.start_span(f"chat {label}", context, SpanKind.CLIENT, attributes)
        inner = set_span_in_context(span, context)
        handle = ModelHandle(span, inner, around.capture, around.logger, attributes)
        _given(instructions, handle.instructions)
        _given(messages, handle.input)
        return handle

    return Operation(begin=begin, accept=_accept_messages, answer=_answer)


def tool(
    name: str = "",
    *,
    arguments: object = None,
    call_id: str | None = None,
    kind: str | None = None,
    parent: Parent | None = None,
) -> Operation[ToolHandle]:
    """One execution of a tool.

    In the rerun of a recorded run (`blamespan experiment`) a decorated function does not run: its recorded
    result is returned. A ``with`` block is refused there, unless the tool was declared read-only.

    Args:
        name: The tool's name; defaults to the decorated function's.
        arguments: The call's arguments; those of a decorated function are recorded automatically.
        call_id: The identifier of the model's request for the call.
        kind: Upstream's type of tool: ``function``, ``extension`` or ``datastore``.
        parent: The parent in the trace; defaults to the current context.
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
            **_named({names.GEN_AI_TOOL_CALL_ID: call_id, names.GEN_AI_TOOL_TYPE: kind}),
        }
        span = around.tracer.start_span(f"execute_tool {label}", context, SpanKind.INTERNAL, attributes)
        handle = ToolHandle(span, set_span_in_context(span, context), around.capture)
        _given(arguments, handle.arguments)
        return handle

    return Operation(
        begin=begin,
        accept=ToolHandle.arguments,
        answer=ToolHandle.result,
        playback=ToolPlayback(name=name_of(name) if name else ""),
    )


def handoff(
    target: str,
    *,
    source: str | None = None,
    message: object = None,
    mode: ModeWord = HandoffMode.PASS_CONTROL,
    parent: Parent | None = None,
) -> Operation[HandoffHandle]:
    """One handoff of work from one agent to another.

    Passing control on has no duration: ``handoff("writer", message=notes).record()``. An agent that is
    called like a function runs inside: ``with handoff("critic", mode="return_to_caller") as asked: …``.

    Args:
        target: The agent that takes over.
        source: The agent that hands over; defaults to the current agent.
        message: The message to the target.
        mode: Whether control comes back.
        parent: The parent in the trace; defaults to the current context.
    """
    _check_name(target, handoff)

    def begin(_: str) -> HandoffHandle:
        context = context_of(parent)
        around = _around(context)
        giver = name_of(source) if source is not None else around.agent
        taker = name_of(target)
        attributes = {names.HANDOFF_TARGET: taker, names.HANDOFF_MODE: name_of(mode)}
        attributes |= {names.GEN_AI_TRANSFER_TARGET_NAME: taker, names.GEN_AI_TRANSFER_MODE: name_of(mode)}
        if giver is not None:
            attributes |= {names.HANDOFF_SOURCE: giver, names.GEN_AI_AGENT_NAME: giver}
        title = f"handoff {giver} to {taker}" if giver is not None else f"handoff to {taker}"
        span = around.tracer.start_span(title, context, SpanKind.INTERNAL, attributes)
        handle = HandoffHandle(span, set_span_in_context(span, context), around.capture)
        _given(message, handle.message)
        return handle

    return Operation(
        begin=begin, accept=_accept_message, answer=lambda handle, result: _given(result, handle.result)
    )


def current_run() -> RunHandle:
    """Return the enclosing run, for nested code that learns the run's outcome.

    Outside a run it returns a handle that records nothing.
    """
    return current_run_in(get_current())


def _around(
    context: Context,
    capture: CaptureWord | None = None,
    tracer_provider: TracerProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> Surroundings:
    """Return the inherited settings in ``context``, overridden by the given ones."""
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
    """Return the context for operations inside ``span``."""
    surroundings = replace(around, agent=agent, run=run)
    return with_surroundings(set_span_in_context(span, context), surroundings)


def _agent_name(around: Surroundings) -> dict[str, str]:
    return {names.GEN_AI_AGENT_NAME: around.agent} if around.agent is not None else {}


def _named(values: Mapping[str, str | None]) -> dict[str, str]:
    """Return the names and ids that are set, as attributes."""
    return {key: name_of(value) for key, value in values.items() if value is not None}


def _given(value: object, record: Callable[[object], None]) -> None:
    if value is not None:
        record(value)


def _answer(handle: RunHandle | AgentHandle | ModelHandle, result: object) -> None:
    _given(result, handle.output)


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
    """Return a sole argument itself, several as a mapping."""
    return next(iter(arguments.values())) if len(arguments) == 1 else arguments


def _check_name(name: str, operation: Callable[..., object]) -> None:
    if callable(name):
        raise TypeError(f"write @{operation.__name__}(…) with parentheses")


@functools.cache
def _version() -> str:
    try:
        return version("blamespan")
    except PackageNotFoundError:  # run from a source checkout
        return ""
