"""Starts ``blamespan`` by forking a process that has imported it already.

Imports are three quarters of what a start costs (1.6 of 2.2 s of CPU), and tests start hundreds of services.
How a fresh interpreter starts is tested by the demo, the wheel, the kill rounds and the tests of commands.

Run as a program, this file is that process. It reads one JSON object a line and answers each with one number.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, Protocol

PRELOADED: Final = (
    "analyzer.cli.commands.serve",
    "analyzer.service.pages_alone",  # the other parts of the service
    "analyzer.analyses.prepare",  # what a service with a model, or without workers, imports to judge runs
    "analyzer.analyses.analyst",
)
"""Modules that a service imports, at once or later."""
_POLL_S: Final = 0.02
_RUNNING: Final = -1000
"""The answer about a process that has not ended; no exit code is as low."""
_FAR_BEYOND: Final = 4096
"""Above any descriptor that imports leave open."""


class Process(Protocol):
    """What tests use of a ``subprocess.Popen``."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class Forked:
    """A process that the parent of services started; it leads a group of its own."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code if it has ended, the negative number of a signal that ended it."""
        if self.returncode is None:
            answer = _parent()(poll=self.pid)
            self.returncode = None if answer == _RUNNING else answer
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when it has ended.

        Raises:
            subprocess.TimeoutExpired: it did not within ``timeout`` seconds.
        """
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked service", timeout or 0.0)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, sig: int) -> None:
        """Send it a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def fork(command: Sequence[str], environ: Mapping[str, str] | None, log: Path) -> Process:
    """Run ``python -m MODULE …`` or ``python FILE …``; what it prints is appended to ``log``."""
    python, *arguments = command
    assert python == sys.executable, command
    log.touch()  # callers read it at once
    return Forked(pid=_parent()(run=arguments, environ=dict(environ or os.environ), log=str(log)))


@cache
def _parent() -> Callable[..., int]:
    """Start the parent of services, once in a test process; it ends with that."""
    command = [sys.executable, "-m", __name__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(process.communicate)

    def ask(**order: object) -> int:
        given, answers = process.stdin, process.stdout
        assert given
        assert answers
        given.write(json.dumps(order).encode() + b"\n")
        given.flush()
        return int(answers.readline())

    return ask


def _serve(orders: IO[bytes], answers: IO[bytes]) -> dict[str, Any] | None:
    """Answer orders until their end; return the order to run in a child, None in the parent."""
    for line in iter(orders.readline, b""):
        order = json.loads(line)
        if "poll" in order:
            answer = _ended(order["poll"])
        elif not (answer := os.fork()):
            return dict(order)
        answers.write(b"%d\n" % answer)
        answers.flush()
    return None


def _ended(pid: int) -> int:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else _RUNNING


def _run(order: dict[str, Any]) -> None:
    """Become the ordered program: its session, streams, environment and arguments."""
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number, source in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(source, number)
    os.closerange(3, _FAR_BEYOND)
    os.environ.clear()
    os.environ.update(order["environ"])
    first, *rest = order["run"]
    if first == "-m":
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = order["run"]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    for module in PRELOADED:
        import_module(module)
    gc.freeze()  # collections in children would copy the pages of all that was imported
    if (ordered := _serve(sys.stdin.buffer, sys.stdout.buffer)) is not None:
        _run(ordered)
