"""Anthropic's messages API: reads requests and writes replies, whole or as a stream of events.

Pure. Field names as in Anthropic's API reference, ``/v1/messages``. Streams cut
texts and arguments in two, so that a client must put them together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from tests.frameworks.model_request import Asked, Call, Message, Result, Tool
from tests.frameworks.openai_reply import halves
from tests.frameworks.script import Reply


def read_messages(body: Mapping[str, Any]) -> Asked:
    """Read a request; a tool's result in a user's message is not part of that message's text."""
    said = [{"role": "system", "content": body.get("system") or ""}, *body["messages"]]
    blocks = list(chain.from_iterable(_blocks(each["content"]) for each in said))
    return Asked(
        model=body["model"],
        messages=tuple(Message(role=each["role"], text=_text(each["content"])) for each in said),
        calls=tuple(
            Call(name=block["name"], arguments=json.dumps(block["input"]), id=block["id"])
            for block in blocks
            if block["type"] == "tool_use"
        ),
        results=tuple(
            Result(call_id=block["tool_use_id"], text=_text(block.get("content") or ""))
            for block in blocks
            if block["type"] == "tool_result"
        ),
        tools=tuple(
            Tool(name=each["name"], schema=each.get("input_schema") or {}) for each in body.get("tools") or ()
        ),
        stream=bool(body.get("stream")),
        wants_usage=True,
    )


def message(asked: Asked, reply: Reply, number: int) -> dict[str, Any]:
    """Return a whole message; ``number`` makes ids unique in a run."""
    return {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": _content(reply),
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": count_tokens(asked)["input_tokens"], "output_tokens": _spoken(reply)},
    }


def message_stream(asked: Asked, reply: Reply, number: int) -> Iterator[bytes]:
    """Yield the events of a streamed message."""
    whole = message(asked, reply, number)
    begun = whole | {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
    yield _event("message_start", message=begun)
    for index, block in enumerate(whole["content"]):
        is_text = block["type"] == "text"
        empty: dict[str, Any] = {"text": ""} if is_text else {"input": {}}
        yield _event("content_block_start", index=index, content_block=block | empty)
        for part in halves(block["text"] if is_text else json.dumps(block["input"])):
            told = {"type": "text_delta", "text": part}
            filled = {"type": "input_json_delta", "partial_json": part}
            yield _event("content_block_delta", index=index, delta=told if is_text else filled)
        yield _event("content_block_stop", index=index)
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=ended, usage={"output_tokens": _spoken(reply)})
    yield _event("message_stop")


def count_tokens(asked: Asked) -> dict[str, int]:
    """Plausible and deterministic: four characters per token."""
    return {"input_tokens": sum(len(each.text) for each in asked.messages) // 4 + 1}


def _content(reply: Reply) -> list[dict[str, Any]]:
    told = [{"type": "text", "text": reply.text}] if reply.text else []
    called = [
        {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": json.loads(call.arguments)}
        for call in reply.calls
    ]
    return [*told, *called]


def _spoken(reply: Reply) -> int:
    return (len(reply.text) + sum(len(call.arguments) for call in reply.calls)) // 4 + 1


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _text(content: Any) -> str:
    return "\n".join(block["text"] for block in _blocks(content) if block["type"] == "text")


def _event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()
