"""A reply in OpenAI's format: chat completion or response, whole or as a stream of events.

Pure. Field names as in OpenAI's API reference, chat completions and responses.
Streams cut texts and arguments in two, so that a client must put them together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tests.frameworks.model_request import Asked, Call
from tests.frameworks.script import Reply

CREATED: Final = 1_700_000_000
DONE: Final = b"data: [DONE]\n\n"


def chat(asked: Asked, reply: Reply, number: int) -> dict[str, Any]:
    """Return a chat completion; ``number`` makes ids unique in a run."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [_chat_call(call) for call in reply.calls]
    return _chat_head(asked, number, "chat.completion") | {
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(reply)}],
        "usage": _chat_usage(asked, reply),
    }


def chat_stream(asked: Asked, reply: Reply, number: int) -> Iterator[bytes]:
    """Yield the events of a streamed chat completion."""
    head = _chat_head(asked, number, "chat.completion.chunk")
    for delta in _chat_deltas(reply):
        yield _data(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _data(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]})
    if asked.wants_usage:
        yield _data(head | {"choices": [], "usage": _chat_usage(asked, reply)})
    yield DONE


def response(asked: Asked, reply: Reply, number: int) -> dict[str, Any]:
    """Return an object of the responses API."""
    usage = _chat_usage(asked, reply)
    return {
        "id": f"resp_{number:04}",
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "model": asked.model,
        "output": _items(reply, number),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }


def response_stream(asked: Asked, reply: Reply, number: int) -> Iterator[bytes]:
    """Yield the events of a streamed response, numbered from 0."""
    whole = response(asked, reply, number)
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(whole["output"]):
        events += [{**event, "output_index": index} for event in _item_events(item)]
    events.append({"type": "response.completed", "response": whole})
    for sequence, event in enumerate(events):
        yield f"event: {event['type']}\n".encode() + _data(event | {"sequence_number": sequence})


def _item_events(item: dict[str, Any]) -> list[dict[str, Any]]:
    added: dict[str, Any] = {"type": "response.output_item.added", "item": item | {"status": "in_progress"}}
    done = {"type": "response.output_item.done", "item": item}
    if item["type"] == "function_call":
        at: dict[str, Any] = {"item_id": item["id"]}
        added["item"]["arguments"] = ""
        name = "response.function_call_arguments"
        deltas = [{"type": f"{name}.delta", "delta": part, **at} for part in halves(item["arguments"])]
        finished = {"type": f"{name}.done", "arguments": item["arguments"], "name": item["name"], **at}
        return [added, *deltas, finished, done]
    added["item"]["content"] = []
    at = {"item_id": item["id"], "content_index": 0}
    (part,) = item["content"]
    return [
        added,
        {"type": "response.content_part.added", "part": part | {"text": ""}, **at},
        *(
            {"type": "response.output_text.delta", "delta": half, "logprobs": [], **at}
            for half in halves(part["text"])
        ),
        {"type": "response.output_text.done", "text": part["text"], "logprobs": [], **at},
        {"type": "response.content_part.done", "part": part, **at},
        done,
    ]


def _items(reply: Reply, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}]
        items.append(
            {
                "id": f"msg_{number:04}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    items += [
        {
            "id": f"fc_{call.id}",
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for call in reply.calls
    ]
    return items


def _chat_head(asked: Asked, number: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number:04}", "object": kind, "created": CREATED, "model": asked.model}


def _chat_call(call: Call) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _chat_deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": "" if reply.text else None}
    for part in halves(reply.text):
        yield {"content": part}
    for index, call in enumerate(reply.calls):
        begun = _chat_call(replace(call, arguments=""))
        yield {"tool_calls": [{"index": index, **begun}]}
        for part in halves(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def _chat_usage(asked: Asked, reply: Reply) -> dict[str, int]:
    """Plausible and deterministic: four characters per token."""
    prompt = sum(len(message.text) for message in asked.messages) // 4 + 1
    completion = (len(reply.text) + sum(len(call.arguments) for call in reply.calls)) // 4 + 1
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def halves(text: str) -> list[str]:
    """Return the parts in which a stream sends a text; none for an empty one."""
    middle = len(text) // 2
    return [half for half in (text[:middle], text[middle:]) if half]


def _data(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"
