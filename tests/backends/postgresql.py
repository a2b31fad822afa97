"""A real PostgreSQL server (Debian's) on a socket in its own directory."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.backends.supervise import wait_until

_BINARIES: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
_QUICK: Final = ("fsync=off", "full_page_writes=off", "listen_addresses=", "timezone=UTC")
_USER: Final = "postgres"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A server that can be stopped and started again."""

    folder: Path
    binaries: Path

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{_USER}@/{database}?host={self.folder}"

    def create(self, database: str) -> str:
        """Create a database and return its URL."""
        self._run("psql", "-qh", str(self.folder), "-U", _USER, "-c", f'CREATE DATABASE "{database}"')
        return self.url(database)

    def start(self) -> None:
        options = " ".join(f"-c {option}" for option in (*_QUICK, f"unix_socket_directories={self.folder}"))
        self._run(
            "pg_ctl", "-sw", "-D", str(self.data), "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def stop(self, how: str = "fast") -> None:
        """Stop: ``fast`` cleanly, ``immediate`` as after a crash."""
        self._run("pg_ctl", "-sw", "-D", str(self.data), "-m", how, "stop")

    def kill(self) -> None:
        """Kill it as the kernel does when memory runs out, and wait until its child processes have ended."""
        server, *children = self._processes()
        os.kill(server, signal.SIGKILL)
        wait_until(
            lambda: not any(_is_running(pid) for pid in (server, *children)),
            what="every process of PostgreSQL to end",
        )
        # Where nothing reaps orphans, as in a container without an init, its process id stays taken.
        for lock in (self.data / "postmaster.pid", *self.folder.glob(".s.PGSQL.*.lock")):
            lock.unlink()

    def freeze(self) -> None:
        """Stop all of its processes where they are: the kernel still accepts connections."""
        server, *_ = self._processes()
        os.kill(server, signal.SIGSTOP)  # first, so that it reaps no child whose id was just read
        for pid in self._processes():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let its processes go on, the server last: once it runs, it reaps children that have ended."""
        for pid in reversed(self._processes()):
            os.kill(pid, signal.SIGCONT)

    def _processes(self) -> list[int]:
        server = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        return [server, *map(int, children)]

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def _run(self, name: str, *arguments: str) -> None:
        _run(str(self.binaries / name), *arguments)


@cache
def _new_data(binaries: Path) -> Path:
    """Return the data of a new server, to be copied: ``initdb`` takes half a second of CPU."""
    data = _own_folder() / "data"
    atexit.register(shutil.rmtree, data.parent, ignore_errors=True)
    initdb = str(binaries / "initdb")
    _run(initdb, "-D", str(data), "-U", _USER, "-A", "trust", "-N", "--no-locale", "-EUTF8")
    return data


def _own_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has 107 bytes at most
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    return folder


def _run(*command: str) -> None:
    if os.geteuid() == 0:  # as which PostgreSQL refuses to run
        command = ("runuser", "-u", "nobody", "--", *command)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd="/")
    assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"


def _is_running(pid: int) -> bool:
    """Return whether a process is alive; a zombie holds no resources and counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def postgresql() -> Iterator[PostgresServer]:
    """Run a server; skip the test if none is installed, unless the suite requires one."""
    if not _BINARIES:
        if os.environ.get("BLAMESPAN_REQUIRE_BACKENDS") == "true":
            pytest.fail("no PostgreSQL: apt-get install postgresql")
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    folder = _own_folder()
    server = PostgresServer(folder=folder, binaries=_BINARIES[-1].parent)
    try:
        _run("cp", "-r", str(_new_data(server.binaries)), str(server.data))
        server.start()
        yield server
        if (server.data / "postmaster.pid").exists():
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
