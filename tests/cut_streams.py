"""Streams of a live model, cut anywhere, through a trial that is past its change."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from typing import Final

import aiohttp
from aiohttp import web

from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.tape import Answer
from analyzer.experiment.replay.trial import Change
from tests.tapes import call, chat_body, said, tape
from tests.web_application import served

_AT_ONCE: Final = 16
_SEED: Final = 20_261_123
_FIRST: Final = call(0, "first")
_FORMATS: Final = ("chat/completions", "responses", "messages")


async def wrong_streams(count: int) -> list[int]:
    """Return the numbers of the streams that did not arrive as sent."""
    provider = web.Application()
    provider.router.add_post("/{tail:.*}", _answer)
    async with (
        served(provider, access_log=None) as url,
        serving(GatewayOptions(openai=url, anthropic=url)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        change = Change(call=0, answer=Answer(text="changed"))
        opened = gateway.open(tape(_FIRST), change, lifetime_s=3600)
        first = chat_body(_FIRST.messages)  # changed: all later calls are live
        await (await session.post(f"{opened.base_url}/chat/completions", json=first)).read()
        wrong: list[int] = []
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                body = {
                    "stream": True,
                    "input": "x",
                    **chat_body(said(f"question {number}"), stream=True),
                }
                place = f"{opened.base_url}/{_FORMATS[number % len(_FORMATS)]}"
                async with session.post(place, json=body, headers={"x-number": str(number)}) as answer:
                    found = hashlib.sha256(await answer.read()).digest()
                if found != hashlib.sha256(b"".join(_chunks_of(number))).digest():
                    wrong.append(number)

        await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    return wrong


async def _answer(request: web.Request) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for chunk in _chunks_of(int(request.headers["x-number"])):
        await response.write(chunk)
    await response.write_eof()
    return response


def _chunks_of(number: int) -> list[bytes]:
    """Return pseudo-random pieces of a stream, cut anywhere, even within a character or line end."""
    chance = random.Random(_SEED + number)
    events = [
        f"event: e{place}\r\ndata: {json.dumps('größe ✓ ' * chance.randint(0, 40), ensure_ascii=False)}\n\n"
        for place in range(chance.randint(1, 30))
    ]
    whole = "".join([*events, "data: [DONE]\n\n"]).encode()
    cuts = sorted(chance.sample(range(1, len(whole)), min(len(whole) - 1, chance.randint(0, 20))))
    return [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
