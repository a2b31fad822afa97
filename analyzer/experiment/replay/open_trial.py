"""Open trial of a gateway: its address, its end, the requests that end with it, and its stand-ins over stdio.

MCP's clients start a server with few variables of their environment, but always with its ``PATH``. So a
stand-in is a file with the program's name in a folder that precedes all others in ``PATH``, and contains all
that it needs to know. Not pure.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from analyzer.experiment.replay.tape import RemoteTools
from analyzer.experiment.replay.trial import Trial, TrialReport
from analyzer.experiment.replay.upstream import TIMEOUT
from semconv.emit.tool_playback import TRIAL_VARIABLE
from semconv.record import record

_START: Final = (
    "import sys; sys.path.append(sys.argv[1]); from analyzer.experiment.replay.stdio_server import main;"
    " main(sys.argv[2], sys.argv[3:])"
)
_OWN: Final = "blamespan-mcp-"
"""Prefix of the names of stand-ins that are reached only through a variable."""


class StandIns:
    """The stand-ins of one trial, in a folder that only this user may read: they hold the trial's address."""

    def __init__(self, remotes: Iterable[RemoteTools], root_url: str) -> None:
        """Write them; nothing is written if no tool has a command.

        Raises:
            OSError: they cannot be written.
        """
        self.environment: Final[dict[str, str]] = {}
        """Environment variables through which the workflow finds them."""
        self._folder: TemporaryDirectory[str] | None = None
        programs: dict[str, list[dict[str, Any]]] = {}
        for remote in remotes:
            if remote.command:
                self._folder = self._folder or TemporaryDirectory(prefix="blamespan-trial-")
                program, server = self._server(remote, Path(self._folder.name), root_url)
                programs.setdefault(program, []).append(server)
        for program, servers in programs.items():
            assert self._folder is not None
            servers.sort(key=lambda server: -len(server["prefix"]))  # the most specific first
            _write(Path(self._folder.name), program, servers, root_url)

    def _server(self, tools: RemoteTools, folder: Path, root_url: str) -> tuple[str, dict[str, Any]]:
        url = f"{root_url}/at/{tools.variable}"
        if tools.is_in_path:
            program, *prefix = tools.command
            self.environment["PATH"] = os.pathsep.join([str(folder), *os.get_exec_path()])
            return program, {"prefix": prefix, "runs": [program, *prefix], "url": url}
        program = f"{_OWN}{tools.variable}"
        self.environment[tools.variable] = str(folder / program)
        return program, {"prefix": [], "runs": tools.command, "url": url}

    def remove(self) -> None:
        """Remove them."""
        if self._folder is not None:
            self._folder.cleanup()


def _write(folder: Path, program: str, servers: list[dict[str, Any]], root_url: str) -> None:
    settings = folder / f"{program}.json"
    document = {"folder": str(folder), "program": program, "servers": servers}
    settings.write_text(json.dumps(document), encoding="utf-8")
    root = Path(__file__).parents[3]
    command = shlex.join([sys.executable, "-I", "-c", _START, str(root), str(settings)])
    # The variable marks processes that outlive the trial: MCP's clients do not pass it on.
    lines = ("#!/bin/sh", f"export {TRIAL_VARIABLE}={shlex.quote(root_url)}", f'exec {command} "$@"', "")
    file = folder / program
    file.write_text("\n".join(lines), encoding="utf-8")
    file.chmod(0o700)


_HANGING_SHARE: Final = 0.5
"""A live call that its client gave up counts as the upstream's failure if it took this share of the trial's
time: in a workflow that loops until the time limit, a call has nearly always just begun."""


@record
class OpenTrial:
    """A trial that may be used until it expires."""

    trial: str
    """128 random bits; any client that knows the id may use the trial."""
    root_url: str
    """``http://HOST:PORT/t/TRIAL``"""

    @property
    def base_url(self) -> str:
        """The base URL for OpenAI's clients; Anthropic's append ``/v1`` themselves."""
        return f"{self.root_url}/v1"


class RunningTrial:
    """One open trial in the gateway: its requests under way, and when it ends."""

    def __init__(self, trial: Trial, lifetime_s: float, stand_ins: StandIns) -> None:
        self.trial: Final = trial
        self.expires_s: Final = time.monotonic() + lifetime_s
        self._hanging_s: Final = lifetime_s * _HANGING_SHARE
        self.stand_ins: Final = stand_ins
        self.served: Final[dict[str, list[Any]]] = {}
        """The conversation up to each served response of OpenAI's responses API, by its id."""
        self.live: Final[dict[int, float]] = {}
        """Start times of live calls under way, by serial number."""
        self._under_way: Final[set[asyncio.Timeout]] = set()

    @asynccontextmanager
    async def until_its_end(self) -> AsyncIterator[None]:
        """Bound a request to an upstream by the trial: an answer may trickle without end.

        Raises:
            TimeoutError: the trial expired or was closed meanwhile.
        """
        async with asyncio.timeout(max(0.0, self.expires_s - time.monotonic())) as limit:
            self._under_way.add(limit)
            try:
                yield
            finally:
                self._under_way.discard(limit)

    def is_hanging(self, began_s: float) -> bool:
        """Say whether a live call takes so long that the trial's time is spent on it."""
        return time.monotonic() - began_s >= self._hanging_s

    def end(self) -> TrialReport:
        """End its requests under way, and return its report."""
        for serial in [serial for serial, began_s in self.live.items() if self.is_hanging(began_s)]:
            del self.live[serial]
            self.trial.failed(serial, TIMEOUT)
        for limit in self._under_way:
            if not limit.expired():
                limit.reschedule(0.0)
        self.stand_ins.remove()
        return self.trial.report()
