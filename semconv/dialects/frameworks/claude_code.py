"""Claude Code, as it traces itself (beta).

Source: runs of Claude Code 2.1.330, and its monitoring documentation (November 2026). Scope
``com.anthropic.claude_code.tracing``; every span names its kind in ``span.type``. A prompt is a
``claude_code.interaction``; below it stand model calls and tools, below a tool its execution and the
wait for permission. The execution of a tool that spawned a subagent encloses the subagent's model calls
and tools. The subagent's name stands on the tool, as ``subagent_type``, with
``OTEL_LOG_TOOL_DETAILS=1``, and on its model calls, in ``query_source``, with detailed tracing
(``ENABLE_BETA_TRACING_DETAILED=1``); without either an ``agent_id`` tells subagents apart. What models
said stands in log events, or on the span with detailed tracing; that a model asked for tools stands
nowhere. A report from the background begins an interaction of its own, which is no task. Hidden texts
are ``<REDACTED>``. A tool may begin before the model call that asked for it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice
from typing import Any, Final

from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.claude_code_background import reported_call
from semconv.dialects.claude_code_events import answer_beside, result_beside
from semconv.dialects.langgraph import Found
from semconv.dialects.reading import (
    REDACTED,
    error_of,
    events_of,
    is_failed,
    is_redacted,
    mapping,
    text,
    words,
)
from semconv.dialects.support import Support, gives, lacks, partly
from semconv.dialects.surroundings import Surroundings
from semconv.model import AgentSource, Span

NAME: Final = "claude_code"

SCOPE: Final = "com.anthropic.claude_code"
SPAN_TYPE: Final = "span.type"
USER_PROMPT: Final = "user_prompt"
NEW_CONTEXT: Final = "new_context"
MODEL_OUTPUT: Final = "response.model_output"
SYSTEM_PROMPT: Final = "system_prompt_preview"
TOOL_NAME: Final = "tool_name"
TOOL_CALL_IDS: Final = ("gen_ai.tool.call.id", "tool_use_id")
TOOL_INPUT: Final = "tool_input"
TOOL_DETAILS: Final = ("full_command", "file_path", "skill_name")
TOOL_OUTPUT_EVENT: Final = "tool.output"
TOOL_RESULT_CONTEXT: Final = "new_context"
"""On a tool; the same key on a model call is what is new in the conversation."""
SUBAGENT_TYPE: Final = "subagent_type"
AGENT_ID: Final = "agent_id"
QUERY_SOURCE: Final = "query_source"
SUCCESS: Final = "success"
ERROR: Final = "error"
DECISION: Final = "decision"

_PREFIX: Final = "claude_code."
_MAIN_AGENT: Final = "claude_code"
"""Its own agent has no name in the spans; only subagents have."""
_HIDDEN: Final = "<REDACTED>"
_SUBAGENT_SOURCE: Final = "agent:"
"""Begins the ``query_source`` of subagents: ``agent:builtin:general-purpose``, ``agent:custom:reviewer``."""
_OUTPUTS: Final = ("output", "content", "result", "tool_output")
_INPUTS: Final = ("input", TOOL_INPUT)
_HEADINGS: Final = ("[TOOL INPUT: ", "[TOOL RESULT: ")
"""Begin the line that detailed tracing sets before a tool's texts: ``[TOOL INPUT: Bash]``."""
_FIRST_CALLS: Final = 8
"""In how many spans below a tool its subagent's name is looked for: its first call is among them."""
_KINDS: Final[Mapping[str, ActionKind]] = {
    "interaction": ActionKind.AGENT,
    "llm_request": ActionKind.LLM,
    "tool": ActionKind.TOOL,
}
"""By ``span.type``; any other is a container (executions, waits, hooks)."""


def read_claude_code(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span of Claude Code's own tracer."""
    if not span.scope.name.startswith(SCOPE) and not span.name.startswith(_PREFIX):
        return None
    kind = _KINDS.get(
        text(span.attributes, SPAN_TYPE) or span.name.removeprefix(_PREFIX), ActionKind.CONTAINER
    )
    found = _agent(span, surroundings)
    content = _content(span, kind, surroundings)
    error = _error(span, kind, surroundings)
    return Action(
        dialect=NAME,
        kind=kind,
        agent=found.name,
        agent_source=found.source,
        failed=bool(error) or is_failed(span),
        error=error or (error_of(span) if is_failed(span) else ""),
        redacted=is_redacted(*(value for value in content.values() if isinstance(value, str))),
        **content,
    )


def _content(span: Span, kind: ActionKind, surroundings: Surroundings) -> dict[str, Any]:
    match kind:
        case ActionKind.AGENT:
            prompt = _told(text(span.attributes, USER_PROMPT))
            return {"task": "" if reported_call(prompt) else prompt, "input": prompt}
        case ActionKind.LLM:
            return {
                "input": _told(text(span.attributes, NEW_CONTEXT)),
                "output": _told(text(span.attributes, MODEL_OUTPUT) or answer_beside(span, surroundings)),
                "instructions": _told(text(span.attributes, SYSTEM_PROMPT)),
            }
        case ActionKind.TOOL:
            return _tool_content(span, surroundings)
    return {}


def _tool_content(span: Span, surroundings: Surroundings) -> dict[str, Any]:
    event = next(iter(events_of(span, TOOL_OUTPUT_EVENT)), None)
    written = event.attributes if event is not None else {}
    given = (
        text(written, *_INPUTS)
        or _under_heading(text(span.attributes, TOOL_INPUT))
        or text(result_beside(span, surroundings), TOOL_INPUT)
    )
    got = text(written, *_OUTPUTS) or _under_heading(text(span.attributes, TOOL_RESULT_CONTEXT))
    return {
        "tool": text(span.attributes, TOOL_NAME) or span.name,
        "call_id": text(span.attributes, *TOOL_CALL_IDS) or "",
        "target": text(span.attributes, SUBAGENT_TYPE) or text(mapping(given), SUBAGENT_TYPE),
        "input": _told(given or text(span.attributes, *TOOL_DETAILS)),
        "output": _told(got),
    }


def _under_heading(value: str | None) -> str:
    heading, _, rest = (value or "").partition("\n")
    return rest if heading.startswith(_HEADINGS) else value or ""


def _told(value: str | None) -> str:
    return REDACTED if value == _HIDDEN else value or ""


def _error(span: Span, kind: ActionKind, surroundings: Surroundings) -> str:
    """Return what went wrong; a tool's span itself always ends without status."""
    holders = [span]
    if kind is ActionKind.TOOL:
        holders += [each for each in surroundings.children(span) if _is_part_of_tool(each)]
    for holder in holders:
        if words(holder.attributes.get(SUCCESS)).lower() == "false":
            return words(holder.attributes.get(ERROR)) or error_of(holder) or "unspecified error"
        if holder.attributes.get(DECISION) == "reject":
            return "rejected by the user"
    return ""


def _is_part_of_tool(span: Span) -> bool:
    return _type_of(span).startswith("tool.")


def _type_of(span: Span) -> str:
    return text(span.attributes, SPAN_TYPE) or span.name.removeprefix(_PREFIX)


def _agent(span: Span, surroundings: Surroundings) -> Found:
    """Return whose span this is: the nearest enclosing subagent's, else the main agent's."""
    own = _subagent_in(span)
    if own is not None:
        return Found(own, AgentSource.METADATA)
    for above in surroundings.ancestors(span):
        if TOOL_NAME in above.attributes:
            spawned = _spawned_by(above, surroundings)
            if spawned is not None:
                return Found(spawned, AgentSource.METADATA)
    nameless = text(span.attributes, AGENT_ID)
    return Found(nameless, AgentSource.METADATA) if nameless else Found(_MAIN_AGENT, AgentSource.SPAN_NAME)


def _spawned_by(tool: Span, surroundings: Surroundings) -> str | None:
    named = text(tool.attributes, SUBAGENT_TYPE) or text(
        mapping(tool.attributes.get(TOOL_INPUT)), SUBAGENT_TYPE
    )
    if named is not None:
        return named
    parts = [tool, *filter(_is_part_of_tool, surroundings.children(tool))]
    inner = chain.from_iterable(islice(surroundings.children(part), _FIRST_CALLS) for part in parts)
    return next(filter(None, map(_subagent_in, inner)), None)


def _subagent_in(span: Span) -> str | None:
    source = text(span.attributes, QUERY_SOURCE) or ""
    return source.rpartition(":")[2] or None if source.startswith(_SUBAGENT_SOURCE) else None


CLAUDE_CODE: Final = Dialect(
    name=NAME,
    read=read_claude_code,
    support=(
        Support(
            framework="Claude Code",
            instrumentation="built in, 2.1 (beta)",
            source="recorded",
            agent=partly(
                "subagents by `subagent_type` or `query_source`, else by `agent_id`; the main one has no name"
            ),
            text=partly("answers in log events: send logs too; prompts with detailed tracing; calls nowhere"),
            tools=partly("names always; arguments and results with the switches"),
            handoff=lacks("the tool that starts a subagent encloses its work"),
            task=partly("`user_prompt` on the interaction, with the switch"),
            errors=gives("status and the tool's outcome"),
            scopes=(SCOPE,),
            switches=(
                "OTEL_LOG_USER_PROMPTS=1",
                "OTEL_LOG_TOOL_DETAILS=1",
                "OTEL_LOG_TOOL_CONTENT=1",
                "OTEL_LOGS_EXPORTER=otlp",
                "ENABLE_BETA_TRACING_DETAILED=1",
            ),
        ),
    ),
)
