"""Cost of the fast lane without network: ``python -m benchmarks.resources.wire``.

Spans of 1.4 KB, 16 interleaved traces per request; scanned, journalled durably, acknowledged, and forwarded
to a null backend.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector_processor.forwarding.forwarder import Forwarder
from collector_processor.forwarding.ledger import Ledger
from collector_processor.journal import open_journal
from collector_processor.otlp import Arrival, Delivered, SendOutcome, Signal, Tenant
from collector_processor.receivers.intake import Intake, IntakeRules
from collector_processor.wire.scan import scan_traces
from collector_processor.wire.split import split_by_size
from tests.otlp_requests import request, span

SPAN_BYTES = 1400
TRACES = 16
WORDS = ("select", "order", "total", "from", "items", "where", "price", "customer", "and", "shipped")


class Nowhere:
    """A backend that accepts everything at once."""

    max_bytes = 4 << 20

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        del signal, body, tenant, hops
        return Delivered()

    async def close(self) -> None:
        """Do nothing."""


def make_request(spans: int, agent_traces: int, seed: int = 1) -> bytes:
    """Return one request; ``agent_traces`` of its 16 traces carry an agent's attributes."""
    chance = random.Random(seed)
    first = chance.getrandbits(60) | 1
    return request(*(_span(n, first, chance, is_agent=n % TRACES < agent_traces) for n in range(spans)))


def _span(number: int, first: int, chance: random.Random, *, is_agent: bool) -> Span:
    attributes: dict[str, str | int | bool] = {
        "http.request.method": "GET",
        "url.path": f"/api/v1/items/{number}",
        "server.address": "shop.internal",
        "server.port": 8080,
        "http.response.status_code": 200,
        "thread.name": f"worker-{number % 8}",
        "enduser.id": f"user-{chance.randrange(10**6)}",
    }
    if is_agent:
        attributes |= {"gen_ai.operation.name": "chat" if number >= TRACES else "invoke_workflow"}
    made = span(
        chance.getrandbits(63),
        trace=first * 1000 + number % TRACES,
        parent=first if number >= TRACES else None,
        attributes=attributes,
        name="GET /api/v1/items",
    )
    room = SPAN_BYTES - made.ByteSize() - 20
    text = " ".join(chance.choices(WORDS, k=room // 5))
    made.attributes.add(key="db.statement").value.string_value = text[:room]
    return made


def measure_survey(spans: int, agent_traces: int) -> float:
    """Return the spans scanned per second."""
    body = make_request(spans, agent_traces)
    return spans / min(_timed(lambda: scan_traces(body)) for _ in range(20))


def measure_split(spans: int) -> float:
    """Return the spans per second when requests are split into quarters."""
    body = make_request(spans, 0)
    return spans / min(_timed(lambda: split_by_size(body, len(body) // 4)) for _ in range(20))


def _timed(work: object) -> float:
    assert callable(work)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def measure_line(directory: Path, spans: int, agent_traces: int, requests: int) -> str:
    """Run the line in memory and on disk; return its figures as a row."""
    journal = await open_journal(directory)
    ledger = Ledger(journal.held_items)
    forwarder = Forwarder(journal, ledger, {Signal.TRACES: Nowhere()})
    intake = Intake(journal, ledger, forwarder, IntakeRules(instance_id="bench", now_ns=time.time_ns))
    bodies = [make_request(spans, agent_traces, seed) for seed in range(8)]
    left = iter(range(requests))
    waits: list[float] = []

    async def client() -> None:
        for number in left:
            began = time.perf_counter()
            await intake.accept(Arrival(signal=Signal.TRACES, body=bodies[number % len(bodies)]))
            waits.append(time.perf_counter() - began)

    cpu, began = time.process_time(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        runner = group.create_task(forwarder.run())
        async with asyncio.TaskGroup() as clients:
            for _ in range(32):
                clients.create_task(client())
        wall = time.perf_counter() - began
        await forwarder.drain(60)
        await runner
    cpu = time.process_time() - cpu
    assert ledger.snapshot()[Signal.TRACES].is_balanced
    total = spans * requests
    await journal.close()
    p99 = sorted(waits)[int(len(waits) * 0.99)] * 1000
    return f"{total / wall:>12,.0f} {total / cpu:>14,.0f} {journal.commits:>9,} {p99:>8.1f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=200_000, help="spans for each row of the second table")
    total: int = parser.parse_args().spans
    print(f"{'spans':>6} {'agents':>7} {'scanned/s':>12}")
    for agents in (0, 1, TRACES):
        print(f"{512:>6} {agents:>4}/{TRACES} {measure_survey(512, agents):>12,.0f}")
    print(f"split: {measure_split(512):,.0f} spans/s")
    print(f"{'spans':>6} {'agents':>7} {'durable/s':>12} {'per CPU second':>14} {'commits':>9} {'p99 ms':>8}")
    for spans, agents in ((512, 0), (512, 1), (512, TRACES), (16, 0), (1, 0)):
        with tempfile.TemporaryDirectory() as directory:
            requests = min(total // spans, 20_000)
            row = asyncio.run(measure_line(Path(directory), spans, agents, requests))
        print(f"{spans:>6} {agents:>4}/{TRACES} {row}")


if __name__ == "__main__":
    main()
