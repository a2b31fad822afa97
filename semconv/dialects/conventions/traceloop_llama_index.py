"""LlamaIndex in Traceloop's spans.

Source: opentelemetry-instrumentation-llamaindex 0.62 (``dispatcher_wrapper.py``) and llama-index-core 0.14
(``agent/workflow``, ``workflows``), seen with an ``AgentWorkflow`` of three function agents, with agents as
tools and with a query engine. Every method has a span with its return value, named only after its class.
OpenAI's model calls have none here; OpenAI's own instrumentation writes them. An agent's turn is three
methods: the second returns the agent's setup, and the next one is its model call. Spans of failed methods,
and those around them, are never ended, so never sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from semconv.attributes import GEN_AI_OPERATION_NAME
from semconv.dialects.reading.action import Action, ActionKind, Key, Message, Surroundings, key_of
from semconv.dialects.reading.agent_names import NO_AGENT, Found
from semconv.dialects.reading.messages import body_of, last_answer, last_request, message_of, system_text
from semconv.dialects.reading.observations import Observation, action_of
from semconv.dialects.reading.payloads import content_of
from semconv.dialects.reading.values import items, mapping, text, words
from semconv.model import AgentSource, Span, ToolCall
from semconv.record import replace

SCOPE: Final = "opentelemetry.instrumentation.llamaindex"
SPAN_KIND: Final = "traceloop.span.kind"
TOOL_NAME: Final = "tool.name"
TOOL_ARGUMENTS: Final = "tool.arguments"
TOOL_DESCRIPTION: Final = "tool.description"
ENTITY_INPUT: Final = "traceloop.entity.input"
ENTITY_OUTPUT: Final = "traceloop.entity.output"

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


def read_llama_index(span: Span, surroundings: Surroundings, dialect: str) -> Action | None:
    """Read a span of LlamaIndex's methods; ``None`` for operations common to all frameworks."""
    if GEN_AI_OPERATION_NAME in span.attributes:
        return None
    turn = surroundings.once_a_run(_turns).get(key_of(span))
    if _is_tool(span):
        return action_of(span, _tool(span, NO_AGENT if turn is None else turn.agent, dialect))
    if turn is not None:
        return _read_turn(span, turn, dialect)
    if span.name.endswith(_RETRIEVERS):
        return action_of(span, _search(span, dialect))
    got = text(span.attributes, ENTITY_OUTPUT) or ""
    return _whole(span, got, dialect) if _is_end(got) else None


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
        if span.scope.name != SCOPE:
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


def _read_turn(span: Span, turn: _Turn, dialect: str) -> Action:
    given = mapping(turn.setup.attributes.get(ENTITY_OUTPUT))
    input_messages = tuple(_messages(given.get("input")))
    is_unended = span is turn.setup
    output_messages = () if is_unended else _output_messages(span, turn)
    seen = Observation(dialect=dialect, kind=ActionKind.AGENT, agent=turn.agent)
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
    calls = tuple(_call(each) for each in turn.after if _is_tool(each))
    ends = (text(each.attributes, ENTITY_OUTPUT) or "" for each in turn.after)
    answer = next((_answer(got) for got in ends if _is_end(got)), "")
    return (Message(role="assistant", text=answer, calls=calls),) if calls or answer else ()


def _call(span: Span) -> ToolCall:
    return ToolCall(
        name=text(span.attributes, TOOL_NAME) or "",
        arguments=text(span.attributes, TOOL_ARGUMENTS) or "",
        call_id=text(mapping(span.attributes.get(ENTITY_OUTPUT)), "tool_id") or "",
    )


def _answer(got: str) -> str:
    """Return the text of a workflow's last event, which repeats the last agent's turn."""
    return last_answer(tuple(_messages([mapping(mapping(got).get("result")).get("response")])))


def _whole(span: Span, got: str, dialect: str) -> Action:
    """Read a workflow's run, or the method that ends it."""
    kind = ActionKind.WORKFLOW if span.attributes.get(SPAN_KIND) == "workflow" else ActionKind.CONTAINER
    answer = _answer(got)
    return replace(action_of(span, Observation(dialect=dialect, kind=kind)), answer=answer, output=answer)


def _tool(span: Span, agent: Found, dialect: str) -> Observation:
    done = mapping(span.attributes.get(ENTITY_OUTPUT))
    came_of_it = mapping(done.get("tool_output"))
    result = content_of(_as_ours({"role": "tool", **came_of_it})) or words(came_of_it.get("raw_output"))
    failed = came_of_it.get("is_error") is True
    return Observation(
        dialect=dialect,
        kind=ActionKind.TOOL,
        agent=agent,
        given=text(span.attributes, TOOL_ARGUMENTS),
        got=result,
        tool=text(span.attributes, TOOL_NAME) or "",
        call_id=text(done, "tool_id") or "",
        failed=failed,
        error=result if failed else "",
    )


def _search(span: Span, dialect: str) -> Observation:
    finds = (mapping(mapping(each).get("node")) for each in items(span.attributes.get(ENTITY_OUTPUT)))
    texts = (text(node, "text") or text(mapping(node.get("text_resource")), "text") for node in finds)
    return Observation(
        dialect=dialect,
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
