"""OpenInference, as its instrumentations of fifteen frameworks write it.

Source: Arize-ai/openinference, ``spec/semantic_conventions.md`` and the
instrumentations of openai-agents 2.6, langchain 0.1.80, crewai 1.1,
autogen-agentchat 0.1.22, smolagents 0.1.43, agno, google-adk, pydantic-ai,
strands-agents (2026). The last two add to spans that speak ``gen_ai.*``, which
is therefore read where OpenInference's own attribute is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from semconv.attributes import (
    GEN_AI_OPERATION_NAME,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_ID,
    GEN_AI_TOOL_CALL_RESULT,
    GEN_AI_TOOL_NAME,
    OPENINFERENCE_SPAN_KIND,
)
from semconv.dialects.action import Action, ActionKind, Dialect, Message, ToolCall
from semconv.dialects.judging import read_judgements
from semconv.dialects.messages import last_request, message_of, messages_of
from semconv.dialects.openinference_agents import agent_name
from semconv.dialects.otel_genai import conversation_of, instructions_of
from semconv.dialects.payloads import answered, asked, reported_failure
from semconv.dialects.reading import below, error_of, is_failed, is_redacted, items, mapping, text, words
from semconv.dialects.surroundings import Surroundings
from semconv.dialects.transfers import delegation_target, transfer_target
from semconv.model import AttributeValue, Span

NAME: Final = "openinference"

INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
TOOL_NAME: Final = "tool.name"
TOOL_PARAMETERS: Final = "tool.parameters"
TOOL_CALL_ID: Final = "tool_call.id"
INPUT_MESSAGES: Final = "llm.input_messages"
OUTPUT_MESSAGES: Final = "llm.output_messages"
CREW_TASKS: Final = "crew_tasks"
CREW_INPUTS: Final = "crew_inputs"

_KINDS: Final[Mapping[str, ActionKind]] = {
    "AGENT": ActionKind.AGENT,
    "LLM": ActionKind.LLM,
    "TOOL": ActionKind.TOOL,
    "RETRIEVER": ActionKind.TOOL,
    "CHAIN": ActionKind.CONTAINER,
    "PROMPT": ActionKind.CONTAINER,
    "EMBEDDING": ActionKind.CONTAINER,
    "RERANKER": ActionKind.OTHER,
    "GUARDRAIL": ActionKind.OTHER,
    "DECISION": ActionKind.OTHER,
    "EVALUATOR": ActionKind.EVALUATION,
}
_OPENAI_AGENTS: Final = "openinference.instrumentation.openai_agents"
_HANDOFF_SPAN: Final = "handoff to "


def read_openinference(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span with an ``openinference.span.kind`` that we know."""
    kind = _KINDS.get((text(span.attributes, OPENINFERENCE_SPAN_KIND) or "").upper())
    if kind is None:
        return None
    match _mended(kind, span):
        case ActionKind.LLM:
            return _read_llm(span)
        case ActionKind.TOOL:
            return _read_tool(span, surroundings)
        case ActionKind.AGENT:
            return _read_agent(span, surroundings)
        case ActionKind.CONTAINER if surroundings.parent(span) is None or span.scope.name != _scope_above(
            span, surroundings
        ):
            return _read_top(span, ActionKind.WORKFLOW, surroundings)
        case ActionKind.CONTAINER:
            return _about(span, ActionKind.CONTAINER, surroundings)
        case other:
            return _read_other(span, other, surroundings)


def _mended(kind: ActionKind, span: Span) -> ActionKind:
    """Undo what version skew does: ADK 2.13 under OpenInference 1.0.5 calls an agent an LLM."""
    if kind is ActionKind.LLM and span.attributes.get(GEN_AI_OPERATION_NAME) == "invoke_agent":
        return ActionKind.AGENT
    return kind


def _scope_above(span: Span, surroundings: Surroundings) -> str:
    """Return the scope of the nearest OpenInference span above; empty at the top of them."""
    above = surroundings.parent(span)
    return above.scope.name if above is not None and OPENINFERENCE_SPAN_KIND in above.attributes else ""


def _about(span: Span, kind: ActionKind, surroundings: Surroundings | None = None, **more: Any) -> Action:
    found = agent_name(span, kind, surroundings)
    failed = more.pop("failed", False) or is_failed(span)
    return Action(
        dialect=NAME,
        kind=kind,
        agent=found.name,
        agent_source=found.source,
        pseudo_agent=found.name is not None and found.name.startswith("_"),
        failed=failed,
        error=more.pop("error", "") or (error_of(span) if failed else ""),
        judgements=read_judgements(span),
        **more,
    )


def _read_llm(span: Span) -> Action:
    heard = _flattened(span, INPUT_MESSAGES)
    said = _flattened(span, OUTPUT_MESSAGES)
    if not heard and not said:
        heard, said = conversation_of(span)
    given, got = text(span.attributes, INPUT_VALUE) or "", text(span.attributes, OUTPUT_VALUE) or ""
    system = "\n".join(message.text for message in heard if message.role == "system")
    return _about(
        span,
        ActionKind.LLM,
        heard=heard,
        said=said,
        input="" if heard else asked(given),
        output="" if said else answered(got),
        instructions=system or instructions_of(span),
        redacted=is_redacted(given, got, *(message.text for message in (*heard, *said))),
    )


def _flattened(span: Span, prefix: str) -> tuple[Message, ...]:
    """Return ``<prefix>.<index>.message.*`` as messages, in index order, gaps closed."""
    found = [_unflatten(fields) for fields in below(span.attributes, prefix).values()]
    return tuple(message for message in found if message is not None)


def _unflatten(fields: Mapping[str, AttributeValue]) -> Message | None:
    parts: list[object] = []
    content = fields.get("message.content")
    pieces = below(fields, "message.contents")
    if pieces:
        parts.extend(_content_part(piece) for piece in pieces.values())
    elif content is not None:
        parts.append(content)
    parts.extend(mapping(value) for name, value in fields.items() if name.startswith("function."))  # AutoGen
    message = message_of({"role": words(fields.get("message.role")), "content": parts or None})
    if message is None:
        return None
    calls = [_call(piece) for piece in below(fields, "message.tool_calls").values()]
    single = text(fields, "message.function_call_name")
    if single:
        calls.append(
            ToolCall(name=single, arguments=text(fields, "message.function_call_arguments_json") or "")
        )
    name = text(fields, "message.name") if message.role == "assistant" else None
    return Message(
        role=message.role, text=message.text, calls=(*message.calls, *calls), name=name or message.name
    )


def _content_part(piece: Mapping[str, AttributeValue]) -> str:
    said = text(piece, "message_content.text")
    return said if said is not None else f"[{text(piece, 'message_content.type') or 'content'}]"


def _call(piece: Mapping[str, AttributeValue]) -> ToolCall:
    return ToolCall(
        name=text(piece, "tool_call.function.name") or "",
        arguments=text(piece, "tool_call.function.arguments", "tool_call.function.arguments_json") or "",
        call_id=text(piece, "tool_call.id") or "",
    )


def _read_tool(span: Span, surroundings: Surroundings) -> Action:
    if span.name.startswith(_HANDOFF_SPAN) and span.scope.name == _OPENAI_AGENTS:
        return _read_openai_handoff(span, surroundings)
    name = text(span.attributes, TOOL_NAME, GEN_AI_TOOL_NAME) or span.name.removesuffix(".run")
    given = text(span.attributes, INPUT_VALUE, GEN_AI_TOOL_CALL_ARGUMENTS, TOOL_PARAMETERS) or ""
    got = text(span.attributes, OUTPUT_VALUE, GEN_AI_TOOL_CALL_RESULT) or ""
    complaint = reported_failure(got)
    target = transfer_target(name, given)
    return _about(
        span,
        ActionKind.TOOL if target is None else ActionKind.HANDOFF,
        surroundings,
        tool=name,
        target=target or delegation_target(name, given),
        call_id=_call_id(span, got),
        input=_arguments(given),
        output=_result(got),
        failed=bool(complaint),
        error=complaint,
        redacted=is_redacted(given, got),
    )


def _read_openai_handoff(span: Span, surroundings: Surroundings) -> Action:
    source, target = text(span.attributes, INPUT_VALUE), text(span.attributes, OUTPUT_VALUE)
    return _about(
        span,
        ActionKind.HANDOFF,
        surroundings,
        tool=span.name,
        target=target or span.name.removeprefix(_HANDOFF_SPAN),
        input=source or "",
        output=target or "",
    )


def _call_id(span: Span, result: str) -> str:
    """Return the id of the call; langchain keeps it only inside the result's tool message."""
    found = text(span.attributes, TOOL_CALL_ID, GEN_AI_TOOL_CALL_ID)
    if found is None and '"tool_call_id"' in result:
        message = mapping(result)
        data = message.get("data") or message.get("kwargs") or message
        found = text(data, "tool_call_id") if isinstance(data, Mapping) else None
    return found or ""


def _arguments(given: str) -> str:
    """Return a tool's arguments without what smolagents wraps around them."""
    value = mapping(given)
    if "sanitize_inputs_outputs" not in value:
        return given
    args, kwargs = value.get("args"), value.get("kwargs")
    if args and kwargs:
        return words({"args": args, **kwargs} if isinstance(kwargs, Mapping) else value)
    return words(kwargs or args or {})


def _result(got: str) -> str:
    """Return a tool's result; out of langchain's tool message where it is in one."""
    value = mapping(got)
    if isinstance(value.get("data"), Mapping) or value.get("type") == "tool" or "lc" in value:
        message = message_of(value)
        return message.text if message else got
    return got


def _read_agent(span: Span, surroundings: Surroundings) -> Action:
    action = _read_top(span, ActionKind.AGENT, surroundings)
    if action.agent is None and span.scope.name == _OPENAI_AGENTS:
        # openai-agents marks its trace as an AGENT too, named after the workflow.
        return _read_top(span, ActionKind.WORKFLOW, surroundings)
    return action


def _read_top(span: Span, kind: ActionKind, surroundings: Surroundings) -> Action:
    """Read what encloses a run or an agent's part of it: it has a task and an answer."""
    given, got = text(span.attributes, INPUT_VALUE) or "", text(span.attributes, OUTPUT_VALUE) or ""
    task, answer = _crew_task(span, got) or asked(given), answered(got)
    return _about(
        span,
        kind,
        surroundings,
        task=task,
        answer=answer,
        input=task,
        output=answer,
        instructions=instructions_of(span),
        redacted=is_redacted(given, got),
    )


def _crew_task(span: Span, got: str) -> str:
    """Return what CrewAI asked: a crew's inputs and tasks, or the prompt in a task's report."""
    tasks = items(span.attributes.get(CREW_TASKS))
    if tasks:
        texts = [asked(span.attributes.get(CREW_INPUTS))]
        texts.extend(words(mapping(each).get("description")) for each in tasks)
        return "\n".join(filter(None, texts))
    report = mapping(got) if '"expected_output"' in got else {}
    return last_request(messages_of(report.get("messages"))) or words(report.get("description"))


def _read_other(span: Span, kind: ActionKind, surroundings: Surroundings) -> Action:
    given, got = text(span.attributes, INPUT_VALUE) or "", text(span.attributes, OUTPUT_VALUE) or ""
    return _about(
        span, kind, surroundings, input=given, output=got, tool=span.name, redacted=is_redacted(given, got)
    )


OPENINFERENCE: Final = Dialect(name=NAME, read=read_openinference)
