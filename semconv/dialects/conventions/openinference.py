"""OpenInference, as its instrumentations of fifteen frameworks write it.

Source: Arize-ai/openinference, ``spec/semantic_conventions.md`` and the instrumentations of openai-agents
2.6, langchain 0.1.80, crewai 1.1, autogen-agentchat 0.1.22, smolagents 0.1.43, agno, google-adk,
pydantic-ai, strands-agents (2026). The last two add to spans that already carry ``gen_ai.*``, which is
therefore read if OpenInference's own attribute is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from semconv.attributes import (
    GEN_AI_OPERATION_NAME,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_RESULT,
    GEN_AI_TOOL_NAME,
    OPENINFERENCE_SPAN_KIND,
)
from semconv.dialects.conventions.openinference_agents import (
    DOCUMENTS,
    METADATA,
    OUTPUT_VALUE,
    agent_name,
    arguments_in,
    call_id_of,
    called_tool,
    calls_in,
    coworker_at_work,
    crew_task,
    documents_of,
    failure_in,
    function_of,
    is_finish,
    is_machinery,
    is_preparation,
    plain_result,
    result_in,
    spawned,
    tool_words,
    without_context,
    without_response,
)
from semconv.dialects.conventions.otel_genai import KINDS, TOOL_STATUS, conversation_of, instructions_of
from semconv.dialects.reading.action import FUNCTION_KINDS, Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import (
    ADK_SCOPE,
    STRANDS_SCOPE,
    STRANDS_TEAMS,
    is_ag2_helper,
    is_ag2_tool_reply,
    is_function,
)
from semconv.dialects.reading.guardrails import as_guardrail, stopped_what_it_guards
from semconv.dialects.reading.messages import flattened, messages_of, system_text
from semconv.dialects.reading.payloads import answered, asked, reported_failure
from semconv.dialects.reading.python_repr import with_bodies
from semconv.dialects.reading.tools import delegation_target, is_silent_transfer, transfer_target
from semconv.dialects.reading.values import (
    error_of,
    is_failed,
    is_redacted,
    mapping,
    text,
)
from semconv.model import AgentSource, Span
from semconv.record import replace

NAME: Final = "openinference"

INPUT_VALUE: Final = "input.value"
TOOL_NAME: Final = "tool.name"
TOOL_PARAMETERS: Final = "tool.parameters"
INPUT_MESSAGES: Final = "llm.input_messages"
OUTPUT_MESSAGES: Final = "llm.output_messages"
AG2_RECIPIENT: Final = "ag2.recipient.name"

_ARGUMENTS: Final = (
    "tool_call.function.arguments",  # AG2's input is the whole call
    INPUT_VALUE,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    TOOL_PARAMETERS,
)

_KINDS: Final[Mapping[str, ActionKind]] = {
    "AGENT": ActionKind.AGENT,
    "LLM": ActionKind.LLM,
    "TOOL": ActionKind.TOOL,
    "RETRIEVER": ActionKind.TOOL,
    "CHAIN": ActionKind.CONTAINER,
    "PROMPT": ActionKind.CONTAINER,
    "EMBEDDING": ActionKind.CONTAINER,
    "RERANKER": ActionKind.OTHER,
    "GUARDRAIL": ActionKind.GUARDRAIL,
    "DECISION": ActionKind.OTHER,
    "EVALUATOR": ActionKind.EVALUATION,
}
_LISTS: Final = (
    (f"{OUTPUT_MESSAGES}.", ActionKind.LLM),
    (f"{INPUT_MESSAGES}.", ActionKind.LLM),
    (f"{DOCUMENTS}.", ActionKind.TOOL),
)
"""Prefixes of flattened lists, with the kind of span that has them."""
_SCOPES: Final = "openinference.instrumentation."
_OPENAI_AGENTS: Final = "openinference.instrumentation.openai_agents"
_LANGCHAIN: Final = "openinference.instrumentation.langchain"
_HANDOFF_SPAN: Final = "handoff to "
_NO_MESSAGE: Final = "None"
"""The input of AG2's agents in a group chat: they receive the group's history, not a message."""
_HAYSTACK_MESSAGE: Final = "ChatMessage(_role=<ChatRole."
"""A ``repr`` of Haystack's messages in the arguments and results of its pipelines and agents."""


def read_openinference(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span with a known ``openinference.span.kind``."""
    kind = _declared(span) or _evicted(span)
    if kind is None:
        return None
    kind = _mended(kind, span, surroundings)
    if kind is ActionKind.CONTAINER and _is_top(span, surroundings):
        kind = ActionKind.WORKFLOW
    return _READERS.get(kind, _read_other)(span, kind, surroundings)


def _declared(span: Span) -> ActionKind | None:
    return _KINDS.get((text(span.attributes, OPENINFERENCE_SPAN_KIND) or "").upper())


def _evicted(span: Span) -> ActionKind | None:
    """Return the kind of a span that lost it to an attribute limit, which evicts the oldest first.

    Only long lists exceed the limit: a model call's messages or a search's documents.
    """
    if not span.dropped_attributes or not span.scope.name.startswith(_SCOPES):
        return None
    return next(
        (kind for prefix, kind in _LISTS if any(name.startswith(prefix) for name in span.attributes)), None
    )


def _mended(kind: ActionKind, span: Span, surroundings: Surroundings) -> ActionKind:
    """Correct kinds that instrumentations get wrong.

    ADK 2.13 under OpenInference 1.0.5 marks an agent as LLM; AG2's chats and Strands' swarms are teams, not
    agents; langchain's functions are marked by their names, LlamaIndex's preparations of a call as calls.
    """
    if is_preparation(span) or is_finish(span) or _is_event(span, surroundings):
        return ActionKind.CONTAINER
    if kind is ActionKind.AGENT and span.scope.name == _LANGCHAIN:
        metadata, got = mapping(span.attributes.get(METADATA)), span.attributes.get(OUTPUT_VALUE)
        if is_function(span, metadata, surroundings, got=got):
            return ActionKind.CONTAINER
    if kind is ActionKind.LLM and span.attributes.get(GEN_AI_OPERATION_NAME) == "invoke_agent":
        return ActionKind.AGENT
    operation = text(span.attributes, GEN_AI_OPERATION_NAME) or ""
    is_team = operation in STRANDS_TEAMS or KINDS.get(operation) is ActionKind.WORKFLOW
    if kind is ActionKind.AGENT and (AG2_RECIPIENT in span.attributes or is_team):
        return ActionKind.WORKFLOW
    return kind


def _is_event(span: Span, surroundings: Surroundings) -> bool:
    """Say whether the span only marks a moment of the span above, as BeeAI's events do.

    The moment of a tool's failure repeats the failure as its output; a tool's own span names the tool.
    """
    if span.start_ns != span.end_ns or surroundings.children(span):
        return False
    if OUTPUT_VALUE in span.attributes and (not is_failed(span) or TOOL_NAME in span.attributes):
        return False
    above = surroundings.parent(span)
    is_same = above is not None and above.scope.name == span.scope.name
    return is_same and _declared(above or span) is _declared(span)


def _is_top(span: Span, surroundings: Surroundings) -> bool:
    """Say whether no span of the same instrumentation encloses this one; such a chain is the whole run."""
    above = surroundings.parent(span)
    return (
        above is None
        or OPENINFERENCE_SPAN_KIND not in above.attributes
        or above.scope.name != span.scope.name
    )


def _about(
    span: Span,
    kind: ActionKind,
    surroundings: Surroundings,
    *,
    failed: bool = False,
    error: str = "",
    **more: Any,
) -> Action:
    found = agent_name(span, kind, surroundings)
    failed = failed or is_failed(span)
    return Action(
        dialect=NAME,
        kind=kind,
        agent=found.name,
        agent_source=found.source,
        pseudo_agent=is_ag2_helper(found.name),
        failed=failed,
        error=error or (error_of(span) if failed else ""),
        function=function_of(span) if kind in FUNCTION_KINDS else "",
        **more,
    )


def _read_llm(span: Span, kind: ActionKind, surroundings: Surroundings) -> Action:
    input_messages = flattened(span, INPUT_MESSAGES)
    output_messages = flattened(span, OUTPUT_MESSAGES)
    if not input_messages and not output_messages:
        input_messages, output_messages = conversation_of(span)
    if span.scope.name == STRANDS_SCOPE:  # its output includes the history's assistant messages
        input_messages, output_messages = (*input_messages, *output_messages[:-1]), output_messages[-1:]
    given, got = text(span.attributes, INPUT_VALUE) or "", text(span.attributes, OUTPUT_VALUE) or ""
    input_messages = with_bodies(input_messages, given)
    if span.scope.name == ADK_SCOPE:  # later calls overwrite earlier ones; only this is the last call's
        output_messages = messages_of(mapping(got).get("content")) or output_messages
    output_messages = output_messages or tuple(calls_in(got))
    system = system_text(input_messages)
    return _about(
        span,
        kind,
        surroundings,
        input_messages=input_messages,
        output_messages=output_messages,
        input="" if input_messages else asked(given),
        output="" if output_messages else answered(got),
        instructions=system or instructions_of(span),
        redacted=is_redacted(given, got, *(message.text for message in (*input_messages, *output_messages))),
    )


def _read_tool(span: Span, kind: ActionKind, surroundings: Surroundings) -> Action:
    if span.name.startswith(_HANDOFF_SPAN) and span.scope.name == _OPENAI_AGENTS:
        return _read_openai_handoff(span, surroundings)
    name = text(span.attributes, TOOL_NAME, GEN_AI_TOOL_NAME) or called_tool(span.name.removesuffix(".run"))
    given = without_context(text(span.attributes, *_ARGUMENTS) or "")
    got = without_response(text(span.attributes, OUTPUT_VALUE, GEN_AI_TOOL_CALL_RESULT) or documents_of(span))
    coworker = coworker_at_work(span, name, given, got, surroundings)
    if coworker is not None:
        return _read_coworker(span, coworker, given, got, surroundings)
    complaint = reported_failure(got)
    target = transfer_target(name, given)
    return _about(
        span,
        ActionKind.HANDOFF if target or is_silent_transfer(name, given) else kind,
        surroundings,
        tool=name,
        target=target or delegation_target(name, given),
        call_id=call_id_of(span, got),
        input=arguments_in(given),
        output=result_in(tool_words(plain_result(got))),
        failed=bool(complaint) or span.attributes.get(TOOL_STATUS) == "error",
        error=complaint,
        redacted=is_redacted(given, got),
    )


def _read_coworker(span: Span, role: str, given: str, got: str, surroundings: Surroundings) -> Action:
    action = _read_top(span, ActionKind.AGENT, surroundings)
    action = replace(action, agent=role, agent_source=AgentSource.METADATA, input=given, output=got)
    failure = failure_in(got)
    return replace(action, failed=True, error=failure, answer="") if failure else action


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


def _read_agent(span: Span, kind: ActionKind, surroundings: Surroundings) -> Action:
    action = _with_what_spawned_it(_read_top(span, kind, surroundings), span, surroundings)
    if action.agent is None and span.scope.name == _OPENAI_AGENTS:
        # openai-agents also marks its trace as an AGENT, named after the workflow.
        return replace(action, kind=ActionKind.WORKFLOW)
    if is_ag2_tool_reply(text(span.attributes, OUTPUT_VALUE) or ""):
        return replace(action, output="")  # AG2's user proxies return their tools' results
    if not surroundings.children(span) and "tool_calls" in (text(span.attributes, OUTPUT_VALUE) or ""):
        # AG2's replies have no model call below them; the reply lists the requested tools.
        output_messages = messages_of(span.attributes[OUTPUT_VALUE])
        return (
            replace(action, output_messages=output_messages)
            if any(message.calls for message in output_messages)
            else action
        )
    return action


def _with_what_spawned_it(action: Action, span: Span, surroundings: Surroundings) -> Action:
    """Add the facts about Claude's subagents that only the call that started them records."""
    call = spawned(span, surroundings)
    if call.name is None:
        return action
    return replace(
        action,
        task=action.task or call.task,
        input=action.input or call.task,
        answer=action.answer or call.answer,
        output=action.output or call.answer,
        failed=action.failed or call.failed,
        error=action.error or call.error,
    )


def _read_top(span: Span, kind: ActionKind, surroundings: Surroundings) -> Action:
    """Read a span that encloses a run or one agent's part of it, with a task and an answer."""
    given, got = text(span.attributes, INPUT_VALUE) or "", text(span.attributes, OUTPUT_VALUE) or ""
    given = "" if given == _NO_MESSAGE or _is_wiring(given) else given
    got = "" if _is_wiring(got) else got
    task, answer = crew_task(span, got) or asked(given), answered(got)
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


def _is_wiring(content: str) -> bool:
    """Say whether a text shows a framework's internals; the task is then read from the model calls."""
    return is_machinery(content) or _HAYSTACK_MESSAGE in content


def _read_other(span: Span, kind: ActionKind, surroundings: Surroundings) -> Action:
    given, got = text(span.attributes, INPUT_VALUE) or "", text(span.attributes, OUTPUT_VALUE) or ""
    return _about(
        span, kind, surroundings, input=given, output=got, tool=span.name, redacted=is_redacted(given, got)
    )


def _read_guardrail(span: Span, kind: ActionKind, surroundings: Surroundings) -> Action:
    action = _read_other(span, kind, surroundings)
    return as_guardrail(action, name=span.name, tripped=stopped_what_it_guards(span, surroundings))


_READERS: Final[Mapping[ActionKind, Callable[[Span, ActionKind, Surroundings], Action]]] = {
    ActionKind.LLM: _read_llm,
    ActionKind.TOOL: _read_tool,
    ActionKind.AGENT: _read_agent,
    ActionKind.WORKFLOW: _read_top,
    ActionKind.CONTAINER: _about,
    ActionKind.GUARDRAIL: _read_guardrail,
}

OPENINFERENCE: Final = Dialect(
    name=NAME, read=read_openinference, scopes=(_SCOPES,), keys=frozenset({OPENINFERENCE_SPAN_KIND})
)
