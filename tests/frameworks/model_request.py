"""A framework's request to a model, through either of OpenAI's two APIs.

Pure. Knows the wire format of requests to ``/v1/chat/completions`` and
``/v1/responses``, and nothing of the story.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool the model may call."""

    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema of its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the conversation."""

    role: str
    """``system``, ``user``, ``assistant`` or ``tool``."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call that the model made earlier, or makes now."""

    name: str
    arguments: str
    """JSON."""
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a tool returned."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request to the model."""

    model: str
    messages: tuple[Message, ...]
    calls: tuple[Call, ...]
    results: tuple[Result, ...]
    tools: tuple[Tool, ...]
    stream: bool
    wants_usage: bool
    """Chat completions include the usage of a stream only on request."""

    @property
    def conversation(self) -> str:
        """All messages except the instructions, one per line."""
        said = [message.text for message in self.messages if message.role != "system"]
        return "\n".join([*said, *(result.text for result in self.results)])

    def result_of(self, call: Call) -> str | None:
        """The result of a call, if any."""
        return next((result.text for result in self.results if result.call_id == call.id), None)


def read_chat(body: Mapping[str, Any]) -> Asked:
    """Read a chat completion request."""
    messages = body["messages"]
    return Asked(
        model=body["model"],
        messages=tuple(
            Message(role=_role(each["role"]), text=_text(each.get("content"))) for each in messages
        ),
        calls=tuple(
            Call(name=call["function"]["name"], arguments=call["function"]["arguments"], id=call["id"])
            for each in messages
            for call in each.get("tool_calls") or ()
        ),
        results=tuple(
            Result(call_id=each.get("tool_call_id", ""), text=_text(each["content"]))
            for each in messages
            if each["role"] == "tool"
        ),
        tools=tuple(_tool(each["function"]) for each in body.get("tools") or ()),
        stream=bool(body.get("stream")),
        wants_usage=bool((body.get("stream_options") or {}).get("include_usage")),
    )


def read_responses(body: Mapping[str, Any]) -> Asked:
    """Read a request to the responses API."""
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    instructions = {"role": "system", "content": body.get("instructions") or ""}
    return Asked(
        model=body["model"],
        messages=tuple(
            Message(role=_role(item["role"]), text=_text(item.get("content")))
            for item in (instructions, *items)
            if "role" in item
        ),
        calls=tuple(
            Call(name=item["name"], arguments=item["arguments"], id=item["call_id"])
            for item in items
            if item.get("type") == "function_call"
        ),
        results=tuple(
            Result(call_id=item["call_id"], text=_text(item["output"]))
            for item in items
            if item.get("type") == "function_call_output"
        ),
        tools=tuple(_tool(each) for each in body.get("tools") or () if each.get("type") == "function"),
        stream=bool(body.get("stream")),
        wants_usage=True,
    )


def _role(role: str) -> str:
    return "system" if role == "developer" else role


def _tool(described: Mapping[str, Any]) -> Tool:
    return Tool(name=described["name"], schema=described.get("parameters") or {})


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_parts(content or ()))


def _parts(content: Any) -> Iterator[str]:
    for part in content:
        yield part if isinstance(part, str) else part.get("text") or json.dumps(part)
