"""MCP tools that start a backtest and watch it. Not pure: a backtest is a process of its own.

A client chooses the issue or run, never the command: that is the one which the user gave the last experiment
or backtest on the same service (``experiments.json``). The process runs in the server's folder and
environment, one at a time, within a number of model calls. It ends when its standard input does, so
with the server, however that ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from analyzer.api.mcp_answers import MOST_TEXT, answered, written
from analyzer.api.run_source import RunSource
from analyzer.experiment.kept_experiments import remembered
from analyzer.inquiry.errors import AnalyzerError
from analyzer.records.proof_records import Remembered
from collector_processor.otlp import CollectorError, Tenant

MOST_CALLS: Final = 1_000
"""Live model calls of one backtest that a client may ask for."""
MOST_WAIT_S: Final = 30.0
"""Longest time that one request waits for the end: clients give up after a minute or so."""
_MOST_ISSUES: Final = 1_000
_KEPT: Final = 20
"""Backtests whose results are kept, the newest ones."""
_STOP_S: Final = 10.0
"""Seconds in which a backtest ends its trials."""
_BOUND: Final = ("-m", "analyzer.service.bound_process", str(int(signal.SIGTERM)), "0", "analyzer")
"""Commands end their programs on SIGTERM; SIGINT may be ignored. 0 is the standard input."""
_CHUNK: Final = 1 << 16
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_STARTS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)


@dataclass(slots=True, kw_only=True)
class Backtest:
    """A backtest that was started."""

    id: str
    line: tuple[str, ...]
    """The words of the command, after its name."""
    process: asyncio.subprocess.Process
    progress: str = ""
    """The last line that it wrote about itself."""
    output: bytes = b""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def document(self) -> dict[str, Any]:
        """Return its state, with its result once it has ended."""
        document: dict[str, Any] = {
            "backtest": self.id,
            "state": "ended" if self.ended.is_set() else "running",
            "command": ["blamespan", *self.line],
            "progress": self.progress,
        }
        if self.ended.is_set():
            document |= {"exit_code": self.process.returncode, "result": _parsed(self.output)}
        return document


class Backtests:
    """The backtests of one server."""

    def __init__(self, data_dir: Path, tenant: str | None) -> None:
        """Create it; nothing is started.

        Args:
            data_dir: the data directory, whose commands and runs are used.
            tenant: the only tenant whose runs may be used; ``None`` for all.
        """
        self._data_dir: Final = data_dir
        self._tenant: Final = tenant
        self._started: Final[dict[str, Backtest]] = {}
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._starting: Final = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End what runs, before the event loop that watches it is gone."""
        for one in list(self._started.values()):
            await stop(one)

    def given(self, tenant: Tenant, service: str) -> Remembered:
        """Return what the user gave the last experiment or backtest on a service's runs.

        Raises:
            ToolError: nothing is known.
        """
        found = remembered(self._data_dir, tenant, service)
        if found is None:
            raise ToolError(
                "no command is known for the service of this run: ask the user to run `blamespan experiment"
                " RUN --check CHECK -- COMMAND` or `blamespan backtest` once; the next time it is used here"
            )
        return found

    async def start(self, subject: str, given: Remembered, passing: int, calls: int) -> Backtest:
        """Start a backtest of an issue or a run.

        Raises:
            ToolError: another one is running.
        """
        async with self._starting:  # requests come at the same time, and a start takes a while
            if running := next((one.id for one in self._started.values() if not one.ended.is_set()), None):
                raise ToolError(f"backtest {running} is running: wait for it with get_backtest")
            begun = await self._spawned(subject, given, passing, calls)
            self._started[begun.id] = begun
        for forgotten in list(self._started)[:-_KEPT]:
            del self._started[forgotten]
        task = asyncio.create_task(_followed(begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return begun

    async def _spawned(self, subject: str, given: Remembered, passing: int, calls: int) -> Backtest:
        options = ["--format", "json", "--passing", str(passing), "--max-calls", str(calls)]
        options += ["--tenant", self._tenant] if self._tenant is not None else []
        words = given.backtest(subject)
        line = (*words[:2], *options, *words[2:])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", *_BOUND, *line,
            env={**os.environ, "BLAMESPAN_DATA_DIR": str(self._data_dir)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        return Backtest(id=secrets.token_hex(4), line=line, process=process)

    def get(self, name: str) -> Backtest:
        """Return a backtest.

        Raises:
            ToolError: this server has not started it, or has forgotten it.
        """
        if name not in self._started:
            raise ToolError("no such backtest: expected `backtest` of start_backtest's answer")
        return self._started[name]


async def stop(one: Backtest) -> None:
    """End a backtest by the end of its input: its trials too, and it still says what they showed."""
    if one.ended.is_set():
        return
    assert one.process.stdin is not None
    one.process.stdin.close()
    try:
        await asyncio.wait_for(one.ended.wait(), _STOP_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)


async def _followed(one: Backtest) -> None:
    async def lines() -> None:
        assert one.process.stderr is not None
        while chunk := await one.process.stderr.read(_CHUNK):
            written = chunk.decode(errors="replace").strip().splitlines()
            one.progress = written[-1] if written else one.progress

    assert one.process.stdout is not None
    one.output, _, _ = await asyncio.gather(one.process.stdout.read(), lines(), one.process.wait())
    one.ended.set()


def _parsed(output: bytes) -> Any:
    try:
        return json.loads(output)
    except ValueError:
        return None


def add_backtest_tools(server: MCPServer, source: RunSource, backtests: Backtests) -> None:
    """Give a server the tools."""

    @server.tool(annotations=_STARTS, structured_output=False)
    async def start_backtest(subject: str, passing: int = 0, max_calls: int = 300) -> str:
        """Try the code of this folder on the failed runs of an issue: does it still fail where it failed?

        The command, the check and the tools are those that the user gave the last experiment or backtest on
        the service; they cannot be chosen here. The program runs, and calls its model. Watch with
        get_backtest: exit code 0 is a proved fix, 1 none, 3 undecided.

        Args:
            subject: the id of an issue, as in list_issues, or of a failed run.
            passing: replay this many passing runs of the workflow too, at most 20.
            max_calls: live model calls, at most 1000.
        """
        given = backtests.given(*await _service(source, subject))
        begun = await backtests.start(
            subject, given, max(0, min(passing, 20)), max(1, min(max_calls, MOST_CALLS))
        )
        return await written(begun.document(), MOST_TEXT)

    @server.tool(
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False), structured_output=False
    )
    async def get_backtest(backtest: str, wait_s: float = 20.0) -> str:
        """Return the state of a backtest, and its result once it has ended.

        Args:
            backtest: as in start_backtest's answer.
            wait_s: wait for its end up to this many seconds, at most 30.
        """
        one = backtests.get(backtest)
        with suppress(TimeoutError):
            await asyncio.wait_for(one.ended.wait(), max(0.0, min(wait_s, MOST_WAIT_S)))
        return await written(one.document(), MOST_TEXT)

    @server.tool(annotations=_STARTS, structured_output=False)
    async def stop_backtest(backtest: str) -> str:
        """End a backtest, and return what its trials showed."""
        one = backtests.get(backtest)
        await stop(one)
        return await written(one.document(), MOST_TEXT)


async def _service(source: RunSource, subject: str) -> tuple[Tenant, str]:
    """Return the tenant and the service of an issue or a run.

    The id is passed to a command that also takes files: one that could be an option or a file is refused.

    Raises:
        ToolError: there is no such issue or run.
    """
    if not _NAME.fullmatch(subject) or await asyncio.to_thread(Path(subject).exists):
        raise ToolError("subject: expected the id of an issue or a run")
    issues: list[Mapping[str, Any]] = (await answered(source.issues(_MOST_ISSUES)))["issues"]
    found = next((issue for issue in issues if issue["id"] == subject), None)
    try:
        found = found or await source.run(subject)
    except (AnalyzerError, CollectorError) as error:
        raise ToolError("subject: no such issue, and no such run") from error
    return Tenant(found["tenant"]), str(found["service"])
