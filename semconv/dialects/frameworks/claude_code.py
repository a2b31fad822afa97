"""Claude Code's own tracing (beta).

Source: runs of Claude Code 2.1.330, and its monitoring documentation (November 2026). Scope
``com.anthropic.claude_code.tracing``; ``span.type`` gives the kind of span.

- A prompt is a ``claude_code.interaction``. Its children are model calls and tools; a tool's children are its
  execution and the wait for permission. A tool may begin before the model call that requested it ends.
- The execution of a tool that starts a subagent encloses the subagent's model calls and tools. The
  subagent's name is on the tool, as ``subagent_type``, with ``OTEL_LOG_TOOL_DETAILS=1``, and on its model
  calls, in ``query_source``, with detailed tracing (``ENABLE_BETA_TRACING_DETAILED=1``); without either,
  only ``agent_id`` distinguishes subagents.
- Answers are in log events, or on the span with detailed tracing. An event is at the parent of the span it
  describes: a model's answer (``assistant_response``, with the request's id), a tool's input and result
  (``tool_result``, with the call's id). An interaction may hold thousands of events; only those within the
  span's time are searched. No span records that a model requested a tool. Hidden texts are
  ``<REDACTED>``.
- Subagents work in the background by default. A finished one's report begins a new interaction, which is a
  trace of its own without links and is not a task; its prompt names the call that started the work. Traces
  are not joined by their session: a person asks many things in one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice, takewhile
from typing import Any, Final

from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import Found
from semconv.dialects.reading.values import (
    REDACTED,
    error_of,
    events_of,
    is_failed,
    is_redacted,
    mapping,
    text,
    words,
)
from semconv.model import AgentSource, Attributes, Span

NAME: Final = "claude_code"

SCOPE: Final = "com.anthropic.claude_code"
SPAN_TYPE: Final = "span.type"
USER_PROMPT: Final = "user_prompt"
NEW_CONTEXT: Final = "new_context"
MODEL_OUTPUT: Final = "response.model_output"
SYSTEM_PROMPT: Final = "system_prompt_preview"
TOOL_NAME: Final = "tool_name"
TOOL_INPUT: Final = "tool_input"
TOOL_DETAILS: Final = ("full_command", "file_path", "skill_name")
TOOL_OUTPUT_EVENT: Final = "tool.output"
TOOL_RESULT_CONTEXT: Final = "new_context"
"""A tool's result; on a model call the same key holds the new part of the conversation."""
SUBAGENT_TYPE: Final = "subagent_type"
AGENT_ID: Final = "agent_id"
QUERY_SOURCE: Final = "query_source"
SUCCESS: Final = "success"
ERROR: Final = "error"
DECISION: Final = "decision"
SESSION_ID: Final = "session.id"
TOOL_USE_ID: Final = "tool_use_id"
TOOL_CALL_IDS: Final = ("gen_ai.tool.call.id", TOOL_USE_ID)
ASSISTANT_RESPONSE: Final = "assistant_response"
RESPONSE: Final = "response"
REQUEST_ID: Final = "request_id"
TOOL_RESULT: Final = "tool_result"

_PREFIX: Final = "claude_code."
_MAIN_AGENT: Final = "claude_code"
"""Name for the main agent: only subagents are named in spans."""
_HIDDEN: Final = "<REDACTED>"
_SUBAGENT_SOURCE: Final = "agent:"
"""Prefix of subagents' ``query_source``: ``agent:builtin:general-purpose``, ``agent:custom:reviewer``."""
_OUTPUTS: Final = ("output", "content", "result", "tool_output")
_INPUTS: Final = ("input", TOOL_INPUT)
_HEADINGS: Final = ("[TOOL INPUT: ", "[TOOL RESULT: ")
"""Prefixes of the line that detailed tracing puts before a tool's texts: ``[TOOL INPUT: Bash]``."""
_FIRST_CALLS: Final = 8
"""Spans below a tool to search for its subagent's name: its first call is among them."""
_KINDS: Final[Mapping[str, ActionKind]] = {
    "interaction": ActionKind.AGENT,
    "llm_request": ActionKind.LLM,
    "tool": ActionKind.TOOL,
}
"""Kinds by ``span.type``; any other type is a container (executions, waits, hooks)."""
_SPAWNING: Final = frozenset({"Agent", "Task"})
"""Tools that start a subagent."""
_REPORT: Final = re.compile(
    r"\s*<task-notification>\s*<task-id>[^<]{0,80}</task-id>\s*<tool-use-id>(?P<call>[\w-]{1,80})</tool-use-id>"
)
"""Start of a report; the rest is the subagent's text and may contain anything."""
_EARLY_NS: Final = 1_000_000
"""Events carry whole milliseconds."""
_LATE_NS: Final = 1_000_000_000
"""An event is written right after the span that it describes."""


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
            prompt = _shown(text(span.attributes, USER_PROMPT))
            return {"task": "" if reported_call(prompt) else prompt, "input": prompt}
        case ActionKind.LLM:
            return {
                "input": _shown(text(span.attributes, NEW_CONTEXT)),
                "output": _shown(text(span.attributes, MODEL_OUTPUT) or answer_beside(span, surroundings)),
                "instructions": _shown(text(span.attributes, SYSTEM_PROMPT)),
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
        "input": _shown(given or text(span.attributes, *TOOL_DETAILS)),
        "output": _shown(got),
    }


def _under_heading(value: str | None) -> str:
    heading, _, rest = (value or "").partition("\n")
    return rest if heading.startswith(_HEADINGS) else value or ""


def _shown(value: str | None) -> str:
    return REDACTED if value == _HIDDEN else value or ""


def _error(span: Span, kind: ActionKind, surroundings: Surroundings) -> str:
    """Return the error; a tool's own span always ends without status."""
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
    return (text(span.attributes, SPAN_TYPE) or span.name.removeprefix(_PREFIX)).startswith("tool.")


def _agent(span: Span, surroundings: Surroundings) -> Found:
    """Return the span's agent: the nearest enclosing subagent, else the main agent."""
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


def reported_call(prompt: str) -> str | None:
    """Return the call that a prompt reports on; ``None`` for a person's prompt."""
    found = _REPORT.match(prompt)
    return found["call"] if found else None


def background_keys(spans: Iterable[Span]) -> Iterator[str]:
    """Yield the keys shared by the traces of calls and of their reports: session and call id."""
    for span in spans:
        if not span.scope.name.startswith(SCOPE):
            continue
        if span.attributes.get(TOOL_NAME) in _SPAWNING:
            call = text(span.attributes, TOOL_USE_ID)
        else:
            call = reported_call(text(span.attributes, USER_PROMPT) or "")
        if call is not None:
            yield f"{NAME}:{text(span.attributes, SESSION_ID) or ''}:{call}"


def answer_beside(span: Span, surroundings: Surroundings) -> str | None:
    """Return the model's answer, from the event with the same request id."""
    event = _event(span, surroundings, ASSISTANT_RESPONSE, REQUEST_ID)
    return text(event, RESPONSE)


def result_beside(span: Span, surroundings: Surroundings) -> Attributes:
    """Return the attributes of the tool result's event; empty if none was written."""
    return _event(span, surroundings, TOOL_RESULT, TOOL_USE_ID)


def _event(span: Span, surroundings: Surroundings, name: str, key: str) -> Attributes:
    wanted = text(span.attributes, key)
    if wanted is None:
        return {}
    return next((found for found in _events_beside(span, surroundings, name) if found.get(key) == wanted), {})


def _events_beside(span: Span, surroundings: Surroundings, name: str) -> Iterator[Attributes]:
    above = surroundings.parent(span)
    if above is None:
        return
    first = bisect_left(above.logs, span.start_ns - _EARLY_NS, key=lambda event: event.time_ns)
    until = span.end_ns + _LATE_NS
    candidates = (above.logs[index] for index in range(first, len(above.logs)))
    for event in takewhile(lambda event: event.time_ns <= until, candidates):
        if event.name == name:
            yield event.attributes


CLAUDE_CODE: Final = Dialect(name=NAME, read=read_claude_code, run_keys=background_keys)
