"""Between the halves: certificates are checked on both sides, and runs go to no other host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trustme

from analyzer.executor.analyst import RunAnalyst
from analyzer.methods.attribution import Attributor
from analyzer.service.open_remote import analyzer_server, asking
from collector_processor.settings import Settings, SettingsError
from semconv.model import SpanStatus, Step, StepKind, Trajectory
from tests.security.authority import Identity, issue

TOKEN: Final = "a-token-for-both"
FAILED: Final = Trajectory(
    run_id="a" * 32,
    steps=(Step(index=0, agent="adder", kind=StepKind.TOOL, status=SpanStatus.ERROR, error="overflow"),),
    root_status=SpanStatus.ERROR,
    root_error="overflow",
)


def settings(identity: Identity, **more: Any) -> Settings:
    return Settings(
        web_listen="127.0.0.1:0",
        token=TOKEN,
        tls_certificate=identity.certificate,
        tls_key=identity.key,
        model_timeout=2000,
        **more,
    )


@asynccontextmanager
async def answering(given: Settings) -> AsyncIterator[str]:
    """Serve with these settings; answers name the configured method, because there is no fallback."""
    server = analyzer_server(given, RunAnalyst(attributor=Attributor(method="signals")))
    port = await server.start()
    try:
        yield f"https://localhost:{port}"
    finally:
        await server.stop(0.0)


async def fallback_of(given: Settings) -> str | None:
    async with asking(given) as analyst:
        return (await analyst.analyse(FAILED)).attribution.fallback


async def test_halves_that_know_each_other_speak(tmp_path: Path) -> None:
    ours = issue(tmp_path / "ours")
    async with answering(settings(ours, tls_client_ca=ours.authority)) as url:
        asker = settings(ours, analyzer_endpoint=f"{url}?ca={ours.authority}")
        assert await fallback_of(asker) is None


async def test_a_stranger_is_not_answered(tmp_path: Path) -> None:
    ca = trustme.CA()
    ours, theirs = issue(tmp_path / "ours", ca), issue(tmp_path / "theirs")
    async with answering(settings(ours, tls_client_ca=ours.authority)) as url:
        stranger = settings(theirs, analyzer_endpoint=f"{url}?ca={ours.authority}")
        assert "the analyzer failed" in str(await fallback_of(stranger))


async def test_no_run_is_sent_to_one_whom_our_authority_does_not_know(tmp_path: Path) -> None:
    ours, theirs = issue(tmp_path / "ours"), issue(tmp_path / "theirs")
    async with answering(settings(theirs)) as url:
        asker = settings(ours, analyzer_endpoint=f"{url}?ca={ours.authority}")
        assert "ClientConnectorCertificateError" in str(await fallback_of(asker))


async def test_one_without_the_token_is_refused_and_does_not_ask_again(tmp_path: Path) -> None:
    ours = issue(tmp_path / "ours")
    async with answering(settings(ours)) as url:
        asker = settings(ours, analyzer_endpoint=f"{url}?ca={ours.authority}")
        told = await fallback_of(asker.model_copy(update={"token": "another"}))
    assert told == "signals, because the analyzer failed: it refused with HTTP 401"


async def test_a_certificate_that_is_none_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    ours = issue(tmp_path / "ours")
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    with pytest.raises(SettingsError, match=r"broken\.pem"):
        await fallback_of(settings(ours, analyzer_endpoint=f"https://localhost:1?ca={broken}"))
