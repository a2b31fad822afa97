"""What a scripted browser sees of each run in blamespan's pages and in Phoenix's.

A reason counts as visible once the words that show what is wrong are on the screen in a place that says whose
they are: in blamespan's sentence about the right agent, or in a step of that agent. Scrolling costs nothing.
"""

from __future__ import annotations

from typing import Final, Protocol

from playwright.async_api import Browser, Locator, Page

from benchmarks.beside.told_runs import ToldRun
from semconv.record import record
from tests.renderings.staging import Stage as Staged
from tests.web.browser import PATIENCE_MS

_LOOKS: Final = 10
_PAUSE_MS: Final = 100
_FAILED: Final = '[data-status-code="ERROR"]'
"""Where Phoenix marks a span of its tree as failed."""
_MARKS_MS: Final = 1_500
"""Milliseconds after which these marks are there: they come after the spans."""


@record
class Seen:
    """What was seen of one run."""

    is_marked: bool
    """Whether its row in the first list differs from that of a run that passed."""
    names_agent: bool
    """Whether a mark or a sentence names who broke it, rightly."""
    least: int | None
    """Clicks until the reason is visible for somebody who knows where it is; ``None`` if it never is."""
    in_order: int | None
    """The same for somebody who opens what is marked, and then one step after the other."""


class Reader(Protocol):
    """Reads the runs in the pages of one program."""

    async def read(self, told: ToldRun, trace_id: str) -> Seen:
        """Return what is seen of one run."""
        ...


class BlamespanReader:
    """Reads blamespan's list and its pages of runs."""

    def __init__(self, page: Page, url: str) -> None:
        self._page: Final = page
        self._url: Final = url

    async def read(self, told: ToldRun, trace_id: str) -> Seen:
        """As ``Reader.read``."""
        await self._page.goto(f"{self._url}/runs?limit=50")
        row = self._page.locator("tbody tr", has=self._page.locator(f'a[href="/runs/{trace_id}"]'))
        is_marked = "no_failure" not in (await row.get_attribute("class") or "")
        blamed = await _texts(row.locator(".who .agent"))
        is_right = bool(told.agent) and blamed == [told.agent]
        if is_right and told.shows in await row.inner_text():
            return Seen(is_marked=is_marked, names_agent=True, least=0, in_order=0)
        await row.locator(".task a").click()
        await self._page.wait_for_url("**/runs/*")
        if is_right and told.shows in await self._page.locator(".why").first.inner_text():
            return Seen(is_marked=is_marked, names_agent=True, least=1, in_order=1)
        least, in_order = await self._in_steps(told)
        return Seen(is_marked=is_marked, names_agent=is_right, least=least, in_order=in_order)

    async def _in_steps(self, told: ToldRun) -> tuple[int | None, int | None]:
        """Look at the steps as they are listed, then open those that are closed, the decisive ones first."""
        steps = await self._page.locator("ol.steps li.step").all()
        for step in steps:
            if await self._shows(step, told):
                return 1, 1
        marked = [("decisive" in (await step.get_attribute("class") or ""), step) for step in steps]
        ordered = [step for _, step in sorted(marked, key=lambda one: not one[0])]
        for clicks, step in enumerate(ordered, 2):
            await step.locator("summary").first.click()
            await _comes(step, told.shows)
            if await self._shows(step, told):
                return 2, clicks
        return None, None

    async def _shows(self, step: Locator, told: ToldRun) -> bool:
        agents = await _texts(step.locator("summary .agent"))
        return agents[:1] == [told.agent] and told.shows in await step.inner_text()


class PhoenixReader:
    """Reads Phoenix's list of root spans and its page of a trace."""

    def __init__(self, page: Page, url: str) -> None:
        self._page: Final = page
        self._url: Final = url

    async def read(self, told: ToldRun, trace_id: str) -> Seen:
        """As ``Reader.read``."""
        await self._page.goto(self._url)
        link = self._page.locator(f'a[href*="{trace_id}"]')
        row = self._page.locator("tbody tr", has=link)
        await row.wait_for()
        is_marked = await row.locator('[aria-label="ERROR"]').count() > 0
        await row.locator(link).first.click()
        owners = [scene.agent for scene in Staged(told.play).scenes]  # a node for each, in their order
        nodes = self._page.locator('[data-testid="trace-tree"] .span-node-wrap')
        await nodes.nth(len(owners) - 1).wait_for()
        await self._page.wait_for_timeout(_MARKS_MS)
        failed = [at for at in range(1, len(owners)) if await nodes.nth(at).locator(_FAILED).count()]
        names = bool(failed) and {owners[at] for at in failed} == {told.agent}
        if names and await self._shows(told):  # its page says what failed, and the tree who
            return Seen(is_marked=is_marked, names_agent=names, least=1, in_order=1)
        ordered = [*reversed(failed), *(at for at in range(1, len(owners)) if at not in failed)]
        for clicks, at in enumerate(ordered, 2):
            await nodes.nth(at).locator(".span-node__heading").click()
            if owners[at] == told.agent and await self._shows(told):
                return Seen(is_marked=is_marked, names_agent=names, least=2, in_order=clicks)
        return Seen(is_marked=is_marked, names_agent=names, least=None, in_order=None)

    async def _shows(self, told: ToldRun) -> bool:
        """Tell whether the opened span shows the words."""
        return await _comes(self._page.locator('[data-testid="span-details"]'), told.shows)


async def open_page(browser: Browser) -> Page:
    """Open a page of a usual size."""
    page = await browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    return page


async def _comes(place: Locator, words: str) -> bool:
    """Tell whether a place shows words, at once or after a moment."""
    for _ in range(_LOOKS):
        if words in await place.inner_text():
            return True
        await place.page.wait_for_timeout(_PAUSE_MS)
    return False


async def _texts(places: Locator) -> list[str]:
    return [text.strip() for text in await places.all_inner_texts()]
