"""What a program's own backend did not take is counted, whatever the backend does."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from analyzer.programs.collecting import Collected
from collector_processor.exporters import MemoryExporter
from collector_processor.otlp import Arrival, Rejected, SendOutcome, Signal, Tenant, TryLater


class Hanging(MemoryExporter):
    """Takes requests and never answers."""

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        await super().send(signal, body, tenant, hops)
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize(
    ("backend", "undelivered"),
    [
        (MemoryExporter(), 0),
        (MemoryExporter(otherwise=Rejected(reason="no such project")), 2),
        (MemoryExporter(otherwise=TryLater(reason="busy")), 2),
        (Hanging(), 2),
    ],
)
async def test_each_request_that_the_backend_did_not_take_is_counted(
    backend: MemoryExporter, undelivered: int
) -> None:
    collected = Collected(backend, last_s=0.05)
    passing = asyncio.create_task(collected.pass_on())
    for body in (b"one", b"two"):
        await collected.accept(Arrival(signal=Signal.TRACES, body=body))
    await collected.drain()
    passing.cancel()
    with suppress(asyncio.CancelledError):
        await passing
    assert collected.undelivered == undelivered
    assert bool(collected.why) is (undelivered > 0)
    assert collected.bodies(Signal.TRACES) == (b"one", b"two")
