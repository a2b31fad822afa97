"""Traceloop's OpenLLMetry: its decorators, and its instrumentations of frameworks and SDKs.

Source: traceloop/openllmetry 0.40 to 0.62 (2025-2026), ``traceloop-sdk`` and
``opentelemetry-instrumentation-*``, seen with langchain and langgraph, openai-agents and OpenAI. New
versions write ``gen_ai.*`` together with their own attributes; old ones flatten messages. Its scopes,
``opentelemetry.instrumentation.<library>``, are not unique to it, so it is recognised by its attributes.

Agno. Source: opentelemetry-instrumentation-agno 0.62 (``_tool_wrappers.py``) and agno 3.1, seen with a
team. A team's span is a workflow, its leader an agent like any other; model calls have no spans. A tool's
output is the ``str`` of agno's ``FunctionExecutionResult``. A delegation returns a generator, so its span
ends before the member's begins beside it.

LangChain.js. Source: npm ``@traceloop/instrumentation-langchain`` 0.27. Spans have no parents but the user's
own; a tool is a ``task`` with the operation ``execute_tool``, named after its class, and its result is
langchain's tool message, with the tool's name in it.

CrewAI. Source: opentelemetry-instrumentation-crewai 0.62 and crewai 1.15, seen in a sequential crew. The
crew's span has the plan and the result, without any mark of Traceloop's. A task's span has the texts of the
agent below it, whose own span has no texts. Tools have no spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
from semconv.dialects.conventions.otel_genai import (
    TOOL_STATUS,
    conversation_of,
    instructions_of,
    operation_kind,
    read_operation,
)
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Key, Message, Surroundings, key_of
from semconv.dialects.reading.agent_names import (
    LANGGRAPH_NODE,
    NAMELESS_GRAPHS,
    NO_AGENT,
    PLUMBING_NODES,
    Found,
    graph_agent,
    prefixed,
)
from semconv.dialects.reading.messages import (
    COMPLETIONS,
    PROMPTS,
    body_of,
    completions_of,
    last_answer,
    last_request,
    message_of,
    prompts_of,
    system_text,
)
from semconv.dialects.reading.observations import Observation, action_of, output_messages_in
from semconv.dialects.reading.payloads import content_of
from semconv.dialects.reading.python_repr import from_repr
from semconv.dialects.reading.values import items, mapping, structured, text, words
from semconv.model import AgentSource, Attributes, Span, ToolCall
from semconv.record import replace

TEAM_NAME: Final = "agno.team.name"
CREW_RESULT: Final = "crewai.crew.result"
CREW_TASKS: Final = "crewai.crew.tasks"
TASK_DESCRIPTION: Final = "crewai.task.description"

_EXECUTION: Final = re.compile(
    r"status='(?P<status>success|failure)' result=(?P<result>.*) error=(?P<error>.*) updated_session_state=",
    re.DOTALL,
)
_GENERATOR: Final = re.compile(r"<(?:async_)?generator object ")


@dataclass(frozen=True, slots=True)
class Execution:
    """A tool's result or error."""

    result: Any
    failed: bool = False
    error: str = ""


def execution_in(got: Any) -> Execution:
    """Return a tool's result or error from Agno's report; other outputs unchanged."""
    report = _EXECUTION.match(got) if isinstance(got, str) else None
    if report is None:
        return Execution(got)
    fields: Mapping[str, Any] = {key: _literal(report[key]) for key in ("result", "error")}
    return Execution(fields["result"], report["status"] == "failure", words(fields["error"]))


def _literal(shown: str) -> Any:
    """Return the value of a ``repr``; ``None`` for a generator, whose results other spans show."""
    if _GENERATOR.match(shown):
        return None
    found = from_repr(f"({shown},)")
    return found[0] if isinstance(found, tuple) else shown


def is_crew(span: Span) -> bool:
    """Say whether the span is a crew's whole run."""
    return CREW_TASKS in span.attributes or CREW_RESULT in span.attributes


def crew_plan(span: Span) -> str:
    """Return a crew's tasks in order, each wording once."""
    planned = (words(mapping(each).get("description")) for each in items(span.attributes.get(CREW_TASKS)))
    return "\n".join(filter(None, dict.fromkeys(planned)))


def task_words(span: Span, surroundings: Surroundings) -> tuple[str, str]:
    """Return the agent's request and answer, from the task directly above ``span``."""
    above = surroundings.parent(span)
    if above is None or TASK_DESCRIPTION not in above.attributes:
        return "", ""
    is_alone = len(surroundings.children(above)) == 1
    answer = text(above.attributes, ENTITY_OUTPUT) if is_alone else None
    return text(above.attributes, TASK_DESCRIPTION) or "", answer or ""


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
"""Keys left of flattened messages after limits evicted the first ones."""
_BEGINNINGS: Final = ("traceloop.", *PROMPTS, *COMPLETIONS)
"""All marks begin with one of these."""
_MARKING_KEYS: Final = frozenset({REQUEST_TYPE, GRAPH_NODES, COMMAND_SOURCE, CREW_TASKS, CREW_RESULT})
_properties: Final = prefixed(METADATA)


def read_traceloop(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span with attributes that only OpenLLMetry writes."""
    attributes = span.attributes
    marks = _MARKS if not span.dropped_attributes else (*_MARKS, *_LATER_MARKS)
    if _MARKING_KEYS.isdisjoint(attributes) and not _has_name(attributes, marks):
        return None
    if span.scope.name == LLAMA_INDEX and ((action := read_llama_index(span, surroundings)) is not None):
        return action
    kind = _kind_of(span, surroundings)
    if kind is None:
        return None  # a foreign span with an enclosing workflow's association properties
    return _action(span, kind, surroundings)


def _has_name(attributes: Attributes, beginnings: tuple[str, ...]) -> bool:
    """Say whether an attribute's name begins with one of the marks ``beginnings``."""
    names = "\n".join(attributes)  # faster to search than the names one at a time; most spans have no mark
    for beginning in _BEGINNINGS:
        if beginning in names:
            return any(name.startswith(beginnings) for name in attributes)
    return False


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
    operation = operation_kind(span)
    if operation in {ActionKind.SETUP, ActionKind.LLM, ActionKind.TOOL}:
        return operation  # tools from JavaScript have the kind ``task``
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
    """Return whether a graph is one agent or several; without children it is a marker beside its tasks."""
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
        own = text(span.attributes, TEAM_NAME, CREW_ROLE, ENTITY_NAME)
        return NO_AGENT if own is None or own in NAMELESS_GRAPHS else Found(own)
    above = islice(surroundings.ancestors(span), _MAX_ANCESTORS)
    return NO_AGENT if any(map(_is_agents, above)) else _on_the_path(span)


def _metadata(span: Span) -> Mapping[str, object]:
    """Return langgraph's metadata: from association properties, in older versions from a task's input."""
    found = _properties(span)
    raw = span.attributes.get(ENTITY_INPUT)
    if not found and isinstance(raw, str) and f'"{LANGGRAPH_NODE}"' in raw:
        return mapping(mapping(raw).get("metadata"))
    return found


def _is_agents(span: Span) -> bool:
    return span.attributes.get(SPAN_KIND) == "agent"


def _on_the_path(span: Span) -> Found:
    """Return the name of the outermost task around a call: a graph's node or a decorated function."""
    node = (text(span.attributes, ENTITY_PATH) or "").partition(".")[0]
    is_part = node in PLUMBING_NODES or node in NAMELESS_GRAPHS or node.startswith("Runnable")
    return NO_AGENT if is_part or not node else Found(node, AgentSource.METADATA)


def _call(span: Span, agent: Found) -> Observation:
    input_messages, output_messages = prompts_of(span), completions_of(span)
    if not input_messages and not output_messages:
        input_messages, output_messages = conversation_of(span)
    return Observation(
        dialect=NAME,
        kind=ActionKind.LLM,
        agent=agent,
        input_messages=input_messages,
        output_messages=output_messages,
        instructions=instructions_of(span),
        failed=_is_marked_failed(span),
    )


def _turn(span: Span, action: Action) -> Action:
    """Return an agent's span that is one model call (openai-agents before 0.46), with its messages."""
    input_messages, outputs = (
        prompts_of(span),
        items(mapping(span.attributes.get(ENTITY_OUTPUT)).get("output")),
    )
    output_messages = completions_of(span) or output_messages_in([structured(output) for output in outputs])
    asked, answer = last_request(input_messages), last_answer(output_messages)
    return replace(
        action,
        input_messages=input_messages,
        output_messages=output_messages,
        task=asked,
        input=asked,
        answer=answer,
        output=answer,
    )


def _at_task(span: Span, seen: Observation, surroundings: Surroundings) -> Observation:
    """Return an agent's run, with CrewAI's task texts if it has none of its own."""
    asked, answer = task_words(span, surroundings)
    return replace(seen, given=seen.given or asked or None, got=seen.got or answer or None)


def _observed(span: Span, kind: ActionKind, agent: Found) -> Observation:
    attributes = span.attributes
    got = text(attributes, GEN_AI_TOOL_CALL_RESULT, ENTITY_OUTPUT, TASK_OUTPUT, GEN_AI_OUTPUT_MESSAGES)
    done = execution_in(got)
    message = _tool_message(got) if kind is ActionKind.TOOL else {}
    return Observation(
        dialect=NAME,
        kind=kind,
        agent=agent,
        given=text(attributes, GEN_AI_TOOL_CALL_ARGUMENTS, ENTITY_INPUT, TASK_INPUT, GEN_AI_INPUT_MESSAGES),
        got=_result(done.result),
        tool=text(attributes, GEN_AI_TOOL_NAME)
        or text(message, "name")
        or text(attributes, ENTITY_NAME)
        or span.name.removesuffix(".tool"),
        call_id=text(attributes, GEN_AI_TOOL_CALL_ID) or text(message, "tool_call_id") or "",
        instructions=instructions_of(span),
        failed=done.failed or _is_marked_failed(span),
        error=done.error,
    )


def _tool_message(got: Any) -> Mapping[str, Any]:
    """Return the fields of langchain's tool message: its name, where JavaScript's span has only a class's."""
    return mapping(mapping(got).get("kwargs"))


def _result(got: Any) -> Any:
    """Return a chain's outputs without langchain's keyword arguments."""
    value = structured(got)
    return value["outputs"] if isinstance(value, Mapping) and "outputs" in value else value


def _is_marked_failed(span: Span) -> bool:
    return any(text(span.attributes, name) in _FAILED for name in (TASK_STATUS, TOOL_STATUS))


# --- LlamaIndex ---
#
# LlamaIndex in Traceloop's spans.
#
# Source: opentelemetry-instrumentation-llamaindex 0.62 (``dispatcher_wrapper.py``) and llama-index-core 0.14
# (``agent/workflow``, ``workflows``), seen with an ``AgentWorkflow`` of three function agents, with agents as
# tools and with a query engine. Every method has a span with its return value, named only after its class.
# OpenAI's model calls have none here; OpenAI's own instrumentation writes them. An agent's turn is three
# methods: the second returns the agent's setup, and the next one is its model call. Spans of failed methods,
# and those around them, are never ended, so never sent.


LLAMA_INDEX: Final = "opentelemetry.instrumentation.llamaindex"
TOOL_NAME: Final = "tool.name"
TOOL_ARGUMENTS: Final = "tool.arguments"
TOOL_DESCRIPTION: Final = "tool.description"

_SPEAKER: Final = "current_agent_name"
_SPEAKER_KEY: Final = f'"{_SPEAKER}"'
"""Present in every return value of an agent's methods; others are not parsed."""
_INPUT: Final = '{"input":'
_RESULT: Final = '{"result":'
_WORDLESS: Final = frozenset({"text", "thinking", "tool_call"})
"""Block types that are left out if they have no text."""
_RETRIEVERS: Final = ("Retriever.task", "Retriever.workflow")


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn of an agent: its model call and what followed."""

    setup: Span
    """The preceding method, which returned the agent's setup."""
    agent: Found
    """The agent named by the setup; parsed once for all its tools, since the setup holds the whole
    conversation.
    """
    after: list[Span] = field(default_factory=list)
    """Methods called after it, up to the next turn: its tools, and the end of the workflow."""


def read_llama_index(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span of LlamaIndex's methods; ``None`` for operations common to all frameworks."""
    if GEN_AI_OPERATION_NAME in span.attributes:
        return None
    turn = surroundings.once_a_run(_turns).get(key_of(span))
    if _is_tool(span):
        return action_of(span, _tool(span, NO_AGENT if turn is None else turn.agent))
    if turn is not None:
        return _read_turn(span, turn)
    if span.name.endswith(_RETRIEVERS):
        return action_of(span, _search(span))
    got = text(span.attributes, ENTITY_OUTPUT) or ""
    return _whole(span, got) if _is_end(got) else None


def _turns(surroundings: Surroundings) -> Mapping[Key, _Turn]:
    """Return the agents' turns by the keys of their call and tool spans."""
    return dict(_find_turns(surroundings))


def _find_turns(surroundings: Surroundings) -> Iterator[tuple[Key, _Turn]]:
    """Yield turns; a call whose span was never sent, and that nothing followed, is read from its setup."""
    waiting: dict[tuple[str, str | None], Span] = {}
    current: dict[tuple[str, str | None], _Turn] = {}
    latest = 0
    for span in surroundings.walked:
        latest = max(latest, span.start_ns)
        if span.scope.name != LLAMA_INDEX:
            continue
        family = (span.trace_id, span.parent_id)
        if _is_setup(span):
            waiting[family] = span
        elif (setup := waiting.pop(family, None)) is not None:
            current[family] = _begun(setup)
            yield key_of(span), current[family]
        elif family in current:
            current[family].after.append(span)
            if _is_tool(span):
                yield key_of(span), current[family]
    for setup in waiting.values():
        if setup.start_ns == latest:
            yield key_of(setup), _begun(setup)


def _is_setup(span: Span) -> bool:
    """Say whether a method returned an agent's setup, as the first and second of a turn do."""
    got = text(span.attributes, ENTITY_OUTPUT) or ""
    return got.startswith(_INPUT) and _SPEAKER_KEY in got and not _is_tool(span)


def _is_tool(span: Span) -> bool:
    """Say whether the span is a tool's call, not an older agent's step that only mentions one."""
    return TOOL_NAME in span.attributes and TOOL_DESCRIPTION not in span.attributes


def _is_end(got: str) -> bool:
    return got.startswith(_RESULT) and _SPEAKER_KEY in got


def _read_turn(span: Span, turn: _Turn) -> Action:
    given = mapping(turn.setup.attributes.get(ENTITY_OUTPUT))
    input_messages = tuple(_messages(given.get("input")))
    is_unended = span is turn.setup
    output_messages = () if is_unended else _output_messages(span, turn)
    seen = Observation(dialect=NAME, kind=ActionKind.AGENT, agent=turn.agent)
    return replace(
        action_of(span, seen),
        input_messages=input_messages,
        output_messages=output_messages,
        input=last_request(input_messages),
        output=body_of(output_messages[-1]) if output_messages else "",
        instructions=system_text(input_messages),
        is_unended=is_unended,
    )


def _output_messages(span: Span, turn: _Turn) -> tuple[Message, ...]:
    """Return a model's answer; for a stream, whose end no span records, it is inferred from what followed."""
    response = mapping(span.attributes.get(ENTITY_OUTPUT)).get("response")
    if response:
        return tuple(_messages([response]))
    calls = tuple(_llama_index_call(each) for each in turn.after if _is_tool(each))
    ends = (text(each.attributes, ENTITY_OUTPUT) or "" for each in turn.after)
    answer = next((_answer(got) for got in ends if _is_end(got)), "")
    return (Message(role="assistant", text=answer, calls=calls),) if calls or answer else ()


def _llama_index_call(span: Span) -> ToolCall:
    return ToolCall(
        name=text(span.attributes, TOOL_NAME) or "",
        arguments=text(span.attributes, TOOL_ARGUMENTS) or "",
        call_id=text(mapping(span.attributes.get(ENTITY_OUTPUT)), "tool_id") or "",
    )


def _answer(got: str) -> str:
    """Return the text of a workflow's last event, which repeats the last agent's turn."""
    return last_answer(tuple(_messages([mapping(mapping(got).get("result")).get("response")])))


def _whole(span: Span, got: str) -> Action:
    """Read a workflow's run, or the method that ends it."""
    kind = ActionKind.WORKFLOW if span.attributes.get(SPAN_KIND) == "workflow" else ActionKind.CONTAINER
    answer = _answer(got)
    return replace(action_of(span, Observation(dialect=NAME, kind=kind)), answer=answer, output=answer)


def _tool(span: Span, agent: Found) -> Observation:
    done = mapping(span.attributes.get(ENTITY_OUTPUT))
    came_of_it = mapping(done.get("tool_output"))
    result = content_of(_as_ours({"role": "tool", **came_of_it})) or words(came_of_it.get("raw_output"))
    failed = came_of_it.get("is_error") is True
    return Observation(
        dialect=NAME,
        kind=ActionKind.TOOL,
        agent=agent,
        given=text(span.attributes, TOOL_ARGUMENTS),
        got=result,
        tool=text(span.attributes, TOOL_NAME) or "",
        call_id=text(done, "tool_id") or "",
        failed=failed,
        error=result if failed else "",
    )


def _search(span: Span) -> Observation:
    finds = (mapping(mapping(each).get("node")) for each in items(span.attributes.get(ENTITY_OUTPUT)))
    texts = (text(node, "text") or text(mapping(node.get("text_resource")), "text") for node in finds)
    return Observation(
        dialect=NAME,
        kind=ActionKind.TOOL,
        given=text(span.attributes, ENTITY_INPUT),
        got="\n".join(filter(None, texts)),
        tool=span.name.rpartition(".")[0],
    )


def _begun(setup: Span) -> _Turn:
    name = text(mapping(setup.attributes.get(ENTITY_OUTPUT)), _SPEAKER)
    return _Turn(setup, NO_AGENT if name is None else Found(name, AgentSource.METADATA))


def _messages(values: Any) -> Iterator[Message]:
    for each in items(values):
        if (message := message_of(_as_ours(mapping(each)))) is not None:
            yield message


def _as_ours(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with its blocks converted to content and tool calls."""
    if "blocks" not in message:
        return message
    blocks = list(map(mapping, items(message["blocks"])))
    calls = [
        {
            "id": block.get("tool_call_id"),
            "name": block.get("tool_name"),
            "arguments": block.get("tool_kwargs"),
        }
        for block in blocks
        if block.get("block_type") == "tool_call"
    ]
    more = mapping(message.get("additional_kwargs"))
    return {
        "role": message.get("role"),
        "content": "\n".join(filter(None, map(_words_in, blocks))),
        "tool_calls": calls or more.get("tool_calls") or (),
        "tool_call_id": more.get("tool_call_id"),
    }


def _words_in(block: Mapping[str, Any]) -> str:
    kind = words(block.get("block_type"))
    return text(block, "text", "content") or ("" if kind in _WORDLESS else f"[{kind}]")


TRACELOOP: Final = Dialect(name=NAME, read=read_traceloop)
