"""Simulated people who analyse files without pause, on our page and ag2tracer's, for the pages``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import ClientSession, ClientTimeout, CookieJar, FormData

MODEL: Final = "openai/slow"
LOG: Final[dict[str, Any]] = {
    "history": [
        {"role": "user", "name": "planner", "content": "Ask the clerk what 84 panels of 0.41 kW give."},
        *({"role": "assistant", "name": f"clerk {turn}", "content": "word " * 400} for turn in range(30)),
        {"role": "assistant", "name": "writer", "content": "They give 35 kW."},
    ],
    "question": "How many kW do 84 panels of 0.41 kW give?",
    "ground_truth": "34.44",
}
_FILE: Final = json.dumps(LOG).encode()
_OURS: Final = {"Sec-Fetch-Site": "same-origin"}
_POLL_S: Final = 0.7
"""Polling interval of the page's script."""
_PATIENT: Final = ClientTimeout(total=600)

Analyse = Callable[[ClientSession, str], Awaitable[None]]
"""Analyses the file once, on the page at an address."""


@dataclass(slots=True)
class Done:
    """Number of completed analyses, and whether to stop."""

    analyses: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)


def ours(method: str) -> Analyse:
    """Return a function that analyses on our page by a method."""

    async def analyse(session: ClientSession, address: str) -> None:
        form = FormData({"method": method, "failed": "yes"})
        form.add_field("file", _FILE, filename="log.json")
        async with session.post(f"{address}/try", data=form, headers=_OURS, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()
            job = answer.headers["Location"]
        while True:
            async with session.get(f"{address}{job}/state") as answer:
                state = await answer.json()
            if state["over"]:
                assert state["state"] == "done"
                return
            await asyncio.sleep(_POLL_S)

    return analyse


async def theirs(session: ClientSession, address: str) -> None:
    """Analyse on ag2tracer's page."""
    form = FormData()
    form.add_field("file", _FILE, filename="log.json")
    async with session.post(f"{address}/api/upload", data=form) as answer:
        assert answer.status == 200, await answer.text()
    asked = {"method": "all_at_once", "model": MODEL}
    async with session.post(f"{address}/api/analyze", json=asked) as answer:
        assert answer.status == 200, await answer.text()


async def work(analyse: Analyse, address: str, people: int, done: Done) -> None:
    """Let people analyse repeatedly until ``enough``."""

    async def person() -> None:
        async with ClientSession(cookie_jar=CookieJar(unsafe=True), timeout=_PATIENT) as session:
            while not done.enough.is_set():
                await analyse(session, address)
                done.analyses += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(people):
            group.create_task(person())
