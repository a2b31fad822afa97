"""Real worker processes prepare traces, and what becomes of one that dies, loops or fails."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from analyzer.analyses import worker_process
from analyzer.analyses.executor import COMMAND
from analyzer.analyses.prepared import Analysed, Prepared, prepare_each
from analyzer.analyses.worker import work_from_settings
from analyzer.analyses.worker_process import WorkerLostError, WorkerProcess, worker_settings
from collector_processor.core.analysis import AnalysisLostError
from collector_processor.settings import ExportText, Settings, load_settings
from tests.unit.test_executor import ENDLESS, lone, names, over, together

WORKER_SETTINGS: Final = worker_settings(load_settings({}))


async def test_a_real_process_prepares_what_a_thread_does() -> None:
    settings = Settings(failure_pattern="never", notify_text=ExportText.FULL)  # type: ignore[call-arg]
    sent = worker_settings(settings)
    worker = await WorkerProcess.start(sent, COMMAND)
    traces = [lone(1), lone(2)]
    found = await worker.prepare(traces)
    await worker.end()
    assert [_timeless(one) for one in found] == [
        _timeless(one) for one in prepare_each(work_from_settings(sent).prepare, traces)
    ]


def _timeless(prepared: Prepared | None) -> object:
    assert prepared is not None
    (run,) = prepared.runs
    assert isinstance(run, Analysed)
    shown = (run.run, run.kept, run.analysis.attribution.verdict)
    return (prepared.names, prepared.redacted, *shown)


async def test_a_killed_process_is_reported_as_lost() -> None:
    worker = await WorkerProcess.start(WORKER_SETTINGS, COMMAND)
    worker._process.kill()
    worker._process.wait()
    with pytest.raises(WorkerLostError) as lost:
        await worker.prepare([lone(1)])
    assert not lost.value.used_up_cpu
    await worker.end()


READY_AND_NO_MORE: Final = (
    "import sys, time\n"
    "sys.stdin.buffer.read(4 + 2)\n"
    "sys.stdout.buffer.write((5).to_bytes(4, 'big') + b'ready')\n"
    "sys.stdout.buffer.flush()\n"
    "time.sleep(600)\n"
)


WITHOUT_END: Final = (
    "from analyzer.analyses import worker\n"
    "from analyzer.analyses.worker import run\n"
    "def prepare_each(*_):\n"
    "    while True: pass\n"
    "worker.prepare_each, worker.TRACE_CPU_S = prepare_each, 0.1\n"
    "run(lambda told: worker.Work(prepare=None, step=None))\n"
)


async def test_a_process_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_ANSWER_S", 0.1)
    worker = await WorkerProcess.start(b"{}", (sys.executable, "-c", READY_AND_NO_MORE))
    with pytest.raises(WorkerLostError, match=r"no answer within 0\.1 s"):
        await worker.prepare([lone(1)])
    await worker.end()
    assert worker._process.returncode == -signal.SIGKILL


WITHOUT_END_AT_ONE: Final = (
    "from analyzer.analyses import worker\n"
    "from analyzer.analyses.worker import run\n"
    "prepare_each = worker.prepare_each\n"
    "def looping(preparer, traces):\n"
    f"    while traces[0].key.trace_id == '{ENDLESS.key.trace_id}': pass\n"
    "    return prepare_each(preparer, traces)\n"
    "worker.prepare_each, worker.TRACE_CPU_S = looping, 2.0\n"
    "run()\n"
)


async def test_others_wait_for_what_has_no_end_once_and_are_done_by_another_process() -> None:
    pids: list[int] = []

    async def start_worker() -> WorkerProcess:
        started = await WorkerProcess.start(WORKER_SETTINGS, (sys.executable, "-c", WITHOUT_END_AT_ONE))
        pids.append(started.pid)
        return started

    executor, pool = over(start_worker)
    await together(executor, lone(1))
    first, endless, *others = await together(executor, lone(2), ENDLESS, lone(3), lone(4))
    assert isinstance(endless, AnalysisLostError)
    assert names([first, *others]) == [f"{number:032x}" for number in (2, 3, 4)]
    assert len(pids) == 2
    await pool.close()


SPEAKING: Final = (
    "import logging\n"
    "from analyzer.analyses import worker\n"
    "from analyzer.analyses.worker import run\n"
    "prepare_each = worker.prepare_each\n"
    "def speaking(preparer, traces):\n"
    "    logging.getLogger('analyzer.of_something').warning('so it is', extra={'trace_id': '7'})\n"
    "    return prepare_each(preparer, traces)\n"
    "worker.prepare_each = speaking\n"
    "run()\n"
)


FAILING: Final = (
    "from analyzer.analyses import worker\n"
    "from analyzer.analyses.worker import run\n"
    "def prepare_each(*_):\n"
    "    raise ValueError('a fault of ours')\n"
    "worker.prepare_each = prepare_each\n"
    "run(lambda told: worker.Work(prepare=None, step=None))\n"
)


async def test_a_process_logs_in_the_format_of_the_service(
    capfd: pytest.CaptureFixture[str],
) -> None:
    worker = await WorkerProcess.start(WORKER_SETTINGS, (sys.executable, "-c", SPEAKING))
    await worker.prepare([lone(1)])
    await worker.end()
    (line,) = map(json.loads, capfd.readouterr().err.splitlines())
    assert line.pop("time")
    about = {"role": "analyses", "pid": worker.pid}
    said = {"level": "warning", "logger": "analyzer.of_something", "message": "so it is", "trace_id": "7"}
    assert line == said | about


async def test_a_process_that_fails_says_why_on_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    worker = await WorkerProcess.start(WORKER_SETTINGS, (sys.executable, "-c", FAILING))
    with pytest.raises(WorkerLostError):
        await worker.prepare([lone(1)])
    await worker.end()
    (line,) = map(json.loads, capfd.readouterr().err.splitlines())
    assert (line["level"], line["pid"]) == ("critical", worker.pid)
    assert "ValueError: a fault of ours" in line["exception"]


async def test_endless_work_is_ended_by_the_kernel_even_if_abandoned() -> None:
    worker = await WorkerProcess.start(WORKER_SETTINGS, (sys.executable, "-c", WITHOUT_END))
    with pytest.raises(WorkerLostError, match=r"is gone$") as lost:
        await worker.prepare([lone(1)])
    assert lost.value.used_up_cpu
    await worker.end()
    assert worker._process.returncode == -signal.SIGPROF


async def test_modules_of_the_working_directory_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("analyzer.py", "json.py", "sitecustomize.py"):
        (tmp_path / name).write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    worker = await WorkerProcess.start(WORKER_SETTINGS, COMMAND)
    assert len(await worker.prepare([lone(1)])) == 1
    await worker.end()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((sys.executable, "-c", "raise SystemExit(1)"), id="ends at once"),
        pytest.param((sys.executable, "-c", "print('x' * 100)"), id="prints something else"),
        pytest.param(("/no/such/program",), id="is not there"),
    ],
)
async def test_a_process_that_cannot_be_started_is_reported_as_lost(command: Sequence[str]) -> None:
    with pytest.raises(WorkerLostError):
        await WorkerProcess.start(b"{}", command)
