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

from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.tape import Answer, RecordedTool, RemoteTools
from analyzer.experiment.replay.trial import TrialReport
from semconv.dialects.reading.action import Message
from semconv.model import ToolCall
from semconv.record import replace
from tests.backends.supervise import accepts, free_ports
from tests.frameworks.catalogue import catalogue
from tests.frameworks.install import python_of
from tests.tapes import call, said, tape, tool

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

if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"""
CLIENT: Final = """
import asyncio, json, os, sys
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

async def main():
    server = os.environ.get("ORDERS_MCP") or stdio_client(StdioServerParameters(command="orders-mcp"))
    async with Client(server, mode=sys.argv[1]) as client:
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
AGENTS: Final = """
import asyncio
from agents import Agent, Runner, set_default_openai_api, set_tracing_disabled
from agents.mcp import MCPServerStdio

async def main():
    set_tracing_disabled(True)
    set_default_openai_api("chat_completions")
    async with MCPServerStdio(params={"command": "orders-mcp"}, client_session_timeout_seconds=60) as orders:
        agent = Agent(name="worker", instructions="Be brief.", model="gpt", mcp_servers=[orders])
        print((await Runner.run(agent, "Book 12 seats.")).final_output)

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
            while not await accepts(port):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


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


def in_path(python: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteTools:
    """Put a program that serves MCP over stdio where the workflow finds it."""
    (folder / "server.py").write_text(SERVER)
    program = folder / "orders-mcp"
    program.write_text(f"#!/bin/sh\nexec {python} {folder / 'server.py'} stdio {folder / 'booked'}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    names = frozenset({"book", "find"})
    return RemoteTools(variable="stdio-0", tools=names, command=("orders-mcp",), is_in_path=True)


async def ended(python: Path, program: str, *arguments: str, **variables: str) -> str:
    process = await asyncio.create_subprocess_exec(
        python,
        "-c",
        program,
        *arguments,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(180):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_mcps_client_gets_recorded_results_over_stdio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    python = interpreter()
    remote = in_path(python, tmp_path, monkeypatch)
    calls = json.dumps([("book", {"seats": 12}), ("find", {"name": "Odile"}), ("book", {"seats": 13})])
    async with serving(GatewayOptions(remotes=(remote,))) as gateway:
        opened = gateway.open(tape(tools=DONE), lifetime_s=600)
        heard = json.loads(await ended(python, CLIENT, mode, calls, **gateway.environment(opened)))
        report = gateway.close(opened.trial)
    assert heard[:3] == [["book", "find"], [False, ['{"ref": 7}']], [True, ["no such vessel"]]]
    assert "`book`" in heard[3]
    assert (report.tools_served, report.tools_missing) == (2, ())
    assert not (tmp_path / "booked").exists()


async def test_openai_agents_books_nothing_over_stdio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter()
    remote = in_path(python, tmp_path, monkeypatch)
    wanted = ToolCall(name="book", arguments='{"seats": 12}', call_id="c1")
    begin = said("Book 12 seats.")
    called = Message(role="assistant", text="", calls=(wanted,))
    result = Message(role="tool", text='{"ref": 7}', answers=("c1",))
    played = tape(
        call(0, messages=begin, answer=Answer(calls=(wanted,))),
        call(1, messages=(*begin, called, result), answer="Booked: 7."),
        tools=DONE[:1],
    )
    async with serving(GatewayOptions(remotes=(remote,))) as gateway:
        opened = gateway.open(played, lifetime_s=600)
        told = await ended(python, AGENTS, OPENAI_API_KEY="none", **gateway.environment(opened))
        report = gateway.close(opened.trial)
    assert (told.strip(), report.invalid) == ("Booked: 7.", "")
    assert (report.served, report.tools_served, report.tools_missing) == (2, 1, ())
    assert not (tmp_path / "booked").exists()
