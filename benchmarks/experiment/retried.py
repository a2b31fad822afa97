"""The gate of retries: on simulated workflows whose shares are known, and on the example systems."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import aiohttp

from analyzer.evaluation.significance import mcnemar
from analyzer.executor.composition import open_analyst
from analyzer.executor.models.completion import price_of
from analyzer.experiment.call_budget import Ledger
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import Tape
from analyzer.experiment.retry.retry_gate import SURE, Share, probability_of_gain
from analyzer.experiment.retry.retry_pilot import (
    INTERVENTIONS,
    Pilot,
    PilotRun,
    RetryPilot,
    Trigger,
    suspected_call,
)
from analyzer.experiment.running.checks import Contains
from analyzer.experiment.running.trial_runner import Options, Parts
from analyzer.experiment.running.workflow import Function
from analyzer.inquiry.intervals import wilson
from benchmarks.experiment.light import talk
from benchmarks.experiment.systems import Order, order, scripted_model
from collector_processor.settings import load_settings
from semconv.model import Blame, Status

# isort: split
from model_server import ScriptedModel  # type: ignore[import-not-found]  # ``light`` sets the path
from script import read_order  # type: ignore[import-not-found]

RECOVERED = (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
DISRUPTED = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
FAILED = (0.1, 0.2, 0.35, 0.5, 0.7)
PILOTS = (50, 100, 200, 400)
NEGLIGIBLE = 0.03
"""Gain from which a decision matters: 3 runs of 100."""
DOUBTS = 0.6
"""Probability with which the doubting model changes a number when it is told that it may be wrong."""
_NUMBER = re.compile(r"\d+")
TOOLS = frozenset({"look_up_price"})


def gates(number: int) -> int:
    """Print how often the gate is right, over a grid of r, d and p; each row is one size of the pilot."""
    print(f"{len(RECOVERED)} r x {len(DISRUPTED)} d x {len(FAILED)} p, {number} pilots each")
    for n in PILOTS:
        coin, counts = random.Random(f"gates {n}"), Counter[str]()
        for r, d, p in itertools.product(RECOVERED, DISRUPTED, FAILED):
            gain = p * r - (1 - p) * d
            for _ in range(number):
                _count(counts, gain, _simulated(n, (r, d, p), coin))
        decided = counts["right"] + counts["wrong"]
        print(
            f"{n} pilot runs: rule d/(r+d) as measured right {_share(counts['rule'], counts['all'])},"
            f" where the gain is beyond {NEGLIGIBLE} {_share(counts['rule matters'], counts['matters'])};"
            f" gate decides {_share(decided, counts['all'])}, right {_share(counts['right'], decided)};"
            f" intervenes where it harms {_share(counts['harm'], counts['harmful'])}",
            flush=True,
        )
    return 0


def _count(counts: Counter[str], gain: float, probability: float) -> None:
    is_rule_right = (probability > 0.5) == (gain > 0)
    counts["all"] += 1
    counts["rule"] += is_rule_right
    if abs(gain) > NEGLIGIBLE:
        counts["matters"] += 1
        counts["rule matters"] += is_rule_right
    counts["harmful"] += gain < 0
    counts["harm"] += gain < 0 and probability >= SURE
    if probability >= SURE or probability <= 1 - SURE:
        counts["right" if (probability >= SURE) == (gain > 0) else "wrong"] += 1


def _simulated(n: int, rates: tuple[float, float, float], coin: random.Random) -> float:
    r, d, p = rates
    failed = sum(coin.random() < p for _ in range(n))
    recovered = sum(coin.random() < r for _ in range(failed))
    disrupted = sum(coin.random() < d for _ in range(n - failed))
    return _probability((failed, n), (recovered, failed), (disrupted, n - failed))


@cache
def _probability(failed: tuple[int, int], recovered: tuple[int, int], disrupted: tuple[int, int]) -> float:
    shares = (Share(k=k, n=n) for k, n in (failed, recovered, disrupted))
    return probability_of_gain(*shares)


def _share(k: int, n: int) -> str:
    found = wilson(k, n)
    return f"{100 * k / max(1, n):.1f} % [{100 * found.low:.1f}, {100 * found.high:.1f}] of {n}"


class Doubting(ScriptedModel):  # type: ignore[misc]  # the examples are not a package
    """A model that gives in when it is doubted: a hint often makes it change a right number."""

    def _reply(self, body: dict[str, Any]) -> Any:
        said = super()._reply(body)
        last = body["messages"][-1]
        is_hinted = last["role"] == "user" and read_order(str(last["content"])) is None
        if said is None or not is_hinted or self._coin.random() >= DOUBTS:
            return said
        return replace(said, text=_NUMBER.sub(lambda found: str(int(found[0]) + 3), said.text, count=1))


def retried(systems: list[str], number: int) -> int:
    """Measure r and d of the example systems, and print what the gates say."""
    for system, model in itertools.product(systems, (ScriptedModel, Doubting)):
        began = time.monotonic()
        found = asyncio.run(_system(system, number, model))
        _print(f"{system}, {model.__name__}", number, found, time.monotonic() - began)
    return 0


async def _system(system: str, number: int, model: type[Any]) -> RetryPilot:
    analyst = open_analyst(load_settings({}))
    async with scripted_model(seed=1, model=model) as url, aiohttp.ClientSession() as session:
        ledger = Ledger(price_of, budget_usd=1e6)
        options = GatewayOptions(openai=url, allow_tools=TOOLS, reserve=ledger.reserve, settle=ledger.settle)
        async with serving(options) as gateway:
            orders: dict[str, Order] = {}
            runs = []
            for task in range(20_000, 20_000 + number):  # other orders than those of the other measurements
                run_id = hashlib.sha256(f"{system} {task}".encode()).hexdigest()[:32]
                orders[run_id] = order(task)
                said = await talk(session, system, orders[run_id], url, run_id)
                run = said.run(run_id, system)
                attribution = (await analyst.analyse(run.trajectory)).attribution
                verdict = attribution.verdict
                if not isinstance(verdict, Blame):
                    verdict = analyst.attributor.at_once(run.trajectory).verdict
                tape = read_tape(run, allow_tools=TOOLS)
                assert isinstance(tape, Tape), tape
                call = suspected_call(tape, verdict.ranking)
                assert call is not None
                runs.append(
                    PilotRun(
                        name=run_id,
                        tape=tape,
                        call=call,
                        fix=verdict.fix if isinstance(verdict, Blame) else "",
                        is_flagged=attribution.status in {Status.ATTRIBUTED, Status.SUSPECTED},
                    )
                )

            def parts(run: PilotRun) -> Parts:
                asked = orders[run.name]

                async def workflow(environment: Mapping[str, str]) -> str:
                    return (await talk(session, system, asked, environment["OPENAI_BASE_URL"])).texts[-1]

                return Parts(
                    gateway=gateway,
                    workflow=Function(call=workflow),
                    check=Contains(text=f"answer = {asked.right['answer']}."),
                    ledger=ledger,
                    clock=time.monotonic,
                )

            pilot = Pilot(parts, ledger, Options(timeout_s=60))
            await pilot.run(runs, lambda _: None)
            return pilot.result()


def _print(system: str, number: int, found: RetryPilot, seconds: float) -> None:
    refused = [each.refused for each in found.tried if each.refused]
    print(f"{system}: {number} runs, {len(refused)} left out, {seconds:.0f} s")
    for reason, n in Counter(refused).items():
        print(f"    {n}: {reason}")
    for report in found.arms:
        print(
            f"    {report.arm}: recovers {_share(report.recovered.k, report.recovered.n)}, disrupts"
            f" {_share(report.disrupted.k, report.disrupted.n)}; {report.spent.calls} live calls,"
            f" ${report.spent.cost_usd or 0:.4f}, as blind {report.costs_as_blind}, {report.invalid} invalid"
        )
    for arm in INTERVENTIONS:
        for on in Trigger:
            gate = found.gates[arm][on]
            failed = f"{gate.failed.k} of {gate.failed.n} failed ({gate.failed.rate:.2f})"
            gain = f"gain {gate.gain:+.3f} {gate.interval}"
            print(f"    gate, {arm} {on}: {gate.choice}: {failed}, d/(r+d) {gate.threshold:.2f}, {gain}")
    for arm, pair in found.against_blind.items():
        p_value = mcnemar(pair.only_first, pair.only_second)
        print(f"    {arm} against blind: better {pair.only_second}, worse {pair.only_first}, p {p_value:.3f}")
