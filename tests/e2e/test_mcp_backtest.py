"""A coding agent tries a fix over MCP: it chooses the issue, and the command is one that the user gave."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from analyzer.experiment.kept_experiments import remember
from analyzer.records.proof_records import Remembered
from collector_processor.otlp import NO_TENANT, Tenant
from tests.e2e.test_backtest import CAREFUL, change, kept, project, recorded, serving
from tests.e2e.test_mcp import listening, refused, told
from tests.e2e.test_run_command import environment
from tests.issues import Bench

__all__ = ["project", "recorded"]

GIVEN = Remembered(
    options=("--expect", "3,630", "--allow-tool", "sales"), command=(sys.executable, "report.py")
)


@asynccontextmanager
async def session(folder: Path, url: str) -> AsyncIterator[Client]:
    """Start the server in the folder of the program, as a coding agent does."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "analyzer", "mcp", "--data-dir", "data", "--allow-writes"],
        env={**environment(OPENAI_BASE_URL=url), "PYTHONPATH": str(Path.cwd())},
        cwd=folder,
    )
    async with Client(server) as client:
        yield client


async def ended(client: Client, name: str) -> Mapping[str, Any]:
    for _ in range(20):
        found = await told(client, "get_backtest", backtest=name, wait_s=15)
        if found["state"] == "ended":
            return found
    raise AssertionError(found)


async def test_from_an_issue_to_a_proved_fix(project: Path) -> None:
    issue = await asyncio.to_thread(kept, project, {"run": "failed", "good": "passed"})
    with serving() as url:
        async with session(project, url) as client:
            assert remember(project / "data", Tenant("x-scope-orgid=another"), "sales", GIVEN)
            why = await refused(client, "start_backtest", subject=issue)
            assert "no command is known for the service of this run" in why
            assert remember(project / "data", NO_TENANT, "sales", GIVEN)
            change(project, ("You are the analyst.", "You are the analyst. Be nice."))
            (listed,) = (await told(client, "list_issues"))["issues"]
            begun = await told(client, "start_backtest", subject=listed["id"], max_calls=200)
            assert begun["state"] == "running"
            assert begun["command"][-3:] == ["--", sys.executable, "report.py"]
            assert begun["backtest"] in await refused(client, "start_backtest", subject=issue)
            found = await ended(client, begun["backtest"])
            assert (found["exit_code"], found["result"]["verdict"]) == (1, "not_fixed"), found
            change(project, CAREFUL)
            begun = await told(client, "start_backtest", subject=issue, passing=1)
            found = await ended(client, begun["backtest"])
            assert (found["exit_code"], found["result"]["verdict"]) == (0, "fixed"), found
            assert found["result"]["passing"]["held"] == 1
            assert (await told(client, "stop_backtest", backtest=begun["backtest"]))["state"] == "ended"
    bench = Bench(folder=project / "data")
    (state,) = [one.state.value for one in bench.all(0)]
    bench.close()
    assert state != "resolved", "a client proves a fix; a person says that it is released"


async def test_a_client_chooses_neither_a_command_nor_a_file(project: Path) -> None:
    await asyncio.to_thread(kept, project, {"run": "failed"})
    assert remember(project / "data", NO_TENANT, "sales", GIVEN)
    with serving() as url:
        async with session(project, url) as client:
            for subject in (
                "run.json",
                "--help",
                "./run.json",
                "/etc/passwd",
                "a b",
                "",
                "-",
                "none",
                "$(x)",
            ):
                assert "subject: " in await refused(client, "start_backtest", subject=subject), subject
            assert "no such backtest" in await refused(client, "get_backtest", backtest="none")
            names = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
            assert set(names["start_backtest"]["properties"]) == {"subject", "passing", "max_calls"}


async def test_a_backtest_is_stopped_with_what_it_showed_and_ends_with_the_server(project: Path) -> None:
    issue = await asyncio.to_thread(kept, project, {"run": "failed"})
    slow = Remembered(options=GIVEN.options, command=(sys.executable, "-c", "import time; time.sleep(600)"))
    assert remember(project / "data", NO_TENANT, "sales", slow)
    with serving() as url:
        async with session(project, url) as client:
            begun = await told(client, "start_backtest", subject=issue)
            found = await told(client, "stop_backtest", backtest=begun["backtest"])
            assert found["state"] == "ended", found
            assert found["exit_code"] != 0


async def test_of_requests_at_the_same_time_one_starts_a_backtest(project: Path) -> None:
    issue = await asyncio.to_thread(kept, project, {"run": "failed"})
    assert remember(project / "data", NO_TENANT, "sales", sleeping(project))
    with serving() as url:
        async with session(project, url) as client:
            calls = (client.call_tool("start_backtest", {"subject": issue}) for _ in range(5))
            assert sorted(one.is_error for one in await asyncio.gather(*calls)) == [False, *[True] * 4]


def sleeping(project: Path) -> Remembered:
    """Return a program that says who it and its parent are, and goes on."""
    program = (
        "import os, time\n"
        f"with open({str(project / 'pids')!r}, 'w') as file:\n"
        "    file.write(f'{os.getpid()} {os.getppid()}\\n')\n"
        "time.sleep(600)"
    )
    return Remembered(options=GIVEN.options, command=(sys.executable, "-c", program))


@asynccontextmanager
async def over_http(folder: Path, url: str) -> AsyncIterator[Client]:
    arguments = ("--data-dir", str(folder / "data"), "--allow-writes")
    async with (
        listening(*arguments, token="secret", OPENAI_BASE_URL=url) as place,
        httpx2.AsyncClient(headers={"Authorization": "Bearer secret"}) as http,
        Client(streamable_http_client(place, http_client=http)) as client,
    ):
        yield client


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, None], ids=["term", "kill", "end"])
@pytest.mark.parametrize("connected", [session, over_http])
async def test_a_backtest_and_its_program_end_with_the_server_however_it_ends(
    project: Path, connected: Any, number: signal.Signals | None
) -> None:
    issue = await asyncio.to_thread(kept, project, {"run": "failed"})
    assert remember(project / "data", NO_TENANT, "sales", sleeping(project))
    with serving() as url, suppress(*([MCPError, httpx2.TransportError] if number else [])):
        async with connected(project, url) as client:
            await told(client, "start_backtest", subject=issue)
            program, backtest = await asyncio.to_thread(written, project / "pids")
            if number is not None:
                os.kill(int(facts(backtest)[1]), number)
                await asyncio.to_thread(gone, program, backtest)
    await asyncio.to_thread(gone, program, backtest)


def written(place: Path) -> tuple[int, int]:
    until(lambda: place.exists() and place.read_text().endswith("\n"))
    program, backtest = map(int, place.read_text().split())
    return program, backtest


def gone(*pids: int) -> None:
    until(lambda: not any(map(lives, pids)))


def until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def lives(pid: int) -> bool:
    with suppress(OSError):
        return facts(pid)[0] != "Z"
    return False


def facts(pid: int) -> list[str]:
    """Return what the kernel says of a process, from its state and its parent on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
