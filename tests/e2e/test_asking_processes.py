"""Steps of analyses that ask a model, in a real worker process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pytest

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.consulting import ThreadSteps
from analyzer.analyses.executor import COMMAND
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.analyses.pool import Pool
from analyzer.analyses.worker_process import WorkerProcess
from analyzer.inquiry.errors import ModelError, ModelFailure
from analyzer.inquiry.method import Reply
from semconv.model import Blame, Status
from tests.unit.test_consulting import REPLY, RUN, analyst, told


@pytest.fixture
async def started() -> AsyncIterator[list[WorkerProcess]]:
    processes: list[WorkerProcess] = []
    yield processes
    for process in processes:
        await process.end()


def in_process(
    started: list[WorkerProcess], model: ScriptedModel, command: Sequence[str] = COMMAND
) -> RunAnalyst:
    async def start() -> WorkerProcess:
        started.append(await WorkerProcess.start(told(), command))
        return started[-1]

    return analyst(model, stepping=partial(Pool(start).step, instead=ThreadSteps(analyst(model).steps)))


async def test_a_worker_process_finds_what_this_process_finds(started: list[WorkerProcess]) -> None:
    here = await analyst(ScriptedModel(replies=["no", REPLY])).analyse(RUN)
    there = await in_process(started, model := ScriptedModel(replies=["no", REPLY])).analyse(RUN)
    assert isinstance(there.attribution.verdict, Blame)
    assert there.attribution.effort.calls == 2
    assert len(model.prompts) == 2
    assert _timeless(there.document) == _timeless(here.document)
    assert len(started) == 1


def _timeless(document: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(document)
    return found | {"duration_s": 0}


async def test_an_exchange_ends_with_the_answer_of_the_process(started: list[WorkerProcess]) -> None:
    started.append(await WorkerProcess.start(b"settings", ("cat",)))
    async with asyncio.timeout(20):
        assert [await started[0].exchange(said) for said in (b"one", b"two")] == [b"one", b"two"]


async def test_a_models_failure_reaches_the_process(started: list[WorkerProcess]) -> None:
    failure = ModelError("gone", kind=ModelFailure.CONNECTION)
    found = await in_process(started, ScriptedModel(replies=[failure])).analyse(RUN)
    assert found.attribution.fallback is not None
    assert "(connection): gone" in found.attribution.fallback


async def test_a_process_that_is_killed_between_answers_loses_nothing(started: list[WorkerProcess]) -> None:
    class Killing(ScriptedModel):
        async def complete(self, prompt: object) -> Reply:
            os.kill(started[-1].pid, signal.SIGKILL)
            return await super().complete(prompt)  # type: ignore[arg-type]

    model = Killing(replies=["no", REPLY])
    found = await in_process(started, model).analyse(RUN)
    assert found.attribution.status is Status.ATTRIBUTED
    assert len(model.prompts) == 2, "nothing is asked twice"
    assert len(started) == 3


LOOPING: Final = (
    "from analyzer.analyses import worker\n"
    "from analyzer.analyses.worker import run\n"
    "def step(message):\n"
    "    while True: pass\n"
    "worker.TRACE_CPU_S = 0.2\n"
    "run(lambda told: worker.Work(prepare=None, step=step))\n"
)


async def test_a_step_that_never_ends_is_an_error_verdict(started: list[WorkerProcess]) -> None:
    model = ScriptedModel(replies=[REPLY])
    found = await in_process(started, model, (sys.executable, "-c", LOOPING)).analyse(RUN)
    assert found.attribution.status is Status.ERROR
    assert "more than 10 s of CPU time" in (found.attribution.error or "")
    assert (len(started), model.prompts) == (1, [])


async def test_many_analyses_share_one_process(started: list[WorkerProcess]) -> None:
    shared = in_process(started, ScriptedModel(replies=[REPLY] * 20))
    found = await asyncio.gather(*(shared.analyse(replace(RUN, run_id=str(n))) for n in range(20)))
    assert [one.attribution.run_id for one in found] == [str(n) for n in range(20)]
    assert {one.attribution.status for one in found} == {Status.ATTRIBUTED}
    assert len(started) == 1
