"""A step on its run's page, whole: prompt, tools, messages, numbers, raw span; and nothing hostile in any."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from aiohttp.web import Application, Request

from analyzer.web.pages.run_page import versions_of
from analyzer.web.pages.step_texts import MOST_TEXT, formatted, json_html, shown_text
from analyzer.web.reads import whole_runs
from collector_processor.core.records import PERSON, Commit, StoredVerdict
from collector_processor.otlp import NO_TENANT
from tests.runs import run, step
from tests.web.long_runs import Tape, add_spans, long_run, papers
from tests.web.stage import Stage
from tests.web.test_pages import RUN, VOID, Page, blame, text_of

Client = TestClient[Request, Application]
RUBY = "\u202e"
LONG_LINE = "x" * (1 << 20)
HOSTILE: Mapping[str, str] = {
    "script": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "javascript link": "# a\n[click](javascript:alert(1)) [data](data:text/html,<script>alert(1)</script>)",
    "hidden link": "**a** [x](java\tscript:alert(1)) [y](&#106;avascript:alert(1)) <javascript:alert(1)>",
    "quoted link": '# a\n[x](https://e.example/"onclick="alert(1)) [y](https://e.example "t\\" onclick=x")',
    "link to ourselves": "# a\n[sign out](/sign-out) ![pixel](https://e.example/p.png) [up](../../health)",
    "code": '# a\n```html" onload="alert(1)\n</code></pre><script>alert(1)</script>\n```',
    "table": "|<b>a</b>|b|\n|--|--:|\n|<svg onload=alert(1)>|`</td><script>`|",
    "right to left": f"# a\n{RUBY}gnp.exe",
    "surrogate": "# a\n\ud800 lone",
    "long line": LONG_LINE,
    "deep JSON": "[" * 50_000 + "]" * 50_000,
    "nested JSON": '{"a": ' * 900 + "1" + "}" * 900,
    "JSON with markup": '{"<script>": "</pre><script>alert(1)</script>", "\\u202e": "\\ud800", "n": 1.10}',
    "endless number": "[" + "9" * 10_000 + "]",
    "brackets": "# a\n" + "[" * 7_000,
    "null": "# a\n\0\x1b[31mred",
}


def hostile_spans(text: str) -> bytes:
    """Return a run in which each field that a step shows holds the text."""
    tape = Tape("task")
    message = {"role": "user", "name": text[:3_000], "parts": [{"type": "text", "content": text}]}
    call = {"type": "tool_call", "id": "1", "name": text[:3_000], "arguments": {text[:3_000]: text}}
    tool = {
        "name": text[:3_000],
        "description": text,
        "parameters": {"properties": {text[:3_000]: {"type": text}}},
    }
    tape.llm(
        "agent",
        [message],
        [{"role": "assistant", "parts": [call, {"type": "text", "content": text}]}],
        more={
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": text}]),
            "gen_ai.tool.definitions": json.dumps([tool]),
            "gen_ai.response.model": clean(text[:3_000]),
            "gen_ai.request.temperature": clean(text[:300]),
            "gen_ai.request.<script>": clean(text[:300]),
        },
    )
    tape.tool(
        "agent",
        "lookup",
        {"q": text},
        text if text != clean(text) else {"r": text},
        error=clean(text[:3_000]),
    )
    tape.llm("agent", [message], [{"role": "assistant", "parts": [{"type": "text", "content": text}]}])
    return tape.ended("answer", "refused")


def clean(text: str) -> str:
    """Return what the SDK accepts as an attribute."""
    return text.encode("utf-8", "replace").decode()


class Strict(Page):
    """A page without scripts, handlers and styles but ours; it knows where its links lead."""

    def __init__(self, text: str) -> None:
        self.links: list[str] = []
        super().__init__(text)
        assert not {name for name in self.attributes if name.startswith("on") or name in {"style", "srcdoc"}}
        assert not {"img", "iframe", "object", "embed", "base"} & set(self.tags)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        told = dict(attrs)
        if tag == "a":
            self.links.append(told.get("href") or "")
        if tag == "script":
            assert (told.get("src") or "").startswith("/static/")


OURS = (
    "/compare?a=",
    "#",
    "?",
    "/runs",
    "/issues",
    "/workflows",
    "/workflow?",
    "/queue",
    "/try",
    "/health",
    "/api/runs/",
    "http://jaeger.example:16686/",
    "https://e.example",
)


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_text_of_a_step_acts_on_its_page(stage: Stage, client: Client, name: str) -> None:
    run_id = await add_spans(stage, hostile_spans(HOSTILE[name]), "shop")
    async with client.get(f"/runs/{run_id}") as answer:
        assert answer.status == 200
        assert "'unsafe" not in answer.headers["Content-Security-Policy"]
        pages = [await answer.text()]
    assert "alert(1)</script>" not in pages[0]
    pages.append(await text_of(client, f"/runs/{run_id}/report.html"))
    for number in range(3):
        pages += [await text_of(client, f"/runs/{run_id}/steps/{number}{query}") for query in ("", "?full=1")]
        async with client.get(f"/runs/{run_id}/steps/{number}/span.json") as answer:
            raw = await answer.text()
            assert (answer.status, answer.headers["X-Content-Type-Options"]) == (200, "nosniff")
        assert "<" not in raw
        assert json.loads(raw)["attributes"]["gen_ai.agent.name"] == "agent"
    for page in pages:
        assert RUBY not in page
        links = Strict(page).links
        assert not [link for link in links if not link.startswith(OURS)], links


@pytest.mark.parametrize("find", ["<script>", "[", "\\", "%", "\u202e", "a" * 200, "\0"])
async def test_no_search_acts_on_the_page(stage: Stage, client: Client, find: str) -> None:
    run_id = await add_spans(stage, hostile_spans(HOSTILE["script"]), "shop")
    async with client.get(f"/runs/{run_id}", params={"find": find}) as answer:
        assert answer.status == 200
        Strict(await answer.text())


async def test_a_step_shows_all_that_its_span_holds(stage: Stage, client: Client) -> None:
    run_id = await add_spans(stage, papers(), "paper-desk")
    page = await text_of(client, f"/runs/{run_id}?step=1")
    for shown in (
        "Quote numbers <strong>with their conditions</strong>", "search_papers", "words to look for",
        "gpt-4.1-2025-04-14", "temperature", "0.2", "173 in, 50 out", "$0.0021", "800 ms, from 1.2 s",
        "assistant calls search_papers", "catalyst yield 80 °C", "retry of 2", "Retried by",
        '<td class="number">71 %</td>', "TimeoutError: the archive did not answer",
        f'href="/runs/{run_id}?step=1#step-1"', f'href="/api/runs/{run_id}/steps?from=1&amp;limit=1"',
        "http://jaeger.example:16686/trace/", "<b>9</b> steps", "9.0 s",
    ):  # fmt: skip
        assert shown in page, shown
    Strict(page)
    async with client.get(f"/runs/{run_id}/steps/1/span.json") as answer:
        span = await answer.json()
    assert span["resource"]["attributes"]["service.version"] == "2.4.1"
    assert span["scope"]["name"] == "paper_desk.agents"
    async with client.get(f"/runs/{run_id}/steps/2/span.json") as answer:
        assert (await answer.json())["events"][0]["name"] == "exception"


async def test_the_page_and_the_api_show_the_same_steps(stage: Stage, client: Client) -> None:
    run_id = await add_spans(stage, papers(), "paper-desk")
    async with client.get(f"/api/runs/{run_id}/steps") as answer:
        told = (await answer.json())["steps"]
    for one in told:
        page = await text_of(client, f"/runs/{run_id}/steps/{one['index']}")
        for message in (*one["messages"], *one["answers"]):
            line = message["text"].partition("\n")[0]
            assert not line or line.startswith(("{", "#")) or line in page
    assert [tool["name"] for tool in told[0]["offered"]] == ["search_papers", "read_paper"]


async def test_a_long_text_is_shown_in_full_on_demand(stage: Stage, client: Client) -> None:
    text = "begin " + "y" * 3 * MOST_TEXT + " middle " + "z" * 3 * MOST_TEXT + " end"
    run_id = await add_spans(stage, long_run(3, text), "shop")
    page = await text_of(client, f"/runs/{run_id}")
    assert " middle " not in page
    assert "?step=0&amp;full=0#step-0" in page
    for path in (f"/runs/{run_id}?step=0&full=0", f"/runs/{run_id}/steps/0?full=1"):
        assert " middle " in await text_of(client, path)


async def test_a_step_far_down_a_long_run_has_an_address(stage: Stage, client: Client) -> None:
    run_id = await add_spans(stage, long_run(300), "shop")
    page = await text_of(client, f"/runs/{run_id}?step=297")
    assert '<li id="step-297" tabindex="-1" class="step handover">\n<details open>' in page
    assert "What does paper 297 say?" in page
    other = await text_of(client, f"/runs/{run_id}")
    assert "What does paper 297 say?" not in other
    assert f'data-src="/runs/{run_id}/steps/297"' in other
    for nothing in ("300", "-1", "x", "9" * 30, "٣"):
        await text_of(client, f"/runs/{run_id}/steps/{nothing}", 404)
    await text_of(client, "/runs/none/steps/0", 404)


async def test_a_search_lists_the_steps_that_contain_it_anywhere(stage: Stage, client: Client) -> None:
    run_id = await add_spans(stage, papers(), "shop")
    page = await text_of(client, f"/runs/{run_id}?find=OKAFOR")
    assert "4 steps contain “OKAFOR”" in page
    assert 'id="step-0"' not in page
    assert "<mark>okafor</mark>" in page
    assert "No step contains “nowhere”" in await text_of(client, f"/runs/{run_id}?find=nowhere")


async def test_a_run_without_spans_has_no_raw_span(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    await text_of(client, "/runs/run-1/steps/2")
    await text_of(client, "/runs/run-1/steps/2/span.json", 404)


async def test_the_expected_answer_is_shown_where_it_is_known(stage: Stage, client: Client) -> None:
    one = run(step("clerk", "5"), task="2 + 2?", output="5", reference="4 <b>")
    page = await text_of(client, f"/runs/{await stage.add(one, 'shop')}")
    assert "expected answer" not in page, "a kept run without spans never holds it"


CHANGED = ("agent", "step", "method")


def test_versions_name_what_changed_and_by_whom() -> None:
    first = StoredVerdict(
        tenant=NO_TENANT, run_id="r", version=1, failure_id="a", status="attributed", agent="clerk", step=1,
        span_id=None, trace_id=None, service="s", is_provisional=False, decided_ns=1,
        document=json.dumps({"method": "judge", "model": "m", "confidence": 0.5, "reason": "because"}),
    )  # fmt: skip
    second = replace(first, version=2, agent="planner", step=0, document=json.dumps({"method": PERSON}))
    newest, oldest = versions_of([second, first])
    assert (newest.author, newest.said, newest.changed) == (
        "a person",
        "planner",
        ("agent", "step", "method"),
    )
    assert (oldest.author, oldest.said, oldest.changed) == ("judge with m", "clerk", ())
    (broken,) = versions_of([replace(first, agent=None, status="error", document="no JSON")])
    assert (broken.said, broken.confidence) == ("not analysed", None)


async def test_the_page_shows_the_versions_of_its_verdict(stage: Stage, client: Client) -> None:
    run_id = await add_spans(stage, papers(), "shop")
    assert "Versions of the verdict" not in await text_of(client, f"/runs/{run_id}")
    (verdict,) = stage.verdicts.find(run_id)
    wicked = json.dumps(
        {**json.loads(verdict.document), "reason": "<script>alert(2)</script>", "method": "<b>m"}
    )
    newer = replace(verdict, version=2, failure_id="f2", document=wicked)
    stage.verdicts.commit(Commit(analysed=(), verdicts=(newer,)))
    page = await text_of(client, f"/runs/{run_id}")
    assert "Versions of the verdict" in page
    assert '<li value="2">' in page
    Strict(page)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("plain words", None), ("a * b * c", None), ("", None), ("{not JSON}", None), ("[1, 2", None),
        ("# Title", "Markdown"), ("- one\n- two", "Markdown"), ("some **bold** words", "Markdown"),
        ('{"a": [1]}', "JSON"), (" [1, 2]\n", "JSON"), ("12", None), ('"text"', None), ("[" * 5_000, None),
    ],
)  # fmt: skip
def test_a_text_is_formatted_as_what_it_is(text: str, kind: str | None) -> None:
    found = formatted(text)
    assert (found.kind if found else None) == kind


def test_json_keeps_its_numbers_its_order_and_its_repeated_keys() -> None:
    shown = json_html('{"b":1.10,"a":[],"b":{},"c":[1e400,12345678901234567890]}')
    assert shown is not None
    plain = shown.striptags().replace(" ", "")
    assert plain == '{"b":1.10,"a":[],"b":{},"c":[1e400,12345678901234567890]}'


def test_no_invisible_character_and_no_lone_surrogate_is_shown() -> None:
    assert shown_text(f"a\ud800b\udfffc{RUBY}d\u200be") == "a\ufffdb\ufffdcde"


def test_what_is_quoted_is_marked_in_markdown_too() -> None:
    found = formatted("# a\n\n- it is <b>61 %", ["<b>61 %"])
    assert found is not None
    assert found.is_marked
    assert "<mark>&lt;b&gt;61 %</mark>" in found.html
    split = formatted("# a\n\n- it is *61* %", ["*61* %"])
    assert split is not None
    assert not split.is_marked


async def test_the_cache_of_runs_is_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [await stage.add(replace(RUN, run_id=f"r{number}"), "shop") for number in range(3)]
    pages = stage.parts().pages
    reads: list[str] = []

    def reading(verdict: StoredVerdict, *others: Any) -> Any:
        reads.append(verdict.run_id)
        return real(verdict, *others)

    real = whole_runs.read_run
    monkeypatch.setattr(whole_runs, "read_run", reading)
    monkeypatch.setattr(whole_runs, "MOST_REMEMBERED", 2)
    reader = whole_runs.WholeRuns(pages.runs, pages.clean)
    for name in (0, 0, 1, 2, 0):
        assert await reader.of(stage.verdicts.find(runs[name])[0]) is not None
    assert reads == ["r0", "r1", "r2", "r0"]
    stage.labels._db.execute("DELETE FROM kept_run")
    assert await reader.of(stage.verdicts.find("r0")[0]) is None
    pages.runs.close()


async def test_a_run_of_a_thousand_steps_is_a_small_page(stage: Stage, client: Client) -> None:
    run_id = await add_spans(stage, long_run(1_000), "shop")
    page = await text_of(client, f"/runs/{run_id}")
    assert page.count('<li id="step-') == 1_000
    assert page.count("times the same step") == 2
    assert len(page) < 2_000_000
    assert len([tag for tag in Strict(page).tags if tag not in VOID]) < 30_000
