from __future__ import annotations

import asyncio

from collector_processor.exporters import MemoryExporter
from collector_processor.otlp import NO_TENANT, Delivered, Exporter, Rejected, Signal, TryLater


async def test_gives_the_scripted_answers_then_always_the_same() -> None:
    exporter = MemoryExporter(
        [TryLater(reason="busy"), Delivered(rejected=1)], otherwise=Rejected(reason="no")
    )
    outcomes = [await exporter.send(Signal.LOGS, bytes([n]), NO_TENANT, ()) for n in range(4)]
    assert outcomes == [
        TryLater(reason="busy"),
        Delivered(rejected=1),
        Rejected(reason="no"),
        Rejected(reason="no"),
    ]
    assert [request.body for request in exporter.requests] == [b"\0", b"\1", b"\2", b"\3"]
    assert [request.body for request in exporter.delivered] == [b"\1"]


async def test_waits_until_a_number_of_requests_were_sent() -> None:
    exporter = MemoryExporter()
    waiting = asyncio.ensure_future(exporter.wait_for_requests(2))
    await exporter.send(Signal.TRACES, b"", NO_TENANT, ())
    await asyncio.sleep(0)
    assert not waiting.done()
    await exporter.send(Signal.TRACES, b"", NO_TENANT, ())
    await waiting


async def test_is_an_exporter() -> None:
    exporter: Exporter = MemoryExporter(max_bytes=7)
    assert exporter.max_bytes == 7
    await exporter.close()
