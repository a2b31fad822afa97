"""The pages of an analyzer half: files are analysed there; for runs, users are directed elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from aiohttp import ClientSession, CookieJar, FormData

from analyzer.analyses.composition import open_analyst
from analyzer.service.halves import AnalyzerHalf
from collector_processor.settings import load_settings
from tests.web.test_pages import OURS

BROWSER = {"Accept": "text/html"}
SECRET = "a-token-of-many-words"
LOG: Final = {
    "history": [
        {"role": "user", "name": "planner", "content": "Ask the clerk what 84 panels of 0.41 kW give."},
        *({"role": "assistant", "name": f"clerk {turn}", "content": "word " * 400} for turn in range(30)),
        {"role": "assistant", "name": "writer", "content": "They give 35 kW."},
    ],
    "question": "How many kW do 84 panels of 0.41 kW give?",
    "ground_truth": "34.44",
}


@asynccontextmanager
async def opened(**settings: str) -> AsyncIterator[tuple[ClientSession, str]]:
    """Serve an analyzer half with these settings; yields a browser and the address."""
    environ = {f"BLAMESPAN_{name}": value for name, value in settings.items()}
    given = load_settings({"BLAMESPAN_WEB_LISTEN": "127.0.0.1:0", **environ})
    server = AnalyzerHalf(given, open_analyst(given)).server()
    port = await server.start()
    try:
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser:
            yield browser, f"http://127.0.0.1:{port}"
    finally:
        await server.stop()


async def page(browser: ClientSession, address: str) -> str:
    async with browser.get(address, headers=BROWSER) as answer:
        assert answer.status == 200, address
        return await answer.text()


async def test_a_file_is_tried_on_an_analyzer() -> None:
    async with opened() as (browser, address):
        assert 'type="file"' in await page(browser, f"{address}/")
        form = FormData({"method": "signals", "failed": "yes"})
        form.add_field("file", json.dumps(LOG).encode(), filename="mine.json")
        async with browser.post(f"{address}/try", data=form, headers=OURS, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()
            job = address + answer.headers["Location"]
        async with asyncio.timeout(300):
            await over(browser, job)
        assert 'class="verdict' in await page(browser, job)
        async with ClientSession() as another, another.get(job) as refused:
            assert refused.status == 404


async def over(browser: ClientSession, job: str) -> None:
    while True:
        async with browser.get(f"{job}/state") as answer:
            if (await answer.json())["over"]:
                return
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "path",
    [
        "/runs",
        "/runs?q=a%20b",
        "/runs/a%2Fb",
        "/issues/0123456789abcdef",
        "/runs//elsewhere.example",
        "/workflow?service=a%26b&workflow=",
    ],
)
async def test_requests_for_runs_are_redirected_to_the_pages_that_show_them(path: str) -> None:
    async with (
        opened(WEB_URL="https://pages.example/") as (browser, address),
        browser.get(address + path, headers=BROWSER, allow_redirects=False) as answer,
    ):
        assert answer.status == 303
        assert answer.headers["Location"] == f"https://pages.example{path}"


async def test_without_a_web_url_the_page_says_that_it_is_missing() -> None:
    async with opened() as (browser, address):
        assert "BLAMESPAN_WEB_URL" in await page(browser, f"{address}/runs/any")


async def test_a_web_url_that_names_the_analyzer_itself_causes_no_redirect_loop() -> None:
    async with opened(WEB_URL="http://here.example") as (browser, address):
        headers = {**BROWSER, "Host": "here.example"}
        async with browser.get(f"{address}/runs", headers=headers, allow_redirects=False) as answer:
            assert answer.status == 200
    async with opened(WEB_URL="http://localhost") as (browser, address):
        headers = {**BROWSER, "Host": "localhost"}
        async with browser.get(f"{address}/runs", headers=headers, allow_redirects=False) as answer:
            assert answer.status == 200


async def test_health_shows_the_settings_and_no_secret() -> None:
    async with opened(TOKEN=SECRET) as (browser, address):
        async with browser.get(f"{address}/health", headers=BROWSER, allow_redirects=False) as answer:
            assert answer.headers["Location"].startswith("/sign-in?")
        form = {"token": SECRET, "next": "/health"}
        async with browser.post(f"{address}/sign-in", data=form, headers=OURS) as answer:
            told = await answer.text()
        assert answer.url.path == "/health"
        assert "BLAMESPAN_TOKEN" in told
        assert SECRET not in told
        assert "set, not shown" in told
        assert 'class="tiles"' in told


async def test_programs_are_refused_without_the_token_as_ever() -> None:
    async with opened(TOKEN=SECRET) as (browser, address):
        for path in ("/try", "/metrics"):
            async with browser.get(address + path, allow_redirects=False) as answer:
                assert answer.status == 401
