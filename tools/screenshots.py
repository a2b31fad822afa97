"""``python -m tools.screenshots FOLDER``: every page, wide and narrow, light and dark, as PNG files.

``python -m tools.screenshots --docs`` renews those in the documentation.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser

from tests.web.browser import browsing, chromium
from tests.web.showcase import shop_window, showcase
from tests.web.stage import serving

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = {"wide": 1280, "narrow": 390}
_HEIGHT = 900
DOCS = Path(__file__).parents[1] / "docs" / "images"
LARGEST = 200_000
"""Bound in bytes on a picture in the documentation."""


async def take(folder: Path) -> list[Path]:
    """Write the pictures; return their paths."""
    with tempfile.TemporaryDirectory() as data:
        stage, ids = await showcase(Path(data))
        pages = {
            **{name.replace(" ", "-"): path_of(name, id_) for name, id_ in ids.items()},
            "compare": f"/compare?a={ids['demo']}&b={ids['parallel']}",
            "runs": "/runs", "issues": "/issues", "workflows": "/workflows", "health": "/health",
            "try": "/try",
        }  # fmt: skip
        async with serving(stage.parts()) as address, browsing() as browser:
            return [
                await _take(browser, address + path, folder / f"{page}-{scheme}-{width}.png", scheme)
                for scheme, width, (page, path) in product(SCHEMES, WIDTHS, pages.items())
            ]


def path_of(name: str, id_: str) -> str:
    """Return the path of the page of a run, an issue or a workflow, which is its own."""
    if name.endswith(" workflow"):
        return id_
    return f"/{'issues' if name.endswith(' issue') else 'runs'}/{id_}"


async def _take(browser: Browser, address: str, path: Path, scheme: Literal["light", "dark"]) -> Path:
    width = WIDTHS[path.stem.rpartition("-")[2]]
    page = await browser.new_page(viewport={"width": width, "height": _HEIGHT}, color_scheme=scheme)
    answer = await page.goto(address)
    assert answer is not None
    assert answer.ok, address
    await page.screenshot(path=path, full_page=True)
    await page.close()
    return path


async def take_for_docs(folder: Path) -> list[Path]:
    """Write the visible top of some pages, light and dark; return their paths."""
    with tempfile.TemporaryDirectory() as data:
        stage, ids = await shop_window(Path(data))
        pages = {
            "runs": "/runs", "run": f"/runs/{ids['run']}", "issue": f"/issues/{ids['issue']}",
            "steps": f"/runs/{ids['run']}?step=9#step-9",
            "compare": f"/compare?a={ids['failed']}&b={ids['passed']}",
        }  # fmt: skip
        paths = []
        async with serving(stage.parts()) as address, browsing() as browser:
            for scheme, (name, page) in product(SCHEMES, pages.items()):
                viewport = {"width": WIDTHS["wide"], "height": 500 if name == "runs" else 820}
                opened = await browser.new_page(viewport=viewport, color_scheme=scheme)  # type: ignore[arg-type]
                await opened.goto(address + page)
                if name == "runs":
                    await opened.locator("#live").wait_for(state="visible")
                path = folder / f"{name}-{scheme}.png"
                await opened.screenshot(path=path)
                assert path.stat().st_size <= LARGEST, path
                paths.append(path)
    return paths


def main() -> None:
    """Take the pictures."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.screenshots FOLDER, or --docs")
    if chromium() is None:
        sys.exit("no Chromium here: install it, or say where it is with BLAMESPAN_CHROMIUM")
    is_for_docs = sys.argv[1] == "--docs"
    folder = DOCS if is_for_docs else Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for path in asyncio.run(take_for_docs(folder) if is_for_docs else take(folder)):
        print(path)


if __name__ == "__main__":
    main()
