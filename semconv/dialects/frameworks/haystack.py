"""Haystack's own tracing: pipelines, components and agents, each span named after what it runs.

Source: deepset-ai/haystack, ``haystack/components/agents/agent.py`` and ``tool_calling.py``, and
deepset-ai/haystack-core-integrations, ``integrations/opentelemetry``; recorded from haystack-ai 3.4 with
opentelemetry-haystack. Content needs ``HAYSTACK_CONTENT_TRACING_ENABLED=true``; without it a model call's
span has no attributes at all. An agent has no name: it is named after its component in the pipeline, or the
tool that runs it, if its prompt names none. Messages are JSON, or the ``repr`` of ``ChatMessage`` where
something beside them has no JSON. Before 3.0 an agent's calls were components (``chat_generator``,
``tool_invoker``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from semconv.dialects.reading.action import Action, ActionKind, Dialect, Message, Surroundings
from semconv.dialects.reading.agent_names import NO_AGENT, Found, agent_behind, names_an_agent
from semconv.dialects.reading.messages import last_answer, last_request, messages_of, system_text
from semconv.dialects.reading.observations import Observation, action_of
from semconv.dialects.reading.python_repr import from_repr
from semconv.dialects.reading.values import items, mapping, text, words
from semconv.model import AgentSource, Span
from semconv.record import replace

NAME: Final = "haystack"

PREFIX: Final = "haystack."
COMPONENT_NAME: Final = "haystack.component.name"
COMPONENT_TYPE: Final = "haystack.component.type"
TOOL_NAME: Final = "haystack.tool.name"
TOOL_ERROR: Final = "haystack.tool.error"

_AGENT: Final = "haystack.agent.run"
_TOOL: Final = "haystack.agent.step.tool"
_CALL: Final = "haystack.agent.step.llm"
_COMPONENTS: Final = ("haystack.component.run", "haystack.chat_generator.run")
_PIPELINES: Final = ("haystack.pipeline.run", "haystack.async_pipeline.run")
_INVOKER: Final = "ToolInvoker"
_MAX_ANCESTORS: Final = 16
_QUOTED: Final = r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_MESSAGE: Final = "ChatMessage(_role=<ChatRole."
_ROLE: Final = re.compile(r"\w+: '(\w+)'>")
_TEXT: Final = re.compile(rf"TextContent\(text={_QUOTED}", re.DOTALL)
_ASKED: Final = re.compile(
    rf"ToolCall\(tool_name={_QUOTED}, arguments=(\{{[^{{}}]*\}}), id={_QUOTED}", re.DOTALL
)
_RESULT: Final = re.compile(rf"ToolCallResult\(result={_QUOTED}", re.DOTALL)


def read_haystack(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span by its name; spans of steps and of other components are containers."""
    if not span.name.startswith(PREFIX):
        return None
    if span.name == _CALL:
        return _read_call(span, _CALL)
    if span.name == _TOOL:
        return _read_tool(span)
    if span.name == _AGENT:
        return _read_agent(span, surroundings)
    if span.name in _COMPONENTS:
        return _read_component(span)
    is_pipeline = span.name in _PIPELINES
    return Action(dialect=NAME, kind=ActionKind.WORKFLOW if is_pipeline else ActionKind.CONTAINER)


def _read_call(span: Span, prefix: str, agent: Found = NO_AGENT) -> Action:
    given, got = span.attributes.get(f"{prefix}.input"), span.attributes.get(f"{prefix}.output")
    input_messages, output_messages = _messages(given, "messages"), _messages(got, "replies")
    seen = Observation(
        dialect=NAME,
        kind=ActionKind.LLM,
        agent=agent,
        given="" if input_messages else given,
        got="" if output_messages else got,
        input_messages=input_messages,
        output_messages=output_messages,
    )
    return action_of(span, seen)


def _read_tool(span: Span) -> Action:
    got = mapping(span.attributes.get(f"{_TOOL}.output")).get("error")
    seen = Observation(
        dialect=NAME,
        kind=ActionKind.TOOL,
        given=span.attributes.get(f"{_TOOL}.input"),
        got=span.attributes.get(f"{_TOOL}.output") if got is None else "",
        tool=text(span.attributes, TOOL_NAME) or "",
        failed=span.attributes.get(TOOL_ERROR) is True,
        error=words(got),
    )
    return action_of(span, seen)


def _read_agent(span: Span, surroundings: Surroundings) -> Action:
    input_messages = _messages(span.attributes.get("haystack.agent.input"), "messages")
    answers = _messages(span.attributes.get("haystack.agent.output"), "messages")
    task, answer = last_request(input_messages), last_answer(answers)
    component, tool = _run_by(span, surroundings)
    name = component if names_an_agent(component) else agent_behind(tool) or component
    found = Found(name, AgentSource.METADATA) if name else NO_AGENT
    action = action_of(span, Observation(dialect=NAME, kind=ActionKind.AGENT, agent=found))
    return replace(
        action,
        task=task,
        answer=answer,
        input=task,
        output=answer,
        instructions=system_text(answers[:1]),
        is_named_by_tool=name != component or not names_an_agent(component),
    )


def _run_by(span: Span, surroundings: Surroundings) -> tuple[str, str]:
    """Return the component that an agent is in its pipeline, and the tool that runs it; each may be empty.

    A component is often called ``agent``, also that of a pipeline inside a tool.
    """
    component = ""
    for above in islice(surroundings.ancestors(span), _MAX_ANCESTORS):
        if tool := text(above.attributes, TOOL_NAME):
            return component, tool
        component = component or text(above.attributes, COMPONENT_NAME) or ""
    return component, ""


def _read_component(span: Span) -> Action:
    """Read a generator as a model call, a retriever and an agent's tool invoker as tools."""
    kind, name = text(span.attributes, COMPONENT_TYPE) or "", text(span.attributes, COMPONENT_NAME) or ""
    if kind.endswith("Generator"):
        agent = (
            Found(name, AgentSource.METADATA)
            if names_an_agent(name) and name != "chat_generator"
            else NO_AGENT
        )
        return _read_call(span, "haystack.component", agent)
    if kind == _INVOKER or kind.endswith("Retriever"):
        return _read_invoker(span, name)
    return Action(dialect=NAME, kind=ActionKind.CONTAINER)


def _read_invoker(span: Span, name: str) -> Action:
    given, got = (span.attributes.get(f"haystack.component.{side}") for side in ("input", "output"))
    results = _messages(got, "tool_messages")
    tool_call = next(
        (call for message in reversed(_messages(given, "messages")) for call in message.calls), None
    )
    seen = Observation(
        dialect=NAME,
        kind=ActionKind.TOOL,
        given=given if tool_call is None else tool_call.arguments,
        got="\n".join(message.text for message in results) or got,
        tool=name if tool_call is None else tool_call.name,
        call_id="" if tool_call is None else tool_call.call_id,
    )
    return action_of(span, seen)


def _messages(value: Any, key: str) -> tuple[Message, ...]:
    """Return the messages under ``key``: JSON, or a ``repr``."""
    if isinstance(value, str) and _MESSAGE in value:
        return messages_of(list(_in_repr(value)))
    return messages_of([_plain(mapping(each)) for each in items(mapping(value).get(key))])


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of Haystack's in OpenTelemetry's shape."""
    parts = [_part(mapping(each)) for each in items(message.get("content"))]
    return {"role": message.get("role"), "name": message.get("name") or "", "parts": parts}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    call, result = mapping(part.get("tool_call")), mapping(part.get("tool_call_result"))
    if call:
        asked = {"name": call.get("tool_name"), "arguments": call.get("arguments"), "id": call.get("id")}
        return {"type": "tool_call", **asked}
    if result:
        fields = {"id": mapping(result.get("origin")).get("id"), "result": result.get("result")}
        return {"type": "tool_call_response", **fields}
    return {"type": "text", "content": part.get("text")}


def _in_repr(value: str) -> Iterator[dict[str, Any]]:
    for shown in value.split(_MESSAGE)[1:]:
        role = _ROLE.match(shown)
        results = [
            {"type": "tool_call_response", "result": from_repr(f"[{each}]")[0]}
            for each in _RESULT.findall(shown)
        ]
        calls = [
            {"type": "tool_call", "name": name[1:-1], "arguments": from_repr(arguments), "id": call_id[1:-1]}
            for name, arguments, call_id in _ASKED.findall(shown)
        ]
        if results and calls:
            results[0]["id"] = calls[0]["id"]
        texts = [{"type": "text", "content": from_repr(f"[{each}]")[0]} for each in _TEXT.findall(shown)]
        yield {"role": role[1] if role else "user", "parts": [*texts, *(results or calls)]}


HAYSTACK: Final = Dialect(name=NAME, read=read_haystack)
