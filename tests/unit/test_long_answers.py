"""Answers that grow with a run: none is made, encoded or sent as a whole in the event loop."""

from __future__ import annotations

import threading

import pytest
from aiohttp import web
from aiohttp.payload import Payload
from aiohttp.test_utils import TestClient, TestServer

from analyzer.web.rendering import long_answer


@pytest.mark.parametrize("size", [3, 5 << 20])
async def test_a_text_is_made_on_a_thread_and_arrives_whole(size: int) -> None:
    threads, sent = list[int](), "é" * size

    def make() -> str:
        threads.append(threading.get_ident())
        return sent

    async def answer(_: web.Request) -> web.Response:
        return await long_answer(make, "text/html", status=201, headers={"X-Own": "yes"})

    app = web.Application()
    app.router.add_get("/", answer)
    async with TestClient(TestServer(app)) as client, client.get("/") as got:
        assert (got.status, got.headers["X-Own"]) == (201, "yes")
        assert got.headers["Content-Type"] == "text/html; charset=utf-8"
        assert got.headers["Content-Length"] == str(2 * size)
        assert await got.text() == sent
    assert threads
    assert threading.get_ident() not in threads


async def test_a_long_body_is_sent_in_pieces_and_a_short_one_at_once() -> None:
    assert isinstance((await long_answer(lambda: b"." * (1 << 20), "text/plain")).body, Payload)
    assert (await long_answer(lambda: b".", "text/plain")).body == b"."
