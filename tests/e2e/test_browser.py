# ruff: noqa: E501 - scripts for the browser are as wide as they are
"""The pages in a real browser: each action, parallel use, hostile texts, keyboard, phone, dark and light."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.web.browser import PATIENCE_MS, chromium
from tests.web.showcase import PARALLEL, shop_window, showcase
from tests.web.stage import Stage, serving

if chromium() is None and os.environ.get("BLAMESPAN_REQUIRE_BROWSER") != "true":
    pytest.skip("no Chromium here", allow_module_level=True)

LOG = {
    "history": [
        {"role": "user", "name": "planner", "content": "add 2 and 2"},
        {"role": "assistant", "name": "clerk", "content": "2 + 2 = 5"},
    ],
    "question": "2 + 2?",
}
LOG_FILE: Any = {"name": "log.json", "mimeType": "application/json", "buffer": json.dumps(LOG).encode()}
expect.set_options(timeout=PATIENCE_MS)
pytestmark = pytest.mark.asyncio(loop_scope="session")
PAGES = (
    *(
        "runs",
        "issues",
        "workflows",
        "queue",
        "health",
        "try",
        "demo",
        "parallel",
        "hostile",
        "papers",
        "long",
    ),
    *("parallel issue", "hostile issue", "seats workflow", "hostile workflow"),
)


class Site:
    """The pages, a browser, and the errors that it reported."""

    def __init__(self, stage: Stage, ids: dict[str, str], address: str, browser: Any) -> None:
        self.stage, self.ids, self.address, self.browser = stage, ids, address, browser
        self.complaints: list[str] = []

    async def open(self, path: str, **options: Any) -> Any:
        context = await self.browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda asked: self._local(asked.url))
        answer = await page.goto(self.address + path)
        assert answer.ok, path
        return page

    def path(self, name: str) -> str:
        if name.endswith(" workflow"):
            return self.ids[name]
        if name.endswith(" issue"):
            return f"/issues/{self.ids[name]}"
        return f"/runs/{self.ids[name]}" if name in self.ids else f"/{name}"

    def _local(self, url: str) -> None:
        if not url.startswith(self.address):
            self.complaints.append(f"asked {url}")


@asynccontextmanager
async def opened_site(folder: Path, browser: Browser, token: str | None) -> AsyncIterator[Site]:
    """Serve the showcase; at the end the browser must have reported no error."""
    stage, ids = await showcase(folder / "data", recordings=6)
    async with serving(stage.parts(token=token)) as address:
        opened = Site(stage, ids, address, browser)
        yield opened
        assert opened.complaints == []
        for context in browser.contexts:
            await context.close()
    stage.verdicts.close()
    stage.labels.close()


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path, browser: Browser) -> AsyncIterator[Site]:
    async with opened_site(tmp_path, browser, token=None) as opened:
        yield opened


async def test_the_list_leads_to_the_run_and_the_picture_to_the_steps_text(site: Site) -> None:
    page = await site.open("/runs")
    await page.get_by_role("link", name="Our community hall").click()
    await expect(page.locator("h1")).to_contain_text("calculator")
    await page.locator("svg a[href='#step-3']").click()
    await expect(page.locator("#step-3 pre").first).to_be_visible()
    assert await page.locator("mark").first.inner_text() != ""


async def test_a_label_is_given_with_one_click(site: Site) -> None:
    page = await site.open(site.path("demo"))
    await page.get_by_role("button", name="Right", exact=True).click()
    await expect(page.locator("main")).to_contain_text("A person said: right")
    await page.get_by_label("It was").select_option("7")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("main")).to_contain_text("it was step 7")


async def test_the_queue_is_answered_by_single_keys(site: Site) -> None:
    page = await site.open("/queue")
    answered = page.locator("#progress-of-labels + p")
    await expect(answered).to_contain_text("0 of the newest")
    form = page.locator("form.answer")
    first = await form.get_attribute("action")
    await page.keyboard.press("x")
    await expect(form).not_to_have_attribute("action", first)
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    assert await page.locator("#said-step").input_value() == "1"
    await page.keyboard.press("Enter")
    await expect(page.locator("#step-1 details")).to_have_attribute("open", "")
    await page.keyboard.press("s")
    await expect(page.get_by_role("status")).to_contain_text("Saved")
    await expect(answered).to_contain_text("1 of the newest")
    await page.locator("#use-keys").uncheck()
    await page.locator("h1").click()
    await page.keyboard.press("p")
    await expect(answered).to_contain_text("1 of the newest")


async def test_the_queue_is_answered_without_a_script(site: Site) -> None:
    page = await site.open("/queue", java_script_enabled=False)
    await expect(page.locator("#legend")).to_be_hidden()
    await page.get_by_label("It was step").fill("1")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#progress-of-labels + p")).to_contain_text("1 of the newest")


async def test_everything_works_without_a_script(site: Site) -> None:
    page = await site.open(site.path("demo"), java_script_enabled=False)
    await page.get_by_role("button", name="It did not fail").click()
    await expect(page.locator(".notice").last).to_contain_text("did not fail")
    await page.get_by_role("button", name="Analyse", exact=True).click()
    await page.locator("article h2").first.wait_for()


async def test_a_label_is_given_by_keyboard_alone(site: Site) -> None:
    page = await site.open(site.path("demo"))
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    await page.keyboard.press("Enter")
    await page.wait_for_function("document.activeElement.id === 'content'")
    for _ in range(60):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.value") == "right":
            break
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px"
    await page.keyboard.press("Enter")
    await page.wait_for_url("**said=label**")


async def test_search_and_filter_narrow_the_list(site: Site) -> None:
    page = await site.open("/runs")
    await page.get_by_label("Search").fill("calculator")
    await page.get_by_role("button", name="Show").click()
    await expect(page.locator("#rows tr")).to_have_count(1)
    await page.get_by_label("Search").fill("")
    await page.get_by_label("Status").select_option("no_failure")
    await page.get_by_role("button", name="Show").click()
    await expect(page.locator("#rows tr.attributed")).to_have_count(0)


async def test_a_new_run_appears_on_an_open_page(site: Site) -> None:
    page = await site.open("/runs")
    await page.locator("#live").wait_for(state="visible")
    before = await page.locator("#rows tr").count()
    await site.stage.add(replace(PARALLEL, run_id="11" * 16), "just in")
    await page.get_by_text("just in").wait_for()
    await expect(page.locator("#rows tr")).to_have_count(before + 1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_many_runs_with_their_reasons_and_answers_fit_on_a_screen_below_their_trend(
    tmp_path: Path, browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    stage, _ = await shop_window(tmp_path / "data")
    async with serving(stage.parts()) as address:
        page = await browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
        await page.goto(f"{address}/runs")
        ends = await page.evaluate(
            "[...document.querySelectorAll('.over-time svg, .over-time figcaption, #rows tr')].map("
            "  one => [one.getBoundingClientRect().top, one.getBoundingClientRect().bottom])"
        )
        (_, below_trend), (_, below_caption), *rows = ends
        assert len([bottom for _, bottom in rows if bottom <= 900]) >= 16
        assert max(below_trend, below_caption) < rows[0][0]
        assert min(bottom - top for top, bottom in rows) >= 24  # WCAG 2.5.8: links of neighbouring rows
    stage.verdicts.close()
    stage.labels.close()


async def test_two_people_try_files_and_see_only_their_own(site: Site) -> None:
    one, other = await site.open("/try"), await site.open("/try")
    for page, name in ((one, "mine.json"), (other, "yours.json")):
        await page.locator("input[type=file]").set_input_files({**LOG_FILE, "name": name})
        await page.get_by_role("button", name="Analyse").click()
        await page.locator("article h2").first.wait_for()
    await one.goto(site.address + "/try")
    shown = await one.locator("main").inner_text()
    assert "mine.json" in shown
    assert "yours.json" not in shown


async def test_an_issue_is_resolved_and_another_muted(site: Site) -> None:
    page = await site.open("/issues")
    await page.get_by_role("button", name="Resolve").first.click()
    await expect(page.locator(".notice")).to_contain_text("Resolved")
    await page.get_by_role("button", name="Mute for a week").first.click()
    await expect(page.get_by_role("button", name="Unmute")).to_have_count(1)


async def test_the_command_that_tries_a_fix_is_copied(site: Site) -> None:
    page = await site.open(site.path("parallel issue"))
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = page.locator(".text", has_text="blamespan backtest").locator("button").first
    await button.click()
    await expect(button).to_have_text("Copied")
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("blamespan backtest ")


async def test_health_is_read_on_a_phone_without_scrolling_sideways(site: Site) -> None:
    page = await site.open("/health", viewport={"width": 390, "height": 844})
    cut = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth).length"
    assert await page.evaluate(cut) == 0


async def test_the_decisive_step_is_in_sight_on_a_phone(site: Site) -> None:
    page = await site.open(site.path("demo"), viewport={"width": 390, "height": 844})
    box = await page.locator("svg a.decisive .node").bounding_box()
    assert 0 < box["x"] < 390
    assert 0 < box["y"] < 844


async def test_lane_names_stay_visible_while_the_picture_is_scrolled(site: Site) -> None:
    page = await site.open(site.path("demo"), viewport={"width": 390, "height": 844})
    await page.evaluate("document.querySelector('.stage').scrollLeft = 1e6")
    assert await page.evaluate("document.querySelector('.stage').scrollLeft") > 60
    box = await page.locator("svg .name").first.bounding_box()
    assert 0 <= box["x"] < 60


UNNAMED = """() => [...document.querySelectorAll('input, select, button, a, meter, svg, table')].filter(one => {
  if (one.closest('[aria-hidden=true]')) return false; // its facts are in text beside it
  const labelled = one.labels && one.labels.length || one.getAttribute('aria-label') || one.textContent.trim();
  const heads = one.tagName !== 'TABLE' || one.querySelector('th[scope]');
  return !(labelled && heads) && one.type !== 'hidden';
}).map(one => one.outerHTML.slice(0, 90))"""
CONTRAST = """() => {
  const lum = c => { const v = c.map(x => { x /= 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; });
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const rgb = s => s.match(/[\\d.]+/g).map(Number);
  const ground = one => { for (let at = one; at; at = at.parentElement) {
    const c = rgb(getComputedStyle(at).backgroundColor); if (c.length < 4 || c[3] === 1) return c.slice(0, 3); }
    return [255, 255, 255]; };
  const bad = [];
  for (const one of document.querySelectorAll('main *, header *')) {
    if (one.closest('svg') || one.tagName === 'OPTION' || !one.offsetParent) continue;
    if (![...one.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [lum(rgb(getComputedStyle(one).color).slice(0, 3)), lum(ground(one))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) bad.push(ratio.toFixed(2) + ' ' + one.outerHTML.slice(0, 90));
  }
  return bad; }"""


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "light"), (1280, "dark")])
async def test_each_page_fits_names_its_parts_for_screen_readers_and_has_contrast(
    site: Site, width: int, scheme: Literal["light", "dark"]
) -> None:
    """The contrast of text is at least 4.5 to 1, as WCAG 2.2 requires (1.4.3)."""
    for name in PAGES:
        page = await site.open(site.path(name), viewport={"width": width, "height": 844}, color_scheme=scheme)
        assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth"), name
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(20, 23, 28)") is (scheme == "dark")
        assert await page.locator("main").count() == 1
        assert await page.locator("h1").count() == 1
        assert await page.locator("html").get_attribute("lang") == "en"
        assert await page.evaluate(UNNAMED) == [], name
        assert await page.evaluate(CONTRAST) == [], name
        await page.context.close()
