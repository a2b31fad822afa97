"""OpenAI's chat completions and embeddings. Pure.

Source: OpenAI API reference, ``POST /v1/chat/completions`` and ``POST /v1/embeddings``.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any, Final

from analyzer.experiment.replay.tape import Answer, CallKind
from analyzer.experiment.replay.trial import Edit
from analyzer.experiment.replay.wire.format import (
    Asked,
    Body,
    Provider,
    UnreadableRequest,
    Wire,
    arguments_text,
    call_ids,
    data_event,
    is_one_of,
    objects_in,
    pieces,
    read_tools,
)
from semconv.dialects.reading.action import Message
from semconv.dialects.reading.messages import messages_of

_SYSTEM: Final = frozenset({"system", "developer"})


def read_chat(body: Body) -> Asked:
    """Read a request."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UnreadableRequest("expected a list of `messages`")
    offered = read_tools(body.get("tools"), _function_name)
    hosted = offered.hosted
    legacy = tuple(str(each.get("name")) for each in objects_in(body.get("functions"), "functions"))
    if body.get("web_search_options") is not None:
        hosted = (*hosted, "web_search")
    options = body.get("stream_options")
    return Asked(
        messages=messages_of(messages),
        model=str(body.get("model") or ""),
        tools=(*offered.functions, *legacy),
        transfers=offered.transfers,
        provider_tools=hosted,
        wants_stream=body.get("stream") is True,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _function_name(definition: Body) -> str:
    inner = definition.get("function") or definition.get("custom")
    return str(inner.get("name") or "") if isinstance(inner, dict) else ""


def _whole(asked: Asked, answer: Answer, number: int) -> Body:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.calls:
        message["tool_calls"] = _calls(answer, number)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
    return {**_head(asked, answer, number, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def _stream(asked: Asked, answer: Answer, number: int) -> Iterator[bytes]:
    head = {**_head(asked, answer, number, "chat.completion.chunk"), "usage": None}
    if not asked.wants_usage:
        del head["usage"]
    for delta, finish in _deltas(answer, number):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        yield data_event({**head, "choices": [choice]})
    if asked.wants_usage:
        yield data_event({**head, "choices": [], "usage": _usage(answer)})
    yield b"data: [DONE]\n\n"


def _deltas(answer: Answer, number: int) -> Iterator[tuple[Body, str | None]]:
    yield {"role": "assistant", "content": "" if answer.text or not answer.calls else None}, None
    for piece in pieces(answer.text):
        yield {"content": piece}, None
    for place, call in enumerate(_calls(answer, number)):
        function = call["function"]
        begun = {**call, "index": place, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [begun]}, None
        for piece in pieces(function["arguments"]):
            yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}, None
    yield {}, _finish(answer)


def _head(asked: Asked, answer: Answer, number: int, kind: str) -> dict[str, Any]:
    model = answer.model or asked.model
    return {"id": f"chatcmpl-blamespan{number:06}", "object": kind, "created": 0, "model": model}


def _calls(answer: Answer, number: int) -> Sequence[dict[str, Any]]:
    return [
        {"id": id_, "type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}
        for id_, call in zip(call_ids(answer.calls, number), answer.calls, strict=True)
    ]


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> Body:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }


def _edited(body: Body, edit: Edit) -> Body:
    messages = list(body["messages"])
    if edit.system:
        rest = [message for message in messages if not _is_system(message)]
        messages = [{"role": "system", "content": edit.system}, *rest]
    if edit.hint:
        messages.append({"role": "user", "content": edit.hint})
    return {**body, "messages": messages, **({"model": edit.model} if edit.model else {})}


def _is_system(message: Any) -> bool:
    return isinstance(message, dict) and is_one_of(message.get("role"), _SYSTEM)


def openai_error(message: str) -> Body:
    """Return an error in OpenAI's format."""
    return {"error": {"message": message, "type": "blamespan", "param": None, "code": "blamespan"}}


CHAT: Final = Wire(
    provider=Provider.OPENAI,
    read=read_chat,
    whole=_whole,
    stream=_stream,
    edited=_edited,
    error=openai_error,
)


def read_embeddings(body: Body) -> Asked:
    """Read a request; texts given as tokens are kept, but match no recorded text."""
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise UnreadableRequest("expected `input`: a text or a list of texts")
    return Asked(
        messages=tuple(Message(role="user", text=str(text)) for text in texts),
        model=str(body.get("model") or ""),
        kind=CallKind.EMBEDDINGS,
        wants_base64=body.get("encoding_format") == "base64",
    )


def _whole_embeddings(asked: Asked, answer: Answer, _: int) -> Body:
    data = [
        {
            "object": "embedding",
            "index": place,
            "embedding": _packed(vector) if asked.wants_base64 else list(vector),
        }
        for place, vector in enumerate(answer.vectors)
    ]
    usage = {"prompt_tokens": answer.input_tokens, "total_tokens": answer.input_tokens}
    return {"object": "list", "data": data, "model": answer.model or asked.model, "usage": usage}


def _packed(vector: tuple[float, ...]) -> str:
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _no_stream(*_: object) -> Iterator[bytes]:
    yield from ()  # there are no streams of embeddings; `wants_stream` is never set


def _same_embeddings(body: Body, edit: Edit) -> Body:
    return {**body, **({"model": edit.model} if edit.model else {})}


EMBEDDINGS: Final = Wire(
    provider=Provider.OPENAI,
    read=read_embeddings,
    whole=_whole_embeddings,
    stream=_no_stream,
    edited=_same_embeddings,
    error=openai_error,
)
