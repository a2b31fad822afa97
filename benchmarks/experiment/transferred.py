"""Rankers trained on injected labels of a system, and on those of the other systems, on its organic failures.

Not a claim about other systems: the three share a script, and organic failures come from the same model.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from analyzer.evaluation.dataset import read_dataset
from analyzer.evaluation.significance import paired
from analyzer.evaluation.training import train
from analyzer.evaluation.validation import named, prepare
from analyzer.experiment.injection.gates import balanced_weights
from analyzer.experiment.injection.injector import Failure
from analyzer.inquiry.conversation import Conversation
from analyzer.methods.learned.ranker import Ranker
from analyzer.methods.without_model import judge_by_signals, rank
from benchmarks.experiment.ranked import Judged, Method, judged
from benchmarks.experiment.systems import FLOWS, share
from semconv.record import replace

LABELS: Final = 60
"""Labels a ranker is trained on, of its own system or of the others together."""


def transferred(systems: Sequence[str], number: int, labels: Path) -> int:
    """Print step accuracy on organic failures, and the paired comparison of the two rankers.

    Args:
        systems: the systems whose failures are judged.
        number: organic failures a system; those without a decidable call are left out.
        labels: what ``injected`` wrote, for all systems.
    """
    by_system = {system: _of(labels, system) for system in FLOWS}
    own_right: list[bool] = []
    other_right: list[bool] = []
    for system in systems:
        others = [each for name, runs in by_system.items() if name != system for each in runs]
        own, other = _trained(by_system[system]), _trained(others)
        found = asyncio.run(judged(system, number, _methods(own, other)))
        ours, theirs = _right(found, "own"), _right(found, "other")
        own_right, other_right = own_right + ours, other_right + theirs
        _print(system, _right(found, "signals"), ours, theirs)
    if len(systems) > 1:
        _print("all", None, own_right, other_right)
    return 0


def _methods(own: Ranker, other: Ranker) -> dict[str, Method]:
    return {
        "signals": lambda trajectory: judge_by_signals(trajectory).ranking,
        "own": lambda trajectory: rank(own, trajectory).ranking,
        "other": lambda trajectory: rank(other, trajectory).ranking,
    }


def _of(labels: Path, system: str) -> list[Conversation]:
    """Return a system's labels, with the weights that ``blamespan inject`` writes."""
    runs = [run for run in read_dataset(labels) if run.source == system]
    failures = []
    for run in runs:
        assert run.label is not None
        assert run.label.step is not None
        document = {"label": {"weight": run.label.trust}}
        failures.append(
            Failure(
                trajectory=run.trajectory,
                step=run.label.step,
                agent=run.label.agent or "",
                document=document,
            )
        )
    weights = balanced_weights(failures)
    return [
        replace(run, label=replace(run.label, trust=weight))
        for run, weight in zip(runs, weights, strict=True)
        if run.label is not None
    ]


def _trained(runs: Sequence[Conversation]) -> Ranker:
    drawn = random.Random(0).sample(list(runs), min(LABELS, len(runs)))
    print(f"    trained on {len(drawn)} injected labels", flush=True)
    return train([one.example for one in named(prepare(drawn))])


def _right(found: Sequence[Judged], method: str) -> list[bool]:
    return [each.named[method][0] == each.step for each in found]


def _print(system: str, signals: list[bool] | None, own: list[bool], other: list[bool]) -> None:
    result = paired(own, other)
    shown = "" if signals is None else f"signals {share([one for one in signals if one], signals)} | "
    print(
        f"{system}: {len(own)} organic failures | {shown}own {share([one for one in own if one], own)} |"
        f" others' {share([one for one in other if one], other)} | only own {result.only_first}, only others'"
        f" {result.only_second}, p {result.p_value:.3f}",
        flush=True,
    )
