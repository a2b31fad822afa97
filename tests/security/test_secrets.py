"""Secrets are planted everywhere, and must not occur in anything that the service says or writes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import grpc
import pytest

from analyzer.service.all_in_one import Running, running_service
from analyzer.telemetry.json_lines import JsonFormatter
from analyzer.web.front import shown_settings
from collector_processor.exporters import open_exporter
from collector_processor.otlp import NO_TENANT, Delivered, Signal
from collector_processor.otlp.answers import RpcCode, failure
from collector_processor.otlp.destination import Destination, Protocol
from collector_processor.settings import Settings, SettingsError, load_settings
from tests.contract.backends import GrpcAnswer, HttpReply, grpc_backend, http_backend
from tests.e2e.hostile import failing_run, good_request
from tests.e2e.line import environment
from tests.e2e.model_server import Scripted
from tests.e2e.model_server import serve as model_server
from tests.e2e.raw import plain_span, wrap
from tests.factories import TRACE

TOKEN, HEADER, KEY, QUERY, CALLER = (
    f"canary{word}0123456789" for word in ("token", "head", "key", "query", "them")
)
CANARIES = (TOKEN, HEADER, KEY, QUERY, CALLER)
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def environ(url: str, **more: str) -> dict[str, str]:
    return environment(
        forward_endpoint=url,
        forward_protocol="http/protobuf",
        token=TOKEN,
        root_grace=100,
        OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer {HEADER},x-key={HEADER}",
        OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=f"{url}/in?api_key={QUERY}",
        OPENAI_API_KEY=KEY,
        **more,
    )


@pytest.fixture
def everything_logged() -> Iterator[list[str]]:
    """Every record of every logger, at DEBUG, as a line of our own log."""
    lines: list[str] = []
    handler = logging.Handler(level=logging.DEBUG)
    handler.emit = lambda record: lines.append(JsonFormatter().format(record))  # type: ignore[method-assign]
    root = logging.getLogger()
    known = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    levels = {logger: logger.level for logger in (root, *known)}
    root.addHandler(handler)
    for logger in levels:
        logger.setLevel(logging.DEBUG)
    yield lines
    root.removeHandler(handler)
    for logger, level in levels.items():
        logger.setLevel(level)


@pytest.mark.whole
async def test_no_secret_is_logged_stored_or_answered_whatever_goes_wrong(
    tmp_path: Path,
    everything_logged: list[str],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backend and a provider that refuse requests and quote them in their refusals."""
    quoted = failure(RpcCode.UNAUTHENTICATED, f"who is {HEADER}? {'x' * 160} Bearer {HEADER} {KEY}")
    refusals = [HttpReply(status=401, body=quoted, headers={"Content-Type": "application/x-protobuf"})] * 50
    async with (
        http_backend(*refusals) as backend,
        model_server(Scripted(status=401, text=f"Incorrect API key provided: {KEY}")) as model,
    ):
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_API_BASE", model.url)
        chosen = environ(backend.url, BLAMESPAN_MODEL="openai/scripted", BLAMESPAN_METHOD="judge")
        settings = load_settings(chosen, data_dir=tmp_path / "data")
        async with running_service(settings) as running:
            said = [text async for text in _conversation(running)]
            assert model.received[0].headers["authorization"] == f"Bearer {KEY}"
        assert backend.seen[0].headers["authorization"] == f"Bearer {HEADER}"
    printed = capfd.readouterr()
    said += [
        *everything_logged,
        printed.out,
        printed.err,
        repr(settings),
        str(settings),
        repr(settings.endpoints),
    ]
    assert any("request refused" in line for line in everything_logged)  # DEBUG was heard
    assert "[hidden]" in "".join(said)  # the backend's words were heard too
    assert _leaks("\n".join(said)) == []
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert b"lookup" in stored
    assert _leaks(stored.decode("latin-1")) == []


def _leaks(text: str) -> list[str]:
    """Return the canaries, whole or half, in a text, each with its surroundings."""
    halves = [canary[: len(canary) // 2 + 3] for canary in CANARIES]
    return [text[max(0, at - 120) : at + 60] for half in halves if (at := text.find(half)) >= 0]


async def _conversation(running: Running) -> AsyncIterator[str]:
    """All requests to a service, with the token, without, and with a wrong one."""
    spans = failing_run(TRACE)
    body = wrap(spans[0], *map(plain_span, spans))
    async with aiohttp.ClientSession() as session:
        for bearer in (TOKEN, CALLER, None):
            headers = PROTOBUF | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
            for content in (body, b"\xff" * 20):
                async with session.post(
                    f"http://{running.http}/v1/traces", data=content, headers=headers
                ) as told:
                    yield await told.text(errors="replace")
        for _ in range(600):
            found = await running.find(TRACE)
            if found:
                break
            await asyncio.sleep(0.1)
        for path in (
            "/metrics",
            "/api/runs",
            f"/api/runs/{TRACE}",
            "/api/runs/nobody",
            "/readyz",
            "/nowhere",
        ):
            for bearer in (TOKEN, CALLER):
                headers = {"Authorization": f"Bearer {bearer}"}
                async with session.get(f"http://{running.web}{path}", headers=headers) as told:
                    yield f"{told.headers} {await told.text()}"
    yield str(found)
    assert found


@pytest.mark.parametrize(
    "spoiled",
    [
        {"BLAMESPAN_FORWARD_HEADERS": f"bad name={HEADER}"},
        {"BLAMESPAN_FORWARD_HEADERS": f"x=a\n{HEADER}"},
        {"BLAMESPAN_FORWARD_ENDPOINT": f"http://user:{HEADER}@backend:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": f"ftp://backend:4317?key={QUERY}"},
        {"BLAMESPAN_QUEUE": "kafka", "BLAMESPAN_TOKEN": TOKEN},
        {"BLAMESPAN_QUEUE": f"kafka://user:{HEADER}@broker:9092"},
    ],
)
def test_invalid_settings_are_refused_without_showing_secrets(spoiled: dict[str, str]) -> None:
    defaults = {"BLAMESPAN_FORWARD_ENDPOINT": "http://backend"} if "HEADERS" in next(iter(spoiled)) else {}
    with pytest.raises(SettingsError) as told:
        load_settings(defaults | spoiled)
    assert _leaks(str(told.value) + str(told.value.__cause__)) == []


@pytest.mark.parametrize("name", ["token", "forward_headers"])
def test_a_secret_of_the_wrong_kind_in_the_file_is_not_quoted(tmp_path: Path, name: str) -> None:
    (tmp_path / "blamespan.toml").write_text(f'{name} = ["{TOKEN}"]')
    with pytest.raises(SettingsError) as told:
        load_settings({}, directory=tmp_path)
    assert _leaks(str(told.value) + str(told.value.__cause__)) == []


def test_no_field_with_a_secrets_name_is_part_of_the_representation() -> None:
    for name, field in Settings.model_fields.items():
        if (
            any(word in name for word in ("token", "headers", "password", "secret"))
            and name != "tenant_headers"
        ):
            assert field.repr is False, name


def test_the_page_of_settings_shows_what_is_derived_but_no_address_with_a_password(tmp_path: Path) -> None:
    (tmp_path / "blamespan.toml").write_text("idle_close = 90000")
    environ = {
        "BLAMESPAN_QUEUE": f"kafka://user:{HEADER}@broker:9092?security.protocol=sasl_ssl",
        "BLAMESPAN_STORE_URL": f"postgresql+psycopg://user:{HEADER}@db/blamespan",
    }
    page = shown_settings(load_settings(environ, directory=tmp_path))
    shown = {each.name: (each.value, each.is_default) for each in page}
    assert HEADER not in str(page)
    assert shown["BLAMESPAN_QUEUE"] == ("set, not shown", False)
    assert shown["blamespan.toml: idle_close"] == ("90000", False)
    assert shown["blamespan.toml: max_age"] == ("3600000", True)
    usual = {each.name: (each.value, each.is_default) for each in shown_settings(load_settings({}))}
    assert usual["BLAMESPAN_QUEUE"] == ("sqlite", True)


@pytest.mark.parametrize("protocol", list(Protocol), ids=str)
async def test_a_backends_success_that_quotes_us_is_not_repeated(protocol: Protocol) -> None:
    words = b"\x0a\x20\x12\x1e" + f"who is {HEADER}?".encode().ljust(30)
    refused = failure(RpcCode.ABORTED, HEADER)
    servers = {
        Protocol.GRPC: lambda: grpc_backend(
            GrpcAnswer(body=words), GrpcAnswer(code=grpc.StatusCode.ABORTED, details=HEADER)
        ),
        Protocol.HTTP_PROTOBUF: lambda: http_backend(
            HttpReply(body=words), HttpReply(status=503, body=refused)
        ),
    }
    async with servers[protocol]() as backend:
        destination = Destination(
            endpoint=backend.url, protocol=protocol, headers={"authorization": f"Bearer {HEADER}"}
        )
        exporter = open_exporter(destination, "test")
        outcomes = [await exporter.send(Signal.TRACES, good_request(), NO_TENANT, ()) for _ in range(2)]
        await exporter.close()
    assert isinstance(outcomes[0], Delivered)
    assert "[hidden]" in outcomes[0].message
    assert "[hidden]" in repr(outcomes[1])
    assert _leaks(json.dumps([repr(outcome) for outcome in outcomes])) == []
