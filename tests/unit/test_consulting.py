"""Steps of analyses that ask a model, on threads and in a worker process."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pytest

from analyzer.analyses import consulting
from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.consulting import Order, Stepper, ThreadSteps
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.analyses.pool import Pool, Worker
from analyzer.analyses.prepared import Prepared, TraceBytes
from analyzer.analyses.worker_process import WorkerLostError, worker_settings
from analyzer.inquiry.method import Answer, Reply, Steps
from analyzer.methods.attribution import Attributor
from collector_processor.settings import Settings, load_settings
from semconv.model import SpanStatus, Status, Trajectory
from semconv.record import record
from tests.runs import run, step

RUN: Final = run(
    step("a", "plan"),
    step("b", "5 + 5 = 11"),
    step("c", "so 11"),
    task="add",
    root_status=SpanStatus.ERROR,
    root_error="wrong",
)
REPLY: Final = json.dumps({"reason": "r", "step": 1, "evidence": [{"step": 1, "quote": "= 11"}]})
SETTINGS: Final = load_settings({"BLAMESPAN_MODEL": "openai/x"})


def analyst(model: ScriptedModel, **fields: object) -> RunAnalyst:
    return replace(RunAnalyst(attributor=Attributor(model=model)), **fields)  # type: ignore[arg-type]


def told(settings: Settings = SETTINGS) -> bytes:
    return worker_settings(settings)


def test_worker_processes_withhold_verdicts_as_the_service_does() -> None:
    assert b'"precision": 0.7' in told(load_settings({"BLAMESPAN_PRECISION": "0.7"}))


@record
class Dying:
    """A worker process that dies of the first step."""

    used_up_cpu: bool
    pid: int = 1

    async def prepare(self, _: Sequence[TraceBytes]) -> list[Prepared | None]:
        raise AssertionError

    async def exchange(self, _: bytes) -> bytes:
        raise WorkerLostError("it died", used_up_cpu=self.used_up_cpu)

    async def end(self) -> None:
        """It has ended already."""


@pytest.mark.parametrize("used_up_cpu", [False, True])
async def test_a_step_that_kills_its_process_is_tried_again_unless_it_took_too_long(
    used_up_cpu: bool,
) -> None:
    workers = [Dying(used_up_cpu=used_up_cpu)]

    async def start() -> Worker:
        if not workers:
            raise WorkerLostError("no memory")
        return workers.pop()

    model = ScriptedModel(replies=[REPLY])
    stepping = partial(Pool(start).step, instead=ThreadSteps(analyst(model).steps))
    found = (await analyst(model, stepping=stepping).analyse(RUN)).attribution
    assert found.status is (Status.ERROR if used_up_cpu else Status.ATTRIBUTED)
    assert ("CPU time" in (found.error or "")) is used_up_cpu


async def test_a_process_that_was_started_ahead_does_the_first_analysis_whichever_it_is() -> None:
    for _ in range(8):  # an analysis has one of eight slots by its id, which is random
        started = list[Dying]()

        async def start(started: list[Dying] = started) -> Worker:
            started.append(Dying(used_up_cpu=True))
            return started[-1]

        pool = Pool(start, size=8)
        await pool.start_ahead()
        await pool.start_ahead()
        model = ScriptedModel(replies=[])
        stepping = partial(pool.step, instead=ThreadSteps(analyst(model).steps))
        found = (await analyst(model, stepping=stepping).analyse(RUN)).attribution
        assert "CPU time" in (found.error or "")
        assert len(started) == 1
        await pool.close()


async def test_a_thread_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consulting, "THREAD_S", 0.1)
    go_on = threading.Event()

    class Stuck(Attributor):
        def steps(self, trajectory: Trajectory, marker: str) -> Steps:
            go_on.wait()
            return (yield from super().steps(trajectory, marker))

    stuck = RunAnalyst(attributor=Stuck(model=ScriptedModel(replies=[REPLY])))
    found = await stuck.analyse(RUN)
    go_on.set()
    assert found.attribution.status is Status.ERROR
    assert "more than 0.1 s" in (found.attribution.error or "")


def test_an_analysis_that_was_dropped_is_repeated_from_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consulting, "MOST_HELD", 1)
    model = ScriptedModel(replies=[])
    stepper = Stepper(analyst(model).steps)
    orders = [
        Order(
            id=name,
            trajectory=RUN,
            marker="#m",
            method="auto",
            model=consulting.ModelFacts(name="m", context_tokens=9_000),
        )
        for name in "ab"
    ]
    answers: list[Answer] = []
    for answer in (Reply(text="no"), Reply(text=REPLY)):
        questions = [stepper.step(order, answers) for order in orders]
        assert questions[0] == questions[1]
        answers.append(answer)
    assert stepper.step(orders[0], answers) == stepper.step(orders[1], answers)
