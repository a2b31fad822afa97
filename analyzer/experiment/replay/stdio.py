"""Stand-ins for the programs that serve MCP over stdio: files that a trial's environment puts in their place.

MCP's clients start a server with few variables of their environment, but always with its ``PATH``. So a
stand-in is a file with the program's name in a folder that precedes all others in ``PATH``, and contains all
that it needs to know. Not pure.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from analyzer.experiment.replay.tape import RemoteTools
from semconv.emit.tool_playback import TRIAL_VARIABLE

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
        for each in remotes:
            if each.command:
                self._folder = self._folder or TemporaryDirectory(prefix="blamespan-trial-")
                program, server = self._server(each, Path(self._folder.name), root_url)
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
    root = Path(__file__).parents[2]
    command = shlex.join([sys.executable, "-I", "-c", _START, str(root), str(settings)])
    # The variable marks processes that outlive the trial: MCP's clients do not pass it on.
    lines = ("#!/bin/sh", f"export {TRIAL_VARIABLE}={shlex.quote(root_url)}", f'exec {command} "$@"', "")
    file = folder / program
    file.write_text("\n".join(lines), encoding="utf-8")
    file.chmod(0o700)
