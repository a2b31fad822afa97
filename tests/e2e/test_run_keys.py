"""A run's page in a real browser, by keyboard alone: steps, errors, agents, search, texts, raw span."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.e2e.test_browser import Site, opened_site
from tests.web.browser import chromium
from tests.web.long_runs import add_spans, long_run
from tests.web.test_step_page import HOSTILE, hostile_spans

if chromium() is None and os.environ.get("BLAMESPAN_REQUIRE_BROWSER") != "true":
    pytest.skip("no Chromium here", allow_module_level=True)

pytestmark = pytest.mark.asyncio(loop_scope="session")

CURRENT = "document.activeElement.id"


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path, browser: Browser) -> AsyncIterator[Site]:
    async with opened_site(tmp_path, browser, token=None) as opened:
        yield opened


async def press(page: Any, *keys: str) -> str:
    """Press keys; return the id of the element that has the focus then."""
    for key in keys:
        await page.keyboard.press(key)
    found: str = await page.evaluate(CURRENT)
    return found


async def test_steps_are_walked_through_and_opened_by_keys(site: Site) -> None:
    page = await site.open(site.path("papers"))
    assert await press(page, "j") == "step-0"
    assert await press(page, "j", "j") == "step-2"
    assert await press(page, "k") == "step-1"
    opened = page.locator("#step-1 > details")
    assert await opened.get_attribute("open") is None
    await press(page, "Enter")
    await expect(page.locator("#step-1 .about")).to_be_visible()
    assert await press(page, "Escape") == "step-1"
    assert await opened.get_attribute("open") is None


async def test_keys_lead_to_errors_agents_and_the_decisive_step(site: Site) -> None:
    page = await site.open(site.path("papers"))
    assert await press(page, "e") == "step-2"
    assert await press(page, "e") == "step-2", "the only error comes again"
    assert await press(page, "n") == "step-7"
    assert await press(page, "n") == "step-8"
    assert await press(page, "N", "N") == "step-1"
    assert await press(page, "d") == (await page.locator("li.decisive").get_attribute("id"))


async def test_the_keys_are_explained_and_can_be_turned_off(site: Site) -> None:
    page = await site.open(site.path("papers"))
    await press(page, "?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await press(page, "j")
    await page.get_by_label("Single keys work on this page").press("Space")
    await press(page, "Escape")
    await expect(page.locator("#keys")).to_be_hidden()
    assert not (await press(page, "j")).startswith("step-")
    await page.reload()
    assert not (await press(page, "j")).startswith("step-"), "the choice is remembered"
    await page.get_by_role("button", name="Keys").click()
    await page.get_by_label("Single keys work on this page").press("Space")
    await press(page, "Escape")
    assert await press(page, "j") == "step-0"


async def test_a_search_is_typed_and_left_by_keyboard(site: Site) -> None:
    page = await site.open(site.path("papers"))
    assert await press(page, "/") == "find"
    await page.keyboard.type("jok")
    assert await page.locator("#find").input_value() == "jok", "letters are text there"
    await press(page, "Escape")
    assert await page.evaluate(CURRENT) != "find"
    await press(page, "/")
    await page.keyboard.type("lind-2023")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**find=lind-2023**")
    await expect(page.locator("li.step")).to_have_count(2)
    assert await press(page, "j", "j", "Enter") == "step-5"
    await expect(page.locator("#step-5 pre").first).to_be_visible()


async def test_a_long_runs_texts_are_loaded_when_a_step_is_opened(site: Site) -> None:
    page = await site.open(site.path("long"))
    await expect(page.locator("li.step")).to_have_count(260)
    assert await press(page, "j", "j", "Enter") == "step-1"
    await expect(page.locator("#step-1 .about")).to_be_visible()
    await expect(page.locator("#step-1 .actions")).to_contain_text("Link to this step")
    await page.locator("#step-1 .raw summary").press("Enter")
    await expect(page.locator("#step-1 .raw pre")).to_contain_text('"service.version": "2.4.1"')
    await page.goto(f"{page.url}?step=250#step-250")
    await expect(page.locator("#step-250 .about")).to_be_visible()
    assert await page.evaluate("document.querySelector('.overview .seen').getAttribute('x')") != "0"


async def test_repeated_steps_are_one_row_until_they_are_opened(site: Site) -> None:
    run_id = await add_spans(site.stage, long_run(345), "archive")
    page = await site.open(f"/runs/{run_id}?step=299#step-299")
    await expect(page.locator("#step-299 .about")).to_be_visible()
    await press(page, "j")
    assert await page.evaluate("document.activeElement.className") == "repeat current"
    assert not await page.locator("#step-301").is_visible()
    assert await press(page, "Enter", "j", "j") == "step-301"
    assert await page.locator("#step-301").is_visible()
    await press(page, "Escape")
    assert not await page.locator("#step-301").is_visible()
    await page.evaluate("location.hash = 'step-310'")
    await expect(page.locator("#step-310 .about")).to_be_visible()


async def test_a_text_is_copied_as_it_was_recorded(site: Site) -> None:
    page = await site.open(site.path("papers"))
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await press(page, "j", "Enter")
    button = page.locator("#step-0 .text:visible").last.get_by_role("button")
    await button.press("Enter")
    await expect(button).to_have_text("Copied")
    assert await page.evaluate("navigator.clipboard.readText()") == "First the archive, then a comparison."
    await page.locator("#step-0 .permalink").press("Enter")
    await expect(page.locator("#step-0 .permalink")).to_have_text("Link copied")
    address = await page.evaluate("navigator.clipboard.readText()")
    assert address == f"{site.address}{site.path('papers')}?step=0#step-0"
    other = await site.open(address.removeprefix(site.address), java_script_enabled=False)
    assert await other.locator("#step-0 .about").is_visible()


async def test_a_long_text_is_shown_whole_in_place(site: Site) -> None:
    run_id = await add_spans(
        site.stage, long_run(4, "words " * 3_000 + "until the end. " + "more " * 600), "archive"
    )
    page = await site.open(f"/runs/{run_id}?step=0#step-0")
    assert "until the end." not in await page.locator("#step-0").inner_text()
    await page.locator("#step-0 a.all").first.press("Enter")
    await expect(page.locator("#step-0")).to_contain_text("until the end.")


@pytest.mark.parametrize(
    "name", ["script", "hidden link", "code", "long line", "JSON with markup", "right to left"]
)
async def test_hostile_texts_that_are_loaded_later_do_nothing(site: Site, name: str) -> None:
    run_id = await add_spans(site.stage, hostile_spans(HOSTILE[name]), "shop")
    page = await site.open(f"/runs/{run_id}")
    for number in range(3):
        step = page.locator(f"#step-{number}")
        if await step.locator("details").first.get_attribute("open") is None:
            await step.locator("summary").first.click()
        if await step.locator("a.all:visible").count():
            await step.locator("a.all:visible").first.click()
            await expect(step.locator("a.all")).to_have_count(0)
        await step.locator(".raw summary").click()
        await step.locator(".raw pre").wait_for()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert await page.locator("main script, main img").count() == 0
