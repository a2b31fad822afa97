"""Servers are ready when they are yielded, explain failures, and never outlive the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.backends.supervise import BackendError, free_ports, running, wait_until

STUBBORN = "trap '' TERM; sleep 300 & echo $!; wait; wait"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A container's first process may never reap: a zombie is dead enough.
        state = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # gone in between, or a system without /proc
        return not Path("/proc/self").exists()
    return state.rsplit(")", 1)[1].split()[0] != "Z"


def test_a_server_that_ends_early_is_reported_with_its_last_output(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo the port is taken; exit 3"]
    with (
        pytest.raises(BackendError, match=r"ended with 3(.|\n)*the port is taken"),
        running("server", command, log=tmp_path / "log", is_ready=lambda: False),
    ):
        pass


def test_the_whole_group_is_gone_after_the_block(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = ["sh", "-c", "sleep 300 & echo $!; wait"]
    with running("server", command, log=log, is_ready=lambda: bool(log.read_text())) as server:
        child = int(server.tail())
        assert is_alive(child)
    wait_until(lambda: not is_alive(child), what="the child to go")
    assert server.process.returncode is not None


def test_a_killed_test_run_takes_its_servers_along(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = dedent(f"""
        import pathlib, sys
        from tests.backends.supervise import running
        log = pathlib.Path({str(log)!r})
        with running("s", ["sh", "-c", {STUBBORN!r}], log=log, is_ready=lambda: bool(log.read_text())):
            print("up", flush=True)
            sys.stdin.read()
    """)
    run = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == b"up\n"
    child = int(log.read_text())
    assert is_alive(child)

    os.kill(run.pid, signal.SIGKILL)
    run.communicate()

    wait_until(lambda: not is_alive(child), what="the child to go")


def test_free_ports_differ_from_each_other_and_from_all_earlier_ones() -> None:
    asked = [port for _ in range(300) for port in free_ports(3)]
    assert len(set(asked)) == 900
