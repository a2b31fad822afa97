"""Observations: spans of SDKs that trace functions, with what went in and what came out, raw.

LangSmith, Langfuse and MLflow write a kind, an input and an output, whatever it was that ran; so do
Traceloop's decorators. Each dialect says where these stand; here is what they mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from semconv.dialects.action import Action, ActionKind, Message
from semconv.dialects.guardrails import TRIGGERED, as_guardrail
from semconv.dialects.judging import read_judgements
from semconv.dialects.langgraph import NOBODY, Found
from semconv.dialects.model_calls import heard_in, said_in
from semconv.dialects.payloads import answered, asked, content_of, reported_failure
from semconv.dialects.python_repr import from_repr
from semconv.dialects.reading import error_of, is_failed, is_redacted, mapping, structured, words
from semconv.dialects.transfers import delegation_target, transfer_target
from semconv.model import AgentSource, Span

_ENVELOPES: Final = ({"output"}, {"result"}, {"outputs"})
"""A result in an envelope of this one key."""
_MAX_ENVELOPES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a span of such an SDK says."""

    dialect: str
    kind: ActionKind
    agent: Found = NOBODY
    given: Any = None
    got: Any = None
    heard: tuple[Message, ...] = ()
    """A model call's input, where the dialect knows it better than ``given`` does."""
    said: tuple[Message, ...] = ()
    tool: str = ""
    """The tool's name; for leaves of other kinds, what ran."""
    call_id: str = ""
    instructions: str = ""
    failed: bool = False
    """The dialect's own mark of failure; the span's status counts besides."""
    error: str = ""


def action_of(span: Span, seen: Observation) -> Action:
    """Return the observation as an action."""
    match seen.kind:
        case ActionKind.LLM:
            return _call(span, seen)
        case ActionKind.TOOL:
            return _tool(span, seen)
        case ActionKind.AGENT | ActionKind.WORKFLOW:
            return _run(span, seen)
        case ActionKind.CONTAINER | ActionKind.SETUP | ActionKind.EVALUATION:
            return _about(span, seen)
        case _:
            given, got = words(seen.given), words(seen.got)
            action = _about(span, seen, input=given, output=got, tool=seen.tool or span.name)
            return _guardrail(action, seen) if seen.kind is ActionKind.GUARDRAIL else action


def _guardrail(action: Action, seen: Observation) -> Action:
    tripped = mapping(seen.got).get(TRIGGERED) is True
    return as_guardrail(action, name=action.tool or "", tripped=tripped)


def _about(span: Span, seen: Observation, **more: Any) -> Action:
    complaint = more.pop("complaint", "")
    failed = seen.failed or bool(complaint) or is_failed(span)
    return Action(
        dialect=seen.dialect,
        kind=more.pop("kind", seen.kind),
        agent=seen.agent.name,
        agent_source=seen.agent.source,
        failed=failed,
        error=complaint or ((seen.error or error_of(span)) if failed else ""),
        judgements=read_judgements(span),
        redacted=is_redacted(words(seen.given), words(seen.got)),
        **more,
    )


def _call(span: Span, seen: Observation) -> Action:
    heard, said = seen.heard or heard_in(seen.given), seen.said or said_in(seen.got)
    system = "\n".join(message.text for message in heard if message.role == "system")
    return _about(
        span,
        seen,
        heard=heard,
        said=said,
        input="" if heard else words(seen.given),
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
    """Read what encloses a run, or an agent's part of it."""
    task, answer = asked(_only_text(_call_arguments(seen.given))), answered(seen.got)
    return _about(
        span, seen, task=task, answer=answer, input=task, output=answer, instructions=seen.instructions
    )


def handoff_of(span: Span, dialect: str, fields: Mapping[str, Any]) -> Action:
    """Return the handoff that openai-agents' tracing describes by ``from_agent`` and ``to_agent``.

    The target is often missing: it is known only when the span ends, and exporters look before.
    """
    source, target = words(fields.get("from_agent")), words(fields.get("to_agent"))
    agent = Found(source, AgentSource.HANDOFF) if source else NOBODY
    seen = Observation(dialect=dialect, kind=ActionKind.HANDOFF, agent=agent)
    return _about(span, seen, target=target or None, input=source, output=target)


def arguments_in(value: Any) -> str:
    """Return a tool's arguments, out of what tracers of functions and langchain wrap around them."""
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
    """Return a traced function's arguments: those by name, else those by place, else both."""
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
    """Return the one text that a function was given under some name; anything else as it is."""
    if isinstance(value, Mapping) and len(value) == 1 and isinstance(only := next(iter(value.values())), str):
        return only
    return value


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return words(value)


def _outcome(value: Any) -> tuple[str, str]:
    """Return what a tool complains of, if it does, and its result in words."""
    for _ in range(_MAX_ENVELOPES):
        value = structured(value)
        if isinstance(value, Mapping) and set(value.keys()) - {"kwargs"} in _ENVELOPES:
            value = next(value[key] for key in value if key != "kwargs")
    complaint = reported_failure(value)
    return complaint, content_of(value) if _is_tool_message(value) else words(value)


def _is_tool_message(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return value.get("type") == "tool" or "lc" in value or value.get("role") == "tool"


def _answered_call(value: Any) -> str:
    """Return the id that langchain keeps only inside the result's tool message."""
    inner = mapping(value.get("output", value)) if isinstance(value, Mapping) else {}
    return words((mapping(inner.get("kwargs")) or inner).get("tool_call_id"))
