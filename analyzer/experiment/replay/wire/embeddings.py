"""OpenAI's embeddings. Source: OpenAI API reference, ``POST /v1/embeddings``. Pure."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterator
from typing import Final

from analyzer.experiment.replay.tape import Answer, CallKind
from analyzer.experiment.replay.trial import Edit
from analyzer.experiment.replay.wire.chat_completions import openai_error
from analyzer.experiment.replay.wire.format import Asked, Body, Provider, UnreadableRequest, Wire
from semconv.dialects.reading.action import Message


def read_embeddings(body: Body) -> Asked:
    """Read a request; texts given as tokens are kept, but match no recorded text."""
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise UnreadableRequest("expected `input`: a text or a list of texts")
    return Asked(
        messages=tuple(Message(role="user", text=str(each)) for each in texts),
        model=str(body.get("model") or ""),
        kind=CallKind.EMBEDDINGS,
        wants_base64=body.get("encoding_format") == "base64",
    )


def _whole(asked: Asked, answer: Answer, _: int) -> Body:
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


def _stream(*_: object) -> Iterator[bytes]:
    yield from ()  # there are no streams of embeddings; `wants_stream` is never set


def _edited(body: Body, edit: Edit) -> Body:
    return {**body, **({"model": edit.model} if edit.model else {})}


EMBEDDINGS: Final = Wire(
    provider=Provider.OPENAI,
    read=read_embeddings,
    whole=_whole,
    stream=_stream,
    edited=_edited,
    error=openai_error,
)
