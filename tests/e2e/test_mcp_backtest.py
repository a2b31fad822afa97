"""A coding agent tries a fix over MCP: it chooses the issue, and the command is one that the user gave."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from analyzer.experiment.running.remembered import remember
from analyzer.records.proof_records import Remembered
from collector_processor.otlp import NO_TENANT, Tenant
from tests.e2e.test_backtest import CAREFUL, change, kept, project, recorded, serving
from tests.e2e.test_mcp import refused, told
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
