"""What is LlamaIndex's own in Traceloop's spans.

Source: opentelemetry-instrumentation-llamaindex 0.62 (``dispatcher_wrapper.py``) and llama-index-core 0.14
(``agent/workflow``, ``workflows``), seen from an ``AgentWorkflow`` of three function agents, from agents
as tools and from a query engine. Every method has a span with what it returned, named after its class
alone; OpenAI's model calls have none, for its own instrumentation to write. An agent's turn is three
methods: the second returns what the agent is set up with, and what follows that is the agent's call of
its model. Spans of what failed are never ended, so never sent, nor are those around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from semconv.attributes import GEN_AI_OPERATION_NAME
from semconv.dialects.action import Action, ActionKind, Message, ToolCall
from semconv.dialects.conversation import body_of, last_answer, last_request
from semconv.dialects.langgraph import NOBODY, Found
from semconv.dialects.messages import message_of
from semconv.dialects.observations import Observation, action_of
from semconv.dialects.payloads import content_of
from semconv.dialects.reading import items, mapping, text, words
from semconv.dialects.surroundings import Key, Surroundings, key_of
from semconv.model import AgentSource, Span

SCOPE: Final = "opentelemetry.instrumentation.llamaindex"
SPAN_KIND: Final = "traceloop.span.kind"
TOOL_NAME: Final = "tool.name"
TOOL_ARGUMENTS: Final = "tool.arguments"
TOOL_DESCRIPTION: Final = "tool.description"
ENTITY_INPUT: Final = "traceloop.entity.input"
ENTITY_OUTPUT: Final = "traceloop.entity.output"

_SPEAKER: Final = "current_agent_name"
_SPEAKER_KEY: Final = f'"{_SPEAKER}"'
"""Stands in all that an agent's methods return; spares parsing what else is returned."""
_INPUT: Final = '{"input":'
_RESULT: Final = '{"result":'
_WORDLESS: Final = frozenset({"text", "thinking", "tool_call"})
"""Kinds of blocks that are not named where they have no text."""
_RETRIEVERS: Final = ("Retriever.task", "Retriever.workflow")


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn of an agent: its call of the model, and what came of it."""

    setup: Span
    """What was called before, and returned what the agent is given."""
    agent: Found
    """Who that says it is; read once for all its tools, since the whole conversation stands there."""
    after: list[Span] = field(default_factory=list)
    """What was called after it, up to the next turn: its tools, and what ends the workflow."""


def read_llama_index(span: Span, surroundings: Surroundings, dialect: str) -> Action | None:
    """Read a span of LlamaIndex's methods; ``None`` for what other frameworks have too."""
    if GEN_AI_OPERATION_NAME in span.attributes:
        return None
    turn = _turns_of(surroundings).get(key_of(span))
    if _is_tool(span):
        return action_of(span, _tool(span, NOBODY if turn is None else turn.agent, dialect))
    if turn is not None:
        return _read_turn(span, turn, dialect)
    if span.name.endswith(_RETRIEVERS):
        return action_of(span, _search(span, dialect))
    got = text(span.attributes, ENTITY_OUTPUT) or ""
    return _whole(span, got, dialect) if _is_end(got) else None


_TURNS: WeakKeyDictionary[Surroundings, Mapping[Key, _Turn]] = WeakKeyDictionary()


def _turns_of(surroundings: Surroundings) -> Mapping[Key, _Turn]:
    """Return the agents' turns by the spans of their calls and tools; looked for once a run."""
    found = _TURNS.get(surroundings)
    if found is None:
        found = _TURNS[surroundings] = dict(_find_turns(surroundings))
    return found


def _find_turns(surroundings: Surroundings) -> Iterator[tuple[Key, _Turn]]:
    """Yield turns; one whose call was never sent is told by its set-up, if nothing came after that."""
    waiting: dict[tuple[str, str | None], Span] = {}
    current: dict[tuple[str, str | None], _Turn] = {}
    latest = 0
    for span in surroundings.walk():
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
    """Say whether a method returned what an agent is given: the first of a turn does, and the second."""
    got = text(span.attributes, ENTITY_OUTPUT) or ""
    return got.startswith(_INPUT) and _SPEAKER_KEY in got and not _is_tool(span)


def _is_tool(span: Span) -> bool:
    """Say whether the span is a tool's call, not an older agent's step that was told of one."""
    return TOOL_NAME in span.attributes and TOOL_DESCRIPTION not in span.attributes


def _is_end(got: str) -> bool:
    return got.startswith(_RESULT) and _SPEAKER_KEY in got


def _read_turn(span: Span, turn: _Turn, dialect: str) -> Action:
    given = mapping(turn.setup.attributes.get(ENTITY_OUTPUT))
    heard = tuple(_messages(given.get("input")))
    said = () if span is turn.setup else _said(span, turn)
    seen = Observation(dialect=dialect, kind=ActionKind.AGENT, agent=turn.agent)
    return replace(
        action_of(span, seen),
        heard=heard,
        said=said,
        input=last_request(heard),
        output=body_of(said[-1]) if said else "",
        instructions="\n".join(message.text for message in heard if message.role == "system"),
    )


def _said(span: Span, turn: _Turn) -> tuple[Message, ...]:
    """Return what a model answered; of a stream, whose end no span tells, what came of it."""
    told = mapping(span.attributes.get(ENTITY_OUTPUT)).get("response")
    if told:
        return tuple(_messages([told]))
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
    """Return the words in what ends a workflow: its last agent's turn once more."""
    return last_answer(tuple(_messages([mapping(mapping(got).get("result")).get("response")])))


def _whole(span: Span, got: str, dialect: str) -> Action:
    """Read a workflow's run, or the method that ends it."""
    kind = ActionKind.WORKFLOW if span.attributes.get(SPAN_KIND) == "workflow" else ActionKind.CONTAINER
    answer = _answer(got)
    return replace(action_of(span, Observation(dialect=dialect, kind=kind)), answer=answer, output=answer)


def _tool(span: Span, agent: Found, dialect: str) -> Observation:
    done = mapping(span.attributes.get(ENTITY_OUTPUT))
    came_of_it = mapping(done.get("tool_output"))
    said = content_of(_as_ours({"role": "tool", **came_of_it})) or words(came_of_it.get("raw_output"))
    failed = came_of_it.get("is_error") is True
    return Observation(
        dialect=dialect,
        kind=ActionKind.TOOL,
        agent=agent,
        given=text(span.attributes, TOOL_ARGUMENTS),
        got=said,
        tool=text(span.attributes, TOOL_NAME) or "",
        call_id=text(done, "tool_id") or "",
        failed=failed,
        error=said if failed else "",
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
    return _Turn(setup, NOBODY if name is None else Found(name, AgentSource.METADATA))


def _messages(values: Any) -> Iterator[Message]:
    for each in items(values):
        if (message := message_of(_as_ours(mapping(each)))) is not None:
            yield message


def _as_ours(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with its blocks as the content and the calls that others write."""
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
