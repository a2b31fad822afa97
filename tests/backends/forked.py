"""Starts ``blamespan`` by forking a process that has imported it already.

Imports are three quarters of what a start costs (1.6 of 2.2 s of CPU for a service, 1.1 of 1.4 s for a
command), and tests start hundreds. The first processes that a service starts (its pages, a worker) are forked
too, by the service before it has threads: they wait for what to run. Later ones, such as those that replace a
killed one, start afresh. How a fresh interpreter starts is tested by the demo, the wheel, the kill rounds,
documented commands and the tests of imports.

Run as a program, this file is that process. It reads one JSON object a line and answers each with one number.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import IO, Any, Final, Protocol, cast

PRELOADED: Final = (
    "analyzer.cli.commands.serve",
    "analyzer.service.pages_alone",  # the other parts of the service
    "analyzer.analyses.prepare",  # what a service with a model, or without workers, imports to judge runs
    "analyzer.analyses.analyst",
    "analyzer.analyses.worker",
    *(
        f"analyzer.cli.commands.{name}"
        for name in ("backtest", "experiment", "inject", "issues", "map", "pin")
    ),
    *(f"analyzer.cli.commands.{name}" for name in ("doctor", "label", "replay", "run", "runs", "steps")),
)
"""Modules that a service, its processes and the commands import, at once or later."""
LITELLM: Final = "litellm"
"""What a service with a model imports too, in 3 s of CPU: a parent of their own has it."""
SPARES: Final = 2
"""Processes that most services start: the pages and one worker."""
_AT_START: Final = ("LD_", "PYTHON")
"""What the variables begin with that are read before a program runs; ``PYTHONPATH`` is taken later, too."""
_POLL_S: Final = 0.02
_RUNNING: Final = -1000
"""The answer about a process that has not ended; no exit code is as low."""
_FAR_BEYOND: Final = 4096
"""Above any descriptor that imports leave open, or that a service has."""
_LONGEST_ORDER: Final = 1 << 18
_MOST_FILES: Final = 250


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
    parent: Callable[..., int]
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code if it has ended, the negative number of a signal that ended it."""
        if self.returncode is None:
            answer = self.parent(poll=self.pid)
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
    log.touch()  # callers read it at once
    own = dict(environ or os.environ)
    return _forked(command, own, Path.cwd(), [os.devnull, str(log), str(log)], spares=SPARES)


def ran(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    folder: Path | None = None,
    given: str = "",
    timeout_s: float = 300.0,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE …`` to its end; afresh if its variables require that.

    Args:
        command: the interpreter of this process, and its arguments.
        environ: all variables of the process.
        folder: where it runs; by default here.
        given: what it reads.
        timeout_s: it is killed after this.

    Raises:
        subprocess.TimeoutExpired: it had not ended by then.
    """
    changed = {name for name, _ in dict(environ).items() ^ os.environ.items()} - {"PYTHONPATH"}
    if any(name.startswith(_AT_START) for name in changed):
        return afresh(command, environ=environ, folder=folder, given=given, timeout_s=timeout_s)
    with TemporaryDirectory() as own:
        streams = [Path(own, name) for name in ("in", "out", "err")]
        streams[0].write_text(given)
        process = _forked(command, environ, folder or Path.cwd(), list(map(str, streams)), spares=0)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, code, *(one.read_text() for one in streams[1:]))


def afresh(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    folder: Path | None = None,
    given: str = "",
    timeout_s: float = 300.0,
) -> subprocess.CompletedProcess[str]:
    """Run any command as ``ran`` does, in an interpreter of its own."""
    return subprocess.run(
        command, env=environ, cwd=folder, input=given, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip


def _forked(
    command: Sequence[str], environ: Mapping[str, str], folder: Path, streams: Sequence[str], *, spares: int
) -> Forked:
    python, *arguments = command
    assert python == sys.executable, command
    asks_model = "BLAMESPAN_MODEL" in environ or "--model" in arguments
    parent = _parent(*([LITELLM] if asks_model else []))
    order = {
        "run": arguments,
        "environ": dict(environ),
        "folder": str(folder),
        "streams": streams,
        "spares": spares,
    }
    return Forked(pid=parent(**order), parent=parent)


@cache
def _parent(*modules: str) -> Callable[..., int]:
    """Start the parent of services that import these too, once in a test process; it ends with that."""
    command = [sys.executable, "-m", __name__, *modules]
    own = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # as the service does before that import
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=own)
    atexit.register(process.communicate)
    one_at_a_time = Lock()

    def ask(**order: object) -> int:
        given, answers = process.stdin, process.stdout
        assert given
        assert answers
        with one_at_a_time:
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


def _become(order: dict[str, Any]) -> None:
    """Take the ordered session, folder, streams and environment."""
    os.setsid()
    os.chdir(order["folder"])
    sys.path[:1] = [order["folder"], *filter(None, order["environ"].get("PYTHONPATH", "").split(os.pathsep))]
    source, *outward = order["streams"]
    files = [os.open(source, os.O_RDONLY)]
    files += [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for path in outward]
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, _FAR_BEYOND)
    os.environ.clear()
    os.environ.update(order["environ"])


def _fork_spares(count: int) -> Sequence[str] | None:
    """Fork processes that wait until this one starts a module of ours in a process.

    Returns:
        In this process ``None``; in a spare, what it runs.
    """
    spares: list[tuple[int, socket.socket]] = []
    for _ in range(count):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if not (pid := os.fork()):
            for one in (ours, *(older for _, older in spares)):
                one.close()  # or no spare would notice the end of the service
            return _await_order(theirs)
        theirs.close()
        spares.append((pid, ours))
    vars(subprocess)["_fork_exec"] = partial(_start, spares, vars(subprocess)["_fork_exec"])
    return None


def _start(spares: list[tuple[int, socket.socket]], start_afresh: Callable[..., int], *given: Any) -> int:
    """Start a module in a spare, and all else as usual; return the process id.

    Python does not document this function; its arguments are these in 3.11 to 3.13.

    Args:
        spares: process ids and sockets.
        start_afresh: ``_fork_exec`` of ``subprocess``.
        given: its arguments.
    """
    words, folder, environ, error_pipe, group = (given[place] for place in (0, 4, 5, 13, 16))
    if not spares or words[:3] != [sys.executable, "-P", "-m"] or folder is not None or environ is None:
        return start_afresh(*given)
    pid, orders = spares.pop(0)
    streams = (given[place] for place in (6, 9, 11))  # -1: that of this process
    files = {number: number if file < 0 else file for number, file in enumerate(streams)}
    files |= {file: file for file in given[3] if file != error_pipe}
    order = {"run": words[2:], "environ": list(map(os.fsdecode, environ)), "files": list(files)}
    with orders:
        socket.send_fds(orders, [json.dumps(order).encode()], list(files.values()))
    if group >= 0:
        os.setpgid(pid, group)
    return pid


def _await_order(orders: socket.socket) -> Sequence[str]:
    """Wait for an order, take its environment and files, and return what to run; end with the service."""
    message, sources, *_ = socket.recv_fds(orders, _LONGEST_ORDER, _MOST_FILES)
    if not message:
        os._exit(0)
    order = json.loads(message)
    beyond = max(order["files"]) + 1
    kept = [fcntl.fcntl(file, fcntl.F_DUPFD, beyond) for file in sources]
    os.closerange(3, beyond)
    for file, number in zip(kept, order["files"], strict=True):
        os.dup2(file, number)
    os.closerange(beyond, _FAR_BEYOND)
    os.environ.clear()
    os.environ.update(one.split("=", 1) for one in order["environ"])
    return cast("Sequence[str]", order["run"])


def _run(words: Sequence[str]) -> None:
    """Run the program that is a module (``-m MODULE …``) or a file."""
    first, *rest = words
    if first == "-m":
        sys.argv[:] = rest
        for preloaded in set(PRELOADED) & set(rest):
            del sys.modules[preloaded]  # a module that runs as a program was not imported before
            Path("/proc/self/comm").write_text(preloaded.rpartition(".")[2])  # ``ps`` shows our arguments
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    for module in (*PRELOADED, *sys.argv[1:]):
        import_module(module)
    gc.freeze()  # collections in children would copy the pages of all that was imported
    if (ordered := _serve(sys.stdin.buffer, sys.stdout.buffer)) is not None:
        _become(ordered)
        _run(_fork_spares(ordered["spares"]) or ordered["run"])
