"""``blamespan doctor --quick`` against the port of the probes: plain, with TLS, with mutual TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.registry import CollectorRegistry

from analyzer.cli.main import run as blamespan
from analyzer.web.app import web_server
from analyzer.web.probes import Probes
from collector_processor.otlp import Address
from collector_processor.otlp.tls import TlsFiles
from tests.security.authority import issue
from tests.unit.test_web import PARTS


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without a ``blamespan.toml``."""
    monkeypatch.chdir(tmp_path)


@asynccontextmanager
async def serving(
    monkeypatch: pytest.MonkeyPatch,
    *,
    listen: str = "127.0.0.1",
    ready: bool = True,
    tls: TlsFiles | None = None,
) -> AsyncIterator[None]:
    """Serve the port, and set the settings of a service with such a port."""
    server = web_server(
        replace(PARTS, probe=Probes(is_ready=lambda: ready, metrics=CollectorRegistry()), tls=tls),
        Address(host=listen, port=0),
    )
    port = await server.start()
    monkeypatch.setenv("BLAMESPAN_WEB_LISTEN", f"{listen}:{port}")
    if tls is not None:
        monkeypatch.setenv("BLAMESPAN_TLS_CERTIFICATE", str(tls.certificate))
        monkeypatch.setenv("BLAMESPAN_TLS_KEY", str(tls.key))
    try:
        yield
    finally:
        await server.stop()


async def health() -> int:
    return await asyncio.to_thread(blamespan, ["doctor", "--quick", "--timeout", "20"])


@pytest.mark.parametrize("listen", ["127.0.0.1", "localhost", "0.0.0.0"])
async def test_a_service_that_is_ready_is_healthy(monkeypatch: pytest.MonkeyPatch, listen: str) -> None:
    async with serving(monkeypatch, listen=listen):
        assert await health() == 0


@pytest.mark.parametrize("is_mutual", [False, True])
async def test_it_is_healthy_with_tls_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_mutual: bool
) -> None:
    """Even if its certificate is for another host, and renewed by a damaged one."""
    ours, theirs = issue(tmp_path / "ours", name="blamespan.example"), issue(tmp_path / "theirs")
    async with serving(monkeypatch, tls=ours.server(theirs.authority if is_mutual else None)):
        ours.certificate.write_text("spoiled")
        assert await health() == 0


async def test_one_that_is_not_ready_is_not_healthy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(monkeypatch, ready=False):
        assert await health() == 1
    assert "not ready (/readyz answers 503)" in capsys.readouterr().err
    assert await health() == 1
    assert "not ready: Connection refused" in capsys.readouterr().err


async def test_an_unknown_port_cannot_be_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLAMESPAN_WEB_LISTEN", "127.0.0.1:0")
    assert await health() == 2
    assert "BLAMESPAN_WEB_LISTEN has port 0" in capsys.readouterr().err
