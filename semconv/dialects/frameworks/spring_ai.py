"""Spring AI (Java), as Micrometer's observations become spans: ``spring.ai.*`` beside ``gen_ai.*``.

Source: spring-projects/spring-ai, ``AiObservationAttributes``, ``SpringAiKind``,
``ToolCallingObservationDocumentation`` and the reference's page on observability (1.0 to 2.0). The operation
``framework`` carries no information, the kind does: a chat client and its advisors group the calls, a
``tool_call`` is a tool (in later versions with the operation ``execute_tool``). Texts of calls are logged,
and on spans only where the application adds them,
as ``gen_ai.prompt`` and ``gen_ai.completion``, lists of texts without roles, or as the conventions'
messages. No span names an agent, unless the application's own observation does: a chat client inside a tool
is named by its prompt, else after the tool (``ask_purser`` runs ``purser``), others after the functions
around them (``@Observed``). Seen with 2.0.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Any, Final

from semconv.attributes import GEN_AI_AGENT_NAME, GEN_AI_OPERATION_NAME, GEN_AI_TOOL_CALL_ID
from semconv.dialects.conventions.otel_genai import KINDS, conversation_of
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import NO_AGENT, Found, agent_behind
from semconv.dialects.reading.observations import (
    Observation,
    action_of,
    messages_in_conversation,
    output_messages_in,
)
from semconv.dialects.reading.values import events_of, structured, text
from semconv.model import AgentSource, Span
from semconv.record import replace

NAME: Final = "spring_ai"

SCOPE: Final = "org.springframework."
KIND: Final = "spring.ai.kind"
TOOL_NAME: Final = "spring.ai.tool.definition.name"
TOOL_ARGUMENTS: Final = "spring.ai.tool.call.arguments"
TOOL_RESULT: Final = "spring.ai.tool.call.result"
TOOL_CALL_ID: Final = "spring.ai.tool.call.id"
PROMPT: Final = "gen_ai.prompt"
COMPLETION: Final = "gen_ai.completion"

_CLIENT: Final = "chat_client"
_TOOLS: Final = frozenset({"tool_call", "mcp_server_tool_call"})
_CONTENT: Final = {PROMPT: "gen_ai.content.prompt", COMPLETION: "gen_ai.content.completion"}
"""Events that held the texts before 1.0."""
_MAX_ANCESTORS: Final = 16


def read_spring_ai(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span with Spring AI's kind, or a model call of its scope."""
    kind = text(span.attributes, KIND)
    if kind in _TOOLS:
        return _read_tool(span)
    if kind == _CLIENT:
        return _read_client(span, surroundings)
    if kind is not None:
        return Action(dialect=NAME, kind=ActionKind.CONTAINER)
    operation = text(span.attributes, GEN_AI_OPERATION_NAME)
    is_call = span.scope.name.startswith(SCOPE) and KINDS.get(operation or "") is ActionKind.LLM
    return _read(span, ActionKind.LLM) if is_call else None


def _read_tool(span: Span) -> Action:
    seen = Observation(
        dialect=NAME,
        kind=ActionKind.TOOL,
        given=span.attributes.get(TOOL_ARGUMENTS),
        got=span.attributes.get(TOOL_RESULT),
        tool=text(span.attributes, TOOL_NAME) or span.name.partition(" ")[2],
        call_id=text(span.attributes, TOOL_CALL_ID, GEN_AI_TOOL_CALL_ID) or "",
    )
    return action_of(span, seen)


def _read_client(span: Span, surroundings: Surroundings) -> Action:
    above = list(islice(surroundings.ancestors(span), _MAX_ANCESTORS))
    if _is_named(above):
        return _read(span, ActionKind.CONTAINER)
    tools = (text(each.attributes, TOOL_NAME) for each in above if each.attributes.get(KIND) in _TOOLS)
    tool = next(filter(None, tools), None)
    if tool is not None:
        agent = _read(span, ActionKind.AGENT, Found(agent_behind(tool), AgentSource.METADATA))
        return replace(agent, is_named_by_tool=True)
    is_inside = any(KIND in each.attributes for each in above)
    return _read(span, ActionKind.CONTAINER if is_inside else ActionKind.WORKFLOW)


def _is_named(above: Sequence[Span]) -> bool:
    """Say whether the application names the agent, in a span nearer than the tool that runs it."""
    nearest = takewhile(lambda span: span.attributes.get(KIND) not in _TOOLS, above)
    return any(GEN_AI_AGENT_NAME in span.attributes for span in nearest)


def _read(span: Span, kind: ActionKind, agent: Found = NO_AGENT) -> Action:
    given, got = _content(span, PROMPT), _content(span, COMPLETION)
    is_call = kind is ActionKind.LLM
    input_messages, output_messages = (
        (messages_in_conversation(given), output_messages_in(got)) if is_call else ((), ())
    )
    if is_call and not input_messages and not output_messages:
        input_messages, output_messages = conversation_of(span)
    seen = Observation(
        dialect=NAME,
        kind=kind,
        agent=agent,
        given=given,
        got=got,
        input_messages=input_messages,
        output_messages=output_messages,
    )
    return action_of(span, seen)


def _content(span: Span, key: str) -> Any:
    value = span.attributes.get(key)
    if value is None:
        value = next((event.attributes.get(key) for event in events_of(span, _CONTENT[key])), None)
    return structured(value)


SPRING_AI: Final = Dialect(name=NAME, read=read_spring_ai, scopes=(SCOPE,), keys=frozenset({KIND}))
