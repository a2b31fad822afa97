"""Anthropic's messages. Source: Anthropic API reference, ``POST /v1/messages`` and streaming. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from analyzer.experiment.replay.tape import Answer
from analyzer.experiment.replay.trial import Edit
from analyzer.experiment.replay.wire.format import (
    Asked,
    Body,
    Provider,
    UnreadableRequest,
    Wire,
    arguments_object,
    call_ids,
    is_one_of,
    named_event,
    pieces,
    read_tools,
)
from semconv.dialects.reading.action import Message
from semconv.dialects.reading.messages import messages_of

_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})


def read_anthropic(body: Body) -> Asked:
    """Read a request; thinking blocks are left out, because no recording holds them in full."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UnreadableRequest("expected a list of `messages`")
    offered = read_tools(body.get("tools"), _function_name)
    hosted = offered.hosted
    if body.get("mcp_servers"):
        hosted = (*hosted, "mcp_servers")
    system = messages_of([{"role": "system", "content": body["system"]}]) if body.get("system") else ()
    said: list[Message] = []
    for message in messages:
        said.extend(messages_of(_turns(message)))
    return Asked(
        messages=(*system, *said),
        model=str(body.get("model") or ""),
        tools=offered.functions,
        transfers=offered.transfers,
        provider_tools=hosted,
        wants_stream=body.get("stream") is True,
    )


def _turns(message: Any) -> list[Any]:
    """Split a message: each tool's result becomes its own, as in other formats; thinking is dropped."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return [message]
    kept = [block for block in content if not _is_thought(block)]
    results = [block for block in kept if _is_result(block)]
    others = [block for block in kept if not _is_result(block)]
    split = [{**message, "content": [block]} for block in results]
    return [*split, {**message, "content": others}] if others else split


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _is_thought(block: Any) -> bool:
    return isinstance(block, dict) and is_one_of(block.get("type"), _THOUGHTS)


def _function_name(definition: Body) -> str:
    kind = definition.get("type", "custom")
    return str(definition.get("name") or "") if kind == "custom" or "input_schema" in definition else ""


def _blocks(answer: Answer, number: int) -> list[dict[str, Any]]:
    said = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
    called = [
        {"type": "tool_use", "id": id_, "name": call.name, "input": arguments_object(call)}
        for id_, call in zip(call_ids(answer.calls, number), answer.calls, strict=True)
    ]
    return [*said, *called]


def _whole(asked: Asked, answer: Answer, number: int) -> Body:
    return {
        "id": f"msg_blamespan{number:06}",
        "type": "message",
        "role": "assistant",
        "model": answer.model or asked.model,
        "content": _blocks(answer, number),
        "stop_reason": _stop(answer),
        "stop_sequence": None,
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens},
    }


def _stop(answer: Answer) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _stream(asked: Asked, answer: Answer, number: int) -> Iterator[bytes]:
    begun = {**_whole(asked, answer, number), "content": [], "stop_reason": None}
    yield named_event("message_start", {"message": begun})
    for index, block in enumerate(_blocks(answer, number)):
        is_text = block["type"] == "text"
        empty: dict[str, Any] = {"text": ""} if is_text else {"input": {}}
        yield named_event("content_block_start", {"index": index, "content_block": {**block, **empty}})
        for piece in pieces(block["text"] if is_text else json.dumps(block["input"], ensure_ascii=False)):
            text_delta = {"type": "text_delta", "text": piece}
            filled = {"type": "input_json_delta", "partial_json": piece}
            yield named_event(
                "content_block_delta", {"index": index, "delta": text_delta if is_text else filled}
            )
        yield named_event("content_block_stop", {"index": index})
    ended = {"stop_reason": _stop(answer), "stop_sequence": None}
    yield named_event("message_delta", {"delta": ended, "usage": {"output_tokens": answer.output_tokens}})
    yield named_event("message_stop", {})


def _edited(body: Body, edit: Edit) -> Body:
    changed = dict(body)
    if edit.system:
        changed["system"] = edit.system
    if edit.hint:
        changed["messages"] = [*body["messages"], {"role": "user", "content": edit.hint}]
    if edit.model:
        changed["model"] = edit.model
    return changed


def _error(message: str) -> Body:
    return {"type": "error", "error": {"type": "api_error", "message": message}}


ANTHROPIC: Final = Wire(
    provider=Provider.ANTHROPIC,
    read=read_anthropic,
    whole=_whole,
    stream=_stream,
    edited=_edited,
    error=_error,
)
