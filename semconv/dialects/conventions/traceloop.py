"""Traceloop's OpenLLMetry: its decorators, and its instrumentations of frameworks and SDKs.

Source: traceloop/openllmetry 0.40 to 0.62 (2025-2026), ``traceloop-sdk`` and
``opentelemetry-instrumentation-*``, seen from langchain and langgraph, openai-agents and OpenAI.
New versions speak the official ``gen_ai.*`` with their own beside it; old ones flatten messages. Its
scopes are ``opentelemetry.instrumentation.<library>``, as others' are too, so attributes tell it apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from semconv.attributes import (
    GEN_AI_AGENT_NAME,
    GEN_AI_INPUT_MESSAGES,
    GEN_AI_OPERATION_NAME,
    GEN_AI_OUTPUT_MESSAGES,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_ID,
    GEN_AI_TOOL_CALL_RESULT,
    GEN_AI_TOOL_NAME,
)
from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.conversation import last_answer, last_request
from semconv.dialects.langgraph import (
    LANGGRAPH_NODE,
    NAMELESS_GRAPHS,
    NOBODY,
    PLUMBING_NODES,
    Found,
    graph_agent,
    prefixed,
)
from semconv.dialects.model_calls import said_in
from semconv.dialects.observations import Observation, action_of
from semconv.dialects.otel_genai import KINDS, TOOL_STATUS, conversation_of, instructions_of, read_operation
from semconv.dialects.reading import items, mapping, structured, text, words
from semconv.dialects.surroundings import Surroundings
from semconv.dialects.traceloop_agno import TEAM_NAME, execution_in, team_of
from semconv.dialects.traceloop_crewai import CREW_RESULT, CREW_TASKS, crew_plan, is_crew, task_words
from semconv.dialects.traceloop_llama_index import SCOPE as LLAMA_INDEX
from semconv.dialects.traceloop_llama_index import read_llama_index
from semconv.dialects.traceloop_messages import COMPLETIONS, PROMPTS, completions_of, prompts_of
from semconv.dialects.traceloop_support import TRACELOOP_SUPPORT
from semconv.model import AgentSource, Span

NAME: Final = "traceloop"

SPAN_KIND: Final = "traceloop.span.kind"
ENTITY_NAME: Final = "traceloop.entity.name"
ENTITY_INPUT: Final = "traceloop.entity.input"
ENTITY_OUTPUT: Final = "traceloop.entity.output"
METADATA: Final = "traceloop.association.properties."
REQUEST_TYPE: Final = "llm.request.type"
ENTITY_PATH: Final = "traceloop.entity.path"
TASK_NAME: Final = "gen_ai.task.name"
TASK_STATUS: Final = "gen_ai.task.status"
TASK_INPUT: Final = "gen_ai.task.input"
TASK_OUTPUT: Final = "gen_ai.task.output"
GRAPH_NODES: Final = "gen_ai.workflow.nodes"
COMMAND_SOURCE: Final = "langgraph.command.source_node"
CREW_ROLE: Final = "crewai.agent.role"

_KINDS: Final[Mapping[str, ActionKind]] = {
    "workflow": ActionKind.WORKFLOW,
    "agent": ActionKind.AGENT,
    "tool": ActionKind.TOOL,
    "handoff": ActionKind.HANDOFF,
    "task": ActionKind.CONTAINER,
}
_MAX_ANCESTORS: Final = 64
_MODEL_REQUESTS: Final = frozenset({"chat", "completion"})
_FAILED: Final = frozenset({"error", "failed", "failure"})
_MARKS: Final = ("traceloop.", *(f"{prefix}.0." for prefix in (*PROMPTS, *COMPLETIONS)))
_LATER_MARKS: Final = tuple(
    f"{prefix}.{digit}" for prefix in (*PROMPTS, *COMPLETIONS) for digit in range(1, 10)
)
"""What is left of flattened messages where limits evicted the first."""
_MARKING_KEYS: Final = (REQUEST_TYPE, GRAPH_NODES, COMMAND_SOURCE, CREW_TASKS, CREW_RESULT)
_properties: Final = prefixed(METADATA)


def read_traceloop(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span that carries what only OpenLLMetry writes."""
    attributes = span.attributes
    marks = _MARKS if not span.dropped_attributes else (*_MARKS, *_LATER_MARKS)
    if not any(key in attributes for key in _MARKING_KEYS) and not any(
        key.startswith(marks) for key in attributes
    ):
        return None
    if span.scope.name == LLAMA_INDEX and (
        (action := read_llama_index(span, surroundings, NAME)) is not None
    ):
        return action
    kind = _kind_of(span, surroundings)
    if kind is None:
        return None  # another's span, with the association properties of a workflow around it
    return _action(span, kind, surroundings)


def _action(span: Span, kind: ActionKind, surroundings: Surroundings) -> Action:
    agent = _agent_of(span, kind, surroundings)
    if kind is ActionKind.HANDOFF:
        return read_operation(span, kind, NAME)
    if kind is ActionKind.LLM:
        return action_of(span, _call(span, agent))
    seen = _observed(span, kind, agent)
    match kind:
        case ActionKind.AGENT if prompts_of(span):
            return _turn(span, action_of(span, seen))
        case ActionKind.AGENT:
            seen = _at_task(span, seen, surroundings)
        case ActionKind.WORKFLOW if is_crew(span):
            seen = replace(seen, given=crew_plan(span), got=span.attributes.get(CREW_RESULT))
    return action_of(span, seen)


def _kind_of(span: Span, surroundings: Surroundings) -> ActionKind | None:
    attributes = span.attributes
    operation = KINDS.get(text(attributes, GEN_AI_OPERATION_NAME) or "")
    if operation in {ActionKind.SETUP, ActionKind.LLM}:
        return operation
    if GRAPH_NODES in attributes or is_crew(span):
        return ActionKind.WORKFLOW if is_crew(span) else _graph_kind(span, surroundings)
    if REQUEST_TYPE in attributes:
        is_chat = text(attributes, REQUEST_TYPE) in _MODEL_REQUESTS or any(map(_is_flattened, attributes))
        return ActionKind.LLM if is_chat else ActionKind.CONTAINER
    kind = ActionKind.AGENT if TEAM_NAME in attributes else None
    kind = kind or _KINDS.get(text(attributes, SPAN_KIND) or "", operation)
    if kind is not None:
        return kind
    if any(map(_is_flattened, attributes)):
        return ActionKind.LLM
    return ActionKind.CONTAINER if _says_something(span) else None


def _is_flattened(key: str) -> bool:
    return key.startswith((*_MARKS[1:], *_LATER_MARKS))


def _says_something(span: Span) -> bool:
    return any(name in span.attributes for name in (SPAN_KIND, ENTITY_NAME, COMMAND_SOURCE, TASK_NAME))


def _graph_kind(span: Span, surroundings: Surroundings) -> ActionKind:
    """Tell a graph that is one agent's own from one of several; beside its tasks it is but a mark."""
    if not surroundings.children(span):
        return ActionKind.CONTAINER
    nodes = set(map(words, items(span.attributes[GRAPH_NODES])))
    return ActionKind.AGENT if nodes <= PLUMBING_NODES else ActionKind.WORKFLOW


def _agent_of(span: Span, kind: ActionKind, surroundings: Surroundings) -> Found:
    named = text(span.attributes, GEN_AI_AGENT_NAME)
    if named is not None and named not in NAMELESS_GRAPHS:
        return Found(named)
    found = graph_agent(span, surroundings, _metadata)
    if found.name is not None:
        return found
    if kind is ActionKind.AGENT:
        own = team_of(span) or text(span.attributes, CREW_ROLE, ENTITY_NAME)
        return NOBODY if own is None or own in NAMELESS_GRAPHS else Found(own)
    above = islice(surroundings.ancestors(span), _MAX_ANCESTORS)
    return NOBODY if any(map(_is_agents, above)) else _on_the_path(span)


def _metadata(span: Span) -> Mapping[str, object]:
    """Return langgraph's metadata: from association properties; older, from a task's input."""
    found = _properties(span)
    raw = span.attributes.get(ENTITY_INPUT)
    if not found and isinstance(raw, str) and f'"{LANGGRAPH_NODE}"' in raw:
        return mapping(mapping(raw).get("metadata"))
    return found


def _is_agents(span: Span) -> bool:
    return span.attributes.get(SPAN_KIND) == "agent"


def _on_the_path(span: Span) -> Found:
    """Return the outermost task around a call: in a graph the node, else a decorated function."""
    node = (text(span.attributes, ENTITY_PATH) or "").partition(".")[0]
    is_part = node in PLUMBING_NODES or node in NAMELESS_GRAPHS or node.startswith("Runnable")
    return NOBODY if is_part or not node else Found(node, AgentSource.METADATA)


def _call(span: Span, agent: Found) -> Observation:
    heard, said = prompts_of(span), completions_of(span)
    if not heard and not said:
        heard, said = conversation_of(span)
    return Observation(
        dialect=NAME,
        kind=ActionKind.LLM,
        agent=agent,
        heard=heard,
        said=said,
        instructions=instructions_of(span),
        failed=_is_marked_failed(span),
    )


def _turn(span: Span, action: Action) -> Action:
    """Return an agent's span that is one model call (openai-agents before 0.46), with its messages."""
    heard, items_said = prompts_of(span), items(mapping(span.attributes.get(ENTITY_OUTPUT)).get("output"))
    said = completions_of(span) or said_in([structured(each) for each in items_said])
    asked, answer = last_request(heard), last_answer(said)
    return replace(action, heard=heard, said=said, task=asked, input=asked, answer=answer, output=answer)


def _at_task(span: Span, seen: Observation, surroundings: Surroundings) -> Observation:
    """Return an agent's run with the words of CrewAI's task, where it has none of its own."""
    asked, answer = task_words(span, surroundings)
    return replace(seen, given=seen.given or asked or None, got=seen.got or answer or None)


def _observed(span: Span, kind: ActionKind, agent: Found) -> Observation:
    attributes = span.attributes
    got = text(attributes, GEN_AI_TOOL_CALL_RESULT, ENTITY_OUTPUT, TASK_OUTPUT, GEN_AI_OUTPUT_MESSAGES)
    done = execution_in(got)
    return Observation(
        dialect=NAME,
        kind=kind,
        agent=agent,
        given=text(attributes, GEN_AI_TOOL_CALL_ARGUMENTS, ENTITY_INPUT, TASK_INPUT, GEN_AI_INPUT_MESSAGES),
        got=_result(done.result),
        tool=text(attributes, GEN_AI_TOOL_NAME, ENTITY_NAME) or span.name.removesuffix(".tool"),
        call_id=text(attributes, GEN_AI_TOOL_CALL_ID) or "",
        instructions=instructions_of(span),
        failed=done.failed or _is_marked_failed(span),
        error=done.error,
    )


def _result(got: Any) -> Any:
    """Return a chain's outputs without langchain's keyword arguments beside them."""
    value = structured(got)
    return value["outputs"] if isinstance(value, Mapping) and "outputs" in value else value


def _is_marked_failed(span: Span) -> bool:
    return any(text(span.attributes, name) in _FAILED for name in (TASK_STATUS, TOOL_STATUS))


TRACELOOP: Final = Dialect(name=NAME, read=read_traceloop, support=TRACELOOP_SUPPORT)
