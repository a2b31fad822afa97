"""Who drafts: threads, processes, and what becomes of traces when a process ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import pytest

from analyzer.analyst import RunAnalyst
from analyzer.attribution import Attributor
from analyzer.composition import carrier_policy
from analyzer.drafting import executor as drafting
from analyzer.drafting import worker_process
from analyzer.drafting.drafter import Drafter
from analyzer.drafting.executor import MUCH_S, TRIES, DraftExecutor, draft_each
from analyzer.drafting.messages import (
    LENGTH_BYTES,
    length_of,
    read_draft,
    read_traces,
    with_length,
    write_draft,
    write_traces,
)
from analyzer.drafting.opening import NEEDED, open_drafter, told_settings
from analyzer.drafting.tally import Outcome
from analyzer.drafting.worker_process import WorkerLostError, WorkerProcess
from collector_processor.analyst import Analysis
from collector_processor.annotate import CarrierPolicy
from collector_processor.assembler import TraceKey
from collector_processor.cleaning import Cleaner
from collector_processor.draft import AnalysisLostError, Draft, LoneTrace
from collector_processor.encode import encode
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.redaction import Redactor, keep
from collector_processor.settings import ExportText, Settings, load_settings
from semconv.model import Completion, TraceId, Trajectory
from tests.factories import chat, workflow

PATIENCE_S: Final = 60.0


def lone(number: int, *, tenant: Tenant = NO_TENANT, answer: str = "No.") -> LoneTrace:
    trace_id = TraceId(f"{number:032x}")
    spans = (
        workflow(1, trace_id=trace_id, error="it failed", task="Ask ann@example.com."),
        chat(2, answer=answer, agent_name="planner", trace_id=trace_id),
    )
    return LoneTrace(
        key=TraceKey(tenant, trace_id),
        completion=Completion.ROOT_ENDED,
        bodies=(encode(spans),),
        now_ns=1_900_000_000_000_000_000,
    )


def drafter() -> Drafter:
    return Drafter(
        analyst=RunAnalyst(attributor=Attributor(clock=lambda: 0.0)),
        cleaner=Cleaner(Redactor()),
        policy=CarrierPolicy(),
        kept=keep,
        noticed=keep,
    )


POISON: Final = lone(13)
ENDLESS: Final = lone(17)


class MortalWorker:
    """A process that dies of what it is told to die of."""

    def __init__(self, deadly: Sequence[LoneTrace] = (), lives: int = 1_000) -> None:
        self.pid = 1
        self.deadly = deadly
        self.lives = lives
        self.asked: list[list[LoneTrace]] = []
        self.ended = asyncio.Event()

    async def draft(self, traces: Sequence[LoneTrace]) -> list[Draft | None]:
        self.asked.append(list(traces))
        self.lives -= 1
        if self.lives < 0:
            raise WorkerLostError("it died")
        drafts: list[Draft | None] = []
        for trace in traces:
            if trace in self.deadly:
                raise WorkerLostError("it died", drafts, had_no_end=trace == ENDLESS)
            drafts += draft_each(drafter(), [trace])
        return drafts

    async def end(self) -> None:
        self.ended.set()


class Workers:
    """Gives workers, as long as it has any."""

    def __init__(self, *workers: MortalWorker) -> None:
        self.left = list(workers)
        self.given: list[MortalWorker] = []

    async def __call__(self) -> MortalWorker:
        if not self.left:
            raise WorkerLostError("no memory")
        self.given.append(self.left.pop(0))
        return self.given[-1]


class Clock:
    """Seconds; each look at it takes some."""

    def __init__(self, step_s: float) -> None:
        self.now = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


async def busy(workers: Workers) -> DraftExecutor:
    """Return who has a process already."""
    executor = DraftExecutor(drafter(), workers, now=Clock(MUCH_S))
    await executor([lone(1)])
    assert executor._starting is not None
    await executor._starting
    return executor


def names(drafts: Sequence[object]) -> list[str]:
    return [draft.runs[0].verdict.run_id if isinstance(draft, Draft) else repr(draft) for draft in drafts]


async def test_little_to_do_needs_no_process() -> None:
    workers = Workers(MortalWorker())
    executor = DraftExecutor(drafter(), workers, now=Clock(MUCH_S / 10))
    for number in range(5):
        assert names(await executor([lone(number)])) == [f"{number:032x}"]
    assert workers.given == []
    await executor.close()


async def test_much_to_do_is_done_by_a_process_from_then_on() -> None:
    workers = Workers(MortalWorker())
    executor = await busy(workers)
    assert names(await executor([lone(2), lone(3)])) == [f"{2:032x}", f"{3:032x}"]
    (worker,) = workers.given
    assert worker.asked == [[lone(2), lone(3)]]
    await executor.close()
    assert worker.ended.is_set()


async def test_one_process_is_enough_though_it_came_while_a_thread_was_at_work() -> None:
    workers = Workers(MortalWorker(), MortalWorker())
    executor = DraftExecutor(drafter(), workers, now=Clock(MUCH_S))
    await executor([lone(1)])
    by_thread = asyncio.create_task(executor([lone(2)]))
    assert executor._starting is not None
    await executor._starting
    assert names(await by_thread) == [f"{2:032x}"]
    assert len(workers.given) == 1
    await executor.close()


async def test_where_no_process_can_be_had_a_thread_goes_on() -> None:
    workers = Workers()
    executor = await busy(workers)
    assert names(await executor([lone(2)])) == [f"{2:032x}"]
    await executor.close()


async def test_what_a_dead_process_had_is_given_to_the_next() -> None:
    workers = Workers(MortalWorker(lives=0), MortalWorker())
    executor = await busy(workers)
    assert names(await executor([lone(2), lone(3)])) == [f"{2:032x}", f"{3:032x}"]
    assert workers.given[1].asked == [[lone(3)], [lone(2)]], "the first unanswered comes last"
    assert workers.given[0].ended.is_set()
    await executor.close()


async def test_a_trace_that_processes_die_of_is_found_and_no_other_suffers() -> None:
    workers = Workers(*(MortalWorker(deadly=[POISON]) for _ in range(10)))
    executor = await busy(workers)
    first, poisoned, last = await executor([lone(2), POISON, lone(3)])
    assert isinstance(poisoned, AnalysisLostError)
    assert names([first, last]) == [f"{2:032x}", f"{3:032x}"]
    assert len(workers.given) == 1 + TRIES, "the one that had them all, and those it was tried by itself with"
    await executor.close()


async def test_what_was_answered_before_a_process_ended_is_not_done_again() -> None:
    workers = Workers(MortalWorker(deadly=[POISON]), MortalWorker())
    executor = await busy(workers)
    drafts = await executor([lone(2), POISON, lone(3)])
    assert names(drafts) == [f"{number:032x}" for number in (2, 13, 3)]
    assert workers.given[1].asked == [[lone(3)], [POISON]]
    assert (executor.tally.started, executor.tally.ended, executor.tally.processes) == (2, 1, 1)
    await executor.close()
    assert executor.tally.processes == 0


async def test_a_trace_that_took_all_the_time_there_is_is_not_tried_again() -> None:
    workers = Workers(*(MortalWorker(deadly=[ENDLESS, POISON]) for _ in range(10)))
    executor = await busy(workers)
    first, endless, poisoned, last = await executor([lone(2), ENDLESS, POISON, lone(3)])
    assert names([first, last]) == [f"{2:032x}", f"{3:032x}"]
    assert str(endless) == "its analysis took 10 s of CPU time, and was ended"
    assert str(poisoned) == f"its analysis ended the process that did it, {TRIES} times"
    assert sum(ENDLESS in asked for worker in workers.given for asked in worker.asked) == 1
    assert executor.tally.traces == {Outcome.DRAFTED: 3, Outcome.LOST: 2}
    await executor.close()


async def test_a_thread_that_does_not_come_back_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' verdicts come from a process, which finds the one that has no end."""
    monkeypatch.setattr(drafting, "THREAD_S", 0.1)
    go_on = threading.Event()

    class Stuck(RunAnalyst):
        def unasked(self, trajectory: Trajectory) -> Analysis | None:
            go_on.wait()
            return super().unasked(trajectory)

    stuck = replace(drafter(), analyst=Stuck(attributor=Attributor(clock=lambda: 0.0)))
    workers = Workers(*(MortalWorker(deadly=[ENDLESS]) for _ in range(2)))
    executor = DraftExecutor(stuck, workers, now=Clock(MUCH_S / 10))
    endless, other = await executor([ENDLESS, lone(2)])
    assert isinstance(endless, AnalysisLostError)
    assert names([other, *await executor([lone(3)])]) == [f"{2:032x}", f"{3:032x}"]
    go_on.set()
    await executor.close()


async def test_without_memory_for_another_process_the_long_way_is_taken() -> None:
    executor = await busy(Workers(MortalWorker(lives=0)))
    assert await executor([lone(2), lone(3)]) == [None, None]
    await executor.close()


async def test_a_process_with_nothing_to_do_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "IDLE_S", 0.0)
    workers = Workers(MortalWorker())
    executor = await busy(workers)
    (worker,) = workers.given
    async with asyncio.timeout(PATIENCE_S):
        await worker.ended.wait()
    assert names(await executor([lone(2)])) == [f"{2:032x}"]
    await executor.close()


def test_traces_and_drafts_arrive_as_they_were_sent() -> None:
    traces = [lone(1, tenant=Tenant("acme\U0001f600"), answer='"\x00\N{SNOWMAN}'), lone(2)]
    assert read_traces(write_traces(traces)) == traces
    drafts = [*draft_each(drafter(), traces), None]
    assert [read_draft(write_draft(draft)) for draft in drafts] == drafts
    assert any(draft.redacted for draft in drafts if draft)


def test_a_message_longer_than_any_is_refused() -> None:
    message = with_length(b"abc")
    assert (length_of(message[:LENGTH_BYTES]), message[LENGTH_BYTES:]) == (3, b"abc")
    with pytest.raises(ValueError, match="4294967295"):
        length_of(b"\xff" * LENGTH_BYTES)


@pytest.mark.parametrize("message", [b"[1]", b"{}", b"7", b"{", b'{"names": 1}', b"[" * 99_999])
def test_nonsense_is_no_draft(message: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_draft(message)


async def test_a_real_process_drafts_what_a_thread_does() -> None:
    settings = Settings(failure_pattern="never", notify_text=ExportText.FULL)  # type: ignore[call-arg]
    worker = await WorkerProcess.start(settings.model_dump_json(include=set(NEEDED)).encode())
    traces = [lone(1), lone(2)]
    found = await worker.draft(traces)
    await worker.end()
    here = open_drafter(settings, RunAnalyst(attributor=Attributor(clock=lambda: 0.0)), Cleaner(Redactor()))
    assert [_timeless(draft) for draft in found] == [_timeless(draft) for draft in draft_each(here, traces)]


def _timeless(draft: Draft | None) -> object:
    assert draft is not None
    (run,) = draft.runs
    told = (draft.names, draft.told, draft.redacted, run.keepsake, run.verdict.run_id, run.verdict.agent)
    return (*told, run.gist.acting, run.gist.blamed, run.gist.confidence, run.outgoing)


async def test_a_process_that_is_killed_is_said_to_be_lost() -> None:
    worker = await WorkerProcess.start(Settings().model_dump_json(include=set(NEEDED)).encode())  # type: ignore[call-arg]
    worker._process.kill()
    worker._process.wait()
    with pytest.raises(WorkerLostError) as lost:
        await worker.draft([lone(1)])
    assert not lost.value.had_no_end
    await worker.end()


READY_AND_NO_MORE: Final = (
    "import sys, time\n"
    "sys.stdin.buffer.read(4 + 2)\n"
    "sys.stdout.buffer.write((5).to_bytes(4, 'big') + b'ready')\n"
    "sys.stdout.buffer.flush()\n"
    "time.sleep(600)\n"
)
WITHOUT_END: Final = (
    "from analyzer.drafting import worker\n"
    "def draft_each(*_):\n"
    "    while True: pass\n"
    "worker.draft_each, worker.TRACE_CPU_S = draft_each, 0.1\n"
    "worker.main()\n"
)


async def test_a_process_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_ANSWER_S", 0.1)
    worker = await WorkerProcess.start(b"{}", (sys.executable, "-c", READY_AND_NO_MORE))
    with pytest.raises(WorkerLostError, match=r"no answer within 0\.1 s"):
        await worker.draft([lone(1)])
    await worker.end()
    assert worker._process.returncode == -signal.SIGKILL


WITHOUT_END_AT_ONE: Final = (
    "from analyzer.drafting import worker\n"
    "draft_each = worker.draft_each\n"
    "def looping(drafter, traces):\n"
    f"    while traces[0].key.trace_id == '{ENDLESS.key.trace_id}': pass\n"
    "    return draft_each(drafter, traces)\n"
    "worker.draft_each, worker.TRACE_CPU_S = looping, 2.0\n"
    "worker.main()\n"
)


async def test_others_wait_for_what_has_no_end_once_and_are_done_by_another_process() -> None:
    told = Settings().model_dump_json(include=set(NEEDED)).encode()  # type: ignore[call-arg]
    pids: list[int] = []

    async def start_worker() -> WorkerProcess:
        started = await WorkerProcess.start(told, (sys.executable, "-c", WITHOUT_END_AT_ONE))
        pids.append(started.pid)
        return started

    executor = DraftExecutor(drafter(), start_worker, now=Clock(MUCH_S))
    await executor([lone(1)])
    assert executor._starting is not None
    await executor._starting
    first, endless, *others = await executor([lone(2), ENDLESS, lone(3), lone(4)])
    assert isinstance(endless, AnalysisLostError)
    assert names([first, *others]) == [f"{number:032x}" for number in (2, 3, 4)]
    assert len(pids) == 2
    await executor.close()


SPEAKING: Final = (
    "import logging\n"
    "from analyzer.drafting import worker\n"
    "draft_each = worker.draft_each\n"
    "def speaking(drafter, traces):\n"
    "    logging.getLogger('analyzer.of_something').warning('so it is', extra={'trace_id': '7'})\n"
    "    return draft_each(drafter, traces)\n"
    "worker.draft_each = speaking\n"
    "worker.main()\n"
)
FAILING: Final = (
    "from analyzer.drafting import worker\n"
    "def draft_each(*_):\n"
    "    raise ValueError('a fault of ours')\n"
    "worker.draft_each = draft_each\n"
    "worker.main()\n"
)


async def test_what_a_process_says_is_said_as_the_service_says_things(
    capfd: pytest.CaptureFixture[str],
) -> None:
    told = Settings().model_dump_json(include=set(NEEDED)).encode()  # type: ignore[call-arg]
    worker = await WorkerProcess.start(told, (sys.executable, "-c", SPEAKING))
    await worker.draft([lone(1)])
    await worker.end()
    (line,) = map(json.loads, capfd.readouterr().err.splitlines())
    assert line.pop("time")
    about = {"role": "analyses", "pid": worker.pid}
    said = {"level": "warning", "logger": "analyzer.of_something", "message": "so it is", "trace_id": "7"}
    assert line == said | about


async def test_a_process_that_fails_says_why_on_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    told = Settings().model_dump_json(include=set(NEEDED)).encode()  # type: ignore[call-arg]
    worker = await WorkerProcess.start(told, (sys.executable, "-c", FAILING))
    with pytest.raises(WorkerLostError):
        await worker.draft([lone(1)])
    await worker.end()
    (line,) = map(json.loads, capfd.readouterr().err.splitlines())
    assert (line["level"], line["pid"]) == ("critical", worker.pid)
    assert "ValueError: a fault of ours" in line["exception"]


async def test_what_has_no_end_is_ended_by_the_kernel_though_nobody_waits_for_it() -> None:
    told = Settings().model_dump_json(include=set(NEEDED)).encode()  # type: ignore[call-arg]
    worker = await WorkerProcess.start(told, (sys.executable, "-c", WITHOUT_END))
    with pytest.raises(WorkerLostError, match=r"is gone$") as lost:
        await worker.draft([lone(1)])
    assert lost.value.had_no_end
    await worker.end()
    assert worker._process.returncode == -signal.SIGPROF


async def test_modules_of_the_working_directory_are_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("analyzer.py", "json.py", "sitecustomize.py"):
        (tmp_path / name).write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    worker = await WorkerProcess.start(Settings().model_dump_json(include=set(NEEDED)).encode())  # type: ignore[call-arg]
    assert len(await worker.draft([lone(1)])) == 1
    await worker.end()


def test_a_process_is_told_whether_logs_go_anywhere_and_not_where() -> None:
    backend = {"BLAMESPAN_FORWARD_ENDPOINT": "http://jaeger:4317", "BLAMESPAN_FORWARD_HEADERS": "key=hunter2"}
    for logs, goes in (("none", False), ("http://loki:3100", True)):
        settings = load_settings(backend | {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": logs})
        told = told_settings(settings)
        assert not any(word in told for word in (b"jaeger", b"loki", b"hunter2"))
        there = Settings.model_validate_json(told)
        assert (carrier_policy(settings).logs, carrier_policy(there).logs) == (goes, goes)


def test_a_process_writes_carriers_as_the_service_does() -> None:
    settings = load_settings(
        {
            "BLAMESPAN_CARRIERS": "all",
            "BLAMESPAN_CARRIER_MIN_CONFIDENCE": "0.5",
            "BLAMESPAN_CARRIER_STATUS": "error",
            "BLAMESPAN_WEB_URL": "https://blamespan.example",
        }
    )
    there = carrier_policy(Settings.model_validate_json(told_settings(settings)))
    for field in fields(CarrierPolicy):
        if field.name != "clean":  # a function of the kinds of secrets, which are among ``NEEDED``
            ours, its = (getattr(policy, field.name) for policy in (carrier_policy(settings), there))
            assert its == ours != field.default or field.name == "logs", field.name


def test_a_process_gets_no_key_whatever_it_is_called() -> None:
    wanted = {"HOME": "/h", "LANG": "C", "LC_ALL": "C", "PATH": "/bin", "PYTHONHASHSEED": "0"}
    ours = ("BLAMESPAN_TOKEN", "OPENAI_API_KEY", "OTEL_EXPORTER_OTLP_HEADERS")
    alike = ("LANGFUSE_SECRET_KEY", "LANGSMITH_API_KEY", "HOMEBREW_GITHUB_API_TOKEN")
    keys = dict.fromkeys((*ours, *alike), "secret")
    given = worker_process.environment(wanted | keys, ("/a", "/b"))
    assert given == wanted | {"PYTHONPATH": f"/a{os.pathsep}/b"}


class StuckWorker(MortalWorker):
    """A process that answers nothing until it is ended."""

    def __init__(self) -> None:
        super().__init__()
        self.has_work = asyncio.Event()

    async def draft(self, traces: Sequence[LoneTrace]) -> list[Draft | None]:
        self.asked.append(list(traces))
        self.has_work.set()
        await self.ended.wait()
        raise WorkerLostError("it was ended")


async def test_no_process_is_started_after_the_end() -> None:
    stuck = StuckWorker()
    workers = Workers(stuck, MortalWorker())
    executor = await busy(workers)
    under_way = asyncio.create_task(executor([lone(2)]))
    await stuck.has_work.wait()
    await executor.close()
    assert await under_way == [None]
    assert workers.given == [stuck]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((sys.executable, "-c", "raise SystemExit(1)"), id="ends at once"),
        pytest.param((sys.executable, "-c", "print('x' * 100)"), id="prints something else"),
        pytest.param(("/no/such/program",), id="is not there"),
    ],
)
async def test_a_process_that_cannot_be_had_is_said_to_be_lost(command: Sequence[str]) -> None:
    with pytest.raises(WorkerLostError):
        await WorkerProcess.start(b"{}", command)
