"""MCP's own client and server with a trial in between: recorded results, and no tool really runs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from analyzer.replay.gateway import serving
from analyzer.replay.options import GatewayOptions
from analyzer.replay.tape import RecordedTool, RemoteTools
from analyzer.replay.trial import TrialReport
from semconv.record import replace
from tests.backends.supervise import free_ports
from tests.frameworks.catalogue import catalogue
from tests.frameworks.install import python_of
from tests.tapes import tape, tool

SERVER: Final = """
import sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("orders")

@server.tool()
def book(seats: int) -> dict[str, int]:
    open(sys.argv[2], "a").write("booked")
    return {"ref": 9}

@server.tool()
def find(name: str) -> str:
    return f"{name} really has 85 seats"

server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"""
CLIENT: Final = """
import asyncio, json, os, sys
from mcp.client.client import Client

async def main():
    async with Client(os.environ["ORDERS_MCP"], mode=sys.argv[1]) as client:
        told = [sorted(tool.name for tool in (await client.list_tools()).tools)]
        for name, arguments in json.loads(sys.argv[2]):
            try:
                result = await client.call_tool(name, arguments)
                told.append([result.is_error, [block.text for block in result.content]])
            except Exception as error:
                told.append(str(error))
    print(json.dumps(told))

asyncio.run(main())
"""
DONE: Final = (
    replace(tool(0, "book", json.dumps({"ref": 7}), seats=12), is_ours=False),
    replace(tool(1, "find", "no such vessel", name="Odile"), is_ours=False, failed=True),
)


def interpreter() -> Path:
    found = python_of(catalogue()["openai_agents_genai"])
    if found is None:
        pytest.skip("not installed here; `python -m tests.frameworks.install openai_agents_genai` does it")
    return found


@asynccontextmanager
async def server(python: Path, folder: Path) -> AsyncIterator[str]:
    (port,) = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        python, "-c", SERVER, str(port), str(folder / "booked"), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(300):
            while not await listens(port):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def told(
    folder: Path, mode: str, *calls: tuple[str, Any], done: tuple[RecordedTool, ...] = DONE, **options: Any
) -> tuple[list[Any], TrialReport]:
    """Return the answers to MCP's client through a trial, and the trial's report."""
    python = interpreter()
    async with server(python, folder) as url:
        remote = RemoteTools(variable="ORDERS_MCP", tools=frozenset({"book"}), mcp_server=url)
        if "allow_tools" not in options:
            remote = replace(remote, tools=frozenset({"book", "find"}))
        async with serving(GatewayOptions(remotes=(remote,), **options)) as gateway:
            opened = gateway.open(tape(tools=done), lifetime_s=600)
            client = await asyncio.create_subprocess_exec(
                python,
                "-c",
                CLIENT,
                mode,
                json.dumps(calls),
                env={**os.environ, **gateway.environment(opened)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(300):
                out, err = await client.communicate()
            assert client.returncode == 0, err.decode()
            return json.loads(out), gateway.close(opened.trial)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_mcps_client_gets_recorded_results_and_nothing_is_booked(tmp_path: Path, mode: str) -> None:
    heard, report = await told(tmp_path, mode, ("book", {"seats": 12}), ("find", {"name": "Odile"}))
    assert heard == [["book", "find"], [False, ['{"ref": 7}']], [True, ["no such vessel"]]]
    assert (report.invalid, report.tools_served, report.tools_missing) == ("", 2, ())
    assert not (tmp_path / "booked").exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("book", {"seats": 13}, id="changed"),
        pytest.param("cancel", {"seats": 12}, id="unknown"),
    ],
)
async def test_a_call_that_is_not_recorded_fails_closed(tmp_path: Path, name: str, arguments: Any) -> None:
    heard, report = await told(tmp_path, "auto", (name, arguments))
    assert f"`{name}`" in str(heard[1])
    assert f"`{name}`" in report.invalid
    assert not (tmp_path / "booked").exists()


async def test_a_read_only_tool_is_answered_by_the_server_itself(tmp_path: Path) -> None:
    allowed = frozenset({"find"})
    heard, report = await told(tmp_path, "auto", ("find", {"name": "Aurora"}), allow_tools=allowed)
    assert heard[1] == [False, ["Aurora really has 85 seats"]]
    assert report.invalid == ""
