"""Where traces are prepared: in threads or worker processes, also when a process ends."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from analyzer.analyses import executor as executing
from analyzer.analyses import pool as pooling
from analyzer.analyses import worker_process
from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.codec import (
    LENGTH_BYTES,
    length_of,
    read_prepared,
    read_traces,
    with_length,
    write_prepared,
    write_traces,
)
from analyzer.analyses.composition import open_analyst, open_cleaner
from analyzer.analyses.executor import (
    FORGET_S,
    LARGE_BYTES,
    LONG_S,
    Executor,
    processes,
)
from analyzer.analyses.pool import TRIES, Outcome, Pool, StartWorker
from analyzer.analyses.prepare import Preparer, preparer_of
from analyzer.analyses.prepared import Analysed, Prepared, ToAsk, TraceBytes, prepare_each
from analyzer.analyses.worker import work_from_settings
from analyzer.analyses.worker_process import NEEDED, WorkerLostError, worker_settings
from analyzer.methods.attribution import Attributor
from analyzer.service.halves import collector_settings
from collector_processor.core.analysis import Analysis, AnalysisLostError
from collector_processor.otlp import NO_TENANT, Tenant, TraceKey
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.redaction import Cleaner, Redactor
from collector_processor.settings import Settings, load_settings
from collector_processor.settings.machine import usable_cores, usable_memory
from semconv.model import Completion, TraceId, Trajectory
from tests.factories import chat, workflow
from tests.slow_lane import KEPT

PATIENCE_S: Final = 240.0


def lone(number: int, *, tenant: Tenant = NO_TENANT, answer: str = "No.") -> TraceBytes:
    trace_id = TraceId(f"{number:032x}")
    spans = (
        workflow(1, trace_id=trace_id, error="it failed", task="Ask ann@example.com."),
        chat(2, answer=answer, agent_name="planner", trace_id=trace_id),
    )
    return TraceBytes(
        key=TraceKey(tenant, trace_id),
        completion=Completion.ROOT_ENDED,
        bodies=(encode(spans),),
    )


ANALYST: Final = RunAnalyst(attributor=Attributor(clock=lambda: 0.0))


def preparer() -> Preparer:
    return Preparer(unasked=ANALYST.unasked, glance=ANALYST.glance, kept=KEPT, cleaner=Cleaner(Redactor()))


POISON: Final = lone(13)
ENDLESS: Final = lone(17)


class MortalWorker:
    """A process that dies on the given traces."""

    def __init__(self, deadly: Sequence[TraceBytes] = (), lives: int = 1_000) -> None:
        self.pid = 1
        self.deadly = deadly
        self.lives = lives
        self.asked: list[list[TraceBytes]] = []
        self.ended = asyncio.Event()

    async def prepare(self, traces: Sequence[TraceBytes]) -> list[Prepared | None]:
        self.asked.append(list(traces))
        await asyncio.sleep(0)
        self.lives -= 1
        if self.lives < 0:
            raise WorkerLostError("it died")
        found: list[Prepared | None] = []
        for trace in traces:
            if trace in self.deadly:
                raise WorkerLostError(
                    "it died", found, used_up_cpu=trace.key.trace_id == ENDLESS.key.trace_id
                )
            found += prepare_each(preparer(), [trace])
        return found

    async def exchange(self, message: bytes) -> bytes:
        raise AssertionError(message)

    async def end(self) -> None:
        self.ended.set()


class Workers:
    """Provides workers, as long as it has any."""

    def __init__(self, *workers: MortalWorker) -> None:
        self.left = list(workers)
        self.given: list[MortalWorker] = []

    async def __call__(self) -> MortalWorker:
        if not self.left:
            raise WorkerLostError("no memory")
        self.given.append(self.left.pop(0))
        return self.given[-1]


class Clock:
    """Seconds; each reading advances it."""

    def __init__(self, step_s: float) -> None:
        self.now = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


def over(start: StartWorker | None, *, size: int = 1, clock: Clock | None = None) -> tuple[Executor, Pool]:
    """Return an executor, and its pool of these processes."""
    pool = Pool(start, size=size)
    return Executor(preparer(), pool, now=clock or Clock(0.1)), pool


async def together(executor: Executor, *traces: TraceBytes) -> Sequence[Prepared | BaseException]:
    """Prepare several traces at once."""
    return await asyncio.gather(*map(executor, traces), return_exceptions=True)


def names(found: Sequence[object]) -> list[str]:
    return [one.runs[0].run.identity.run_id if isinstance(one, Prepared) else repr(one) for one in found]


async def test_no_trace_however_small_is_searched_beside_the_receivers() -> None:
    """One search in some hundred hostile bytes would hold a thread, and the whole process with it."""

    def held(_run: Trajectory) -> Analysis | None:
        raise AssertionError

    workers = Workers(MortalWorker())
    pool = Pool(workers)
    executor = Executor(replace(preparer(), unasked=held), pool)
    assert names(await together(executor, lone(1))) == [f"{1:032x}"]
    assert workers.given[0].asked == [[lone(1)]]
    await pool.close()


async def test_traces_that_come_together_are_prepared_together() -> None:
    workers = Workers(MortalWorker())
    executor, pool = over(workers)
    assert names(await together(executor, lone(2), lone(3))) == [f"{2:032x}", f"{3:032x}"]
    (worker,) = workers.given
    assert worker.asked == [[lone(2), lone(3)]]
    await pool.close()
    assert worker.ended.is_set()


async def test_without_a_process_a_thread_does_the_work() -> None:
    workers = Workers()
    executor, pool = over(workers)
    assert names(await together(executor, lone(2))) == [f"{2:032x}"]
    await pool.close()


async def test_what_a_dead_process_had_is_given_to_the_next() -> None:
    workers = Workers(MortalWorker(lives=0), MortalWorker())
    executor, pool = over(workers)
    assert names(await together(executor, lone(2), lone(3))) == [f"{2:032x}", f"{3:032x}"]
    assert workers.given[1].asked == [[lone(3)], [lone(2)]], "the first unanswered comes last"
    assert workers.given[0].ended.is_set()
    await pool.close()


async def test_a_trace_that_processes_die_of_is_found_and_no_other_suffers() -> None:
    workers = Workers(*(MortalWorker(deadly=[POISON]) for _ in range(10)))
    executor, pool = over(workers)
    first, poisoned, last = await together(executor, lone(2), POISON, lone(3))
    assert isinstance(poisoned, AnalysisLostError)
    assert names([first, last]) == [f"{2:032x}", f"{3:032x}"]
    met = sum(POISON in asked for worker in workers.given for asked in worker.asked)
    assert met == 1 + TRIES, "the one that had them all, and those it was tried by itself with"
    await pool.close()


async def test_what_was_answered_before_a_process_ended_is_not_done_again() -> None:
    workers = Workers(MortalWorker(deadly=[POISON]), MortalWorker())
    executor, pool = over(workers)
    prepared = await together(executor, lone(2), POISON, lone(3))
    assert names(prepared) == [f"{number:032x}" for number in (2, 13, 3)]
    assert workers.given[1].asked == [[lone(3)], [POISON]]
    assert (pool.counters.started, pool.counters.ended, pool.counters.processes) == (2, 1, 1)
    await pool.close()
    assert pool.counters.processes == 0


async def test_a_trace_that_took_all_the_time_there_is_is_not_tried_again() -> None:
    workers = Workers(*(MortalWorker(deadly=[ENDLESS, POISON]) for _ in range(10)))
    executor, pool = over(workers)
    first, endless, poisoned, last = await together(executor, lone(2), ENDLESS, POISON, lone(3))
    assert names([first, last]) == [f"{2:032x}", f"{3:032x}"]
    assert str(endless) == "the analysis was stopped: it used more than 10 s of CPU time"
    assert str(poisoned) == f"the analysis crashed its worker process {1 + TRIES} times"
    assert sum(ENDLESS in asked for worker in workers.given for asked in worker.asked) == 1
    assert pool.counters.traces == {Outcome.ANALYSED: 2, Outcome.LOST: 2}
    await pool.close()


async def test_without_memory_for_another_process_threads_prepare() -> None:
    executor, pool = over(Workers(MortalWorker(lives=0)))
    assert names(await together(executor, lone(2), lone(3))) == [f"{2:032x}", f"{3:032x}"]
    await pool.close()


async def test_a_process_with_nothing_to_do_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling, "IDLE_S", 0.0)
    workers = Workers(MortalWorker(), MortalWorker())
    executor, pool = over(workers)
    await together(executor, lone(1))
    (worker,) = workers.given
    async with asyncio.timeout(PATIENCE_S):
        await worker.ended.wait()
    assert names(await together(executor, lone(2))) == [f"{2:032x}"]
    await pool.close()


def test_traces_and_prepared_runs_arrive_as_they_were_sent() -> None:
    traces = (lone(1, tenant=Tenant("acme\U0001f600"), answer='"\x00\N{SNOWMAN}'), lone(2))
    assert read_traces(write_traces(traces)) == traces
    prepared = [*prepare_each(preparer(), traces), None]
    assert [read_prepared(write_prepared(one)) for one in prepared] == prepared
    assert any(one.redacted for one in prepared if one)


def test_a_text_that_is_not_unicode_is_prepared_elsewhere() -> None:
    assert read_prepared(write_prepared(Prepared(names=("\ud800",)))) is None


def test_a_message_longer_than_any_is_refused() -> None:
    message = with_length(b"abc")
    assert (length_of(message[:LENGTH_BYTES]), message[LENGTH_BYTES:]) == (3, b"abc")
    with pytest.raises(ValueError, match="4294967295"):
        length_of(b"\xff" * LENGTH_BYTES)


@pytest.mark.parametrize("message", [b"[1]", b"{}", b"7", b"{", b'[{"names": 1}]', b"[" * 99_999])
def test_nonsense_is_not_accepted_as_a_prepared_run(message: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_prepared(message)


def test_a_process_gets_no_secret_and_no_address() -> None:
    environ = {
        "BLAMESPAN_FORWARD_ENDPOINT": "http://jaeger:4317",
        "BLAMESPAN_FORWARD_HEADERS": "key=hunter2",
        "BLAMESPAN_TOKEN": "hunter2",
        "BLAMESPAN_REDACT_PATTERNS": "acme-[0-9]+",
    }
    settings = load_settings(environ)
    sent = worker_settings(settings)
    assert not any(word in sent for word in (b"jaeger", b"hunter2"))
    assert Settings.model_validate(json.loads(sent)[0]).redact_patterns == ("acme-[0-9]+",)


def test_a_process_gets_every_setting_that_it_reads() -> None:
    read: set[str] = set()

    class Read(Settings):
        def __getattribute__(self, name: str) -> object:
            if name in Settings.model_fields:
                read.add(name)
            return super().__getattribute__(name)

    settings = Read()  # type: ignore[call-arg]
    read.clear()
    analyst = open_analyst(settings)
    preparer_of(settings, analyst, analyst.unasked, open_cleaner(settings))
    # The ranker is sent itself; ``work_from_settings`` reads ``asks_analyzers``.
    assert read - {"ranker"} | {"asks_analyzers"} == NEEDED


def test_a_process_of_a_collector_half_leaves_failed_runs_to_the_analyzers() -> None:
    settings = collector_settings(load_settings({"BLAMESPAN_MODEL": "openai/x"}))
    there = work_from_settings(worker_settings(settings)).prepare
    fine = replace(lone(1), bodies=(encode((workflow(1), chat(2, answer="4", agent_name="planner"))),))
    (failed,), (passed,) = there(lone(1)).runs, there(fine).runs
    assert isinstance(failed, ToAsk)
    assert failed.run.trajectory.task
    assert isinstance(passed, Analysed)


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

    async def prepare(self, traces: Sequence[TraceBytes]) -> list[Prepared | None]:
        self.asked.append(list(traces))
        self.has_work.set()
        await self.ended.wait()
        raise WorkerLostError("it was ended")


async def test_no_process_is_started_after_the_end() -> None:
    stuck = StuckWorker()
    workers = Workers(stuck, MortalWorker())
    executor, pool = over(workers)
    under_way = asyncio.ensure_future(together(executor, lone(2)))
    await stuck.has_work.wait()
    await pool.close()
    assert names(await under_way) == [f"{2:032x}"]
    assert workers.given == [stuck]


async def test_traces_are_shared_among_a_fixed_number_of_processes() -> None:
    workers = Workers(*(MortalWorker() for _ in range(3)))
    executor, pool = over(workers, size=2)
    await together(executor, lone(1))
    assert pool.counters.processes == 1, "one process is enough for one trace"
    found = await together(executor, *map(lone, range(1, 5)))
    assert names(found) == [f"{number:032x}" for number in range(1, 5)]
    assert pool.counters.processes == 2
    await together(executor, *map(lone, range(1, 9)))
    assert [len(one.asked) > 1 for one in workers.given] == [True, True], "no more than two"
    await pool.close()
    assert pool.counters.processes == 0


async def test_a_trace_that_computes_without_end_ends_one_of_two_processes() -> None:
    workers = Workers(*(MortalWorker(deadly=[ENDLESS]) for _ in range(3)))
    executor, pool = over(workers, size=2)
    found = await together(executor, lone(1), ENDLESS, lone(2), lone(3))
    assert [isinstance(one, AnalysisLostError) for one in found] == [False, True, False, False]
    assert pool.counters.ended == 1
    await pool.close()


async def test_if_no_process_can_be_started_the_running_ones_go_on() -> None:
    workers = Workers(MortalWorker())
    executor, pool = over(workers, size=2)
    await together(executor, lone(1), lone(2))
    assert pool.size == 1
    await together(executor, lone(3), lone(4))
    assert workers.given[0].asked[-1] == [lone(3), lone(4)]
    await pool.close()


async def test_an_analysis_that_is_cancelled_keeps_no_process_from_work() -> None:
    stuck = StuckWorker()
    executor, pool = over(Workers(stuck, MortalWorker()))
    cancelled = asyncio.ensure_future(together(executor, lone(2)))
    await stuck.has_work.wait()
    cancelled.cancel()
    following = asyncio.ensure_future(together(executor, lone(3)))
    await asyncio.sleep(0)
    await stuck.end()
    assert names(await following) == [f"{3:032x}"]
    await pool.close()


async def test_a_large_trace_keeps_no_other_waiting() -> None:
    workers = Workers(MortalWorker(), MortalWorker())
    executor, pool = over(workers)
    large = lone(2, answer="x" * LARGE_BYTES)
    await together(executor, large, lone(3))
    assert [lone(3)] in [asked for worker in workers.given for asked in worker.asked]
    assert [large] in [asked for worker in workers.given for asked in worker.asked]
    await pool.close()


async def test_large_traces_of_tenants_are_prepared_in_turn() -> None:
    workers = Workers(MortalWorker())
    executor, pool = over(workers)
    text = "x" * LARGE_BYTES
    storm = [lone(number, answer=text) for number in range(2, 6)]
    calm = lone(9, tenant=Tenant("calm"), answer=text)
    await together(executor, *storm, calm)
    large = [one for asked in workers.given[-1].asked for one in asked if one.byte_count > LARGE_BYTES]
    assert [one.key for one in large] == [one.key for one in (*storm[:2], calm, *storm[2:])]
    await pool.close()


async def test_a_tenant_whose_traces_take_long_lets_others_go_first() -> None:
    storm, calm = Tenant("storm"), lone(9, tenant=Tenant("calm"))
    worker = MortalWorker()
    executor, pool = over(Workers(worker), clock=Clock(2 * LONG_S))
    await together(executor, lone(1, tenant=storm))
    waiting = [lone(number, tenant=storm) for number in (2, 3)]
    await together(executor, *waiting, calm)
    assert worker.asked[1:] == [[calm], *([one] for one in waiting)]
    await pool.close()


async def test_a_tenant_is_charged_for_its_own_lost_traces_and_not_for_ever() -> None:
    storm, calm = lone(17, tenant=Tenant("storm")), lone(9, tenant=Tenant("calm"))
    workers = Workers(MortalWorker(deadly=[storm]), MortalWorker())
    clock = Clock(LONG_S / 10)
    executor, pool = over(workers, clock=clock)
    await together(executor, storm, calm)
    after = lone(2, tenant=Tenant("storm"))
    await together(executor, after, calm)
    clock.now += FORGET_S
    await together(executor, calm)
    await together(executor, after, calm)
    assert workers.given[1].asked == [[calm], [calm], [after], [calm], [after, calm]]
    await pool.close()


async def test_a_large_trace_does_not_wait_for_one_that_no_process_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executing, "LARGEST_BYTES", 2 * LARGE_BYTES)
    workers = Workers(MortalWorker())
    executor, pool = over(workers)
    async with executor._largest.turn(NO_TENANT):
        huge = asyncio.create_task(executor(lone(3, answer="x" * 3 * LARGE_BYTES)))
        large = await together(executor, lone(2, answer="x" * LARGE_BYTES))
        assert names(large) == [f"{2:032x}"]
        assert not huge.done()
    await huge
    await pool.close()


async def test_a_trace_beyond_all_bounds_is_prepared_here(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, pool = over(Workers(MortalWorker()))
    monkeypatch.setattr(executing, "LARGEST_BYTES", 2 * LARGE_BYTES)
    assert names(await together(executor, lone(3, answer="x" * 3 * LARGE_BYTES))) == [f"{3:032x}"]
    assert pool.counters.started == 0
    await pool.close()


async def test_a_tenant_that_is_not_unicode_is_prepared_here() -> None:
    executor, pool = over(Workers(MortalWorker()))
    assert names(await together(executor, lone(2, tenant=Tenant("\udcff")))) == [f"{2:032x}"]
    await pool.close()


@pytest.mark.parametrize(("cores", "expected"), [(0.5, 1), (1.0, 1), (2.0, 1), (4.0, 3), (8.9, 7), (64.0, 8)])
def test_by_default_one_core_is_left_to_the_service(cores: float, expected: int) -> None:
    assert processes(load_settings({}), lambda: cores) == expected
    assert processes(load_settings({"BLAMESPAN_CONCURRENCY": "2"}), lambda: cores) == min(expected, 2)
    assert processes(load_settings({}, analysis_processes=12), lambda: cores) == 12


def test_the_control_group_limits_the_cores(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/kubepods/pod1\n")
    group = tmp_path / "kubepods" / "pod1"
    group.mkdir(parents=True)
    every = usable_cores(tmp_path, tmp_path / "none")
    (group / "cpu.max").write_text("max 100000\n")
    assert usable_cores(tmp_path, own) == every
    (group.parent / "cpu.max").write_text("50000 100000\n")
    assert usable_cores(tmp_path, own) == 0.5
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("25000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert usable_cores(tmp_path, own) == 0.25


def test_memory_is_that_of_the_smallest_control_group(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/kubepods/pod1\n")
    group = tmp_path / "kubepods" / "pod1"
    group.mkdir(parents=True)
    machine = usable_memory(tmp_path, tmp_path / "none")
    assert machine > 256 << 20
    (group / "memory.max").write_text("max\n")
    assert usable_memory(tmp_path, own) == machine
    (group.parent / "memory.max").write_text("104857600\n")
    assert usable_memory(tmp_path, own) == 100 << 20
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("52428800")
    assert usable_memory(tmp_path, own) == 50 << 20
