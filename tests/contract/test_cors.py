"""Only the listed web origins may send spans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
import pytest

from collector_processor.core.headers import Cors, read_origins
from collector_processor.otlp import Cause
from collector_processor.receivers import AdmissionRules, HttpReceiver
from collector_processor.settings import SettingsError, load_settings
from tests.contract.doors import LOOPBACK, MemorySink, listening

PAGE: Final = "https://app.example.com"
ASKS: Final = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}
JSON: Final = {"Content-Type": "application/json"}
BODY: Final = b'{"resourceSpans": []}'
ALLOWS: Final = "Access-Control-Allow-Origin"


@dataclass(frozen=True, slots=True)
class Page:
    """A script in a browser, reduced to its requests."""

    port: int

    async def send(
        self, method: str, headers: Mapping[str, str], path: str = "/v1/traces", body: bytes = b""
    ) -> tuple[int, Mapping[str, str]]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, f"http://127.0.0.1:{self.port}{path}", headers=headers, data=body
            ) as reply,
        ):
            return reply.status, reply.headers.copy()

    async def ask(self, origin: str | None, path: str = "/v1/traces") -> tuple[int, Mapping[str, str]]:
        return await self.send("OPTIONS", ASKS | ({"Origin": origin} if origin else {}), path)

    async def post(self, origin: str, **headers: str) -> tuple[int, Mapping[str, str]]:
        return await self.send("POST", JSON | {"Origin": origin} | headers, body=BODY)


@asynccontextmanager
async def serving(origins: str, token: str | None = None) -> AsyncIterator[Page]:
    cors = Cors(origins=read_origins(origins), tenant_headers=("x-scope-orgid",))
    rules = AdmissionRules(token=token, cors=cors)
    async with listening(HttpReceiver(MemorySink(), LOOPBACK, rules)) as port:
        yield Page(port)


async def test_by_default_no_page_may_send() -> None:
    async with serving("") as page:
        status, headers = await page.ask(PAGE)
        assert (status, headers["Allow"]) == (405, "POST")
        assert not [name for name in headers if name.startswith("Access-Control") or name == "Vary"]
        status, headers = await page.post(PAGE)
        assert (status, ALLOWS in headers) == (200, False)  # not asked first, a browser hides the answer


@pytest.mark.parametrize(
    "origin",
    [
        pytest.param(None, id="no origin"),
        pytest.param("https://evil.example.com", id="another"),
        pytest.param("https://app.example.com.evil.org", id="one that begins alike"),
        pytest.param("http://app.example.com", id="without TLS"),
        pytest.param("https://app.example.com:8443", id="another port"),
        pytest.param("https://app.example.com/", id="with a path"),
        pytest.param("null", id="a page in a sandbox"),
        pytest.param("*", id="the wildcard itself"),
        pytest.param("https://app.example.com, https://evil.example.com", id="two"),
    ],
)
async def test_a_page_that_the_setting_does_not_name_may_not_send(origin: str | None) -> None:
    async with serving(PAGE) as page:
        status, headers = await page.ask(origin)
        assert (status, ALLOWS in headers, headers["Vary"]) == (405, False, "Origin")
        if origin is not None:
            status, headers = await page.post(origin)
            assert ALLOWS not in headers


@pytest.mark.parametrize("origin", [PAGE, PAGE.upper()])
async def test_a_page_that_the_setting_names_may_send(origin: str) -> None:
    async with serving(f"http://localhost:3000, {PAGE}") as page:
        status, headers = await page.ask(origin)
        assert (status, headers[ALLOWS], headers["Access-Control-Allow-Methods"]) == (204, origin, "POST")
        asked = {name.strip() for name in headers["Access-Control-Allow-Headers"].split(",")}
        assert asked >= {"authorization", "content-type", "x-scope-orgid"}
        assert "Access-Control-Allow-Credentials" not in headers
        status, headers = await page.post(origin)
        assert (status, headers[ALLOWS], headers["Vary"]) == (200, origin, "Origin")


async def test_an_allowed_origin_does_not_replace_the_token() -> None:
    async with serving("*", token="secret") as page:
        status, headers = await page.ask("https://anybody.example")
        assert (status, headers[ALLOWS]) == (204, "*")  # a browser sends no token with its question
        status, headers = await page.post("https://anybody.example")
        assert (status, headers[ALLOWS]) == (401, "*")  # so that the page can tell why
        status, _ = await page.post("https://anybody.example", Authorization="Bearer wrong")
        assert status == 401
        status, _ = await page.post("https://anybody.example", Authorization="Bearer secret")
        assert status == 200


async def test_only_otlp_routes_answer_preflight_requests() -> None:
    async with serving(PAGE) as page:
        assert (await page.ask(PAGE, "/metrics"))[0] == 404
        status, _ = await page.send("OPTIONS", {"Origin": PAGE})
        assert status == 405, "a question names the method it asks for"


async def test_a_foreign_host_header_is_refused_for_allowed_origins_too() -> None:
    refused: list[Cause] = []
    rules = AdmissionRules(local_names=(), cors=Cors(origins=read_origins(PAGE)), refused=refused.append)
    async with listening(HttpReceiver(MemorySink(), LOOPBACK, rules)) as port:
        status, _ = await Page(port).send("OPTIONS", ASKS | {"Origin": PAGE, "Host": "evil.example.com"})
    assert (status, refused) == (403, [Cause.UNAUTHORIZED])


@pytest.mark.parametrize(
    "value",
    [
        "app.example.com",
        "https://app.example.com/path",
        "https://*.example.com",
        "https://user@app.example.com",
        "null",
        "ftp://app.example.com",
        "https://",
    ],
)
def test_an_invalid_origin_is_reported_at_the_start(value: str) -> None:
    with pytest.raises(SettingsError, match="BLAMESPAN_CORS_ALLOWED_ORIGINS"):
        load_settings({"BLAMESPAN_CORS_ALLOWED_ORIGINS": value})


def test_any_page_may_send_only_with_a_token() -> None:
    with pytest.raises(SettingsError, match="BLAMESPAN_TOKEN"):
        load_settings({"BLAMESPAN_CORS_ALLOWED_ORIGINS": "*"})
    load_settings({"BLAMESPAN_CORS_ALLOWED_ORIGINS": "*", "BLAMESPAN_TOKEN": "secret"})
