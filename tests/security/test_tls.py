"""TLS on every port and toward backends, with real certificates that are renewed during the test."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
import trustme
from prometheus_client.registry import CollectorRegistry

from analyzer.analyses.composition import tls_files
from analyzer.web.app import WebParts, web_server
from analyzer.web.probes import Probes
from collector_processor.core.http_server import ListenError
from collector_processor.exporters import open_exporter
from collector_processor.otlp import (
    NO_TENANT,
    Address,
    Delivered,
    Exporter,
    SendOutcome,
    Signal,
    TryLater,
    grpc_path,
)
from collector_processor.otlp.destination import Destination, Protocol
from collector_processor.otlp.tls import ClientFiles, ClientTls, Renewals, Renewed, ServerTls
from collector_processor.receivers import AdmissionRules, GrpcReceiver, HttpReceiver, Receiver
from collector_processor.settings import SettingsError, load_settings
from tests.backends.supervise import free_ports
from tests.contract.doors import LOOPBACK, MemorySink, listening
from tests.otlp_requests import request, span
from tests.security.authority import Identity, issue
from tests.unit.test_web import PARTS

BODY = request(span(1))
AN_AGE_S = 1.1
"""Longer than the interval of checks for changed files."""


class Door:
    """One kind of receiver, and how its client sends one request."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.make = GrpcReceiver if protocol is Protocol.GRPC else HttpReceiver

    def exporter(self, port: int, trusts: Identity, shows: Identity | None = None) -> Exporter:
        destination = Destination(
            endpoint=f"https://localhost:{port}",
            protocol=self.protocol,
            certificate=trusts.authority,
            client_certificate=shows.certificate if shows else None,
            client_key=shows.key if shows else None,
            timeout_s=60,
        )
        return open_exporter(destination, "test")


async def send(exporter: Exporter) -> SendOutcome:
    return await exporter.send(Signal.TRACES, BODY, NO_TENANT, ())


async def sent_by(exporter: Exporter) -> SendOutcome:
    try:
        return await send(exporter)
    finally:
        await exporter.close()


@pytest.fixture(params=list(Protocol), ids=str)
def door(request: pytest.FixtureRequest) -> Door:
    return Door(request.param)


@pytest.fixture
def ours(tmp_path: Path) -> Identity:
    return issue(tmp_path / "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Identity:
    return issue(tmp_path / "theirs", name="agent.example")


async def test_a_client_with_the_right_certificate_comes_in_and_no_other(
    door: Door, ours: Identity, theirs: Identity, tmp_path: Path
) -> None:
    sink = MemorySink()
    stranger = issue(tmp_path / "stranger")
    async with listening(door.make(sink, LOOPBACK, AdmissionRules(), ours.server(theirs.authority))) as port:
        assert await sent_by(door.exporter(port, ours, theirs)) == Delivered()
        assert isinstance(await sent_by(door.exporter(port, ours)), TryLater)
        assert isinstance(await sent_by(door.exporter(port, ours, stranger)), TryLater)
    assert len(sink.arrivals) == 1


async def test_a_renewed_certificate_is_shown_without_a_restart(
    door: Door, ours: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with listening(door.make(MemorySink(), LOOPBACK, AdmissionRules(), ours.server())) as port:
        assert await sent_by(door.exporter(port, ours)) == Delivered()
        issue(ours.folder)  # by another authority: who trusts only that one comes in only now
        await asyncio.sleep(AN_AGE_S)
        assert await sent_by(door.exporter(port, ours)) == Delivered()
    assert "TLS certificate renewed" in caplog.messages


async def test_a_half_written_certificate_is_reported_and_the_old_one_stays(
    door: Door, ours: Identity, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = Identity(folder=tmp_path / "before")
    before.folder.mkdir()
    before.authority.write_bytes(ours.authority.read_bytes())
    async with listening(door.make(MemorySink(), LOOPBACK, AdmissionRules(), ours.server())) as port:
        whole = ours.certificate.read_bytes()
        ours.certificate.write_bytes(whole[: len(whole) // 2])
        await asyncio.sleep(AN_AGE_S)
        assert await sent_by(door.exporter(port, before)) == Delivered()
        issue(ours.folder)
        await asyncio.sleep(AN_AGE_S)
        assert await sent_by(door.exporter(port, ours)) == Delivered()
    assert [message for message in caplog.messages if "the previous certificate stays" in message]
    assert "PRIVATE KEY" not in caplog.text


async def test_a_backends_new_certificate_authority_and_our_new_certificate_are_used(
    door: Door, ours: Identity, theirs: Identity
) -> None:
    """The exporter keeps running while the backend and we get new certificates."""

    def backend(port: int) -> Receiver:
        listen = Address(host="127.0.0.1", port=port)
        return door.make(MemorySink(), listen, AdmissionRules(), ours.server(theirs.authority))

    (port,) = free_ports(1)
    async with listening(backend(port)):
        exporter = door.exporter(port, ours, theirs)
        assert await send(exporter) == Delivered()
    for renewed in (ours, theirs):
        issue(renewed.folder)
    await asyncio.sleep(AN_AGE_S)
    async with listening(backend(port)):
        assert await send(exporter) == Delivered()
    await exporter.close()


async def ask(port: int, path: str, trust: ssl.SSLContext) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://localhost:{port}{path}", ssl=trust) as answer,
    ):
        return answer.status


async def test_the_api_wants_a_certificate_and_probes_need_none(ours: Identity, theirs: Identity) -> None:
    parts = WebParts(
        probe=Probes(is_ready=lambda: True, metrics=CollectorRegistry()),
        pages=PARTS.pages,
        find=PARTS.find,
        labels=PARTS.labels,
        tls=ours.server(theirs.authority),
    )
    server = web_server(parts, LOOPBACK)
    port = await server.start()
    try:
        nobody = ssl.create_default_context(cafile=str(ours.authority))
        known = ssl.create_default_context(cafile=str(ours.authority))
        known.load_cert_chain(theirs.certificate, theirs.key)
        assert [await ask(port, path, nobody) for path in ("/healthz", "/metrics", "/api/runs")] == [
            200,
            403,
            403,
        ]
        assert [await ask(port, path, known) for path in ("/metrics", "/api/runs")] == [200, 200]
    finally:
        await server.stop()


async def test_plain_requests_do_not_get_through_tls(ours: Identity) -> None:
    sink = MemorySink()
    async with (
        listening(HttpReceiver(sink, LOOPBACK, AdmissionRules(), ours.server())) as port,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"http://localhost:{port}/v1/traces", data=BODY)
    assert not sink.arrivals


async def test_no_port_accepts_tls_older_than_1_2(ours: Identity) -> None:
    assert ServerTls(ours.server()).context().minimum_version >= ssl.TLSVersion.TLSv1_2


def _no_certificate(identity: Identity) -> None:
    identity.certificate.write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")


def _no_file(identity: Identity) -> None:
    identity.certificate.unlink()


def _other_key(identity: Identity) -> None:
    identity.key.write_bytes(trustme.CA().issue_cert("other").private_key_pem.bytes())


def _empty_authority(identity: Identity) -> None:
    identity.authority.write_bytes(b"")


def _key_with_password(identity: Identity) -> None:
    identity.key.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIBvTBXBgkqhkiG9w0BBQ0wSjApBgkqhkiG9w0BBQwwHAQIYm9vCg==\n"
        "-----END ENCRYPTED PRIVATE KEY-----\n"
    )


@pytest.mark.parametrize(
    "spoil", [_no_certificate, _no_file, _other_key, _empty_authority, _key_with_password]
)
async def test_files_without_an_identity_are_refused_at_the_start(
    door: Door, ours: Identity, spoil: Callable[[Identity], None]
) -> None:
    spoil(ours)
    with pytest.raises(ListenError, match="cannot listen on"):
        await door.make(MemorySink(), LOOPBACK, AdmissionRules(), ours.server(ours.authority)).start()


def test_the_files_are_looked_at_once_a_second_at_most(tmp_path: Path) -> None:
    file, now = tmp_path / "file", [0.0]
    file.write_text("1")
    renewed = Renewed((file,), file.read_text, lambda: now[0])
    file.write_text("22")
    assert renewed.get() == "1"
    now[0] = 1.0
    assert renewed.get() == "22"
    first = renewed.get()
    now[0] = 5.0
    assert renewed.get() is first  # unchanged files are not read again


def test_a_renewal_that_failed_is_counted_once_for_each_door(ours: Identity) -> None:
    settings = load_settings(
        {"BLAMESPAN_TLS_CERTIFICATE": str(ours.certificate), "BLAMESPAN_TLS_KEY": str(ours.key)}
    )
    renewals, now = Renewals(), [0.0]
    files = tls_files(settings, renewals)
    assert files is not None
    doors = [ServerTls(files, clock=lambda: now[0]) for _ in range(2)]
    _other_key(ours)
    for now[0] in (2.0, 4.0, 6.0):
        for door in doors:
            door.context()
    assert renewals.failed == len(doors)
    issue(ours.folder)
    now[0] = 8.0
    doors[0].context()
    assert renewals.failed == len(doors)


def test_without_files_the_systems_authorities_are_trusted() -> None:
    assert ClientTls(ClientFiles()).identity().context.verify_mode is ssl.CERT_REQUIRED


def test_settings_name_the_tls_files_of_all_ports_and_of_the_exporter() -> None:
    settings = load_settings(
        {
            "BLAMESPAN_TLS_CERTIFICATE": "/tls/chain.pem",
            "BLAMESPAN_TLS_KEY": "/tls/key.pem",
            "BLAMESPAN_TLS_CLIENT_CA": "/tls/agents.pem",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://backend:4317",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "/out/ca.pem",
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/out/us.pem",
            "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY": "/out/traces.key",
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/out/us.key",
        }
    )
    traces, logs = settings.endpoints[Signal.TRACES], settings.endpoints[Signal.LOGS]
    assert (traces.certificate, traces.client_certificate) == (Path("/out/ca.pem"), Path("/out/us.pem"))
    assert (traces.client_key, logs.client_key) == (Path("/out/traces.key"), Path("/out/us.key"))
    assert settings.tls_client_ca == Path("/tls/agents.pem")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"BLAMESPAN_TLS_CERTIFICATE": "/c"}, "expected both or neither"),
        ({"BLAMESPAN_TLS_KEY": "/k"}, "expected both or neither"),
        ({"BLAMESPAN_TLS_CLIENT_CA": "/a"}, "BLAMESPAN_TLS_CLIENT_CA without"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://b", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/k"},
            "CLIENT_KEY without",
        ),
    ],
)
def test_half_an_identity_is_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load_settings(environ)


async def test_a_grpc_client_without_the_token_is_refused_before_its_message_is_read() -> None:
    sink = MemorySink()
    async with (
        listening(GrpcReceiver(sink, LOOPBACK, AdmissionRules(token="s3cret", max_bytes=1000))) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        make: Any = channel.unary_unary
        call = make(grpc_path(Signal.TRACES))
        with pytest.raises(grpc.aio.AioRpcError) as told:
            await call(bytes(2_000_000))  # too large as well: that would be said, had it been read
    assert told.value.code() is grpc.StatusCode.UNAUTHENTICATED
