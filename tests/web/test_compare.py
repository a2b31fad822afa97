"""Two runs side by side: aligned, hostile texts escaped, and errors said in place."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from difflib import SequenceMatcher
from urllib.parse import quote

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request
from hypothesis import given
from hypothesis import strategies as st

from analyzer import AsyncClient, ServiceError
from analyzer.history.run_diff import Change, Departure, Way, compare_runs
from analyzer.inquiry.whole_run import whole_steps
from analyzer.web.app import make_app
from analyzer.web.pages.compare_page import MOST_PAIRS, MOST_WORDS, view_of
from analyzer.web.reads import whole_runs
from analyzer.web.reads.archive import RunArchive
from collector_processor.core.disk import RUNS
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.kept_spans import SpanKeeper
from collector_processor.rebuild.redaction import make_redactor
from collector_processor.store.database.connection import open_database
from collector_processor.store.small_tables import TrialArm, TrialArmRows
from semconv.model import Outcome, OutcomeSource, StepKind, Trajectory
from semconv.record import replace
from tests.factories import TRACE, chat, workflow
from tests.runs import run, step, tool
from tests.security.test_hostile_text import HOSTILE
from tests.web.stage import Stage, serving
from tests.web.test_pages import Page, blame, text_of

Client = TestClient[Request, Application]
ASKED = "How many seats has the Marianne?"
PASSED = run(
    step("desk", "I ask the registry."), tool("clerk", "120 seats", target="seats"),
    step("desk", "120 seats."),
    task=ASKED, output="120 seats.", run_id="passed",
)  # fmt: skip
FAILED = run(
    step("desk", "I ask the registry."), tool("clerk", "12 seats", target="seats"), step("desk", "12 seats."),
    step("writer", "Twelve."), task=ASKED, output="Twelve.", run_id="failed",
)  # fmt: skip


def shown(left: Trajectory, right: Trajectory):  # type: ignore[no-untyped-def] # noqa: ANN201
    ours, theirs = (whole_steps(one, lambda run_: run_) for one in (left, right))
    return view_of(compare_runs(ours, theirs), ours, theirs)


async def test_two_runs_are_compared_and_the_address_is_the_link_to_share(
    stage: Stage, client: Client
) -> None:
    await stage.add(PASSED, "ferries")
    await stage.add(FAILED, "ferries", blame(FAILED, 1))
    page = await text_of(client, "/compare?a=failed&b=passed")
    assert "clerk wrote 12 (step 1), the second run 120 (step 1), and the answer depends on it" in page
    assert '<a href="#pair-1">See it</a>' in page
    for text in (
        "<del>12</del><ins>120</ins> seats",
        "the same task",
        "only_left",
        "/compare?a=passed&amp;b=failed",
    ):
        assert text in page, text


async def test_a_run_is_compared_with_the_nearest_one_of_its_workflow(stage: Stage, client: Client) -> None:
    def totals(workflow: str) -> RunTotals:
        return RunTotals(workflow=workflow, steps=3)

    await stage.add(FAILED, "ferries", blame(FAILED, 1), totals("seats"))
    assert "This is the only run so far" in await text_of(client, "/compare?a=failed")
    await stage.add(PASSED, "ferries", None, totals("seats"))
    await stage.add(replace(PASSED, run_id="other-task", task="Refund me."), "ferries", None, totals("seats"))
    await stage.add(replace(PASSED, run_id="other-flow"), "ferries", None, totals("refunds"))
    await stage.add(replace(PASSED, run_id="other-service"), "shop", None, totals("seats"))
    page = await text_of(client, "/compare?a=failed")
    assert 'href="/runs/passed"' in page
    assert "a run with the same task without a sign of failure. Nothing says that it passed." in page
    assert "the nearest of 2 compared" in page
    assert "the first run does writer: llm (step 3), the second has ended" in page
    assert "no sign of failure" in page
    assert 'href="/compare?a=failed"' in await text_of(client, "/runs/failed")
    assert "/compare" not in await text_of(client, "/runs/passed")


async def test_a_passing_run_is_nearer_and_one_of_the_same_task_nearer_still(
    stage: Stage, client: Client
) -> None:
    totals = RunTotals(workflow="seats", steps=3)
    proved = replace(PASSED, outcome=Outcome.SUCCESS, outcome_source=OutcomeSource.EVALUATOR)
    await stage.add(FAILED, "ferries", blame(FAILED, 1), totals)
    await stage.add(replace(PASSED, run_id="twin"), "ferries", None, totals)
    other = replace(proved, run_id="other-task", task="Refund me.")
    await stage.add(other, "ferries", None, totals)
    assert 'href="/runs/twin"' in await text_of(client, "/compare?a=failed")
    await stage.add(replace(proved, run_id="proved"), "ferries", None, totals)
    page = await text_of(client, "/compare?a=failed")
    assert 'href="/runs/proved"' in page
    assert "a run with the same task that passed." in page


async def test_an_old_run_of_the_same_task_is_found_behind_many_newer_ones(
    stage: Stage, client: Client
) -> None:
    totals = RunTotals(workflow="seats", steps=3)
    await stage.add(replace(PASSED, run_id="old-twin"), "ferries", None, totals)
    for number in range(25):
        other = replace(PASSED, run_id=f"other-{number}", task=f"Refund ticket {number}.")
        await stage.add(other, "ferries", None, totals)
    await stage.add(FAILED, "ferries", blame(FAILED, 1), totals)
    assert 'href="/runs/old-twin"' in await text_of(client, "/compare?a=failed")


async def test_without_a_passing_run_a_failed_one_of_the_same_task_is_shown_as_failed(
    stage: Stage, client: Client
) -> None:
    totals = RunTotals(workflow="seats", steps=3)
    await stage.add(FAILED, "ferries", blame(FAILED, 1), totals)
    other = replace(FAILED, run_id="other-task", task="Refund me.")
    await stage.add(other, "ferries", blame(other, 1), totals)
    page = await text_of(client, "/compare?a=failed")
    assert "No passing run of this workflow and no other run of this task is known: name another run." in page
    assert '<a href="/compare?a=failed&amp;b=other-task">Refund me.</a>' in page
    async with client.get("/api/compare?a=failed") as answer:
        assert (answer.status, (await answer.text())[:14]) == (404, "no passing run")
    again = replace(FAILED, run_id="again")
    await stage.add(again, "ferries", blame(again, 1), totals)
    page = await text_of(client, "/compare?a=failed")
    assert 'href="/runs/again"' in page
    assert "a run with the same task that may have failed too" in page


async def test_a_run_without_a_near_run_offers_the_newest_others(stage: Stage, client: Client) -> None:
    totals = RunTotals(workflow="seats", steps=3)
    for number in range(12):
        other = replace(PASSED, run_id=f"other-{number}", task=f"<b>Refund</b> {number}")
        await stage.add(other, "shop", None, totals)
    await stage.add(FAILED, "ferries", blame(FAILED, 1), totals)
    page = await text_of(client, "/compare?a=failed")
    assert ASKED in page
    assert '<a href="/compare?a=failed&amp;b=other-11">&lt;b&gt;Refund&lt;/b&gt; 11</a>' in page
    assert page.count('<li><a href="/compare?') == 10
    assert "No such run: nowhere".lower() in (await text_of(client, "/compare?a=nowhere", 404)).lower()


async def test_a_run_with_a_long_id_is_found_by_the_link_of_its_page(stage: Stage, client: Client) -> None:
    totals, long = RunTotals(workflow="seats", steps=3), "conversation/" * 40
    await stage.add(replace(FAILED, run_id=long), "ferries", blame(FAILED, 1), totals)
    await stage.add(PASSED, "ferries", None, totals)
    page = await text_of(client, f"/compare?a={quote(long, safe='')}")
    assert 'href="/runs/passed"' in page
    assert f'value="{long}"' in page


async def test_another_tenants_run_is_never_the_nearest_and_its_id_does_not_hide_ours(
    stage: Stage, client: Client
) -> None:
    totals, other = RunTotals(workflow="seats", steps=3), Tenant("x-scope-orgid=red")
    await stage.add(FAILED, "ferries", blame(FAILED, 1), totals)
    await stage.add(replace(PASSED, run_id="theirs"), "ferries", None, totals, tenant=other)
    page = await text_of(client, "/compare?a=failed")
    assert "This is the only run so far" in page
    assert "theirs" not in page
    await stage.add(PASSED, "ferries", None, totals)
    await stage.add(PASSED, "ferries", None, totals, tenant=other)
    page = await text_of(client, "/compare?a=failed")
    assert 'href="/runs/passed"' in page
    assert "theirs" not in page


async def test_hostile_tasks_are_compared_off_the_event_loop(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[threading.Thread]()

    def matching(*of: str | None) -> SequenceMatcher[str]:
        threads.append(threading.current_thread())
        return SequenceMatcher(None, str(of[1]), str(of[2]))

    monkeypatch.setattr(whole_runs, "SequenceMatcher", matching)
    totals = RunTotals(workflow="seats", steps=3)
    await stage.add(replace(FAILED, task="ab" * 99), "ferries", blame(FAILED, 1), totals)
    await stage.add(replace(PASSED, task="ba" * 99), "ferries", None, totals)
    assert 'href="/runs/passed"' in await text_of(client, "/compare?a=failed")
    assert threads
    assert threading.main_thread() not in threads


async def test_a_program_compares_runs_and_reads_versions(stage: Stage) -> None:
    await stage.add(PASSED, "ferries")
    await stage.add(FAILED, "ferries", blame(FAILED, 1))
    async with serving(stage.parts()) as url:
        service = AsyncClient(url=url)
        found = await service.compare("failed", "passed")
        versions = (await service.run("failed", version=1)).versions
        with pytest.raises(ServiceError, match="no such version"):
            await service.run("failed", version=2)
    assert (found.distance, found.compared) == (round(1 - 6 / 7, 4), 1)
    assert found.departure == Departure(way=Way.EXTRA, step=3, expected="", found="writer: llm")
    assert found.first_divergence is not None
    assert found.pairs[found.first_divergence].differs == ("output",)
    assert [(one.version, one.method, one.model) for one in versions] == [(1, "judge", "m")]


@pytest.mark.parametrize(
    ("query", "status"), [("a=none&b=none", 404), ("a=%3Ci%3E&b=x", 404), ("a=&b=", 200)]
)
async def test_the_page_says_which_runs_cannot_be_compared(client: Client, query: str, status: int) -> None:
    page = await text_of(client, f"/compare?{query}", status)
    assert '<form class="two"' in page
    assert "<i>" not in page
    assert ('role="alert"' in page) is (status != 200)


async def test_hostile_texts_of_both_runs_are_escaped(stage: Stage, client: Client) -> None:
    wicked = [*HOSTILE.values()]
    one = run(*(step(f"a{text}", text, input=text) for text in wicked), task=wicked[0], run_id="one")
    other = run(
        *(step(f"a{text}", text[::-1] + text, input=text) for text in wicked), task=wicked[1], run_id="two"
    )
    await stage.add(one, wicked[0], blame(one, 0))
    await stage.add(other, wicked[0], blame(other, 0))
    page = await text_of(client, "/compare?a=one&b=two")
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "\u202e" not in page


@given(st.text(max_size=60), st.text(max_size=60))
def test_marked_texts_hold_each_text_whole(left: str, right: str) -> None:
    kept = "".join(filter(str.isalnum, left)), "".join(filter(str.isalnum, right))
    found = shown(run(step("a", kept[0])), run(step("a", kept[1])))
    pieces = [piece for pair in found.groups[0].pairs for text in pair.texts for piece in text.pieces]
    if kept[0] != kept[1]:
        assert "".join(piece.text for piece in pieces if piece.side != "right") == kept[0]
        assert "".join(piece.text for piece in pieces if piece.side != "left") == kept[1]


def test_texts_with_hardly_a_word_in_common_are_shown_one_after_the_other() -> None:
    def sides(left: str, right: str) -> list[tuple[str, str]]:
        pair = shown(run(step("a", left)), run(step("a", right))).groups[0].pairs[0]
        return [(piece.side, piece.text) for piece in pair.texts[0].pieces]

    told = ("Good news: the new panels save 9,266 euros.", "Together both ferries have 200 seats.")
    assert sides(*told) == [("left", told[0]), ("right", told[1])]
    assert sides("It has 12 seats.", "It has 120 seats.")[1:3] == [("left", "12"), ("right", "120")]


def test_long_runs_and_texts_are_bounded_and_equal_steps_folded() -> None:
    long = run(*(step("a", f"text {number}") for number in range(MOST_PAIRS + 50)))
    found = shown(long, long)
    assert (found.first, found.left_out, found.groups[0].is_folded) == (None, 50, True)
    words = " ".join(map(str, range(3 * MOST_WORDS)))
    pair = shown(run(step("a", words)), run(step("a", f"x {words}"))).groups[0].pairs[0]
    assert [piece.side for piece in pair.texts[0].pieces] == ["left", "right"]


def test_the_answer_of_a_handoff_is_no_difference() -> None:
    def handed(state: str) -> Trajectory:
        return run(step("desk", state, StepKind.HANDOFF, target="clerk"), step("clerk", "120 seats"))

    found = shown(handed("Command(id=1)"), handed("Command(id=2)"))
    assert found.first is None
    assert {pair.pair.change for group in found.groups for pair in group.pairs} == {Change.SAME}


def test_many_agents_share_the_last_lane() -> None:
    many = run(*(step(f"agent {number}", "x") for number in range(30)))
    found = shown(many, many)
    assert len(found.lanes) == 12
    assert found.lanes[-1].agent == "19 further agents"
    assert sum(len(lane.cells) for lane in found.lanes) == 30


TRIAL_A, TRIAL_B = "a" * 32, "b" * 32


async def keep_trials(
    stage: Stage,
    tenant: Tenant = NO_TENANT,
    said: str = "12 seats.",
    *,
    run_id: str = "failed",
    ids: tuple[str, str] = (TRIAL_A, TRIAL_B),
    told: str = "",
) -> None:
    """Keep a failed trial with the recorded answer and a passed one with another."""
    found = []
    for trial, text in zip(ids, (said, "120 seats."), strict=True):
        rules = make_redactor(())
        spans = [
            workflow(1, task=told, answer=told),
            chat(2, answer=text, agent_name=told or "desk", trace_id=TRACE),
        ]
        body = encode(spans)
        (packed,) = SpanKeeper(redactor=rules).pack([body], (), [((), rules.for_run())], [True])
        assert packed is not None
        changed = trial == ids[1]
        arm = TrialArm(tenant=tenant, run_id=run_id, id=trial, step=0, is_changed=changed, has_passed=changed)
        found.append((arm, packed))
    with closing(open_database(stage.folder / RUNS)) as database, closing(database.connect()) as db:
        TrialArmRows(db).keep(found, 1)


async def test_both_arms_of_an_experiment_are_linked_compared_and_in_no_list(
    stage: Stage, client: Client
) -> None:
    await stage.add(FAILED, "ferries", blame(FAILED, 1))
    assert 'id="arms"' not in await text_of(client, "/runs/failed")
    await keep_trials(stage, said="12 seats <script>alert(1)</script>")
    address = f"/compare?a=trial:{TRIAL_A}&amp;b=trial:{TRIAL_B}"
    page = await text_of(client, "/runs/failed")
    assert f'<a href="{address}">with the recorded answer (failed) beside the changed one (passed)' in page
    compared = await text_of(client, address.replace("&amp;", "&"))
    assert "Trial with the recorded answer" in compared
    assert "<ins>120</ins>" in compared
    assert f'href="/compare?a=trial%3A{TRIAL_B}&amp;b=trial%3A{TRIAL_A}"' in compared
    assert "<script>alert" not in compared
    listed = await (await client.get("/api/runs")).json()
    assert [run["run_id"] for run in listed["runs"]] == ["failed"]
    for path in (f"/runs/{TRIAL_A}", f"/runs/trial:{TRIAL_A}"):
        assert (await client.get(path)).status == 404
    assert TRIAL_A not in await text_of(client, "/")


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_text_of_a_trial_changes_a_page(stage: Stage, client: Client, name: str) -> None:
    shown = []
    for run_id, text in (("calm", "calm"), (f"h {HOSTILE[name]}", HOSTILE[name])):
        ids = (run_id[0] + "a" * 31, run_id[0] + "b" * 31)
        await keep_trials(stage, said=text, run_id=run_id, ids=ids, told=text)
        shown.append(Page(await text_of(client, f"/compare?a=trial:{ids[0]}&b=trial:{ids[1]}")))
    assert shown[0].attributes == shown[1].attributes
    assert set(shown[0].tags) == set(shown[1].tags)


async def test_a_trial_is_compared_with_a_run_by_programs_too(stage: Stage, client: Client) -> None:
    await stage.add(PASSED, "ferries")
    await keep_trials(stage)
    found = await (await client.get(f"/api/compare?a=passed&b=trial:{TRIAL_B}")).json()
    assert found["first_divergence"] == 0
    page = await text_of(client, f"/compare?a=trial:{TRIAL_A}", 404)
    assert "a trial has no nearest run" in page


@pytest.mark.parametrize("trial", ["c" * 32, "", "%00", "%27%20OR%201=1", "%C3%A4"])
async def test_an_unknown_trial_is_reported_on_the_page(stage: Stage, client: Client, trial: str) -> None:
    await keep_trials(stage)
    page = await text_of(client, f"/compare?a=trial:{TRIAL_A}&b=trial:{trial}", 404)
    assert "no such trial" in page


async def test_another_tenants_trial_is_not_shown(stage: Stage) -> None:
    await keep_trials(stage, Tenant("x-scope-orgid=red"))
    parts = stage.parts(tenant_header_names=("x-scope-orgid",))
    path = f"/api/compare?a=trial:{TRIAL_A}&b=trial:{TRIAL_B}"
    async with TestClient(TestServer(make_app(parts))) as opened:
        found = [(await opened.get(path, headers={"x-scope-orgid": name})).status for name in ("red", "blue")]
    assert found == [200, 404]
    assert isinstance(parts.pages.runs, RunArchive)
    parts.pages.runs.close()


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([("x-scope-orgid", "red"), ("X-Scope-OrgID", "blue")], id="two tenants"),
        pytest.param([("x-scope-orgid", "red"), ("x-scope-orgid", "red")], id="twice the same"),
        pytest.param([("x-scope-orgid", "Zoë")], id="no ASCII"),
        pytest.param([("x-scope-orgid", "\udcff")], id="bytes"),
    ],
)
@pytest.mark.parametrize(
    "path", ["/api/runs", "/runs", "/metrics", "/issues", "/workflows", "/api/workflows"]
)
async def test_an_ambiguous_tenant_header_is_refused(
    stage: Stage, headers: list[tuple[str, str]], path: str
) -> None:
    """Receivers joined two headers and pages took the last; bytes were an error of ours."""
    parts = stage.parts(tenant_header_names=("x-scope-orgid",))
    sent = "".join(f"{name}: {value}\r\n" for name, value in headers)
    async with TestServer(make_app(parts)) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        asked = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{sent}\r\n"
        writer.write(asked.encode("utf-8", "surrogateescape"))
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
    assert isinstance(parts.pages.runs, RunArchive)
    parts.pages.runs.close()
