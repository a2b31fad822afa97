"""Workflows as pages and API read them: remembered for a while, never beyond a deletion."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest

from analyzer.cli.main import run
from analyzer.issues.issue_service import WORKFLOWS_EVERY_S
from analyzer.issues.issue_store import DAY_NS, IssueStore
from analyzer.issues.workflow_reports import WorkflowRefused
from analyzer.web.reads.issue_reads import ShownWorkflow, WorkflowReader
from analyzer.web.remembered import CostlyReads
from collector_processor.core.disk import RUNS
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.database.connection import StoreConnection, open_database
from collector_processor.store.deletion import delete_run, delete_tenant
from tests.workflows import RULE, Place, keep_runs

NOW_NS: Final = 1_000 * DAY_NS
PLACE: Final = Place(start_ns=NOW_NS - DAY_NS)


@dataclass(slots=True)
class Clock:
    """A clock on which each reading takes a tenth of a second."""

    at_s: float = 0.0

    def __call__(self) -> float:
        self.at_s += 0.1
        return self.at_s


@dataclass(slots=True, kw_only=True)
class Desk:
    """A store, and the reader of its workflows."""

    db: StoreConnection
    reader: WorkflowReader
    clock: Clock = field(default_factory=Clock)

    async def passed(self, tenant: Tenant = NO_TENANT) -> int:
        (report,) = (await self.reader.listed(tenant)).reports
        return report.said["passed"]

    async def found(self) -> ShownWorkflow:
        found = await self.reader.find(NO_TENANT, "shop", "refunds")
        assert found is not None
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    clock = Clock()
    with closing(open_database(tmp_path / RUNS)) as database, closing(database.own()) as db:
        store = IssueStore(database.connect())
        with closing(WorkflowReader(store, lambda: NOW_NS, is_fair_sample=True, clock=clock)) as reader:
            yield Desk(db=db, reader=reader, clock=clock)


async def test_a_slow_reading_is_cached_for_minutes(desk: Desk) -> None:
    keep_runs(desk.db, PLACE, ["passed"] * 12)
    first = await desk.found()
    assert (await desk.passed(), first.report.always[0].rule) == (12, RULE)
    keep_runs(desk.db, PLACE, ["passed"] * 3, prefix="more")
    assert (await desk.passed(), await desk.found()) == (12, first)
    desk.clock.at_s += WORKFLOWS_EVERY_S
    assert (await desk.passed(), (await desk.found()).report.said["passed"]) == (15, 15)


async def test_a_workflow_asked_for_at_once_by_many_is_mined_once(desk: Desk) -> None:
    keep_runs(desk.db, PLACE, ["passed"] * 12)
    found = await asyncio.gather(*(desk.found() for _ in range(20)))
    assert all(one is found[0] for one in found)


async def test_a_deleted_run_is_gone_from_what_is_remembered(desk: Desk) -> None:
    names = keep_runs(desk.db, PLACE, ["passed"] * 12)
    assert names[-1] in (await desk.found()).report.always[0].kept_by
    delete_run(desk.db, NO_TENANT, names[-1])
    (rule, *_) = (await desk.found()).report.always
    assert (rule.support, names[-1] in rule.kept_by) == (11, False)
    delete_tenant(desk.db, NO_TENANT)
    assert await desk.reader.find(NO_TENANT, "shop", "refunds") is None


async def test_tenants_without_workflows_evict_nothing(desk: Desk) -> None:
    keep_runs(desk.db, PLACE, ["passed"] * 2)
    assert await desk.passed() == 2
    keep_runs(desk.db, PLACE, ["passed"], prefix="more")
    for number in range(300):
        assert (await desk.reader.listed(Tenant(f"t{number}"))).reports == ()
        desk.clock.at_s -= 0.3
    assert await desk.passed() == 2


async def test_each_tenant_has_its_own(desk: Desk) -> None:
    shop, bank = Tenant("shop"), Tenant("bank")
    keep_runs(desk.db, replace(PLACE, tenant=shop), ["passed"] * 2)
    keep_runs(desk.db, replace(PLACE, tenant=bank), ["passed"] * 3)
    assert [await desk.passed(one) for one in (shop, bank, shop)] == [2, 3, 2]
    for tenant, count in ((shop, 2), (bank, 3)):
        found = await desk.reader.find(tenant, "shop", "refunds")
        assert found is not None
        assert (found.report.tenant, found.report.said["passed"]) == (tenant, count)
    with pytest.raises(WorkflowRefused, match="several tenants"):
        await desk.found()


async def test_an_unfair_sample_shows_no_workflow(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / RUNS)) as database:
        store = IssueStore(database.connect())
        with closing(WorkflowReader(store, lambda: NOW_NS, is_fair_sample=False)) as reader:
            for reading in (reader.listed(NO_TENANT), reader.find(NO_TENANT, "shop", "refunds")):
                with pytest.raises(WorkflowRefused, match="over-represented"):
                    await reading


def test_a_quick_result_is_forgotten_soon_and_none_is_kept_for_longer_than_allowed() -> None:
    times = iter([0.0, 0.001, 0.9, 2.0, 2.001, 3.0, 13.0, 72.9, 132.8, 132.95, 133.0])
    reads: CostlyReads[int] = CostlyReads(10, 10, 60.0, lambda: next(times))
    numbers = iter(range(10))
    asked = [reads.of("one", lambda: next(numbers), lambda _result: 1) for _ in range(7)]
    assert asked == [0, 0, 1, 1, 2, 2, 3]


def test_the_command_counts_the_runs_of_each_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_database(tmp_path / RUNS)) as database, closing(database.own()) as db:
        yesterday = Place(start_ns=time.time_ns() - DAY_NS)
        keep_runs(db, yesterday, ["passed", "passed", "passed", "failed", "failed", "unsaid"])
    assert run(["workflows", "--data-dir", str(tmp_path)]) == 0
    assert ["refunds", "shop", "1.0", "3", "2", "1"] in map(str.split, capsys.readouterr().out.splitlines())
    assert run(["workflows", "--data-dir", str(tmp_path), "--fix", "2.0"]) == 0
    assert "No workflow has a run of 2.0" in capsys.readouterr().out
