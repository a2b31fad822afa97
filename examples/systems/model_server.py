"""HTTP server for the scripted model of the example systems: chat completions, streamed and not.

    python examples/systems/model_server.py --port 8900 --seed 1

Prints its base URL. The system message names the speaker ("You are the clerk."), and the first user message
holds the order. Equal requests get different answers, as from any model at its usual temperature.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from script import Reply, read_order, reply

_ROLE = re.compile(r"You are the (\w+)\b")


class ScriptedModel:
    """Answers requests by the script, with its own random generator."""

    def __init__(self, seed: int) -> None:
        """Create it with a seed: the same requests in the same order get the same answers."""
        self._coin = random.Random(seed)
        self.answered = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        body = await request.json()
        self.answered += 1
        said = self._reply(body)
        if said is None:
            return web.json_response(
                {"error": {"message": "no order, or no role, in the messages"}}, status=400
            )
        whole = _completion(body, said, self.answered)
        if not body.get("stream"):
            return web.json_response(whole)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in _chunks(whole, body):
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    def _reply(self, body: dict[str, Any]) -> Reply | None:
        messages = body["messages"]
        system = " ".join(_text(each) for each in messages if each["role"] in {"system", "developer"})
        others = [each for each in messages if each["role"] not in {"system", "developer"}]
        role, order = _ROLE.search(system), read_order(" ".join(map(_text, others)))
        if role is None or order is None:
            return None
        looked_up = not body.get("tools") or any(each["role"] == "tool" for each in others)
        return reply(role[1], order, [_text(each) for each in others], self._coin, looked_up=looked_up)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content)


def _completion(body: dict[str, Any], said: Reply, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.tool:
        call = {"name": said.tool, "arguments": json.dumps(said.arguments)}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": call}]
    sent = len(json.dumps(body["messages"])) // 4
    received = max(1, len(said.text) // 4)
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model", "scripted"),
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if said.tool else "stop"}],
        "usage": {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received},
    }


def _chunks(whole: dict[str, Any], body: dict[str, Any]) -> list[dict[str, Any]]:
    """Cut a completion into the chunks of a stream: words, or one call."""
    head = {"id": whole["id"], "created": whole["created"], "model": whole["model"]}
    head["object"] = "chat.completion.chunk"
    choice = whole["choices"][0]
    message = choice["message"]

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls", []))]
    words = re.findall(r"\S+\s*", message["content"] or "")
    deltas = [{"tool_calls": calls}] if calls else [{"content": word} for word in words]
    chunks = [chunk({"role": "assistant"}), *map(chunk, deltas), chunk({}, choice["finish_reason"])]
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": whole["usage"]})
    return chunks


@asynccontextmanager
async def serving(seed: int, port: int = 0, model: type[ScriptedModel] = ScriptedModel) -> AsyncIterator[str]:
    """Run the model on loopback until the block ends; yield its base URL."""
    application = web.Application(client_max_size=16 << 20)
    application.router.add_post("/v1/chat/completions", model(seed).answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def _serve(seed: int, port: int) -> None:
    async with serving(seed, port) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asyncio.run(_serve(asked.seed, asked.port))
