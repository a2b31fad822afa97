"""MCP servers over stdio in a trial: a stand-in plays recorded results, and no declared tool really runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import Gateway, serving
from analyzer.experiment.replay.open_trial import OpenTrial
from analyzer.experiment.replay.tape import RemoteTools
from semconv.emit.tool_playback import TRIAL_VARIABLE
from semconv.record import replace
from tests.tapes import tape, tool

SERVER: Final = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(asked["method"] + "\\n")
    if "id" not in asked:
        continue
    if asked["method"] == "tools/list":
        result = {"tools": [{"name": "book", "outputSchema": {"type": "object"}}]}
    else:
        result = {"argv": sys.argv[1:], "really": asked["method"]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
if sys.argv[-1] == "--fails":
    sys.exit(3)
"""
DONE: Final = (replace(tool(0, "orders__book", "ref 7", seats=12), is_ours=False),)
PATIENCE_S: Final = 60.0


def server(folder: Path) -> Path:
    """A program in a folder of its own that serves MCP, as far as a stand-in reads it."""
    place = folder / "bin"
    place.mkdir()
    program = place / "orders-mcp"
    (folder / "server.py").write_text(SERVER)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {folder / "server.py"} "$@"\n')
    program.chmod(0o755)
    return program


def in_path(program: Path, *more: str) -> RemoteTools:
    names = frozenset({"orders__book"})
    return RemoteTools(variable="stdio-0", tools=names, command=(program.name, *more), is_in_path=True)


def by_variable(program: Path) -> RemoteTools:
    command = (str(program), "--all")
    return RemoteTools(variable="ORDERS", tools=frozenset({"orders__book"}), command=command)


@dataclass
class Around:
    """A trial, and what a client of MCP passes on of its environment."""

    gateway: Gateway
    opened: OpenTrial
    known: dict[str, str]
    seen: Path

    async def said(self, command: list[str], *messages: Any) -> tuple[list[Any], int | None]:
        """Return what a server answers to a client that then closes its input, and its exit code."""
        kept = {"PATH": self.known["PATH"], "SEEN": str(self.seen)}
        process = await asyncio.create_subprocess_exec(
            *command, env=kept, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        lines = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in messages)
        async with asyncio.timeout(PATIENCE_S):
            output, _ = await process.communicate(lines.encode())
        return [json.loads(line) for line in output.splitlines()], process.returncode

    def reached(self) -> list[str]:
        return self.seen.read_text().split() if self.seen.exists() else []


@asynccontextmanager
async def trial(
    monkeypatch: pytest.MonkeyPatch, program: Path, remote: RemoteTools, **options: Any
) -> AsyncIterator[Around]:
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    async with serving(GatewayOptions(remotes=(remote,), **options)) as gateway:
        opened = gateway.open(tape(tools=DONE), lifetime_s=600)
        known = {**os.environ, **gateway.environment(opened)}
        yield Around(gateway=gateway, opened=opened, known=known, seen=program.parent / "seen")


def asks(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


BOOKS: Final = asks(2, "tools/call", name="book", arguments={"seats": 12})


async def test_a_recorded_result_comes_from_the_tape_and_the_rest_from_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = server(tmp_path)
    async with trial(monkeypatch, program, in_path(program)) as around:
        heard, code = await around.said(
            [program.name, "--verbose"], asks(0, "initialize"), asks(1, "tools/list"), BOOKS
        )
        report = around.gateway.report(around.opened.trial)
    found = {each["id"]: each["result"] for each in heard}
    assert found[0] == {"argv": ["--verbose"], "really": "initialize"}
    assert found[1] == {"tools": [{"name": "book"}]}
    assert found[2]["content"] == [{"type": "text", "text": "ref 7"}]
    assert (report.tools_served, report.invalid, report.tools_missing, code) == (1, "", (), 0)
    assert around.reached() == ["initialize", "tools/list"]


async def test_a_variable_may_hold_the_command_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = server(tmp_path)
    async with trial(monkeypatch, program, by_variable(program)) as around:
        heard, _ = await around.said([around.known["ORDERS"], "--more"], asks(0, "initialize"), BOOKS)
    found = {each["id"]: each["result"] for each in heard}
    assert found[0]["argv"] == ["--all", "--more"]
    assert found[2]["content"] == [{"type": "text", "text": "ref 7"}]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(asks(2, "tools/call", name="book", arguments={"seats": 13}), id="other arguments"),
        pytest.param(asks(2, "tools/call", name="cancel", arguments={}), id="another tool"),
        pytest.param(asks(2, "tasks/cancel"), id="an unknown method"),
        pytest.param([BOOKS], id="a batch"),
        pytest.param("{", id="no JSON"),
    ],
)
async def test_nothing_else_reaches_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: Any
) -> None:
    program = server(tmp_path)
    async with trial(monkeypatch, program, in_path(program)) as around:
        heard, _ = await around.said([program.name], message)
    assert [each["error"]["message"].startswith("blamespan: ") for each in heard] == [True]
    assert around.reached() == []


async def test_a_read_only_tool_really_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = server(tmp_path)
    allowed = frozenset({"find"})
    async with trial(monkeypatch, program, in_path(program), allow_tools=allowed) as around:
        heard, _ = await around.said([program.name], asks(1, "tools/call", name="find", arguments={}))
    assert heard[0]["result"]["really"] == "tools/call"


async def test_a_server_gets_nothing_once_its_trial_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = server(tmp_path)
    async with trial(monkeypatch, program, by_variable(program)) as around:
        stand_in = Path(around.known["ORDERS"])
        kept = {each.name: each.read_text() for each in stand_in.parent.iterdir()}
        around.gateway.close(around.opened.trial)
        assert not stand_in.parent.exists()
        stand_in.parent.mkdir()  # as if the workflow had started it just before
        for name, text in kept.items():
            (stand_in.parent / name).write_text(text)
        heard, _ = await around.said(["/bin/sh", str(stand_in)], asks(0, "initialize"), BOOKS)
        for name in kept:
            (stand_in.parent / name).unlink()
        stand_in.parent.rmdir()
    assert [each["error"]["message"] for each in heard] == [
        "blamespan: the replay gateway does not answer: no such trial, or it has expired"
    ] * 2
    assert around.reached() == []


async def test_other_commands_of_the_same_program_run_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = server(tmp_path)
    async with trial(monkeypatch, program, in_path(program, "serve")) as around:
        heard, code = await around.said([program.name, "other", "--fails"], BOOKS)
        report = around.gateway.report(around.opened.trial)
    assert heard[0]["result"] == {"argv": ["other", "--fails"], "really": "tools/call"}
    assert (code, report.tools_served) == (3, 0)


async def test_the_servers_exit_code_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = server(tmp_path)
    async with trial(monkeypatch, program, in_path(program)) as around:
        _, code = await around.said([program.name, "--fails"], asks(0, "initialize"))
    assert code == 3


async def test_processes_of_a_stand_in_are_known_by_the_trials_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MCP's clients start a server in a session of its own, and pass on few variables."""
    program = server(tmp_path)
    reading = f"import json, os; print(json.dumps(os.environ['{TRIAL_VARIABLE}']))"
    (tmp_path / "server.py").write_text(reading)
    async with trial(monkeypatch, program, in_path(program)) as around:
        heard, _ = await around.said([program.name])
    assert heard == [around.opened.root_url]


async def test_the_folder_of_the_stand_ins_is_this_users_own_and_goes_with_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = server(tmp_path)
    async with trial(monkeypatch, program, by_variable(program)) as around:
        folder = Path(around.known["ORDERS"]).parent
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()
