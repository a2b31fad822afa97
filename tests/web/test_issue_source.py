"""Issues as pages read them from real stores: of runs, by id, by tenant, in their current state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.issues.counting import IssueCounting
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.recurrence import IssueState
from analyzer.web.reads.issue_reads import IssueReader
from collector_processor.core.disk import RUNS
from collector_processor.otlp import NO_TENANT, Tenant
from tests.issues import DAY, START, Bench, in_db, opened_issue_reader

OTHER = Tenant("x-scope-orgid=b")


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[IssueReader]:
    bench = Bench(folder=tmp_path)
    bench.judge(1, "clerk")
    bench.judge(2, "clerk")
    bench.judge(3, None)
    bench.judge(4, "clerk", tenant=OTHER)
    with opened_issue_reader(bench, lambda: START + 2 * DAY) as opened:
        yield opened
    bench.close()


async def test_runs_name_the_issue_they_are_counted_in(source: IssueReader) -> None:
    names = [(NO_TENANT, f"run-{number}") for number in (1, 2, 3, 9)] + [(OTHER, "run-4")]
    found = await source.of_runs(names)
    assert set(found) == {names[0], names[1], names[4]}
    assert found[names[0]] == found[names[1]]
    assert (found[names[0]].count, found[names[4]].count) == (2, 1)
    assert found[names[0]].state is IssueState.ONGOING  # new two days ago


async def test_an_issue_is_listed_once_a_tenant_and_a_tenant_sees_its_own(
    source: IssueReader,
) -> None:
    (issue_id,) = {one.issue.fingerprint.id for one in await source.issues(NO_TENANT, 10)}
    assert {one.tenant for one in await source.issue(NO_TENANT, issue_id)} == {NO_TENANT, OTHER}
    (own,) = await source.issue(OTHER, issue_id)
    assert own.issue.runs == ("run-4",)
    assert await source.issue(NO_TENANT, "none") == []


async def test_one_issue_comes_with_its_agents_share_and_the_others_of_its_service(tmp_path: Path) -> None:
    bench = Bench(folder=tmp_path)
    for number, agent in enumerate(("clerk", None, "planner", "clerk")):
        bench.judge(number, agent)
    for is_fair_sample in (True, False):
        rules = replace(bench.counting.rules, is_fair_sample=is_fair_sample)
        counting = IssueCounting(bench.issues, bench.labels, rules)
        with closing(IssueReader(counting, IssueStore(tmp_path / RUNS), in_db, lambda: START)) as source:
            listed = {one.issue.fingerprint.agent: one for one in await source.issues(NO_TENANT, 10)}
            (told,) = await source.issue(NO_TENANT, listed["clerk"].issue.fingerprint.id)
            assert [one.fingerprint.agent for one in told.fellows] == ["planner"]
            if is_fair_sample:
                assert told.share is not None
                assert (told.share.blamed.hits, told.share.blamed.n) == (2, 4)
            else:
                assert told.share is None
    bench.close()


async def test_a_decision_is_visible_at_once(source: IssueReader) -> None:
    issue_id = (await source.issues(OTHER, 10))[0].issue.fingerprint.id
    assert await source.resolve(OTHER, issue_id)
    states = {one.tenant: one.issue.state for one in await source.issue(NO_TENANT, issue_id)}
    assert states == {NO_TENANT: IssueState.ONGOING, OTHER: IssueState.RESOLVED}
