"""An aiohttp application served over loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


@asynccontextmanager
async def served(application: web.Application, **options: Any) -> AsyncIterator[str]:
    """Serve it on a free port until the block ends; yields its address. ``options`` are the runner's."""
    runner = web.AppRunner(application, shutdown_timeout=0.1, **options)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
