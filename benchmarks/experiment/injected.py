"""Injected faults on the example systems, whose script knows the decisive call of each failed rerun."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import aiohttp

from analyzer.executor.models.completion import price_of
from analyzer.experiment.call_budget import Ledger
from analyzer.experiment.captured import Capture, capturing
from analyzer.experiment.injection.gates import gate_line, purity, shortcut_gates
from analyzer.experiment.injection.injector import Failure, Injector, Plan, Tried
from analyzer.experiment.injection.organic import likeness_line, likenesses, samples_of
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import Gateway, serving
from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import Tape
from analyzer.experiment.running.checks import Contains
from analyzer.experiment.running.trial_runner import Options, Parts
from analyzer.experiment.running.workflow import Function
from benchmarks.experiment.light import talk
from benchmarks.experiment.systems import FLOWS, Order, decisive, order, scripted_model, share, succeeded
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import Run

TOOLS = frozenset({"look_up_price"})


@dataclass
class Found:
    """Results of one system."""

    tried: list[Tried] = field(default_factory=list)
    tapes: list[Tape] = field(default_factory=list)
    right: list[Failure] = field(default_factory=list)
    """Labels at the call that the script calls decisive."""
    unsaid: int = 0
    """Labels of runs in which the script sees no decisive call."""

    def add(self, other: Found) -> None:
        """Add the results of another seed."""
        self.tried += other.tried
        self.tapes += other.tapes
        self.right += other.right
        self.unsaid += other.unsaid


def injected(systems: list[str], number: int, out: Path, seeds: Sequence[int] = (0,)) -> int:
    """Inject faults into ``number`` passing runs of each seed; print how many labels the script confirms."""
    for system in systems:
        found = Found()
        for seed in seeds:
            found.add(asyncio.run(_system(system, number, out, seed)))
        labels = [each.failure for each in found.tried if each.failure is not None]
        pure = purity(found.tried)
        said = len(labels) - found.unsaid
        print(
            f"{system}: {len(found.tapes)} passing runs, {pure.tried} faults tried, {pure.kept} labels;"
            f" the script confirms {len(found.right)} of {said}: {share(found.right, [0] * said)}; it sees no"
            f" decisive call in {found.unsaid}"
        )
        print(f"    trials: {_trials(found.tried)}")
        for reason, n in pure.discarded:
            print(f"    discarded {n}: {reason}")
        for gate in shortcut_gates(labels, found.tapes):
            print(f"    {gate_line(gate)}", flush=True)
        for one in likenesses(samples_of(found.tried)):
            print(f"    {likeness_line(one)}", flush=True)
    return 0


def _trials(tried: Sequence[Tried]) -> str:
    """Return the mean trials of a fault, and those with the recorded answer that a call's faults share."""
    own = mean(each.twin.faulty.n + each.twin.restored.n for each in tried)
    shared: dict[tuple[str, int], int] = {}
    for each in tried:
        place = each.run_id, each.fault.call.index
        shared[place] = max(shared.get(place, 0), each.twin.recorded.n)
    return f"{own:.1f} of a fault, {mean(shared.values()):.1f} of a call with its recorded answer"


async def _system(system: str, number: int, out: Path, seed: int) -> Found:
    found, task = Found(), 10_000 * (seed + 1)  # other orders than those of the other measurements
    passing: list[_OneRun] = []
    async with (
        scripted_model(seed=seed + 1) as url,
        aiohttp.ClientSession() as session,
        capturing() as capture,
    ):
        ledger = Ledger(price_of, budget_usd=1e6)
        options = GatewayOptions(openai=url, allow_tools=TOOLS, reserve=ledger.reserve, settle=ledger.settle)
        async with serving(options) as gateway:
            while len(passing) < number:
                asked, task = order(task), task + 1
                run_id = hashlib.sha256(f"{system} {asked.number}".encode()).hexdigest()[:32]
                said = await talk(session, system, asked, url, run_id)
                if succeeded(asked, said.texts[-1]):
                    passing.append(_OneRun(system, asked, said.run(run_id, system), session))
            found.tapes += [one.tape() for one in passing]
            plan = Plan(allow_tools=TOOLS, seed=seed, others=tuple(found.tapes))
            for one in passing:
                await one.inject(found, plan, Around(gateway, capture, ledger, out))
    return found


@dataclass(frozen=True)
class Around:
    """What all runs of a system share."""

    gateway: Gateway
    capture: Capture
    ledger: Ledger
    out: Path


@dataclass
class _OneRun:
    system: str
    asked: Order
    run: Run
    session: aiohttp.ClientSession

    def tape(self) -> Tape:
        """Return the run's tape."""
        tape = read_tape(self.run, allow_tools=TOOLS)
        assert isinstance(tape, Tape), tape
        return tape

    async def inject(self, found: Found, plan: Plan, around: Around) -> None:
        """Try the run's faults."""
        parts = Parts(
            gateway=around.gateway,
            workflow=Function(call=self._workflow),
            check=Contains(text=f"answer = {self.asked.right['answer']}."),
            ledger=around.ledger,
            clock=time.monotonic,
            telemetry=around.capture.environment,
        )
        injector = Injector(self.run, self.tape(), parts, Options(timeout_s=600), around.capture)
        result = await injector.run(plan, lambda _: None)
        assert not result.refused, result.refused
        found.tried += result.tried
        with around.out.open("a", encoding="utf-8") as file:
            for failure in filter(None, (each.failure for each in result.tried)):
                file.write(json.dumps({**failure.document, "source": self.system}) + "\n")
                self._judge(failure, found)

    def _judge(self, failure: Failure, found: Found) -> None:
        texts = [step.output for step in failure.trajectory.steps]
        truth = decisive(self.system, self.asked, texts) if len(texts) == len(FLOWS[self.system]) else None
        found.unsaid += truth is None
        if truth is not None and truth == failure.step:
            found.right.append(failure)

    async def _workflow(self, environment: Mapping[str, str]) -> str:
        run_id = hashlib.sha256(environment["BLAMESPAN_TRIAL"].encode()).hexdigest()[:32]
        said = await talk(self.session, self.system, self.asked, environment["OPENAI_BASE_URL"], run_id)
        body = encode(said.run(run_id, self.system).trace.spans)
        headers = {"Content-Type": "application/x-protobuf"}
        url = environment["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
        async with self.session.post(url, data=body, headers=headers) as answer:
            answer.raise_for_status()
        return said.texts[-1]
