"""A slow chat server that gives each method a usable answer; counts its requests.

``python -m benchmarks.resources.slow_model --delay 1``: prints its base URL, then serves until its standard
input closes. It is a process of its own, so that only the client is measured. ``GET /count`` returns the number
of answered calls, the highest number of concurrent calls, and the bytes of prompts received.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import dataclass

from aiohttp import web

REPLIES = (
    # Text in a prompt, and the answer that keeps the method going as long as possible.
    ("Yes or No", "1. No.\n2. Reason: nothing is wrong here"),
    ("upper half, lower half", "lower half"),
    ("Agent Name:", "Agent Name: nobody in particular\nStep Number: 1\nReason for Mistake: a guess"),
)


def judged(quote: str) -> str:
    """Return a judge's answer that blames step 1; without a quote from the run it proves nothing."""
    return json.dumps(
        {
            "reason": "a guess",
            "step": 1,
            "agent": "",
            "mode": "other",
            "fix": "",
            "evidence": [{"step": 1, "quote": quote}] if quote else [],
            "ranking": [{"step": 1, "probability": 0.4}],
        }
    )


@dataclass(slots=True, kw_only=True)
class SlowModel:
    """Answers every chat completion after ``delay_s``."""

    delay_s: float
    quote: str = ""
    """What the judge quotes as its evidence."""
    calls: int = 0
    prompt_bytes: int = 0
    under_way: int = 0
    most_under_way: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one call."""
        body = await request.json()
        asked = "\n".join(str(message["content"]) for message in body["messages"])
        self.calls += 1
        self.prompt_bytes += len(asked.encode(errors="replace"))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self.under_way -= 1
        text = next((reply for sign, reply in REPLIES if sign in asked[-600:]), judged(self.quote))
        return web.json_response(completion(text, input_tokens=len(asked) // 4))

    async def count(self, _request: web.Request) -> web.Response:
        """Return the counts so far."""
        return web.json_response(
            {"calls": self.calls, "at_once": self.most_under_way, "prompt_bytes": self.prompt_bytes}
        )


def completion(text: str, *, input_tokens: int) -> dict[str, object]:
    """Return a chat completion in OpenAI's format."""
    message = {"role": "assistant", "content": text}
    output_tokens = len(text) // 4
    return {
        "id": "chatcmpl-slow",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "slow",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        },
    }


async def serve(delay_s: float, quote: str) -> None:
    """Serve on a free loopback port until standard input closes."""
    model = SlowModel(delay_s=delay_s, quote=quote)
    application = web.Application(client_max_size=256 * 2**20)
    application.router.add_post("/v1/chat/completions", model.answer)
    application.router.add_get("/count", model.count)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"http://127.0.0.1:{runner.addresses[0][1]}/v1\n")
    sys.stdout.flush()
    try:
        await asyncio.to_thread(sys.stdin.read)
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=1.0, help="seconds")
    parser.add_argument("--quote", default="", help="evidence in the judge's answers")
    chosen = parser.parse_args()
    asyncio.run(serve(chosen.delay, chosen.quote))
