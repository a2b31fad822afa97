"""A deleted run leaves no text in the service's memory, whatever the pages kept of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient
from aiohttp.web import Application, Request

from tests.runs import run, step
from tests.web.stage import Stage
from tests.web.test_pages import OURS, blame
from tests.web.test_try import ended

Client = TestClient[Request, Application]
SECRET = "eportoileh"[::-1]
"""A word that no other text has, not even the source of this file; the texts of the run have more than it."""
PATHS = (
    "/runs", "/runs?q=planner", "/runs/gone", "/runs/gone?find=planner", "/runs/gone/steps/0",
    "/compare?a=gone&b=stays", "/api/runs/gone/steps", "/runs/gone/report.html",
)  # fmt: skip


async def _add_runs(stage: Stage) -> None:
    """Add a run with the word and one without; neither is analysed, which would read its texts elsewhere."""
    for run_id, word in (("gone", SECRET), ("stays", "plain")):
        told = run(
            step("planner", f"# The {word} plan\n\n- **first** {word}"), step("clerk", f"filed {word} here"),
            run_id=run_id, task=f"Say {word} twice.", output=f"{word} and {word}",
        )  # fmt: skip
        await stage.add(told, "office", blame(told, 1, reason=f"wrote {word} once"))


async def _ask_again(client: Client) -> str:
    """Ask for a second opinion on the run; return the path of its page."""
    data = {"method": "signals"}
    async with client.post("/runs/gone/again", data=data, headers=OURS, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        path = answer.headers["Location"]
    assert SECRET in await ended(client, path)
    return path


async def _visit(client: Client) -> None:
    for path in PATHS:
        async with client.get(path) as answer:
            assert answer.status == 200, path
            await answer.read()


def _in_memory() -> Iterator[str]:
    """Return the texts with the word that an object of this process refers to."""
    gc.collect()
    objects = gc.get_objects()
    answers = [one for one in objects if isinstance(one, ClientResponse)]  # the browser's memory
    browser = {id(one) for one in answers} | {id(vars(one)) for one in answers}
    for holder in objects:
        if id(holder) in browser:
            continue
        for held in gc.get_referents(holder):
            text = held.decode(errors="replace") if isinstance(held, bytes) else held
            if isinstance(text, str) and SECRET in text and len(text) > len(SECRET) and text != __doc__:
                yield f"{type(holder).__name__}: {text[:200]}"


@pytest.mark.whole
@pytest.mark.parametrize("path", ["/api/runs/gone", "/api/runs?all=yes"])
async def test_a_deleted_run_is_gone_from_memory(stage: Stage, client: Client, path: str) -> None:
    await _add_runs(stage)
    await _visit(client)
    opinion = await _ask_again(client)
    assert list(_in_memory()) != []
    async with client.delete(path) as answer:
        assert answer.status == 200
    assert list(_in_memory()) == []
    for missing in ("/runs/gone", opinion):
        async with client.get(missing) as answer:
            assert answer.status == 404
