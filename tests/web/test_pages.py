"""Pages as a browser requests them: their content, their forms, and hostile text of runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from aiohttp.test_utils import TestClient
from aiohttp.web import Application, Request

from analyzer.inquiry.verdict import to_json
from analyzer.issues.recurrence import Fingerprint, IssueState
from analyzer.web.pages.list_page import CHOOSABLE
from analyzer.web.pages.run_page import read_form
from analyzer.web.rendering import STATIC, usd, usd_more
from collector_processor.core.records import Commit
from collector_processor.core.runs import RunTotals
from semconv.model import (
    UNKNOWN_AGENT,
    Abstention,
    Attribution,
    Blame,
    Evidence,
    Pooled,
    Proof,
    ProofDecision,
    Ranked,
    Status,
    StepKind,
    StepSet,
    Trajectory,
    Verdict,
)
from tests.runs import failed_tool, run, step, tool
from tests.security.test_hostile_text import HOSTILE, hostile_run
from tests.web.showcase import FIX
from tests.web.stage import Stage, verdict_of

Client = TestClient[Request, Application]
OURS = {"Sec-Fetch-Site": "same-origin"}
RUN = run(
    step("planner", "look it up"), failed_tool("clerk", "TimeoutError: gone"), step("analyst", "14,500"),
    task="how much?", output="14,500",
)  # fmt: skip
VOID = frozenset({"meta", "link", "input", "br", "img", "hr"})


def blame(trajectory: Trajectory, at: int, reason: str = "it is wrong") -> Attribution:
    agent = trajectory.steps[at].agent
    verdict = Blame(
        agent=agent, step=at, reason=reason, confidence=0.7, fix=reason, mode="wrong_computation",
        evidence=(Evidence(step=at, quote=trajectory.steps[at].output or reason),),
        ranking=(Ranked(step=at, agent=agent, probability=0.7),),
    )  # fmt: skip
    return Attribution(run_id=trajectory.run_id, verdict=verdict, method="judge", model="m")


class Page(HTMLParser):
    """A page, parsed as a browser would."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


async def text_of(client: Client, path: str, status: int = 200) -> str:
    async with client.get(path, headers={"Accept": "text/html"}) as answer:
        assert answer.status == status, await answer.text()
        return await answer.text()


async def test_the_list_shows_who_is_to_blame_and_leads_to_the_run(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    page = await text_of(client, "/runs")
    assert 'href="/runs/run-1"' in page
    for shown in ("how much?", "shop", "analyst", "70%", '<span class="reason">it is wrong'):
        assert shown in page


@pytest.mark.parametrize("path", ["/runs", "/runs/run-1", "/runs/run-1/report.html"])
async def test_an_agent_without_a_name_is_shown_as_unnamed(stage: Stage, client: Client, path: str) -> None:
    handed_over = step("planner", "", StepKind.HANDOFF, target=UNKNOWN_AGENT)
    nameless = run(step(UNKNOWN_AGENT, "look it up"), handed_over, task="how much?")
    await stage.add(nameless, "shop", blame(nameless, 0))
    page = await text_of(client, path)
    assert "unnamed agent" in page
    assert UNKNOWN_AGENT not in page


SUSPECTED = Blame(
    agent="analyst", step=2, reason="r", confidence=0.41, status=Status.SUSPECTED, failed_probability=0.95
)
REFUTED = Proof(
    decision=ProofDecision.REFUTED, step=1, span_id=None, effect=0.0, interval=(-0.1, 0.1), trials=40,
    change="resample",
)  # fmt: skip


def abstained(status: Status) -> Abstention:
    return Abstention(status=status, reason="r", ranking=(Ranked(step=2, agent="analyst", probability=0.1),))


@pytest.mark.parametrize(
    ("verdict", "proof", "told"),
    [
        (SUSPECTED, None, "say “It did not fail” below"),
        (abstained(Status.UNDETERMINED), None, "blamespan experiment run-1 --check CHECK -- COMMAND"),
        (abstained(Status.UNDETERMINED), REFUTED, "add <code>--step N</code> before the dashes"),
        (abstained(Status.UNREADABLE), None, "blamespan lint run-1"),
        (abstained(Status.ERROR), None, "Analyse it again when the cause is gone"),
        (abstained(Status.WAITING), None, "Nothing has failed"),
        (abstained(Status.CANCELLED), None, "This run was cancelled"),
    ],
    ids=["suspected", "undetermined", "refuted", "unreadable", "error", "waiting", "cancelled"],
)
async def test_a_verdict_without_a_remedy_says_what_to_do_next(
    stage: Stage, client: Client, verdict: Verdict, proof: Proof | None, told: str
) -> None:
    await stage.add(RUN, "shop", Attribution(run_id="run-1", verdict=verdict, method="m", proof=proof))
    page = await text_of(client, "/runs/run-1")
    assert told in page
    assert ("Is this suspicion right?" if verdict is SUSPECTED else "Do you know what happened?") in page
    assert '<option value="2" selected>' in page
    assert ">decisive<" not in page


async def test_a_verdict_names_the_command_that_proves_it(stage: Stage, client: Client) -> None:
    hostile = replace(RUN, run_id="a; touch 'b")
    for one in (RUN, hostile):
        await stage.add(one, "shop", blame(one, 2))
    assert "blamespan experiment run-1 --check CHECK -- COMMAND" in await text_of(client, "/runs/run-1")
    page = await text_of(client, f"/runs/{quote(hostile.run_id)}")
    assert "blamespan experiment &#39;a; touch &#39;\\&#39;&#39;b&#39; --check" in page
    proved = Attribution(run_id="run-1", verdict=blame(RUN, 2).verdict, method="m", proof=REFUTED)
    await stage.add(RUN, "shop", proved)
    assert "--check CHECK" not in await text_of(client, "/runs/run-1")


async def test_a_set_of_steps_is_shown_with_what_was_observed(stage: Stage, client: Client) -> None:
    found = StepSet(steps=(1, 2), coverage=0.9, observed=0.93, interval=(0.86, 0.97), n=84)
    verdict = blame(RUN, 2).verdict
    assert isinstance(verdict, Blame)
    judged = Attribution(run_id="run-1", verdict=replace(verdict, step_set=found), method="ranker")
    await stage.add(RUN, "shop", judged)
    for path in ("/runs/run-1", "/runs/run-1/report.html"):
        page = await text_of(client, path)
        assert '<a href="#step-1">1</a> or <a href="#step-2">2</a> in 90% of such runs' in page
        assert "observed 93% of 84 labelled runs" in page


@pytest.mark.parametrize(
    ("labelled", "told"),
    [(0.0, "no labelled run says yet how often it is right"), (4.5, "right in 2 of 4.5 labelled runs")],
)
async def test_a_pooled_verdict_shows_both_opinions_and_what_the_model_has_earned(
    stage: Stage, client: Client, labelled: float, told: str
) -> None:
    both = Pooled(
        step=1,
        agent="cl<i>erk",
        own_step=2,
        own_agent="analyst",
        weight=0.25,
        accuracy=0.2,
        right=2.0 if labelled else 0.0,
        labelled=labelled,
    )
    judged = replace(blame(RUN, 2), method="judge+signals", model="large", pooled=both)
    await stage.add(RUN, "shop", judged)
    for path in ("/runs/run-1", "/runs/run-1/report.html"):
        page = await text_of(client, path)
        assert 'The model named <a href="#step-1">step 1</a> of cl&lt;i&gt;erk' in page
        assert "weight was 0.25" in page
        assert told in page
    async with client.get("/api/runs/run-1") as answer:
        pooled = (await answer.json())["pooled"]
    assert pooled["without_model"] == {"step": 2, "agent": "analyst", "span_id": RUN.steps[2].span_id}
    assert (pooled["weight"], pooled["accuracy"], pooled["labelled"]) == (0.25, 0.2, labelled)


async def test_a_suspicion_shows_two_probabilities_each_with_its_name(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", Attribution(run_id="run-1", verdict=SUSPECTED, method="signals"))
    for path in ("/runs/run-1", "/runs/run-1/report.html"):
        page = await text_of(client, path)
        assert "Probably failed: 95%" in page
        assert "This step: 41%" in page
    listed = await text_of(client, "/runs")
    assert "suspected 95%" in listed
    assert '<td class="number c-sure">95%</td>' in listed


async def test_a_run_without_steps_shows_no_empty_picture(stage: Stage, client: Client) -> None:
    nothing = run(run_id="run-1")
    attribution = Attribution(run_id="run-1", verdict=abstained(Status.UNREADABLE), method="m")
    await stage.add(nothing, "shop", attribution)
    page = await text_of(client, "/runs/run-1")
    for empty in ("<svg class", "What happened", "It was"):
        assert empty not in page


async def test_the_root_address_redirects_to_the_list(client: Client) -> None:
    async with client.get("/", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/runs")


async def test_an_empty_list_says_what_to_do(client: Client) -> None:
    assert "No run has been analysed yet" in await text_of(client, "/runs")
    assert "No run matches" in await text_of(client, "/runs?q=nothing")


async def test_a_run_shows_picture_verdict_evidence_and_links(stage: Stage, client: Client) -> None:
    trajectory = run(*RUN.steps, run_id="a" * 32, root_trace_id="ab" * 16, task=RUN.task)
    await stage.add(trajectory, "shop", blame(trajectory, 2))
    page = await text_of(client, f"/runs/{'a' * 32}")
    for shown in (
        '<svg class="picture"', "<mark>14,500</mark>", "What to do",
        "step 2</a></h1>", "70%",
        f'href="http://jaeger.example:16686/trace/{"ab" * 16}',
    ):  # fmt: skip
        assert shown in page
    Page(page)


async def test_a_run_whose_steps_are_gone_still_shows_its_verdict(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    stage.labels._db.execute("DELETE FROM kept_run")
    page = await text_of(client, "/runs/run-1")
    assert "are not kept" in page
    assert "it is wrong" in page


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_text_of_a_run_changes_a_page(stage: Stage, client: Client, name: str) -> None:
    text = HOSTILE[name]
    hostile = hostile_run(text)
    hostile = run(*hostile.steps, task=text, output=text, run_id="h")
    await stage.add(hostile, text or "x", blame(hostile, 2, reason=text))
    agents = (f"agent {one.index % 3}" for one in hostile.steps)
    calm = run(
        *(
            step(agent, "b", one.kind, target="t", status=one.status)
            for agent, one in zip(agents, hostile.steps, strict=True)
        ),
        run_id="c",
    )
    await stage.add(calm, "x", blame(calm, 2, reason="b"))
    for path in ("/runs/{}", "/runs/{}/report.html"):
        page, other = [Page(await text_of(client, path.format(run_id))) for run_id in ("h", "c")]
        assert set(page.tags) <= set(other.tags) | {"h3", "pre", "mark", "p"}
        assert page.attributes <= other.attributes | {"tabindex", "class"}
        assert not {name for name in page.attributes if name.startswith("on") or name == "style"}
    Page(await text_of(client, "/runs"))


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_note_or_early_warning_changes_a_page(stage: Stage, client: Client, name: str) -> None:
    shown = []
    for run_id, text in (("h", HOSTILE[name]), ("c", "calm")):
        given = run(*RUN.steps, task="t", run_id=run_id)
        told = {**to_json(blame(given, 2), given), "notes": [text, text]}
        told["early_warning"] = {"step": 1, "agent": text, "text": text, "as_high": 0, "passing": 20}
        verdict = replace(verdict_of(given, blame(given, 2), text, 1), document=json.dumps(told))
        stage.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
        page = await text_of(client, f"/runs/{run_id}")
        assert page.count("<dt>Note</dt>") == 2
        shown.append(Page(page))
        answer = await (await client.get(f"/api/runs/{run_id}")).json()
        assert (answer["notes"], answer["early_warning"]["agent"]) == ([text, text], text)
    assert shown[0].tags == shown[1].tags
    assert shown[0].attributes == shown[1].attributes


@pytest.mark.parametrize("field", ["notes", "early_warning"])
@pytest.mark.parametrize("value", [5, "text", [{}], {"step": "<b>"}])
async def test_a_damaged_note_or_early_warning_is_no_server_error(
    stage: Stage, client: Client, field: str, value: object
) -> None:
    told = {**to_json(blame(RUN, 2), RUN), field: value}
    verdict = replace(verdict_of(RUN, blame(RUN, 2), "shop", 1), document=json.dumps(told))
    stage.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
    for path in ("/runs/run-1", "/api/runs/run-1", "/runs", "/runs/run-1/report.html"):
        assert (await client.get(path)).status == 200


async def test_every_page_forbids_scripts_of_others_and_has_no_id_twice(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    for path in ("/runs", "/runs/run-1", "/health", "/issues", "/workflows", "/queue", "/try"):
        async with client.get(path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            page = Page(await answer.text())
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "style" not in page.tags
        assert len(page.ids) == len(set(page.ids)), path


async def test_a_downloaded_report_needs_no_other_file(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    async with client.get("/runs/run-1/report.html") as answer:
        text = await answer.text()
        assert answer.headers["Content-Disposition"] == 'attachment; filename="blamespan-run-1.html"'
    assert not re.search(r'(?:src|href)="(?!#)', text)
    assert "url(http" not in text
    assert "<script" not in text
    assert '<svg class="picture"' in text


async def test_a_run_is_exported_as_the_api_gives_it(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    async with client.get("/runs/run-1/run.json") as answer:
        exported = json.loads(await answer.text())
    async with client.get("/api/runs/run-1") as answer:
        run = await answer.json()
    async with client.get("/api/runs/run-1/steps") as answer:
        assert exported == {**run, "run": await answer.json()}


@pytest.mark.parametrize(
    ("form", "label", "step_"),
    [
        ({"answer": "right"}, "confirmed", 2),
        ({"answer": "wrong"}, "rejected", None),
        ({"answer": "passed"}, "not_a_failure", None),
        ({"answer": "step", "step": "1"}, "corrected", 1),
    ],
)
async def test_a_label_is_given_by_a_form_without_a_script(
    stage: Stage, client: Client, form: dict[str, str], label: str, step_: int | None
) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    async with client.post("/runs/run-1/label", data=form, headers=OURS) as answer:
        assert "Saved. Thank you" in await answer.text()
    async with client.get("/api/runs/run-1") as answer:
        kept = (await answer.json())["label"]
    assert (kept["label"], kept["step"]) == (label, step_)


def headings(page: str) -> list[str]:
    """Return the columns that the page's style does not hide."""
    (table,) = re.findall(r'<table class="runs ?([^"]*)">', page)
    hidden = {word.removeprefix("no-") for word in table.split()}
    return [name for name in re.findall(r'<th scope="col" class="c-(\w+)', page) if name not in hidden]


async def test_columns_with_a_single_value_collapse_into_one_line(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop <i>", blame(RUN, 2))
    assert "service" in headings(await text_of(client, "/runs")), "one run has no value in common with others"
    await stage.add(replace(RUN, run_id="run-2"), "shop <i>", blame(RUN, 1))
    page = await text_of(client, "/runs")
    assert headings(page) == ["when", "task", "agent", "step"]
    assert "The same for all runs here: service <b>shop &lt;i&gt;</b>" in page
    assert "tokens <b>" not in page, "a number that is not known is no value"
    await stage.add(replace(RUN, run_id="run-3"), "bank", blame(RUN, 1))
    assert headings(await text_of(client, "/runs")) == ["when", "task", "service", "agent", "step"]


async def test_a_live_page_learns_that_its_columns_have_changed(stage: Stage, client: Client) -> None:
    for name in ("run-1", "run-2"):
        await stage.add(replace(RUN, run_id=name), "shop", blame(RUN, 2))
    (live,) = re.findall(r'data-live="([^"]*)"', await text_of(client, "/runs"))
    async with client.get("/runs?part=rows") as answer:
        assert answer.headers["X-Columns"] == live
    await stage.add(replace(RUN, run_id="run-3"), "bank", blame(RUN, 2))
    async with client.get("/runs?part=rows") as answer:
        assert answer.headers["X-Columns"] != live


async def test_columns_are_chosen_and_the_address_keeps_the_choice(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    sent = "/runs?q=&show=when&show=cost&show=%3Ci%3E"
    async with client.get(sent, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/runs?show=when,cost,%3Ci%3E")
    page = await text_of(client, "/runs?show=when,cost,%3Ci%3E&service=shop")
    assert headings(page) == ["when", "task", "agent", "cost"]
    assert "<i>" not in page
    assert 'name="service" value="shop"' in page
    assert 'value="cost" checked' in page
    assert 'value="tokens" checked' not in page
    everything = "when," + ",".join(name.lower() for name in CHOOSABLE)
    assert len(headings(await text_of(client, f"/runs?show={everything}"))) == 12
    for name in CHOOSABLE:
        assert f".no-{name.lower()} .c-{name.lower()}" in (STATIC / "list.css").read_text()


async def test_a_range_of_time_is_picked_in_utc(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    sent = "/runs?since=24h&since=2026-09-21T10%3A00&until=2026-09-22T00%3A00%3A01"
    async with client.get(sent, allow_redirects=False) as answer:
        path = "/runs?since=2026-09-21T10:00Z&until=2026-09-22T00:00:01Z"
        assert (answer.status, answer.headers["Location"]) == (303, path)
    page = await text_of(client, path)
    assert '/runs/run-1"' in page
    assert 'type="datetime-local" name="since" value="2026-09-21T10:00:00"' in page
    assert "Time: a range" in page
    page = await text_of(client, "/runs?since=7d")
    assert "Time: last 7d" in page
    assert '<input type="hidden" name="since" value="7d">' in page
    assert '<a href="/runs?since=7d" aria-current="true">' in page
    assert "expected an RFC 3339 time" in await text_of(client, "/runs?since=2026-13-41T10:00", 400)


async def test_the_row_says_why_a_run_could_not_be_judged(stage: Stage, client: Client) -> None:
    failed = Attribution(
        run_id="run-1",
        verdict=Abstention(status=Status.ERROR, reason="the model did not answer"),
        method="judge",
        error="<b>429</b> too many requests",
    )
    await stage.add(RUN, "shop", failed)
    page = await text_of(client, "/runs")
    assert '<span class="reason">&lt;b&gt;429&lt;/b&gt; too many requests</span>' in page


async def test_a_persons_reason_is_shown_with_name_and_time(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    form = {"answer": "wrong", "why": "no <b>sum</b> of ann@example.org"}
    signed_in = {**OURS, "X-Forwarded-User": "ada <script>"}
    async with client.post("/runs/run-1/label", data=form, headers=signed_in) as answer:
        page = await answer.text()
    assert "<b>Why:</b> no &lt;b&gt;sum&lt;/b&gt; of [e-mail]" in page
    assert "ada &lt;script&gt; said: <b>wrong</b>" in page
    assert '<textarea name="why"' in page


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        (OURS, 303),
    ],
)
@pytest.mark.parametrize("path", ["/runs/run-1/label", "/runs/run-1/again"])
async def test_a_form_of_another_site_changes_nothing(
    stage: Stage, client: Client, path: str, headers: dict[str, str], status: int
) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    form = {"answer": "right", "method": "signals"}
    async with client.post(path, data=form, headers=headers, allow_redirects=False) as answer:
        assert answer.status == status
    assert bool(stage.labels.labels(stage.verdicts.starting_with("", None, 1)[0].tenant, "run-1")) == (
        status == 303 and path.endswith("label")
    )


@pytest.mark.parametrize("step_", ["", "-1", "x", "٣", "1e3", "9" * 20])
def test_a_form_that_names_no_step_is_no_label(step_: str) -> None:
    with pytest.raises(Exception, match="Bad Request"):
        read_form({"answer": "step", "step": step_})


@pytest.mark.parametrize(
    "query", ["status=evil", "q=" + "x" * 201, "after=x", "after=" + quote("W10"), "after=WyJhIiwgMSwgMl0"]
)
async def test_an_invalid_query_of_the_list_is_reported(client: Client, query: str) -> None:
    page = await text_of(client, f"/runs?{query}", 400)
    assert ("expected" in page, 'role="alert"' in page, '<form class="filter"' in page) == (True, True, True)


async def test_a_form_without_javascript_leads_to_the_address_of_the_view(client: Client) -> None:
    path = "/runs?q=&status=attributed&service=&min_steps=&sort="
    async with client.get(path, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/runs?status=attributed")
    async with client.get("/runs?q=", allow_redirects=False) as answer:
        assert answer.headers["Location"] in {"/runs", "/runs?"}


async def test_the_list_sorts_and_shows_totals_and_what_a_period_holds(stage: Stage, client: Client) -> None:
    totals = RunTotals(
        workflow="<b>refunds", steps=7, duration_ns=12 * 10**9, input_tokens=1_200, cost_usd=0.25
    )
    await stage.add(RUN, "shop", blame(RUN, 2), totals)
    page = await text_of(client, "/runs?workflow=%3CB%3Erefunds&sort=longest&min_cost_usd=0.2")
    for shown in ("12.0 s", "1,200", "$0.25", ">7<", "&lt;b&gt;refunds", 'aria-sort="descending"'):
        assert shown in page, shown
    assert "<b>refunds" not in page
    (bar,) = re.findall(r'<a href="(/runs\?[^"]+)" tabindex="-1"', page)
    assert "sort=longest" in bar
    assert 'href="/runs/run-1"' in await text_of(client, bar.replace("&amp;", "&"))
    assert "No run matches" in await text_of(client, "/runs?max_steps=6")


async def test_the_next_page_of_the_list_continues_and_shows_every_run_once(
    stage: Stage, client: Client
) -> None:
    for number in range(120):
        one = run(step("a", "b"), run_id=f"r{number:03}", task=f"task {number}")
        await stage.add(one, "shop", blame(one, 0))
    seen: list[str] = []
    path = "/runs"
    while path:
        page = await text_of(client, path)
        seen += re.findall(r'href="/runs/(r\d+)"', page)
        more = re.search(r'rel="next" href="([^"]+)"', page)
        path = more[1].replace("&amp;", "&") if more else ""
    assert seen == [f"r{number:03}" for number in reversed(range(120))]


async def test_a_search_finds_words_of_the_verdict_and_knows_no_patterns(
    stage: Stage, client: Client
) -> None:
    for name in ("good", "bad%"):
        one = run(step("a", "b"), run_id=name)
        await stage.add(one, "shop", blame(one, 0, reason=f"because of {name}"))
    assert "/runs/bad%25" in await text_of(client, "/runs?q=OF+bad%25")
    assert "/runs/good" not in await text_of(client, "/runs?q=bad%25")
    assert "No run matches" in await text_of(client, "/runs?q=b_d")
    assert "No run matches" in await text_of(client, "/runs?status=no_failure")


async def test_health_shows_work_and_settings_but_no_secret(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    page = await text_of(client, "/health")
    assert "BLAMESPAN_TOKEN" in page
    assert "1 failed" in page
    assert "](" not in page  # nor the links of docs/settings.md


async def test_pages_of_a_long_run_lead_to_each_other(stage: Stage, client: Client) -> None:
    long = run(*(tool("a", str(number)) for number in range(1_500)), run_id="long")
    await stage.add(long, "shop", blame(long, 3))
    page = await text_of(client, "/runs/long")
    assert "Steps 0 to 999 of 1500" in page
    assert 'href="?from=1000#steps"' in page
    later = await text_of(client, "/runs/long?from=1000")
    assert 'id="step-1499"' in later
    for query in ("from=x", "step=-1", "full=1e3", f"find={'x' * 201}"):
        await text_of(client, f"/runs/long?{query}", 400)


MARK = Fingerprint(
    service="shop", agent="<b>clerk", mode="unhandled_error", kind="tool", tool="seats", error="TimeoutError"
)  # fmt: skip


async def test_the_list_and_the_run_name_the_issue_and_lead_to_it(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    await stage.add(run(step("a", "b"), run_id="other"), "shop")
    issue_id = stage.issues.add(MARK, IssueState.REGRESSED, (1, 2), ("run-1",))
    for path in ("/runs", "/runs/run-1"):
        page = await text_of(client, path)
        assert page.count(f'href="/issues/{issue_id}"') == 1
        assert "regressed" in page
        assert "<b>clerk" not in page
    page = await text_of(client, f"/issues/{issue_id}")
    assert 'href="/runs/run-1#step-2"' in page
    assert "&lt;b&gt;clerk: TimeoutError in seats" in page
    assert "blamespan experiment run-1 --check CHECK -- COMMAND" in page
    assert issue_id not in await text_of(client, "/runs/other")
    await text_of(client, "/issues/none", 404)


async def test_issues_are_a_table_with_the_last_reason_and_single_failures_folded(
    stage: Stage, client: Client
) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    often = stage.issues.add(MARK, IssueState.ONGOING, (1, 2), ("run-1",))
    once = stage.issues.add(replace(MARK, agent="porter"), IssueState.NEW, (1,), ("gone",))
    page = await text_of(client, "/issues")
    listed, folded = page.split("<details>")
    assert "1 failure that happened once" in folded
    assert (often in listed, often in folded, once in listed, once in folded) == (True, False, False, True)
    assert 'href="/runs/run-1"' in listed
    assert "it is wrong" in listed
    assert 'href="/runs/gone"' in folded
    assert "&lt;b&gt;clerk" in listed


async def test_a_fix_is_compared_on_the_issues_page(stage: Stage, client: Client) -> None:
    runs, hostile = ("run-1",), replace(FIX, since="<b>2.1", releases=("<i>2.1",))
    path = f"/issues/{stage.issues.add(MARK, IssueState.ONGOING, (1, 2), runs, fix=hostile)}"
    page = await text_of(client, path)
    assert "20 of 30 (67 %)" in page
    assert "39 of 40 (98 %)" in page
    assert '<span class="badge better">better</span>' in page
    assert "success rose from" in page
    assert "&lt;b&gt;2.1" in page
    assert "<i>2.1" not in page
    stage.issues.add(MARK, IssueState.ONGOING, (1, 2), runs, fix=replace(FIX, workflows=()))
    assert "No run of these workflows has a known outcome since 2.1" in await text_of(client, path)
    stage.issues.add(MARK, IssueState.ONGOING, (1, 2), runs, fix=replace(FIX, since="", workflows=()))
    assert "have no second release" in await text_of(client, path)
    stage.issues.add(MARK, IssueState.ONGOING, (1, 2), runs)
    assert "Before and after a fix" not in await text_of(client, path)


async def test_an_issue_is_decided_where_it_is_shown(stage: Stage, client: Client) -> None:
    issue_id = stage.issues.add(MARK, IssueState.NEW, (1,), ("run-1",))
    form, path = {"on": "issue", "tenant": ""}, f"/issues/{issue_id}"
    for action, said in (("resolve", "resolved"), ("mute", "muted")):
        async with client.post(f"{path}/{action}", data=form, headers=OURS, allow_redirects=False) as answer:
            assert answer.headers["Location"] == f"{path}?said={said}"
    assert stage.issues.kept[issue_id].issue.state is IssueState.RESOLVED


PASSED = Abstention(status=Status.NO_FAILURE, reason="an evaluator states its outcome: success")
SILENT = Abstention(status=Status.NO_FAILURE, reason="nothing says that the run failed")


@pytest.mark.parametrize(
    ("verdict", "said", "heading"),
    [
        (SILENT, "no sign of failure", "No sign of failure"),
        (PASSED, "passed", "Nothing broke"),
    ],
)
async def test_a_run_is_shown_as_passed_only_after_a_statement(
    stage: Stage, client: Client, verdict: Abstention, said: str, heading: str
) -> None:
    await stage.add(RUN, "shop", Attribution(run_id=RUN.run_id, verdict=verdict, method="triage"))
    assert f">{said}</span>" in await text_of(client, "/runs")
    assert f"{heading}</h1>" in await text_of(client, "/runs/run-1")


@pytest.mark.parametrize("verdict", [PASSED, SILENT])
async def test_the_list_gives_the_answer_of_a_run_without_a_failure(
    stage: Stage, client: Client, verdict: Abstention
) -> None:
    fine = replace(RUN, output="<b>7,245</b>\nin all" + " and more" * 100)
    await stage.add(fine, "shop", Attribution(run_id=fine.run_id, verdict=verdict, method="triage"))
    page = await text_of(client, "/runs")
    assert '<span class="reason">Answer: &lt;b&gt;7,245&lt;/b&gt; in all and more' in page
    assert "…</span>" in page


async def test_the_list_gives_the_answer_once_a_person_says_that_the_run_did_not_fail(
    stage: Stage, client: Client
) -> None:
    await stage.add(replace(RUN, output="7,245 in all"), "shop", blame(RUN, 2))
    assert "Answer:" not in await text_of(client, "/runs")
    async with client.post("/runs/run-1/label", data={"answer": "passed"}, headers=OURS) as answer:
        assert answer.status == 200
    page = await text_of(client, "/runs")
    assert '<span class="reason">Answer: 7,245 in all</span>' in page
    assert "it is wrong" not in page


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ({"answer": "step", "step": "1"}, '<b class="agent">clerk</b> <span class="dim">(corrected)</span>'),
        ({"answer": "right"}, '<b class="agent">analyst</b> <span class="dim">(confirmed)</span>'),
        ({"answer": "wrong"}, '<s class="agent">analyst</s> <span class="dim">(marked wrong)</span>'),
        ({"answer": "passed"}, "did not fail</span>"),
    ],
)
async def test_the_list_and_the_form_remember_what_a_person_said(
    stage: Stage, client: Client, form: dict[str, str], shown: str
) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    async with client.post("/runs/run-1/label", data=form, headers=OURS) as answer:
        assert answer.status == 200
    rows = await text_of(client, "/runs?part=rows")
    assert shown in rows
    assert ('<td class="number step c-step">1</td>' in rows) is ("step" in form)
    chosen = form.get("step", "2")
    assert f'<option value="{chosen}" selected>' in await text_of(client, "/runs/run-1")


async def test_a_run_is_downloaded_as_a_file_that_no_browser_takes_for_a_page(
    stage: Stage, client: Client
) -> None:
    wicked = replace(blame(RUN, 2), error="<script>alert(1)</script><!--")
    await stage.add(RUN, "<svg onload=alert(1)>", wicked)
    async with client.get("/runs/run-1/run.json") as answer:
        text = await answer.text()
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="blamespan-run-1.json"'
    assert "<" not in text
    assert json.loads(text)["error"] == "<script>alert(1)</script><!--"
    assert json.loads(text)["service"] == "<svg onload=alert(1)>"


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "unknown"), (0.0, "$0"), (1.5, "$1.5000"), (0.0021, "$0.0021"), (0.00003, "$0.000030"),
        (1e-300, "<$0.000001"), (-0.5, "$-0.5000"), (float("nan"), "$nan"), (float("inf"), "$inf"),
    ],
)  # fmt: skip
def test_a_small_cost_is_not_shown_as_zero(amount: float | None, shown: str) -> None:
    assert usd(amount) == shown


def test_a_difference_of_money_has_its_sign() -> None:
    assert (usd_more(0.0021), usd_more(-0.00003)) == ("+$0.0021", "-$0.000030")
