"""Every page, narrow and light, wide and dark, checked by axe against WCAG 2.2 A and AA."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from analyzer.analyses.opinions import LocalOpinions
from analyzer.methods.choice import Called, Choice
from analyzer.web.requested_analyses import Jobs
from collector_processor.core.analysis import NOTHING_EARNED, Earned
from semconv.model import Attribution, Trajectory
from tests.e2e.test_browser import LOG_FILE, PAGES, Site, opened_site
from tests.web.browser import chromium
from tests.web.stage import ANALYST, open_stage, read_here, serving
from tests.web.test_compare import TRIAL_A, TRIAL_B, keep_trials
from tools import axe

IS_REQUIRED = os.environ.get("BLAMESPAN_REQUIRE_BROWSER") == "true"
pytestmark = pytest.mark.asyncio(loop_scope="session")
needs_browser = pytest.mark.skipif(chromium() is None and not IS_REQUIRED, reason="no Chromium here")
in_both_looks = pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
"""Each width and each scheme once: what a rule finds depends on the one (layout) or the other (contrast)."""


@pytest.fixture(scope="module")
def source() -> str:
    """The script of axe; if it is required it is downloaded, and a failed download fails the test."""
    path = axe.fetched() if IS_REQUIRED else axe.script()
    if path is None:
        pytest.skip("no axe-core here: python -m tools.axe fetches it")
    return path.read_text()


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path, browser: Browser) -> AsyncIterator[Site]:
    async with opened_site(tmp_path, browser, token=None) as opened:
        yield opened


@needs_browser
@in_both_looks
async def test_every_page_is_accessible(
    site: Site, source: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    found = {}
    views = [
        "/runs?q=nothing", "/runs?sort=longest&min_steps=1", "/compare", "/queue", "/queue?skip=1",
        f"/compare?a={site.ids['demo']}&b={site.ids['hostile']}", f"{site.path('demo')}?said=label",
        f"/compare?a=trial:{TRIAL_A}&b=trial:{TRIAL_B}",
    ]  # fmt: skip
    await keep_trials(site.stage, run_id=site.ids["demo"])
    for path in [*(site.path(name) for name in PAGES), *views]:
        page = await site.open(path, viewport={"width": width, "height": 844}, color_scheme=scheme)
        found[path] = await axe.violations(page, source)
        await page.context.close()
    assert {path: one for path, one in found.items() if one} == {}


@needs_browser
@in_both_looks
async def test_an_open_step_is_accessible(
    site: Site, source: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    for name in ("papers", "long"):
        page = await site.open(site.path(name), viewport={"width": width, "height": 844}, color_scheme=scheme)
        for key in ("j", "Enter", "j", "Enter"):
            await page.keyboard.press(key)
        await page.locator("#step-1 .about").wait_for()
        for inner in await page.locator("#step-0 .body summary, #step-1 .body summary").all():
            await inner.click()
        await page.locator("#step-0 .raw pre").wait_for()
        assert await axe.violations(page, source) == []
        await page.keyboard.press("?")
        assert await axe.violations(page, source) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.context.close()


@needs_browser
async def test_the_report_is_accessible(site: Site, source: str) -> None:
    context = await site.browser.new_context()
    answer = await context.request.get(f"{site.address}{site.path('demo')}/report.html")
    page = await context.new_page()  # nobody's policy: the report brings its own
    await page.set_content(await answer.text())
    assert await axe.violations(page, source) == []


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_after_a_form_are_accessible(
    site: Site, source: str, scheme: Literal["light", "dark"]
) -> None:
    page = await site.open("/try", color_scheme=scheme)
    await page.locator("input[type=file]").set_input_files(LOG_FILE)
    await page.get_by_role("button", name="Analyse").click()
    await page.locator("article h2, .notice.error").first.wait_for()
    headline = page.locator("article h2", has_text="broke it")
    assert await headline.count() == 1, await page.locator("main").inner_text()
    assert await axe.violations(page, source) == []
    await page.goto(site.address + site.path("demo"))
    await page.get_by_role("button", name="Right", exact=True).click()
    await page.locator(".notice").first.wait_for()
    for details in await page.locator(".steps summary").all():
        await details.click()
    assert await axe.violations(page, source) == []


class Endless(LocalOpinions):
    """Analyses that end only if they are cancelled."""

    async def ask(
        self, _trajectory: Trajectory, _choice: Choice, called: Called, _earned: Earned = NOTHING_EARNED
    ) -> Attribution:
        called(1, 0.5)
        await asyncio.Event().wait()
        raise AssertionError


@needs_browser
@in_both_looks
async def test_error_pages_and_the_page_of_a_running_analysis_are_accessible(
    tmp_path: Path, browser: Browser, source: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    stage = open_stage(tmp_path / "data")
    pages = stage.parts().pages
    assert pages is not None
    jobs = Jobs(Endless(analyst=ANALYST), read_here)
    async with serving(stage.parts(pages=replace(pages, jobs=jobs))) as address:
        page = await browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        for path, status in (
            ("/runs/none", 404),
            ("/issues/none", 404),
            ("/runs?sort=x", 400),
            ("/compare?a=none", 404),
        ):
            answer = await page.goto(address + path)
            assert answer is not None
            assert answer.status == status
            assert await axe.violations(page, source) == []
        await page.goto(f"{address}/try")
        for file in (LOG_FILE | {"buffer": b""}, LOG_FILE):
            assert await axe.violations(page, source) == []
            await page.locator("input[type=file]").set_input_files(file)
            await page.get_by_role("button", name="Analyse").click()
            await page.locator(".notice.error, #job").wait_for()
        await page.get_by_role("button", name="Cancel").wait_for()
        assert await axe.violations(page, source) == []
        await page.get_by_role("button", name="Cancel").click()
        await page.get_by_text("Cancelled.").wait_for()
        assert await axe.violations(page, source) == []
    await jobs.close()
    stage.verdicts.close()
    stage.labels.close()


@needs_browser
async def test_each_bar_of_the_list_has_a_row_that_a_keyboard_reaches(site: Site, source: str) -> None:
    page = await site.open("/runs")
    await page.locator(".over-time summary").press("Enter")
    rows = page.locator(".over-time td:nth-child(2)")
    told = sum(int(text.replace(",", "")) for text in await rows.all_inner_texts())
    assert told == int((await page.locator(".over-time figcaption").inner_text()).split()[0].replace(",", ""))
    assert await axe.violations(page, source) == []
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.closest('.over-time tbody') !== null")


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_sign_in_page_is_accessible(
    tmp_path: Path, browser: Browser, source: str, scheme: Literal["light", "dark"]
) -> None:
    async with opened_site(tmp_path, browser, token="s3cret") as site:
        page = await site.open("/runs", color_scheme=scheme)
        assert await axe.violations(page, source) == []


@needs_browser
async def test_an_inaccessible_page_is_found(site: Site, source: str) -> None:
    page = await site.open("/try")
    await page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=data:,><input name=x>')"
    )
    assert {one["rule"] for one in await axe.violations(page, source)} >= {"image-alt", "label"}
    site.complaints.clear()  # the picture that is none is refused, as it should be
