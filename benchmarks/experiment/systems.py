"""The example systems: failed runs whose decisive call the script knows, and the methods that find it.

Each line of the file is one failed run, so that an interrupted measurement can resume.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp

from analyzer.analyses.models.completion import price_of
from analyzer.experiment.findings import Experiment
from analyzer.experiment.open_experiment import Request, experiment
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import Tape
from analyzer.experiment.trial_runner import Options
from analyzer.experiment.workflow import Contains, Function
from analyzer.inquiry.intervals import wilson
from analyzer.methods.without_model import judge_by_signals
from benchmarks.experiment.light import Said, talk
from collector_processor.core.runs import Run

# isort: split
from model_server import serving as scripted_model  # type: ignore[import-not-found]  # ``light`` sets the path
from script import FLOWS, Order, decisive, order, succeeded  # type: ignore[import-not-found]


def _known(out: Path) -> list[dict[str, Any]]:
    """Return the rows measured so far."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


async def measure(system: str, number: int, out: Path) -> None:
    """Measure a number of failed runs of one system; append them to the file."""
    done = [each for each in _known(out) if each["system"] == system]
    task = max((each["order"] for each in done), default=-1)
    async with scripted_model(seed=1) as url, aiohttp.ClientSession() as session:
        while len(done) < number:
            task += 1
            asked = order(task)
            run_id = hashlib.sha256(f"{system} {task}".encode()).hexdigest()[:32]
            said = await talk(session, system, asked, url, run_id)
            if succeeded(asked, said.texts[-1]):
                continue
            done.append(await _measured(session, system, asked, said, said.run(run_id, system), url))
            with out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")


async def _measured(  # noqa: PLR0917 - a run and the address of its model
    session: aiohttp.ClientSession, system: str, asked: Order, said: Said, run: Run, url: str
) -> dict[str, Any]:
    tape = read_tape(run)
    assert isinstance(tape, Tape), tape
    truth = decisive(system, asked, said.texts)
    ranking = judge_by_signals(run.trajectory).ranking

    async def workflow(environment: Mapping[str, str]) -> str:
        texts = (await talk(session, system, asked, environment["OPENAI_BASE_URL"])).texts
        return texts[-1]

    found = await experiment(
        run,
        Function(call=workflow),
        Contains(text=f"answer = {asked.right['answer']}."),
        price_of,
        Request(
            ranking=ranking,
            options=Options(timeout_s=60),
            gateway=GatewayOptions(openai=url, allow_tools=frozenset({"look_up_price"})),
        ),
    )
    return _row(system, asked.number, truth, tape, ranking[0].step if ranking else None, found)


def _row(  # noqa: PLR0917 - a row's columns
    system: str, number: int, truth: int | None, tape: Tape, suspected: int | None, found: Experiment
) -> dict[str, Any]:
    """Return one measured run as JSON."""
    step = None if truth is None else tape.calls[truth].step
    named = found.decisive.candidate if found.decisive and found.decision == "proved" else None
    agents = {call.step: call.agent for call in tape.calls}
    return {
        "system": system,
        "order": number,
        "decisive": step,
        "decisive_agent": agents.get(step),
        "signals": suspected,
        "signals_agent": agents.get(suspected),
        "decision": found.decision.value,
        "step": named.step if named else None,
        "agent": named.agent if named else None,
        "calls": found.spent.calls,
        "usd": found.spent.cost_usd,
        "trials": found.trials,
        "seconds": round(found.duration_s, 2),
        "fidelity": [found.fidelity.served, found.fidelity.calls] if found.fidelity else None,
        "reason": found.reason[:300],
    }


def table(out: Path) -> None:
    """Print the measurements."""
    rows = _known(out)
    print("system n | decidable | decided | right step | agent | signals: step, agent | trials p50 p90 |")
    print("    calls p50 | $ p50 | proved where no call is decidable")
    for system in FLOWS:
        own = [each for each in rows if each["system"] == system]
        if own:
            print(_line(system, own))
    if rows:
        print(_line("all", rows))


def _line(system: str, rows: list[dict[str, Any]]) -> str:
    decidable = [each for each in rows if each["decisive"] is not None]
    decided = [each for each in decidable if each["decision"] == "proved"]
    right = [each for each in decided if each["step"] == each["decisive"]]
    agent = [each for each in decided if each["agent"] == each["decisive_agent"]]
    signals = [each for each in decidable if each["signals"] == each["decisive"]]
    named = [each for each in decidable if each["signals_agent"] == each["decisive_agent"]]
    trials = sorted(each["trials"] for each in rows)
    others = sum(each["decision"] == "proved" for each in rows if each["decisive"] is None)
    shares = (_share(decided, decidable), _share(right, decided), _share(agent, decided))
    cost = median(each["usd"] or 0 for each in rows)
    return (
        f"{system} {len(rows)} | {len(decidable)} | {' | '.join(shares)} | {_share(signals, decidable)},"
        f" {_share(named, decidable)} | {median(trials):.0f} {trials[int(0.9 * len(trials))]} |"
        f" {median(each['calls'] for each in rows):.0f} | {cost:.4f} |"
        f" {others} of {len(rows) - len(decidable)}"
    )


def _share(part: list[Any], whole: list[Any]) -> str:
    """Return a share in percent with Wilson's 95 % interval."""
    if not whole:
        return "-"
    found = wilson(len(part), len(whole))
    return f"{100 * len(part) / len(whole):.1f} [{100 * found.low:.0f}, {100 * found.high:.0f}]"


__all__ = ["FLOWS", "measure", "table"]
