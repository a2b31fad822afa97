"""Accuracy of methods without a model on failed runs of the example systems, with no trial played."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from analyzer.methods.learned.model_file import read_model
from analyzer.methods.without_model import judge_by_signals, rank
from benchmarks.experiment.light import talk
from benchmarks.experiment.systems import FLOWS, decisive, order, scripted_model, share, succeeded
from semconv.model import Ranked, Trajectory

Method = Callable[[Trajectory], tuple[Ranked, ...]]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The decisive call of one run, and what each method names."""

    step: int
    agent: str | None
    named: dict[str, tuple[int | None, str | None]]


def ranked(systems: list[str], number: int, ranker: Path) -> int:
    """Print the step and agent accuracy of signals and of a trained ranker, on the same decidable runs."""
    trained = read_model(ranker.read_text(encoding="utf-8"))
    methods: dict[str, Method] = {
        "signals": lambda trajectory: judge_by_signals(trajectory).ranking,
        "ranker": lambda trajectory: rank(trained, trajectory).ranking,
    }
    every: list[Judged] = []
    for system in systems:
        found = asyncio.run(judged(system, number, methods))
        every += found
        _print(system, found)
    _print("all", every)
    return 0


async def judged(system: str, number: int, methods: dict[str, Method]) -> list[Judged]:
    """Play a system until a number of runs have failed; return those with a decidable call."""
    found: list[Judged] = []
    failed = task = 0
    async with scripted_model(seed=1) as url, aiohttp.ClientSession() as session:
        while failed < number:
            asked, task = order(task), task + 1
            run_id = hashlib.sha256(f"{system} {asked.number}".encode()).hexdigest()[:32]
            said = await talk(session, system, asked, url, run_id)
            if succeeded(asked, said.texts[-1]):
                continue
            failed += 1
            truth: int | None = decisive(system, asked, said.texts)
            if truth is not None:
                found.append(_of(said.run(run_id, system).trajectory, said.spans[truth].span_id, methods))
    return found


def _of(trajectory: Trajectory, decided: str, methods: dict[str, Method]) -> Judged:
    (right,) = [step for step in trajectory.steps if step.span_id == decided]
    named: dict[str, tuple[int | None, str | None]] = {}
    for name, method in methods.items():
        ranking = method(trajectory)
        named[name] = (ranking[0].step, ranking[0].agent) if ranking else (None, None)
    return Judged(step=right.index, agent=right.agent, named=named)


def _print(system: str, found: list[Judged]) -> None:
    cells: list[Any] = [system, len(found)]
    for name in found[0].named:
        steps = [each for each in found if each.named[name][0] == each.step]
        agents = [each for each in found if each.named[name][1] == each.agent]
        cells += [f"{name}: step {share(steps, found)}", f"agent {share(agents, found)}"]
    print(" | ".join(map(str, cells)), flush=True)


__all__ = ["FLOWS", "Judged", "Method", "judged", "ranked"]
