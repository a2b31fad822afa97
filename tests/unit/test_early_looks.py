"""When open traces are looked at: bounded in memory and cost, also in a storm, and behind verdicts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from analyzer.analyses.early import MOST_BYTES, MOST_TRACES, EarlyLooks
from collector_processor.core.analysis import AnalysisLostError
from collector_processor.otlp import NO_TENANT, Tenant, TraceKey
from collector_processor.wire.facts import TraceArrival
from semconv.model import TraceId
from tests.otlp_requests import span_note

_STORM: Final = 5 * MOST_TRACES


def arrival(
    number: int, *, spans: int = 1, size: int = 100, parent: int = 1, tenant: Tenant = NO_TENANT
) -> TraceArrival:
    return TraceArrival(
        seq=number,
        key=TraceKey(tenant, TraceId(f"{number:032x}")),
        received_ns=0,
        byte_count=size,
        notes=tuple(span_note(span_id=place + 2, parent_id=parent) for place in range(spans)),
    )


class Watched:
    """Looks at traces that only count, on a clock that each look moves by a second."""

    def __init__(self) -> None:
        self.seen: Counter[TraceKey] = Counter()
        self.crashes = False
        self.busy = 0
        self.rests: list[float] = []
        self.now = 0.0
        self.looks = EarlyLooks(self.look, is_busy=self.is_busy, monotonic=lambda: self.now, pause=self.pause)

    async def look(self, key: TraceKey) -> None:
        self.seen[key] += 1
        self.now += 1
        if self.crashes:
            raise AnalysisLostError("it crashed worker processes")

    def is_busy(self) -> bool:
        self.busy -= 1
        return self.busy >= 0

    async def pause(self, seconds: float) -> None:
        self.rests.append(seconds)
        await asyncio.sleep(0)

    async def work(self) -> None:
        """Look until nothing is left; each pass of the loop ends at a pause."""
        task = asyncio.create_task(self.looks.run())
        idle = 0
        while idle < 10:
            before = len(self.rests)
            await asyncio.sleep(0)
            idle = idle + 1 if len(self.rests) == before else 0
        task.cancel()


def test_a_storm_of_open_traces_keeps_a_bounded_number_and_skips_the_rest() -> None:
    async def storm() -> None:
        one = Watched()
        for number in range(1, _STORM + 1):
            one.looks.feed(arrival(number))
        assert len(one.looks._traces) <= MOST_TRACES
        assert len(one.looks._queued) <= MOST_TRACES
        assert one.looks.skipped >= _STORM - MOST_TRACES
        await one.work()
        assert one.looks.done <= MOST_TRACES
        assert not one.looks._queued

    asyncio.run(storm())


def test_a_tenant_keeps_its_counts_and_is_next_during_another_tenants_storm() -> None:
    async def storm() -> None:
        one, blue = Watched(), Tenant("blue")
        one.looks.feed(arrival(1, tenant=blue))
        for number in range(2, _STORM + 1):
            one.looks.feed(arrival(number))
        await one.work()
        assert blue in {key.tenant for key in list(one.seen)[:2]}

    asyncio.run(storm())


def test_all_looks_at_a_long_trace_together_read_each_span_a_few_times() -> None:
    async def grow() -> int:
        one, read = Watched(), 0
        for span in range(1, 1001):
            one.looks.feed(arrival(1))
            before = one.looks.done
            await one.work()
            read += span * (one.looks.done - before)
        return read

    assert 1000 <= asyncio.run(grow()) <= 6 * 1000


def test_looks_wait_for_complete_traces_and_rest_as_long_as_they_took() -> None:
    async def wait() -> None:
        one = Watched()
        one.busy = 3
        one.looks.feed(arrival(1))
        await one.work()
        assert one.looks.done == 1
        assert len(one.rests) == 4
        assert one.rests[-1] == 1

    asyncio.run(wait())


def test_a_trace_that_ended_or_is_too_large_is_not_looked_at() -> None:
    async def end() -> None:
        one = Watched()
        one.looks.feed(arrival(1))
        one.looks.feed(arrival(1, parent=0))  # its root: the verdict comes now
        one.looks.feed(arrival(1))  # another process sends later
        one.looks.feed(arrival(2, size=MOST_BYTES + 1))
        await one.work()
        assert not one.seen

    asyncio.run(end())


def test_a_trace_that_crashes_workers_is_not_looked_at_again() -> None:
    async def crash() -> None:
        one = Watched()
        one.crashes = True
        for _ in range(3):
            one.looks.feed(arrival(1))
            await one.work()
        assert one.seen.total() == 1

    asyncio.run(crash())
