"""Worker processes of the service when they are killed, orphaned, or asked to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.backends.supervise import wait_until
from tests.e2e.demo_again import DemoAgain
from tests.e2e.line import Line, StartLine
from tests.e2e.traffic import send

LONG_S = 300.0
STARTED = "worker process started"
GRACE_MS = 50
ONE: dict[str, str | float] = {"method": "signals", "root_grace": GRACE_MS, "analysis_processes": 1}
"""One process at most, however many cores and however slow they are."""
TOGETHER = 50


def send_runs(line: Line, runs: DemoAgain, count: int) -> list[str]:
    """Send failing runs, many per request; return their ids."""
    sent = [runs.next() for _ in range(count)]
    send(line, b"".join(run.before + run.root for run in sent))
    return [run.trace_id for run in sent]


def kept_busy(line: Line, runs: DemoAgain) -> tuple[int, list[str]]:
    """Send runs until a process is started for them; return its id, and the runs."""
    sent: list[str] = []

    def has_process() -> bool:
        sent.extend(send_runs(line, runs, TOGETHER))
        return bool(line.said(STARTED))

    wait_until(has_process, what="a process for analyses", timeout_s=LONG_S)
    return int(line.said(STARTED)[-1]["pid"]), sent


def await_verdicts(line: Line, runs: list[str]) -> list[int]:
    """Wait for each run's verdict; return the versions."""

    def version(run: str) -> int:
        found = wait_until(lambda: line.run(run), what=f"verdict on {run}", timeout_s=LONG_S)
        return int(found["version"])

    return list(map(version, runs))


def is_running(pid: int) -> bool:
    """Return whether the process exists; a zombie does."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def await_end(pid: int) -> None:
    wait_until(lambda: not is_running(pid), what=f"the end of process {pid}", timeout_s=LONG_S)


def kill(line: Line) -> int:
    line.server.process.kill()  # it alone, and not its group
    return line.server.process.wait(timeout=300)


def test_what_a_killed_process_had_is_analysed_once_by_another(start_line: StartLine) -> None:
    line, runs = start_line(**ONE), DemoAgain()
    pid, sent = kept_busy(line, runs)
    sent += send_runs(line, runs, TOGETHER)
    os.kill(pid, signal.SIGKILL)
    sent += send_runs(line, runs, TOGETHER)
    assert await_verdicts(line, sent) == [1] * len(sent)
    await_end(pid)
    assert line.balance()["acknowledged"] == len(sent) * runs.spans
    assert all(found["status"] == "attributed" for found in line.runs())


@pytest.mark.parametrize(
    "end", [pytest.param(Line.terminate, id="told to end"), pytest.param(kill, id="killed")]
)
def test_no_process_is_left_behind(start_line: StartLine, end: Callable[[Line], int]) -> None:
    line = start_line(**ONE)
    pid, _ = kept_busy(line, DemoAgain())
    end(line)
    await_end(pid)


def test_signals_to_all_of_us_leave_it_to_the_service(start_line: StartLine) -> None:
    """Runs that are still pending at shutdown are analysed by the process."""
    line, runs = start_line(**ONE), DemoAgain()
    pid, sent = kept_busy(line, runs)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    sent += send_runs(line, runs, TOGETHER)
    assert await_verdicts(line, sent) == [1] * len(sent)
    assert is_running(pid)
    assert len(line.said(STARTED)) == 1


def test_dead_processes_and_outcomes_of_preparation_are_counted(start_line: StartLine) -> None:
    line, runs = start_line(**ONE), DemoAgain()
    pid, sent = kept_busy(line, runs)
    assert line.sample("blamespan_analysis_processes") == 1
    os.kill(pid, signal.SIGKILL)
    sent += send_runs(line, runs, TOGETHER)
    await_verdicts(line, sent)
    assert line.sample("blamespan_analysis_process_deaths") == 1
    assert line.sample("blamespan_analysis_process_starts") == 2
    assert line.sample("blamespan_preparing_seconds") > 0
    prepared = line.labelled("blamespan_traces_prepared", "outcome")
    assert prepared == {"analysed": len(sent), "open": 0, "lost": 0}
