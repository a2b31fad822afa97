"""Access to the ports: host names, tokens, pages of other sites, many and slow clients."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from analyzer.web.app import web_server
from collector_processor.core.headers import names_this_machine
from collector_processor.core.http_server import ProtocolLogger
from collector_processor.otlp import Arrival, Receipt, RefusedError, Tenant
from collector_processor.otlp.answers import MediaType, RpcCode, read_reason
from collector_processor.receivers import AdmissionRules, HttpLimits, HttpReceiver, HttpTimeouts
from collector_processor.receivers.overload import BufferBudget
from collector_processor.settings import SettingsError, load_settings, require_token
from tests.contract.doors import LOOPBACK, MemorySink, listening
from tests.otlp_requests import request, span
from tests.runs import run, step
from tests.unit.test_web import PARTS, Ask, ask
from tests.web.stage import open_stage, serving

__all__ = ["ask"]

BODY = request(span(1))
PROTOBUF = {"Content-Type": MediaType.PROTOBUF.value}
RULES = AdmissionRules(local_names=("otel.internal",))


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:4318", "localhost.:1", "127.0.0.1:8500", "127.9.9.9", "[::1]:4318", "[::1]", "",
     "localhost:",
     "app.localhost", "otel.internal:4318", "192.168.1.5"],
)  # fmt: skip
def test_names_of_this_machine(host: str) -> None:
    assert names_this_machine(host, ("otel.internal",))


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:4318", "localhost.evil.example", "evil-localhost",
     "[::1].evil.example", "[::1]evil", "127.0.0.1:80@evil.example", "localhost:evil.example", "[::1]:x",
     "::1.evil",
     "127.0.0.1.evil.example", "127.0.0.1@evil.example", "otel.internal.evil.example", "0x7f000001", "1"],
)  # fmt: skip
def test_names_of_others(host: str) -> None:
    assert not names_this_machine(host, ("otel.internal",))


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect a raw socket with a timeout of five minutes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(300):
            yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def post(port: int, body: bytes = BODY, /, **headers: str) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/v1/traces", data=body, headers=PROTOBUF | headers) as answer,
    ):
        return answer.status, await answer.read()


async def is_taken(port: int) -> bool:
    try:
        return (await post(port))[0] == 200
    except aiohttp.ClientError:  # turned away as it connected
        return False


async def test_a_rebound_name_is_refused_in_otlps_words() -> None:
    sink = MemorySink()
    async with listening(HttpReceiver(sink, LOOPBACK, RULES)) as port:
        status, said = await post(port, Host="evil.example:4318")
        assert (status, "names this machine" in read_reason(said)) == (403, True)
        assert (await post(port, Host="otel.internal"))[0] == 200
        assert (await post(port))[0] == 200
    assert len(sink.arrivals) == 2


async def test_with_a_token_any_name_will_do() -> None:
    """Behind a load balancer the host name is the balancer's; a browser tricked by a site does not know the
    token."""
    rules = replace(RULES, token="s3cret")
    async with listening(HttpReceiver(MemorySink(), LOOPBACK, rules)) as port:
        assert (await post(port, Host="collector.example", Authorization="Bearer s3cret"))[0] == 200
        assert (await post(port, Host="collector.example"))[0] == 401


async def test_a_page_of_another_site_may_not_send() -> None:
    async with listening(HttpReceiver(MemorySink(), LOOPBACK, RULES)) as port:
        preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        async with (
            aiohttp.ClientSession() as session,
            session.options(f"http://127.0.0.1:{port}/v1/traces", headers=preflight) as answer,
        ):
            assert answer.status == 405
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        # What a page may send without leave has another content type.
        assert (await post(port, BODY, **{"Content-Type": "text/plain"}))[0] == 415


async def test_every_answer_of_the_api_forbids_scripts_frames_and_guessing(ask: Ask) -> None:
    client = await ask(PARTS)
    for path in ("/api/runs", "/api/runs/nobody", "/metrics", "/healthz", "/nowhere"):
        headers = (await client.get(path)).headers
        assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cache-Control"] == "no-store"


async def test_a_list_shows_the_runs_of_the_callers_tenant(tmp_path: Path) -> None:
    stage = open_stage(tmp_path)
    run_id = await stage.add(run(step("clerk", "5")), "shop", tenant=Tenant("x-scope-orgid=a"))
    async with (
        serving(stage.parts(tenant_header_names=("x-scope-orgid",))) as url,
        aiohttp.ClientSession() as session,
    ):
        for tenant, expected in (("a", [run_id]), ("b", [])):
            async with session.get(f"{url}/api/runs", headers={"X-Scope-OrgID": tenant}) as answer:
                assert [one["run_id"] for one in (await answer.json())["runs"]] == expected
    stage.verdicts.close()
    stage.labels.close()


@pytest.mark.parametrize("door", ["OTLP_GRPC_LISTEN", "OTLP_HTTP_LISTEN", "WEB_LISTEN"])
@pytest.mark.parametrize("address", ["0.0.0.0:1", ":1", "[::]:1", "192.168.1.5:1", "box.example:1"])
def test_no_port_opens_beyond_this_machine_without_a_long_token(door: str, address: str) -> None:
    environ = {f"BLAMESPAN_{door}": address}
    with pytest.raises(SettingsError, match="lets other machines in"):
        require_token(load_settings(environ))
    with pytest.raises(SettingsError, match="at least 16 characters"):
        require_token(load_settings(environ | {"BLAMESPAN_TOKEN": "s3cret"}))
    require_token(load_settings(environ | {"BLAMESPAN_TOKEN": "0123456789abcdef"}))


def test_a_budget_holds_no_more_than_its_limit_and_all_of_it_again_afterwards() -> None:
    budget = BufferBudget(100)
    with budget.lease() as one, budget.lease() as other:
        one.hold(60)
        other.hold(40)
        with pytest.raises(RefusedError) as told:
            one.hold(61)
        assert told.value.retry_after_s > 0
        one.hold(10)
        other.hold(90)
    assert budget.used == 0


async def test_bodies_of_all_clients_together_are_bounded_and_others_are_asked_to_retry() -> None:
    release, came = asyncio.Event(), asyncio.Semaphore(0)

    class Slow(MemorySink):
        async def accept(self, arrival: Arrival) -> Receipt:
            came.release()
            await release.wait()
            return await super().accept(arrival)

    sink, limits = Slow(), HttpLimits(bytes=5 * len(BODY) // 2)
    async with listening(HttpReceiver(sink, LOOPBACK, RULES, limits=limits)) as port:
        waiting = [asyncio.create_task(post(port)) for _ in range(2)]
        for _ in waiting:
            await came.acquire()
        status, said = await post(port)
        assert (status, "are being received already" in read_reason(said)) == (503, True)
        release.set()
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200, 200]
        assert (await post(port))[0] == 200
    assert len(sink.arrivals) == 3


async def test_a_body_counts_with_its_unpacked_size() -> None:
    async with listening(
        HttpReceiver(MemorySink(), LOOPBACK, AdmissionRules(), limits=HttpLimits(bytes=100_000))
    ) as port:
        packed = gzip.compress(BODY + request(*(span(n) for n in range(2, 3_000))))
        assert len(packed) < 100_000
        status, said = await post(port, packed, **{"Content-Encoding": "gzip"})
        assert (status, RpcCode.RESOURCE_EXHAUSTED.name) == (503, "RESOURCE_EXHAUSTED"), said
        assert (await post(port))[0] == 200


async def test_connections_beyond_the_limit_are_asked_to_retry() -> None:
    async with listening(
        HttpReceiver(MemorySink(), LOOPBACK, AdmissionRules(), limits=HttpLimits(connections=3))
    ) as port:
        async with AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(raw(port))
            async with raw(port) as (reader, _):
                assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        async with asyncio.timeout(300):  # it has to hear first that they are gone
            while not await is_taken(port):
                pass


@pytest.mark.parametrize("opening", [b"", b"POST /v1/tr", b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nX-A: "])
async def test_a_client_that_does_not_finish_its_head_is_disconnected(opening: bytes) -> None:
    timeouts = HttpTimeouts(idle_s=0.2)
    async with (
        listening(HttpReceiver(MemorySink(), LOOPBACK, AdmissionRules(), timeouts=timeouts)) as port,
        raw(port) as (reader, writer),
    ):
        writer.write(opening)
        assert await reader.read() == b""


async def test_a_client_without_the_token_is_refused_before_its_body_is_read() -> None:
    async with (
        listening(HttpReceiver(MemorySink(), LOOPBACK, AdmissionRules(token="s3cret"))) as port,
        raw(port) as (reader, writer),
    ):
        writer.write(b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n")
        writer.write(b"Content-Type: application/x-protobuf\r\n\r\n")  # and no byte of a body
        async with asyncio.timeout(30):  # half of what it would be waited for
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")


async def test_a_client_that_sends_its_body_too_slowly_is_disconnected() -> None:
    timeouts = HttpTimeouts(body_s=0.3, lingering_s=0.1)
    async with (
        listening(HttpReceiver(MemorySink(), LOOPBACK, AdmissionRules(), timeouts=timeouts)) as port,
        raw(port) as (reader, writer),
    ):
        writer.write(b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n")
        writer.write(b"Content-Type: application/x-protobuf\r\n\r\n")
        dripping = asyncio.create_task(drip(writer))
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        dripping.cancel()


async def drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"\0")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"X-Long: " + b"x" * 20_000 + b"\r\n", id="one header of 20 kB"),
        pytest.param(b"".join(b"X-%d: x\r\n" % n for n in range(2_000)), id="2,000 headers"),
    ],
)
async def test_oversized_heads_are_refused(head: bytes) -> None:
    async with (
        listening(HttpReceiver(MemorySink(), LOOPBACK, AdmissionRules())) as port,
        raw(port) as (reader, writer),
    ):
        writer.write(b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
        assert b" 400 " in await reader.readline()


MALFORMED = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)


async def test_a_malformed_request_is_one_line_at_the_page_as_at_the_otlp_door(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    page, door = web_server(PARTS, LOOPBACK), HttpReceiver(MemorySink(), LOOPBACK, RULES)
    try:
        async with listening(door) as otlp:
            for port in (await page.start(), otlp):
                caplog.clear()
                async with raw(port) as (reader, writer):
                    writer.write(MALFORMED)
                    assert b" 400 " in await reader.read()
                (line,) = caplog.records
                assert (line.levelno, line.exc_info) == (logging.INFO, None)
    finally:
        await page.stop()


async def test_grpc_on_the_http_port_is_pointed_to_the_right_port_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with listening(HttpReceiver(MemorySink(), LOOPBACK, RULES)) as port:
        for _ in range(3):
            async with raw(port) as (reader, writer):
                writer.write(PREFACE)
                assert b" 400 " in await reader.read()
    (line,) = caplog.records
    assert line.getMessage() == "gRPC was sent to an HTTP port"
    assert "BLAMESPAN_OTLP_GRPC_LISTEN" in vars(line)["mend"]


async def test_our_own_faults_keep_their_traceback(caplog: pytest.LogCaptureFixture) -> None:
    fault = ValueError("ours")
    ProtocolLogger("test").exception("Error handling request from %s", "somebody", exc_info=fault)
    (line,) = caplog.records
    assert line.exc_info is not None
    assert line.exc_info[1] is fault
