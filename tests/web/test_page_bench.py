"""The report on requested pages: unanswered requests count, as such."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from analyzer.issues.issue_store import IssueStore
from benchmarks.page_speed.pages import compared
from benchmarks.page_speed.pages_asking import Pace, Took, asked, quantile, shown, told
from benchmarks.page_speed.pages_million import filled
from collector_processor.otlp import NO_TENANT
from collector_processor.store.database.places import RUNS
from collector_processor.store.run_history import RunHistoryRows

_GIVEN_UP = Took(ms=10_000.0, is_given_up=True)


async def test_the_store_of_many_runs_has_a_fix_to_compare(tmp_path: Path) -> None:
    pages = await filled(tmp_path / RUNS, 400)
    store = IssueStore(tmp_path / RUNS)
    try:
        issue = store.issue(NO_TENANT, pages["one issue, with its fix"].rpartition("/")[2])
        assert issue is not None
        assert len(RunHistoryRows(store.db).workflows_of(NO_TENANT, issue.runs)) > 1
    finally:
        store.close()


async def test_who_is_not_answered_gives_up_and_hinders_nobody_who_comes_later() -> None:
    async def stuck(_request: web.Request) -> web.Response:
        await asyncio.sleep(3600)
        return web.Response()

    async def quick(_request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/stuck", stuck), web.get("/quick", quick)])
    async with TestServer(app) as server:
        pace = Pace(seconds=0.2, every_s=0.02, patience_s=1.0)
        never, at_once = await asked([str(server.make_url(path)) for path in ("/stuck", "/quick")], pace)
    assert [one.is_given_up for one in never] == [True] * 5
    assert [one.ms for one in never] == [1000.0] * 5
    assert len(at_once) == 5
    assert not all(one.is_given_up for one in at_once)


def test_a_quantile_among_those_given_up_is_a_lower_bound() -> None:
    said = told([Took(ms=3.0), *[_GIVEN_UP] * 2])
    assert said["answered"] == 1
    assert said["n"] == 3
    assert said["median_ms"] == ">=10000"
    assert said["p99"]["ms"] == ">=10000"


def test_one_that_was_given_up_counts_as_longer_than_one_that_was_answered_as_late() -> None:
    assert max(Took(ms=10_000.0), _GIVEN_UP, Took(ms=10_040.0)) == _GIVEN_UP


@pytest.mark.parametrize(("n", "is_known"), [(100, False), (400, False), (600, True)])
def test_few_requests_leave_the_upper_end_of_p99_open(n: int, is_known: bool) -> None:  # noqa: FBT001
    found = quantile([Took(ms=float(ms)) for ms in range(n)], 0.99)
    assert (found.high is not None) is is_known
    assert found.low is not None
    assert found.low.ms < found.at.ms


def test_quantiles_are_those_of_the_ranks() -> None:
    took = [Took(ms=float(ms)) for ms in range(1000, 0, -1)]
    assert shown(quantile(took, 0.5).at) == 500.0
    assert shown(quantile(took, 0.99).at) == 990.0


def test_a_comparison_says_where_it_is_a_lower_bound() -> None:
    own, peer = [Took(ms=20.0)] * 9, [_GIVEN_UP] * 9
    assert set(compared(own, peer).values()) == {">=500"}
    assert set(compared(own, [Took(ms=50.0)] * 9).values()) == {"2"}
    assert set(compared(peer, own).values()) == {"not known: ours did not answer in time"}
