"""Starts a server process, waits until it answers, and guarantees that it ends.

Knows nothing of the process. Each server runs in a process group of its own: if the test run itself is
killed, the group dies with it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from tests.backends.forked import Process

HOST: Final = "127.0.0.1"
PORTS: Final = range(20_000, 32_000)  # below what the kernel gives to clients
READY_S: Final = 240.0  # a cold 120 MB binary on a busy CI machine
STOP_S: Final = 60.0
POLL_S: Final = 0.05
TAIL_LINES: Final = 25
_WORKERS: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_OURS: Final = PORTS[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) :: _WORKERS]
_UNUSED: Final = iter(random.sample(_OURS, len(_OURS)))

T = TypeVar("T")
Start: TypeAlias = Callable[[Sequence[str], Mapping[str, str] | None, Path], Process]


class BackendError(Exception):
    """A backend did not start or answer in time; the message has the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running process, the leader of its group."""

    name: str
    process: Process
    log: Path

    def tail(self) -> str:
        """Return the last lines of what it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])

    def kill(self) -> None:
        """``kill -9`` the group, as a crash would; returns when it has ended."""
        self._signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end; kill what remains."""
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def spawn(command: Sequence[str], environ: Mapping[str, str] | None, log: Path) -> Process:
    """Start a process; what it prints is appended to ``log``."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    *,
    log: Path,
    is_ready: Callable[[], bool],
    environ: Mapping[str, str] | None = None,
    start: Start = spawn,
) -> Iterator[Server]:
    """Run a server from readiness to the end of the block.

    Args:
        name: for messages.
        command: the program and its arguments.
        log: receives stdout and stderr, appended.
        is_ready: asked again and again; an ``OSError`` means not yet.
        environ: all of its environment; by default ours.
        start: starts the process, the leader of a session.

    Raises:
        BackendError: it ended, or was not ready within ``READY_S``.
    """
    process = start(command, environ, log)
    server = Server(name=name, process=process, log=log)
    try:
        with _leash(process.pid):
            _await_ready(server, is_ready)
            yield server
    finally:
        server.stop()


def wait_until(read: Callable[[], T | None], *, what: str, timeout_s: float = 240.0) -> T:
    """Poll ``read`` until it returns something true, and return that; an empty list is not enough.

    Raises:
        BackendError: it did not within ``timeout_s``; ``what`` says what was awaited.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = read()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise BackendError(f"waited {timeout_s:g} s in vain for {what}")
        time.sleep(POLL_S)


def free_ports(count: int) -> list[int]:
    """Return different free ports that no earlier call and no other pytest worker was given.

    They are bound later: two servers of a test must not be given one port.
    """
    found: list[int] = []
    for port in _UNUSED:
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise BackendError(f"{count} ports wanted, and no more of {PORTS} are free")


def listens(port: int) -> bool:
    """Return whether a server accepts connections at this address; ``OSError`` if not."""
    with socket.create_connection((HOST, port), timeout=1):
        return True


async def accepts(port: int) -> bool:
    """Return whether a server accepts connections at this port, without blocking the event loop."""
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind((HOST, port))
            return True
    return False


def _await_ready(server: Server, is_ready: Callable[[], bool]) -> None:
    def settled() -> bool:
        if server.process.poll() is not None:
            return True
        with suppress(OSError):
            return is_ready()
        return False

    try:
        wait_until(settled, what=f"{server.name} to be ready", timeout_s=READY_S)
    except BackendError as error:
        raise BackendError(f"{error}; its log ends:\n{server.tail()}") from None
    if server.process.poll() is not None:
        code = server.process.returncode
        raise BackendError(f"{server.name} ended with {code}; its log ends:\n{server.tail()}")


@contextmanager
def _leash(group: int) -> Iterator[None]:
    """Kill the group when this process ends, for any reason.

    A shell reads a pipe that only we hold open; when it closes, the shell kills the group.
    """
    watch = ["sh", "-c", f"read -r _; kill -s KILL -- -{group}"]
    watcher = subprocess.Popen(
        watch, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        watcher.kill()
        watcher.communicate()
