"""The arithmetic of the ingest benchmark: counts, ratios and medians."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from itertools import chain, repeat
from typing import TypeAlias

import aiohttp
import pytest

from benchmarks.ingest import load, measuring
from benchmarks.ingest.bodies import Body, make_bodies
from benchmarks.ingest.floor import percentile
from benchmarks.ingest.load import Load, Sent, send
from benchmarks.ingest.measuring import Case, Figures, Passage, figures_of
from benchmarks.ingest.null_backend import Count, grpc_backend, http_backend
from benchmarks.ingest.plans import PLANS
from benchmarks.ingest.report import as_line, render

Backend: TypeAlias = Callable[[Count], AbstractAsyncContextManager[int]]
OURS = Case(subject="blamespan", protocol="http", spans=16, agents=0, is_gzip=False)
BARE = replace(OURS, subject="passthrough")
PLAIN = Figures(
    spans_per_s=1000.0,
    spans_per_cpu_s=2000.0,
    requests=10,
    p50_ms=1.0,
    p99_ms=2.0,
    half_load_requests=5,
    half_load_p50_ms=0.5,
    half_load_p99_ms=1.5,
    late_p99_ms=0.1,
    flush_p99_ms=3.0,
    peak_mib=100.0,
    delivered=1.0,
)
MACHINE = as_line(machine="2 cores")


def row(case: Case, number: int, figures: Figures) -> str:
    return as_line(case=asdict(case), round=number, figures=asdict(figures))


def per_core(case: Case, number: int, spans: float) -> str:
    return row(case, number, replace(PLAIN, spans_per_cpu_s=spans))


def cells(report: str, subject: str) -> dict[str, str]:
    """Return a subject's row in the first table that has one, by column."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if "|" in line]
    mine = next(line for line in lines if line[0] == subject)
    heads = next(line for line in lines if "peak MiB" in line)
    return dict(zip(heads, mine, strict=True))


def test_figures_are_the_middle_of_their_rounds_with_the_least_and_the_most() -> None:
    report = render([MACHINE, *(per_core(OURS, at, spans) for at, spans in enumerate((900, 100, 300)))])
    assert cells(report, "blamespan")["spans/s per core"] == "300 (100 to 900)"
    assert cells(report, "blamespan")["n"] == "3"


def test_one_round_has_no_spread() -> None:
    assert cells(render([MACHINE, per_core(OURS, 0, 1234.5)]), "blamespan")["spans/s per core"] == "1,234"


def test_ratios_are_of_neighbours_and_not_of_middles() -> None:
    """The machine was slow in the first round for both; the ratio of the medians would be 0.60."""
    rounds = [(100, 200), (900, 1000), (600, 1200)]
    lines = [per_core(OURS, at, ours) for at, (ours, _) in enumerate(rounds)]
    lines += [per_core(BARE, at, bare) for at, (_, bare) in enumerate(rounds)]
    assert cells(render([MACHINE, *lines]), "blamespan")["÷ passthrough"] == "0.50 (0.50 to 0.90)"


def test_a_round_that_only_one_of_both_was_in_makes_no_ratio() -> None:
    alone = [per_core(OURS, 0, 100), per_core(OURS, 1, 300), per_core(BARE, 1, 600)]
    assert cells(render([MACHINE, *alone]), "blamespan")["÷ passthrough"] == "0.50"
    assert cells(render([MACHINE, per_core(OURS, 0, 100)]), "blamespan")["÷ passthrough"] == "-"


def test_what_agents_cost_is_in_relation_to_the_same_load_without_any() -> None:
    agents = replace(OURS, agents=1)
    report = render([MACHINE, per_core(OURS, 0, 200), per_core(agents, 0, 190)])
    assert "| blamespan | HTTP, 16 spans a request, 1 % of the traces an agent's | 0.95 |" in report


def test_runs_that_were_kept_in_one_file_all_count_and_are_not_neighbours() -> None:
    first = [MACHINE, per_core(OURS, 0, 100), per_core(BARE, 0, 200)]
    second = [MACHINE, per_core(OURS, 0, 300), per_core(BARE, 0, 400)]
    told = cells(render([*first, *second]), "blamespan")
    assert (told["n"], told["spans/s per core"]) == ("2", "200 (100 to 300)")
    assert told["÷ passthrough"] == "0.62 (0.50 to 0.75)"


@pytest.mark.parametrize(("delivered", "is_shown"), [(0.85, False), (0.95, True), (1.05, True), (1.9, False)])
def test_what_did_not_come_out_once_is_no_throughput(delivered: float, is_shown: bool) -> None:  # noqa: FBT001 - a case
    report = render([MACHINE, row(OURS, 0, replace(PLAIN, delivered=delivered))])
    said = f"- blamespan, HTTP, 16 spans a request: {delivered:.0%} of what it acknowledged"
    assert (said in report) is not is_shown
    assert ("### HTTP, 16 spans a request" in report) is is_shown


def test_what_a_subject_does_not_take_is_said() -> None:
    report = render([MACHINE, as_line(case=asdict(OURS), round=0, refused="HTTP 413")])
    assert "Left out:\n\n- blamespan, HTTP, 16 spans a request: HTTP 413" in report


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.99, 0.0), ([7.0], 0.99, 7.0), ([3.0, 1.0, 2.0], 0.5, 2.0), ([3.0, 1.0, 2.0], 1.0, 3.0)],
)
def test_a_quantile_is_one_of_the_values(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_the_slowest_of_a_hundred_is_not_hidden_by_the_others() -> None:
    assert percentile([1.0] * 99 + [50.0], 0.99) == 50.0
    assert percentile([1.0] * 199 + [50.0], 0.99) == 1.0


def sent(requests: int, size: int) -> Sent:
    return Sent(requests=requests, bytes=size, seconds=2.0, p50_ms=1.0, p99_ms=9.0, late_p99_ms=0.5)


def test_speed_is_of_what_was_sent_over_the_time_until_it_was_behind_the_subject() -> None:
    half = replace(sent(50, 5_000), p99_ms=4.0)
    passage = Passage(seconds=4.0, cpu_s=0.5, came=9_900)
    found = figures_of(16, sent(100, 10_000), half, passage, flush_s=[0.002, 0.001], peak_mib=80.0)
    assert (found.spans_per_s, found.spans_per_cpu_s) == (400.0, 3200.0)
    assert (found.requests, found.half_load_requests, found.delivered) == (100, 50, 0.99)
    assert (found.p99_ms, found.half_load_p99_ms, found.flush_p99_ms) == (9.0, 4.0, 2.0)


class Passing:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def arriving(clock: Passing, *arrivals: tuple[float, int]) -> Iterator[int]:
    """Yield the counts so far, at each reading."""
    while True:
        yield sum(count for at, count in arrivals if at <= clock.now)


async def test_the_end_is_when_the_last_came_and_not_when_that_was_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Passing()
    monkeypatch.setattr(time, "perf_counter", clock.perf_counter)
    monkeypatch.setattr(asyncio, "sleep", clock.sleep)
    looks = arriving(clock, (0.0, 10), (1.0, 80), (5.0, 10))
    ended = await measuring._drained(lambda: next(looks), 98)
    assert 5.0 <= ended < 5.1, "though nothing came for four seconds: not all was there"


async def test_what_never_comes_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Passing()
    monkeypatch.setattr(time, "perf_counter", clock.perf_counter)
    monkeypatch.setattr(asyncio, "sleep", clock.sleep)
    looks = chain([0, 5], repeat(90))
    assert await measuring._drained(lambda: next(looks), 98) < 1.0
    assert clock.now >= measuring._DRAIN_S


def test_requests_at_set_times_are_due_whether_anybody_is_free_or_not() -> None:
    assert [load._due(100.0, number, 20.0) for number in (0, 1, 40)] == [100.0, 100.05, 102.0]


async def test_a_backend_counts_every_byte_though_requests_come_at_the_same_time() -> None:
    count = Count()
    head = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n"
    async with http_backend(count) as port, aiohttp.ClientSession() as session:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in opened:
            writer.write(head + b"half")
            await writer.drain()
        for _ in range(3):  # by now the beginnings of the others were read
            async with session.post(f"http://127.0.0.1:{port}/v1/traces", data=b"whole"):
                pass
        for reader, writer in opened:
            writer.write(b"half")
            assert (await reader.readline()).split()[1] == b"200"
            writer.close()
            await writer.wait_closed()
        async with session.get(f"http://127.0.0.1:{port}/count") as told:
            assert int(await told.text()) == count.bytes == 3 * 8 + 3 * 5


@pytest.mark.parametrize(("protocol", "backend"), [("http", http_backend), ("grpc", grpc_backend)])
async def test_what_was_sent_is_what_a_backend_counts(protocol: str, backend: Backend) -> None:
    count = Count()
    wanted = Load(protocol=protocol, bodies=(Body((b"a" * 100,), ()), Body((b"b" * 50,), ())), spans=1)
    async with backend(count) as port:
        found = await send(wanted, f"http://127.0.0.1:{port}", seconds=0.5, first=1)
    assert found.requests > 0
    assert count.bytes == found.bytes
    assert found.bytes == 50 * found.requests + 50 * (found.requests // 2), "the smaller one came first"


def test_a_request_with_new_ids_is_as_long_and_another_one() -> None:
    (body, *_) = make_bodies(16, 100)
    assert {len(body.fresh(number)) for number in (1, 2, 1 << 40)} == {body.size}
    assert len({body.fresh(number) for number in (1, 2, 3)}) == 3


def test_each_round_of_a_plan_has_the_same_rows_in_turn() -> None:
    for plan in PLANS.values():
        first, second = list(plan.cases(0)), list(plan.cases(1))
        assert sorted(map(str, first)) == sorted(map(str, second))
        assert len(set(first)) == len(first)
