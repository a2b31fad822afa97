"""The list of many runs: correct filters, bounded work, live updates."""

from __future__ import annotations

import asyncio
import random
import zlib
from dataclasses import replace

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request
from hypothesis import given
from hypothesis import strategies as st

from analyzer.issues.labels.kept_run import ends_of, pack
from analyzer.issues.labels.run_label import Label, LabelKind
from analyzer.telemetry.metric import as_label
from analyzer.web.pages.health_page import FRESH_NS as WORK_FRESH_NS
from analyzer.web.pages.health_page import RecentWork
from analyzer.web.pages.list_page import Changes
from analyzer.web.reads import archive, run_lists
from analyzer.web.reads.archive import (
    FRESH_NS,
    MOST_BUCKETS,
    Bucket,
    RunArchive,
    Trend,
    Trends,
    bucket_width,
    trend_of,
)
from analyzer.web.reads.run_query import Bounds, Measure, RunQuery, Sort, read_filters, read_key, write_key
from collector_processor.core.disk import RUNS
from collector_processor.core.records import Commit
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.redaction import keep, omit
from collector_processor.store.database.connection import open_database
from semconv.model import Blame, Effort, Status
from tests.runs import run, step
from tests.web.stage import NOW_NS, Stage, verdict_of
from tests.web.test_pages import RUN, blame


@given(st.text(max_size=300), st.text(max_size=300), st.integers(1, 250))
def test_the_beginnings_of_task_and_answer_are_read_without_the_run(
    task: str, answer: str, limit: int
) -> None:
    clean = [text.encode("utf-8", "replace").decode() for text in (task, answer)]
    packed = pack(run(step("a", "x" * 5_000), task=clean[0], output=clean[1]), lambda text: text)
    assert packed is not None
    for text, found in zip(clean, ends_of(packed, limit), strict=True):
        assert text.startswith(found)
        assert len(found) >= min(len(text), limit) - 1


def test_a_task_that_quotes_a_kept_run_is_not_taken_for_the_answer() -> None:
    task = 'Say "task":"no" and ","output":"neither", then \\'
    packed = pack(run(step("a", "x"), task=task, output='"output":"yes'), lambda text: text)
    assert packed is not None
    assert ends_of(packed, 200) == (task, '"output":"yes')


def test_the_longest_kept_task_and_answer_are_read_from_the_beginning_of_the_kept_run() -> None:
    signs = "".join(map(chr, random.Random(1).sample(range(0x20000, 0x2A000), 4_000)))
    told = run(step("a", "x" * 5_000), task=signs[:2_000], output=signs[2_000:])
    packed = pack(told, omit, {"task": keep, "output": keep})
    assert packed is not None
    assert ends_of(packed[:16_384], 240) == (signs[:240], signs[2_000:2_240])


@pytest.mark.parametrize("broken", [b"broken", b"", zlib.compress(b"[]")])
def test_an_unreadable_run_has_neither_task_nor_answer(broken: bytes) -> None:
    assert ends_of(broken, 10) == ("", "")


async def test_a_search_for_two_letters_reads_a_bounded_number_of_runs_and_says_where_it_stopped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lists, "MOST_COMPARED", 10)
    for number in range(25):
        one = run(step("zz" if number == 2 else "a"), run_id=f"r{number:02}")
        await stage.add(one, "shop", blame(one, 0))
    source = RunArchive(open_database(stage.folder / RUNS))
    pages, query = [], RunQuery(text="ZZ")
    while True:
        pages.append(await source.page(query))
        if pages[-1].next is None:
            break
        query = RunQuery(text="ZZ", before=pages[-1].next)
    source.close()
    assert [len(page.rows) for page in pages] == [0, 0, 1]
    assert [page.looked_at for page in pages] == [10, 10, 0]


async def test_a_repeated_search_sees_changed_runs(stage: Stage) -> None:
    runs = [run(step("a"), step("b", "needle" if n % 2 else "hay"), run_id=f"r{n}") for n in range(6)]
    for one in runs:
        await stage.add(one, "shop", blame(one, 0))
    source = RunArchive(open_database(stage.folder / RUNS))

    async def found() -> list[str]:
        return [row.key.run_id for row in (await source.page(RunQuery(text="Needle"))).rows]

    assert await found() == ["r5", "r3", "r1"]
    of_r3 = (await source.versions(NO_TENANT, "r3"))[0]
    stage.index(run(step("a", "straw"), run_id="r3"), of_r3)
    assert await found() == ["r5", "r1"]
    verdict = replace((await source.versions(NO_TENANT, "r4"))[0], version=9, agent="needle")
    stage.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
    stage.index(runs[4], verdict)
    assert await found() == ["r5", "r4", "r1"]
    source.close()


@pytest.mark.parametrize("sort", [Sort.NEWEST, Sort.OLDEST, Sort.MOST_STEPS, Sort.FEWEST_STEPS])
async def test_a_tenants_pages_name_no_run_of_another_tenant(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, sort: Sort
) -> None:
    monkeypatch.setattr(run_lists, "MOST_FILTERED", 2)
    for number in range(25):
        one = run(step("a"), run_id=f"r{number:02}")
        tenant = Tenant("x=mine") if number in {2, 12, 22} else Tenant(f"x={'az'[number % 2]}")
        verdict = replace(verdict_of(one, blame(one, 0), "shop", number), tenant=tenant)
        stage.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
        stage.verdicts.totals.total([(tenant, one.run_id, RunTotals(steps=1))])
    source = RunArchive(open_database(stage.folder / RUNS))
    pages = []
    query = RunQuery(tenant=Tenant("x=mine"), sort=sort, statuses=(Status.ATTRIBUTED,))
    while True:
        pages.append(await source.page(query))
        if pages[-1].next is None:
            break
        query = replace(query, before=pages[-1].next)
    source.close()
    found = [row.key.run_id for page in pages for row in page.rows]
    assert sorted(found) == ["r02", "r12", "r22"]
    assert {page.next.tenant for page in pages if page.next} == {"x=mine"}
    assert {page.next.run_id for page in pages if page.next} <= {"", *found}


@pytest.mark.parametrize("sort", list(Sort))
async def test_every_order_shows_each_run_once_page_by_page(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, sort: Sort
) -> None:
    monkeypatch.setattr(run_lists, "MOST_FILTERED", 7)
    told = {}
    for number in range(30):
        one = run(step("a"), run_id=f"r{number:02}")
        totals = RunTotals(
            steps=number % 3, duration_ns=number % 4, input_tokens=number % 5, cost_usd=number % 2 / 8
        )
        blamed = Blame(agent="a", step=0, reason="r", confidence=number % 6 / 8)
        if number % 2:  # a suspicion is as sure as the run's failure, however many steps share it
            shared = replace(blamed, confidence=(5 - number % 6) / 80, status=Status.SUSPECTED)
            blamed = replace(shared, failed_probability=number % 6 / 8)
        sure = replace(blame(one, 0), verdict=blamed)
        await stage.add(one, "shop" if number % 7 else "bank", sure, totals)
        told[one.run_id] = (number, totals, number % 6 / 8)
    key = {
        "newest": lambda one: one[0], "longest": lambda one: one[1].duration_ns,
        "most_steps": lambda one: one[1].steps, "most_tokens": lambda one: one[1].input_tokens,
        "costliest": lambda one: one[1].cost_usd, "surest": lambda one: one[2],
    }  # fmt: skip
    upwards = {
        "oldest": "newest", "shortest": "longest", "fewest_steps": "most_steps",
        "fewest_tokens": "most_tokens", "cheapest": "costliest", "least_sure": "surest",
    }  # fmt: skip
    source = RunArchive(open_database(stage.folder / RUNS))
    for service in ("", "shop"):
        query, found = RunQuery(sort=sort, service=service, limit=4), []
        for _ in range(40):
            page = await source.page(query)
            found += [row.key.run_id for row in page.rows]
            if page.next is None:
                break
            query = replace(query, before=read_key(write_key(page.next, sort), sort))
        wanted = [one for one in told if not service or told[one][0] % 7]
        assert sorted(found) == wanted
        values = [key[upwards.get(sort.value, sort.value)](told[one]) for one in found]
        assert values == sorted(values, reverse=sort.value in key)
    source.close()


async def test_a_suspicion_is_filtered_by_the_probability_that_the_run_failed(stage: Stage) -> None:
    for name, confidence, failed in (("spread", 0.2, 0.9), ("vague", 0.2, 0.3), ("certain", 0.9, None)):
        one, status = run(step("a"), run_id=name), Status.SUSPECTED if failed else Status.ATTRIBUTED
        told = Blame(agent="a", step=0, reason="r", confidence=confidence, status=status)
        sure = replace(blame(one, 0), verdict=replace(told, failed_probability=failed))
        await stage.add(one, "shop", sure, RunTotals(steps=1))
    source = RunArchive(open_database(stage.folder / RUNS))
    page = await source.page(RunQuery(bounds=(Bounds(of=Measure.CONFIDENCE, least=0.5),)))
    assert {(row.key.run_id, row.certainty) for row in page.rows} == {("spread", 0.9), ("certain", 0.9)}
    source.close()


async def test_runs_are_filtered_by_their_numbers_and_unknown_ones_fit_no_bound(stage: Stage) -> None:
    totals = RunTotals(
        workflow="refunds 100%", steps=3, duration_ns=2 * 10**9, input_tokens=5, output_tokens=2, cost_usd=0.5
    )
    one = run(step("a"), run_id="known")
    await stage.add(one, "shop", blame(one, 0), totals)
    await stage.add(
        run(step("a"), run_id="other"), "shop", totals=RunTotals(workflow="refunds 1000", steps=3)
    )
    source = RunArchive(open_database(stage.folder / RUNS))

    async def listed(**filters: str) -> list[str]:
        page = await source.page(read_filters(filters, NO_TENANT, NOW_NS))
        return sorted(row.key.run_id for row in page.rows)

    assert await listed(min_steps="3", max_steps="3") == ["known", "other"]
    assert await listed(workflow="REFUNDS 100%") == ["known"]
    for name, least, most in (("duration_s", 2, 2), ("tokens", 7, 7), ("cost_usd", 0.5, 0.5)):
        assert await listed(**{f"min_{name}": str(least), f"max_{name}": str(most)}) == ["known"]
        assert await listed(**{f"min_{name}": str(least + 0.01)}) == []
        assert await listed(**{f"max_{name}": str(least - 0.01)}) == []
    assert await listed(sort="cheapest") == ["known"]
    assert await listed(sort="cheapest", since="2020-01-01T00:00:00Z", until="2021-01-01T00:00:00Z") == []
    source.close()


async def test_a_trend_counts_the_runs_of_a_query_in_periods_without_gaps(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        one = run(step("a"), run_id=f"r{number:02}")
        await stage.add(one, "shop" if number % 3 else "bank", blame(one, 0) if number % 2 else None)
    source = RunArchive(open_database(stage.folder / RUNS))
    now_ns = NOW_NS + 30 * 97 * 10**9
    every = await source.trend(RunQuery(text="ignored", sort=Sort.COSTLIEST), now_ns)
    bank = await source.trend(RunQuery(service="bank"), now_ns)
    monkeypatch.setattr(archive, "MOST_COUNTED", 10)
    newest = await source.trend(RunQuery(), now_ns)
    none = await source.trend(RunQuery(service="nobody"), now_ns)
    source.close()
    assert every.width_ns == 60 * 10**9
    assert [every.buckets[at + 1].since_ns - one.since_ns for at, one in enumerate(every.buckets[:-1])] == [
        every.width_ns
    ] * (len(every.buckets) - 1)
    assert (sum(one.runs for one in every.buckets), sum(one.failed for one in every.buckets)) == (30, 15)
    assert sum(one.runs for one in bank.buckets) == 10
    assert (sum(one.runs for one in newest.buckets), newest.is_whole, every.is_whole) == (10, False, True)
    assert none.buckets == ()


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62))
def test_periods_are_few_whatever_the_time(first: int, second: int) -> None:
    since_ns, until_ns = sorted((first, second))
    width_ns = bucket_width(since_ns, until_ns)
    rows = [(since_ns // width_ns, "attributed", 1)]
    assert 1 <= len(trend_of(rows, since_ns, until_ns, width_ns, is_whole=True).buckets) <= MOST_BUCKETS + 1


async def test_a_trend_is_read_once_in_a_while_and_an_old_one_is_shown_meanwhile() -> None:
    times, reads = [0], []

    async def read(query: RunQuery, now_ns: int) -> Trend:
        reads.append(query)
        await asyncio.sleep(0)
        return Trend(width_ns=now_ns or 1, buckets=(Bucket(since_ns=0, runs=1, failed=0),))

    trends = Trends(read=read, now_ns=lambda: times[0])
    first = await asyncio.gather(trends.of(RunQuery(text="a")), trends.of(RunQuery(limit=7)))
    assert (len(reads), first[0]) == (1, first[1])
    times[0] = 2 * FRESH_NS
    assert await trends.of(RunQuery()) is first[0]
    for _ in range(9):  # until the event loop has renewed it
        await asyncio.sleep(0)
    assert (await trends.of(RunQuery())).width_ns == times[0]
    assert len(reads) == 2


async def test_the_trend_of_the_first_runs_is_not_the_empty_one_from_before() -> None:
    times = [0]

    async def read(_query: RunQuery, now_ns: int) -> Trend:
        return Trend(width_ns=1, buckets=(Bucket(since_ns=0, runs=1, failed=0),) if now_ns else ())

    trends = Trends(read=read, now_ns=lambda: times[0])
    assert not (await trends.of(RunQuery())).buckets
    times[0] = FRESH_NS // 10
    assert (await trends.of(RunQuery())).buckets


async def test_runs_of_one_agent_of_one_service_are_those_that_metrics_count_for_it(stage: Stage) -> None:
    long = "calculator " * 20
    for number, (service, agent) in enumerate(
        [("shop", "clerk"), ("bank", "clerk"), ("shop", "clerk_2"), ("shop", long)]
    ):
        one = run(step(agent), run_id=f"r{number}")
        await stage.add(one, service, blame(one, 0))
    source = RunArchive(open_database(stage.folder / RUNS))
    found = [
        [row.key.run_id for row in (await source.page(RunQuery(service="shop", agent=as_label(agent)))).rows]
        for agent in ("clerk", long)
    ]
    source.close()
    assert found == [["r0"], ["r3"]]


async def test_only_current_verdicts_are_listed_and_of_the_tenant_who_asks(stage: Stage) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    await stage.add(RUN, "shop", blame(RUN, 0))
    source = RunArchive(open_database(stage.folder / RUNS))
    page = await source.page(RunQuery(statuses=(Status.ATTRIBUTED,)))
    other = await source.page(RunQuery(tenant=Tenant("x=b")))
    source.close()
    assert len(page.rows) == 1
    assert other.rows == ()


async def test_runs_are_read_by_name_with_their_current_verdicts_without_deleted_ones(stage: Stage) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    await stage.add(run(step("a", "b"), run_id="other"), "shop")
    source = RunArchive(open_database(stage.folder / RUNS))
    found = await source.rows([(NO_TENANT, name) for name in ("other", "gone", "run-1")])
    source.close()
    assert [row.key.run_id for row in found] == ["other", "run-1"]
    assert found[1].verdict.step == 2


async def test_the_list_shows_each_runs_own_task_and_last_label_however_large_the_run(stage: Stage) -> None:
    noise = "".join(chr(33 + number * number % 90) for number in range(200_000))
    large = run(step("a", noise), task="Count the seats.", run_id="large")
    for one in (large, run(step("a", "b"), task="Count the berths.", run_id="small")):
        await stage.add(one, "shop", blame(one, 0))
    for kind in (LabelKind.REJECTED, LabelKind.CONFIRMED):
        said = Label(
            tenant=NO_TENANT, run_id="small", kind=kind, version=1, service="shop", labelled_ns=1
        )  # fmt: skip
        stage.labels.add(said)
    source = RunArchive(open_database(stage.folder / RUNS))
    page = await source.page(RunQuery())
    source.close()
    told = {row.key.run_id: (row.task, row.said.kind if row.said else None) for row in page.rows}
    assert told == {"large": ("Count the seats.", None), "small": ("Count the berths.", "confirmed")}


async def test_an_open_page_is_told_of_a_new_run(
    stage: Stage, client: TestClient[Request, Application]
) -> None:
    async with client.get("/events") as stream, asyncio.timeout(300):
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert await stream.content.readline() == b"retry: 5000\n"
        one = run(step("planner", "go"), run_id="n")
        await stage.add(one, "shop", blame(one, 0))
        while (await stream.content.readline()) != b"event: runs\n":
            pass
        assert await stream.content.readline() == b"data: changed\n"


async def test_a_live_page_is_told_of_every_new_run_even_by_a_slow_store() -> None:
    version = 1

    async def newest() -> tuple[int, int]:
        await asyncio.sleep(0.05)
        return version, 0

    app = Application()
    app.router.add_get("/events", Changes(newest=newest, every_s=0.01).listen)
    async with (
        TestClient(TestServer(app)) as client,
        client.get("/events") as stream,
        asyncio.timeout(60),
    ):
        assert await stream.content.readline() == b"retry: 5000\n"
        version = 2
        while (await stream.content.readline()) != b"event: runs\n":
            pass


async def test_sums_of_work_count_priced_and_timed_runs_and_are_cached(stage: Stage) -> None:
    effort = Effort(calls=2, cost_usd=0.25, duration_s=3.0)
    for number, told in enumerate((effort, replace(effort, cost_usd=None, duration_s=1.0), Effort())):
        one = run(step("a", "b"), run_id=f"r{number}")
        await stage.add(one, "shop", replace(blame(one, 0), effort=told))
    source, now = RunArchive(open_database(stage.folder / RUNS)), [NOW_NS + 10**12]
    recent = RecentWork(analyses_since=source.analyses_since, now_ns=lambda: now[0])
    done = await recent.read()
    assert (done.hour.runs, done.hour.calls, done.hour.unpriced, done.hour.cost_usd) == (3, 4, 1, 0.25)
    assert (done.hour.median_s, done.hour.slowest_s, done.hour.by_status) == (1.0, 3.0, (("attributed", 3),))
    await stage.add(run(step("a", "b"), run_id="late"), "shop")
    assert await recent.read() is done
    now[0] += WORK_FRESH_NS
    assert (await recent.read()).day.runs == 4
    source.close()
