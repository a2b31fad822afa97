"""A real browser for the pages: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from playwright.async_api import Browser, async_playwright

FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS: Final = 240_000
"""For whatever a browser is awaited to do: half a minute by default, in which a busy machine does little."""
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Return the browser's path, if there is one; ``BLAMESPAN_CHROMIUM`` takes precedence."""
    return os.environ.get("BLAMESPAN_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """Run a browser with a new, empty profile."""
    path = chromium()
    assert path is not None
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=list(FLAGS), timeout=PATIENCE_MS
        )
        try:
            yield browser
        finally:
            await browser.close()
