"""Pass-through: streams of a live model byte for byte, and the gateway's own latency."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.tape import Answer
from analyzer.experiment.replay.trial import Change
from semconv.record import record
from tests.tapes import call, chat_body, said, tape

AT_ONCE = 16
AIM_MS = 5.0
SEED = 20_261_123
FIRST = call(0, "first")
FORMATS = ("chat/completions", "responses", "messages")


def chunks_of(number: int) -> list[bytes]:
    """Return pseudo-random pieces of a stream, cut anywhere, even within a character or line end."""
    chance = random.Random(SEED + number)
    events = [
        f"event: e{place}\r\ndata: {json.dumps('größe ✓ ' * chance.randint(0, 40), ensure_ascii=False)}\n\n"
        for place in range(chance.randint(1, 30))
    ]
    whole = "".join([*events, "data: [DONE]\n\n"]).encode()
    cuts = sorted(chance.sample(range(1, len(whole)), min(len(whole) - 1, chance.randint(0, 20))))
    return [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


async def _answer(request: web.Request) -> web.StreamResponse:
    number = request.headers.get("x-number")
    await request.read()
    if number is None:
        return web.json_response({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for chunk in chunks_of(int(number)):
        await response.write(chunk)
    await response.write_eof()
    return response


@asynccontextmanager
async def model() -> AsyncIterator[str]:
    """Run a scripted provider; yield its base URL."""
    app = web.Application()
    app.router.add_post("/{tail:.*}", _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def live_trial(upstream: str) -> AsyncIterator[str]:
    """Run a trial past its change, so that all calls are live; yield its base URL."""
    async with serving(GatewayOptions(openai=upstream, anthropic=upstream)) as gateway:
        opened = gateway.open(tape(FIRST), Change(call=0, answer=Answer(text="changed")), lifetime_s=3600)
        async with aiohttp.ClientSession() as session:
            asked = chat_body(FIRST.messages)
            async with session.post(f"{opened.base_url}/chat/completions", json=asked) as answer:
                await answer.read()
        yield opened.base_url


def streams(count: int) -> int:
    """Pass streams through; return 1 if one arrived changed."""
    wrong = asyncio.run(wrong_streams(count))
    print(f"{count - len(wrong)} of {count} streams arrived byte for byte; wrong: {wrong[:10]}")
    return int(bool(wrong))


async def wrong_streams(count: int) -> list[int]:
    """Return the numbers of the streams that did not arrive as sent."""
    async with model() as upstream, live_trial(upstream) as base, aiohttp.ClientSession() as session:
        wrong: list[int] = []
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                body = {"stream": True, "input": "x", **chat_body(said(f"question {number}"), stream=True)}
                url = f"{base}/{FORMATS[number % len(FORMATS)]}"
                async with session.post(url, json=body, headers={"x-number": str(number)}) as answer:
                    found = hashlib.sha256(await answer.read()).digest()
                if found != hashlib.sha256(b"".join(chunks_of(number))).digest():
                    wrong.append(number)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return wrong


def latency(count: int) -> int:
    """Call directly and through the gateway in turn; return 1 if the gateway adds more than the target."""
    direct, through = asyncio.run(_latency(count))
    pairs = list(zip(through, direct, strict=True))
    rows = {
        "direct": [each.wall_ms for each in direct],
        "through": [each.wall_ms for each in through],
        "added": [with_it.wall_ms - without.wall_ms for with_it, without in pairs],
        "added CPU": [with_it.cpu_ms - without.cpu_ms for with_it, without in pairs],
    }
    for name, found in rows.items():
        ordered = sorted(found)
        print(f"{name:9} p50 {_at(ordered, 0.5):6.2f} ms  p99 {_at(ordered, 0.99):6.2f} ms  n={count}")
    gap = _at(sorted(rows["through"]), 0.99) - _at(sorted(rows["direct"]), 0.99)
    print(f"load average over the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"p99 through minus p99 direct: {gap:.2f} ms (aim: below {AIM_MS} ms)")
    return int(gap >= AIM_MS)


@record
class _Timed:
    """Time of one call."""

    wall_ms: float
    cpu_ms: float
    """Processor time of this process, which holds client, gateway and model; waiting takes none."""


async def _latency(count: int) -> tuple[list[_Timed], list[_Timed]]:
    direct: list[_Timed] = []
    through: list[_Timed] = []
    history = said(*("a question or an answer of a usual length, again and again " * 3 for _ in range(20)))
    async with model() as upstream, live_trial(upstream) as base, aiohttp.ClientSession() as session:
        for number in range(count):
            body = {**chat_body(history), "n": number}
            ways = ((f"{upstream}/v1", direct), (base, through))
            for url, found in ways if number % 2 else ways[::-1]:
                found.append(await _timed(session, f"{url}/chat/completions", body))
    return direct, through


async def _timed(session: aiohttp.ClientSession, url: str, body: object) -> _Timed:
    began, began_cpu = time.perf_counter(), time.process_time()
    async with session.post(url, json=body) as answer:
        await answer.read()
    wall, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    return _Timed(wall_ms=wall * 1000, cpu_ms=cpu * 1000)


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
