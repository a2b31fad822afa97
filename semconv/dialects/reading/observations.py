"""Observations: spans of function-tracing SDKs, with raw input and output.

LangSmith, Langfuse, MLflow and Traceloop's decorators write a kind, an input and an output for everything
that runs. Each dialect finds these; this module turns them into actions.

The input and output of a model call are recorded unchanged, in the formats of the model SDKs: OpenAI's chat
and responses, Anthropic, Gemini, langchain's generations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from semconv.dialects.reading.action import Action, ActionKind, Message
from semconv.dialects.reading.agent_names import NO_AGENT, Found
from semconv.dialects.reading.guardrails import TRIGGERED, as_guardrail
from semconv.dialects.reading.messages import message_of, messages_of, system_text
from semconv.dialects.reading.payloads import (
    answered,
    asked,
    content_of,
    is_record,
    is_table,
    is_tool_message,
    reported_failure,
)
from semconv.dialects.reading.python_repr import from_repr
from semconv.dialects.reading.tools import delegation_target, transfer_target
from semconv.dialects.reading.values import (
    REDACTED,
    error_of,
    is_failed,
    is_redacted,
    mapping,
    structured,
    words,
)
from semconv.model import AgentSource, AttributeValue, Span
from semconv.record import record

_INPUTS: Final = ("messages", "input", "prompt", "prompts", "contents", "inputs", "request", "query")
_INSTRUCTIONS: Final = ("instructions", "system", "system_instruction", "system_prompt")
_OUTPUTS: Final = ("output", "outputs", "message", "messages", "response")
_TEXT_KEYS: Final = (*_OUTPUTS, "content", "contents", "text", "parts", "candidates", "data")
_MESSAGE_MARKS: Final = frozenset({"role", "tool_calls", "lc", "source", "data", "kwargs", "parts"})
_PART_KEYS: Final = frozenset({"role", "parts", "content", "contents", "text", "type", "message", "delta"})
_ITEMS: Final = frozenset({"function_call", "function_call_output", "reasoning", "message"})
_MAX_LEVELS: Final = 4


def input_messages_in(value: Any) -> tuple[Message, ...]:
    """Return the input messages of a model call."""
    value = structured(value)
    for _ in range(_MAX_LEVELS):
        if not isinstance(value, Mapping) or _is_message(value):
            break
        instructions = next((words(value[key]) for key in _INSTRUCTIONS if value.get(key)), "")
        inner = next((value[key] for key in _INPUTS if value.get(key) not in (None, "", [], {})), None)
        if inner is None:
            inner = _arguments_of(value)
        if inner is None:
            return (Message(role="system", text=instructions),) if instructions else ()
        if instructions:
            return (Message(role="system", text=instructions), *messages_in_conversation(inner))
        value = structured(inner)
    return messages_in_conversation(value)


def _arguments_of(value: Mapping[str, Any]) -> Any:
    """Return the conversation from a traced function's arguments: the first list, else the first text."""
    arguments = [*_listed(value.get("args")), *_valued(value.get("kwargs"))]
    lists = [argument for argument in arguments if isinstance(argument, (list, tuple, Mapping)) and argument]
    return next(iter(lists), next((each for each in arguments if isinstance(each, str) and each), None))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _valued(value: Any) -> Sequence[Any]:
    if not isinstance(value, Mapping):
        return ()
    return (value,) if any(key in value for key in _INPUTS) else tuple(value.values())


def messages_in_conversation(value: Any) -> tuple[Message, ...]:
    """Return the messages in a list, a text or a single message."""
    value = structured(value)
    if isinstance(value, str):
        return (Message(role="user", text=value),) if value else ()
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, str) for each in value):
        return tuple(Message(role="user", text=each) for each in value)
    return messages_of(value)


def output_messages_in(value: Any) -> tuple[Message, ...]:
    """Return the output messages of a model call."""
    value = structured(value)
    for _ in range(_MAX_LEVELS):
        if isinstance(value, (list, tuple)):
            return _output_messages_in_list(value)
        if not isinstance(value, Mapping):
            return _as_text(value) if isinstance(value, str) else ()
        if "type" not in value and is_record(value, _text_key(value)):
            return _as_text(value)
        if _is_message(value):
            return _spoken((value,))
        inner = _inside(value)
        if inner is None:
            return _spoken((value,)) if "content" in value else _as_text(value)
        value = structured(inner)
    return _as_text(value)


def _text_key(value: Mapping[str, Any]) -> str:
    """Return the key under which an object may have the text of an answer; empty if it has none."""
    return next((key for key in _TEXT_KEYS if value.get(key)), "")


def _inside(value: Mapping[str, Any]) -> Any:
    """Return the part of an SDK's response that holds the messages."""
    if value.get("choices"):
        return [_choice(each) for each in _listed(value["choices"])]
    if value.get("generations"):
        return [_choice(each) for batch in _listed(value["generations"]) for each in _batch(batch)]
    if value.get("candidates"):
        return [each.get("content") for each in _listed(value["candidates"]) if isinstance(each, Mapping)]
    return next(
        (value[key] for key in _OUTPUTS if value.get(key)),
        None,
    )


def _batch(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _choice(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    inner = value.get("message") or value.get("delta")
    return inner or {"role": "assistant", "content": value.get("text") or value.get("content") or ""}


def _output_messages_in_list(values: Sequence[Any]) -> tuple[Message, ...]:
    if all(isinstance(value, str) for value in values):
        return tuple(Message(role="assistant", text=value) for value in values if value)
    if all(isinstance(value, Mapping) and "text" in value and "role" not in value for value in values):
        return _spoken(({"role": "assistant", "content": values},))  # Anthropic's blocks
    return _spoken(values) or (() if any(map(_is_a_part, values)) else _as_text(values))


def _is_a_part(value: Any) -> bool:
    """Say whether an entry of an output is of a message whose text is off or empty, not a row of a table."""
    return bool(value.keys() & _PART_KEYS) if isinstance(value, Mapping) else isinstance(value, str)


def _spoken(values: Sequence[Any]) -> tuple[Message, ...]:
    """Return messages; those without a role are attributed to the model."""
    messages: list[Message] = []
    for value in values:
        given = value
        if isinstance(value, Mapping) and not _is_message(value) and words(value.get("type")) not in _ITEMS:
            given = {"role": "assistant", **value}
        message = message_of(given)
        if message is not None and (message.text or message.calls):
            messages.append(message)
    return tuple(messages)


def _as_text(value: Any) -> tuple[Message, ...]:
    text = words(value) if value else ""
    return (Message(role="assistant", text=text),) if text else ()


def _is_message(value: Mapping[str, Any]) -> bool:
    return (
        bool(value.keys() & _MESSAGE_MARKS) and not value.keys() >= {"args", "kwargs"} and not is_table(value)
    )


_ENVELOPES: Final = ({"output"}, {"result"}, {"outputs"})
"""Keys of one-key objects that wrap a result."""
_MAX_ENVELOPES: Final = 3


@record
class Observation:
    """The content of one traced function's span."""

    dialect: str
    kind: ActionKind
    agent: Found = NO_AGENT
    given: Any = None
    got: Any = None
    input_messages: tuple[Message, ...] = ()
    """A model call's input messages, if the dialect reads them better than from ``given``."""
    output_messages: tuple[Message, ...] = ()
    tool: str = ""
    """The tool's name; for other kinds of leaves, the function's name."""
    call_id: str = ""
    instructions: str = ""
    function: str = ""
    """The traced function's name, on containers and workflows."""
    failed: bool = False
    """The dialect's own failure mark; the span's status counts as well."""
    error: str = ""


def action_of(span: Span, seen: Observation) -> Action:
    """Return the observation as an action."""
    return _READERS.get(seen.kind, _leaf)(span, seen)


def _leaf(span: Span, seen: Observation) -> Action:
    given, got = words(seen.given), words(seen.got)
    action = _about(span, seen, input=given, output=got, tool=seen.tool or span.name)
    return _guardrail(action, seen) if seen.kind is ActionKind.GUARDRAIL else action


def _guardrail(action: Action, seen: Observation) -> Action:
    tripped = mapping(seen.got).get(TRIGGERED) is True
    return as_guardrail(action, name=action.tool or "", tripped=tripped)


def _about(
    span: Span, seen: Observation, *, kind: ActionKind | None = None, complaint: str = "", **more: Any
) -> Action:
    failed = seen.failed or bool(complaint) or is_failed(span)
    return Action(
        dialect=seen.dialect,
        kind=kind or seen.kind,
        agent=seen.agent.name,
        agent_source=seen.agent.source,
        failed=failed,
        error=complaint or ((seen.error or error_of(span)) if failed else ""),
        redacted=_is_redacted(span, seen),
        function=seen.function,
        **more,
    )


def _is_redacted(span: Span, seen: Observation) -> bool:
    values = (seen.given, seen.got)
    parsed = [value for value in values if value is not None and not isinstance(value, str)]
    if parsed and any(map(_may_hide, span.attributes.values())):  # else there is no text worth writing
        return is_redacted(*map(words, values))
    return is_redacted(*[value for value in values if isinstance(value, str)])


def _may_hide(value: AttributeValue) -> bool:
    return REDACTED in value if isinstance(value, str) else isinstance(value, (tuple, dict))


def _call(span: Span, seen: Observation) -> Action:
    input_messages, output_messages = (
        seen.input_messages or input_messages_in(seen.given),
        seen.output_messages or output_messages_in(seen.got),
    )
    system = system_text(input_messages)
    return _about(
        span,
        seen,
        input_messages=input_messages,
        output_messages=output_messages,
        input="" if input_messages else words(seen.given),
        instructions=seen.instructions or system,
    )


def _tool(span: Span, seen: Observation) -> Action:
    name = seen.tool or span.name
    given, got = arguments_in(seen.given), structured(seen.got)
    complaint, result = _outcome(got)
    target = transfer_target(name, given)
    return _about(
        span,
        seen,
        kind=ActionKind.TOOL if target is None else ActionKind.HANDOFF,
        tool=name,
        target=target or delegation_target(name, given),
        call_id=seen.call_id or _answered_call(got),
        input=given,
        output=result,
        complaint=complaint,
    )


def _run(span: Span, seen: Observation) -> Action:
    """Read a span that encloses a run, or an agent's part of it."""
    task, answer = asked(_only_text(_call_arguments(seen.given))), answered(seen.got)
    return _about(
        span, seen, task=task, answer=answer, input=task, output=answer, instructions=seen.instructions
    )


def handoff_of(span: Span, dialect: str, fields: Mapping[str, Any]) -> Action:
    """Return the handoff described by openai-agents' ``from_agent`` and ``to_agent``.

    The target is often missing: it is set when the span ends, after some exporters have read the span.
    """
    source, target = words(fields.get("from_agent")), words(fields.get("to_agent"))
    agent = Found(source, AgentSource.HANDOFF) if source else NO_AGENT
    seen = Observation(dialect=dialect, kind=ActionKind.HANDOFF, agent=agent)
    return _about(span, seen, target=target or None, input=source, output=target)


def arguments_in(value: Any) -> str:
    """Return a tool's arguments without the wrappers that function tracers and langchain add."""
    value = structured(value)
    if isinstance(value, Mapping) and "input_str" in value:  # langchain's callback
        value = value.get("inputs") or value["input_str"]
    if isinstance(value, Mapping) and value.keys() == {"input"} and isinstance(value["input"], str):
        value = structured(value["input"])  # LangSmith before 0.4
    if isinstance(value, str):
        value = from_repr(value)
    value = _call_arguments(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _call_arguments(value: Any) -> Any:
    """Return a traced function's arguments: keyword, else positional, else both."""
    value = structured(value)
    if not isinstance(value, Mapping) or not value.keys() or not value.keys() <= {"args", "kwargs"}:
        return value
    args, kwargs = value.get("args"), value.get("kwargs")
    if args and kwargs:
        return value
    if not args:
        return kwargs
    return args[0] if isinstance(args, (list, tuple)) and len(args) == 1 else args


def _only_text(value: Any) -> Any:
    """Return the single text argument of a function; anything else unchanged."""
    if isinstance(value, Mapping) and len(value) == 1 and isinstance(only := next(iter(value.values())), str):
        return only
    return value


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return words(value)


def _outcome(value: Any) -> tuple[str, str]:
    """Return a tool's reported error (empty if none) and its result as text."""
    for _ in range(_MAX_ENVELOPES):
        value = structured(value)
        if isinstance(value, Mapping) and set(value.keys()) - {"kwargs"} in _ENVELOPES:
            value = next(value[key] for key in value if key != "kwargs")
    complaint = reported_failure(value)
    return complaint, content_of(value) if is_tool_message(value) else words(value)


def _answered_call(value: Any) -> str:
    """Return the call id, which langchain keeps only in the result's tool message."""
    inner = mapping(value.get("output", value)) if isinstance(value, Mapping) else {}
    return words((mapping(inner.get("kwargs")) or inner).get("tool_call_id"))


_READERS: Final[Mapping[ActionKind, Callable[[Span, Observation], Action]]] = {
    ActionKind.LLM: _call,
    ActionKind.TOOL: _tool,
    ActionKind.AGENT: _run,
    ActionKind.WORKFLOW: _run,
    ActionKind.CONTAINER: _about,
    ActionKind.SETUP: _about,
    ActionKind.EVALUATION: _about,
}
"""Readers by kind; other kinds are leaves."""
