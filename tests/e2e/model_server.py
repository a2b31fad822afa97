"""A scripted OpenAI-compatible chat server over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final

from aiohttp import web

_LONGEST_THOUGHT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """One answer of the server."""

    text: str = ""
    """The assistant's message; replaced by ``body`` or ``reset``."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Sent unchanged, in place of a chat completion."""
    delay_s: float = 0.0
    reset: bool = False
    """Close the connection without an answer."""
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request to the server."""

    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class ModelServer:
    """Gives answers in order, then repeats the last one; keeps the requests."""

    script: Sequence[Scripted]
    url: str = ""
    received: list[Received] = field(default_factory=list)
    may_answer: Event = field(default_factory=Event)
    """While cleared, the server delays its answers."""
    held_from: int = 0
    """Calls before this number, from 0, are answered at once all the same."""

    def __post_init__(self) -> None:
        self.may_answer.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one chat completion request."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.json()
        number = len(self.received)  # not before: others may have come while the body did
        self.received.append(Received(headers=headers, body=body))
        answer = self.script[min(number, len(self.script) - 1)]
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        if number >= self.held_from and not self.may_answer.is_set():
            await asyncio.to_thread(self.may_answer.wait, _LONGEST_THOUGHT_S)
        if answer.reset:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        content = answer.body if answer.body is not None else _completion(answer)
        return web.Response(
            status=answer.status, body=content, headers=answer.headers, content_type="application/json"
        )


def _completion(answer: Scripted) -> bytes:
    if answer.status != 200:
        return json.dumps({"error": {"message": answer.text or "scripted", "type": "scripted"}}).encode()
    return json.dumps(
        {
            "id": "chatcmpl-scripted",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "scripted",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": answer.text},
                    "finish_reason": answer.finish_reason,
                }
            ],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }
    ).encode()


@asynccontextmanager
async def serve(*script: Scripted) -> AsyncIterator[ModelServer]:
    """Run a server on a free loopback port until the block ends."""
    server = ModelServer(script=script)
    application = web.Application(client_max_size=64 * 2**20)
    application.router.add_post("/v1/chat/completions", server.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
