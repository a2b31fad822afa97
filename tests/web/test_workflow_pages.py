"""Pages of workflows as a browser requests them: their content, hostile names, tenants."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from html import unescape
from typing import Any, Final

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from analyzer import AsyncClient as AsyncCaller
from analyzer import Client as Caller
from analyzer import ServiceError
from analyzer.issues.issue_store import DAY_NS, CountedRun, IssueStore
from analyzer.issues.recurrence import Issue
from analyzer.web.app import make_app
from analyzer.web.reads.issue_reads import WorkflowReader
from collector_processor.core.disk import RUNS
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.database.connection import open_database
from tests.security.test_hostile_text import HOSTILE
from tests.web.stage import NOW_NS, Stage, close_parts, serving
from tests.web.test_pages import MARK, RUN, Page, blame, text_of
from tests.workflows import RULE, Place, keep_runs

Client = TestClient[Request, Application]
PLACE: Final = Place(start_ns=NOW_NS - 2 * DAY_NS)
NAMES: Final = {**HOSTILE, "path": "../../runs/x?y#z", "controls": "a\x00b\r\n\tc\x1b[31m", "empty": ""}


@asynccontextmanager
async def opened(stage: Stage, **fields: Any) -> AsyncIterator[Client]:
    parts = stage.parts(**fields)
    async with TestClient(TestServer(make_app(parts))) as client:
        yield client
    if parts.workflows is not None:
        close_parts(parts)


def links(page: str, beginning: str) -> list[str]:
    return [unescape(one) for one in re.findall(r'href="([^"]*)"', page) if one.startswith(beginning)]


async def test_the_list_leads_to_what_a_workflow_always_does_and_that_to_its_runs(
    stage: Stage, client: Client
) -> None:
    said = ["failed", *["passed"] * 45, "unsaid"]
    names = keep_runs(stage.verdicts._db, PLACE, said, other_seats=[3])
    page = await text_of(client, "/workflows")
    assert "45 of 46 (98 %)" in page
    assert 'href="/workflows" aria-current="page"' in page
    (path,) = links(page, "/workflow?")
    page = await text_of(client, path)
    assert "In 44 of 45 passing runs `seat` of reserve equalled `seat` of find." in page
    assert "a run that breaks it is suspected" in page
    assert links(page, f"/runs/{names[3]}")
    assert links(page, f"/runs/{names[45]}")
    assert 'href="/workflows" aria-current="page"' in page
    (runs,) = links(page, "/runs?")
    assert names[0] in await text_of(client, runs)


async def test_a_release_that_fails_more_often_is_shown_first(stage: Stage, client: Client) -> None:
    keep_runs(stage.verdicts._db, PLACE, ["passed"] * 40 + ["failed"])
    later = replace(PLACE, start_ns=PLACE.start_ns + DAY_NS)
    keep_runs(stage.verdicts._db, later, ["failed", "failed", "passed"] * 12, prefix="new", release="2.0")
    page = await text_of(client, "/workflows")
    assert "fails more often" in page
    assert "fell from 40 of 40 (100 %) to 12 of 37 (32 %)" in page
    page = await text_of(client, links(page, "/workflow?")[0])
    assert "Its newest version, 2.0, fails more often: 24 of 36 (67 %) runs fail" in page
    assert "behaves differently from the version before" in page
    assert "the first version" in page
    assert "failures of no issue" in page


async def test_a_fall_names_the_issue_that_explains_it(stage: Stage, client: Client) -> None:
    keep_runs(stage.verdicts._db, PLACE, ["passed"] * 40)
    later = replace(PLACE, start_ns=PLACE.start_ns + DAY_NS)
    names = keep_runs(stage.verdicts._db, later, ["failed"] * 20, prefix="new")
    store = IssueStore(stage.verdicts._db)
    with store.transaction():
        store.write_runs(
            CountedRun(
                tenant=NO_TENANT, run_id=name, service="shop", agents=("clerk",), blamed=MARK.agent, step=1,
                mark=MARK, issue_id=MARK.id, decided_ns=later.start_ns,
            )
            for name in names
        )  # fmt: skip
        issue = Issue(fingerprint=MARK, since_ns=1, first_ns=1, last_ns=2, count=20, runs=("new-000",))
        store.write_issues([(NO_TENANT, issue)])
    page = await text_of(client, "/workflow?service=shop&workflow=refunds")
    assert f'href="/issues/{MARK.id}">&lt;b&gt;clerk: TimeoutError in seats</a>' in page
    assert "100 % of the rise in failures: 0 of 40 (0 %) before, 20 of 20 (100 %) since" in page


async def test_programs_read_the_same_with_the_client(stage: Stage) -> None:
    keep_runs(stage.verdicts._db, replace(PLACE, workflow="a&b=c/d"), ["passed"] * 12)
    async with serving(stage.parts()) as url:
        (listed,) = await asyncio.to_thread(Caller(url=url).workflows)
        found = await AsyncCaller(url=url).workflow(listed.service, listed.workflow)
        assert (listed.passed, found.always[0].rule, found.mined_runs) == (12, RULE, 12)
        with pytest.raises(ServiceError, match="no such workflow") as refused:
            await AsyncCaller(url=url).workflow("", "")
        assert refused.value.status == 404
        assert await AsyncCaller(url=url).workflows() == (listed,)


@pytest.mark.parametrize("name", NAMES)
async def test_no_name_acts_on_the_pages_and_each_leads_to_its_workflow(
    stage: Stage, client: Client, name: str
) -> None:
    place = replace(PLACE, service=NAMES[name], workflow=NAMES[name], tenant=Tenant(NAMES[name]))
    keep_runs(stage.verdicts._db, place, ["passed"] * 12, prefix=NAMES[name], release=NAMES[name])
    listed = await text_of(client, "/workflows")
    (path,) = links(listed, "/workflow?")
    shown = await text_of(client, path)
    assert "In 12 of 12 passing runs" in shown
    for text in (listed, shown):
        page = Page(text)
        assert not {"img", "svg", "iframe"} & set(page.tags)
        assert page.tags.count("script") == 1
        assert not {one for one in page.attributes if one.startswith("on")}
        assert not set("\x00\x1b\u202e") & set(text)


async def test_too_few_passing_runs_say_what_is_needed(stage: Stage, client: Client) -> None:
    assert "No workflow has a run" in await text_of(client, "/workflows")
    await text_of(client, "/workflow?service=shop&workflow=refunds", 404)
    await text_of(client, "/workflow", 404)
    keep_runs(stage.verdicts._db, PLACE, ["passed"] * 9 + ["unsaid"] * 5)
    page = await text_of(client, "/workflow?service=shop&workflow=refunds")
    assert "it takes 10 passing runs with known steps, and there are 9" in page


async def test_runs_without_a_history_cause_no_error(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2), RunTotals(workflow="", steps=3))
    (path,) = links(await text_of(client, "/workflows"), "/workflow?")
    page = await text_of(client, path)
    assert "(no name)" in page
    assert "there are 0" in page
    assert path in links(await text_of(client, "/runs/run-1"), "/workflow?")


async def test_a_run_leads_to_its_workflow(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "a b", blame(RUN, 2), RunTotals(workflow="</a>&x", steps=3))
    page = await text_of(client, "/runs/run-1")
    assert links(page, "/workflow?") == ["/workflow?service=a%20b&workflow=%3C%2Fa%3E%26x"]
    assert "&lt;/a&gt;&amp;x" in page


async def test_each_tenant_sees_its_own_workflows_and_a_header_decides(stage: Stage) -> None:
    ours, theirs = Tenant("x-scope-orgid=shop"), Tenant("x-scope-orgid=bank")
    for tenant, count in ((ours, 11), (theirs, 12)):
        keep_runs(stage.verdicts._db, replace(PLACE, tenant=tenant), ["passed"] * count, prefix=tenant[-4:])
    path, header = "/workflow?service=shop&workflow=refunds", {"X-Scope-OrgID": "shop"}
    async with opened(stage, tenant_header_names=("x-scope-orgid",)) as client:
        for asked in ("/workflows", path, f"{path}&tenant=x-scope-orgid%3Dbank"):
            async with client.get(asked, headers=header) as answer:
                text = await answer.text()
                assert ("bank" in text, "11 of 11" in text) == (False, True), asked
        found = links(await text_of(client, "/workflows"), "/workflow?")
        assert sorted(one.partition("&tenant=")[2] for one in found) == [
            "x-scope-orgid%3Dbank",
            "x-scope-orgid%3Dshop",
        ]
        for one, count in zip(sorted(found), (12, 11), strict=True):
            assert f"In {count} of {count} passing runs" in await text_of(client, one)
        assert "several tenants" in await text_of(client, path, 409)
        async with client.get(path, headers={"X-Scope-OrgID": "none"}) as answer:
            assert answer.status == 404


async def test_an_unfair_sample_shows_no_share(stage: Stage) -> None:
    keep_runs(stage.verdicts._db, PLACE, ["passed"] * 12)
    store = IssueStore(open_database(stage.folder / RUNS).connect())
    reader = WorkflowReader(store, stage.now_ns, is_fair_sample=False)
    async with opened(stage, workflows=reader) as client:
        for path, status in (("/workflows", 200), ("/workflow?service=shop&workflow=refunds", 409)):
            page = await text_of(client, path, status)
            assert "with tail sampling before blamespan, failures are over-represented" in page
            assert "refunds" not in page
            assert "12 of 12" not in page


async def test_without_a_store_of_runs_the_page_says_so(stage: Stage) -> None:
    async with opened(stage, workflows=None) as client:
        assert "does not read workflows" in await text_of(client, "/workflows")
        await text_of(client, "/workflow?service=shop&workflow=refunds", 404)


async def test_a_long_list_says_that_it_is_cut(stage: Stage, client: Client) -> None:
    for number in range(51):
        place = replace(PLACE, workflow=f"w{number:02}", start_ns=PLACE.start_ns + number)
        keep_runs(stage.verdicts._db, place, ["passed"], prefix=f"w{number}")
    page = await text_of(client, "/workflows")
    assert len(links(page, "/workflow?")) == 50
    assert "Only the 50 workflows with the latest runs are listed" in page
    assert "w00" not in page
    await text_of(client, "/workflow?service=shop&workflow=w00")
