"""A ranker trained on chosen runs against one trained on random runs: labels for the same accuracy."""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

import aiohttp

from analyzer.evaluation.dataset import read_dataset
from analyzer.evaluation.folds import families
from analyzer.evaluation.training import train
from analyzer.evaluation.validation import Labelled, named, prepare
from analyzer.inquiry.conversation import Conversation, Label
from analyzer.issues.labels.queue import Candidate, choose
from analyzer.methods.learned.ranker import Ranker, signal_shares, step_rows
from semconv.record import replace

FIRST = 8
"""Random labels that both begin with."""
BATCH = 4
STEPS = (8, 12, 16, 20, 24, 28, 32, 40, 48, 56)
RUNS = 260
"""Failed runs of each example system."""
MOST = STEPS[-1]


def chosen(datasets: Sequence[Path], number: int) -> int:
    """Print both learning curves of each data set, over random halves of it."""
    if datasets:
        found = {path.name: named(prepare(read_dataset(path))) for path in datasets}
    else:
        found = {system: asyncio.run(_system(system)) for system in ("pipeline", "orchestrator", "debate")}
    for name, runs in found.items():
        curves = [_repetition(runs, repetition) for repetition in range(number)]
        _print(name, len(runs), curves)
    return 0


async def _system(system: str) -> list[Labelled]:
    """Return failed runs of an example system, labelled by its script."""
    from benchmarks.experiment.light import talk  # noqa: PLC0415 - imports the examples
    from benchmarks.experiment.systems import decisive, order, scripted_model, succeeded  # noqa: PLC0415

    runs: list[Conversation] = []
    task = 40_000
    async with scripted_model(seed=1) as url, aiohttp.ClientSession() as session:
        while len(runs) < RUNS:
            asked, task = order(task), task + 1
            run_id = hashlib.sha256(f"{system} {task}".encode()).hexdigest()[:32]
            said = await talk(session, system, asked, url, run_id)
            place = None if succeeded(asked, said.texts[-1]) else decisive(system, asked, said.texts)
            if place is None:
                continue
            trajectory = said.run(run_id, system).trajectory
            calls = [step for step in trajectory.steps if step.output == said.texts[place]]
            if calls:
                label = Label(agent=calls[0].agent, step=calls[0].index)
                runs.append(Conversation(trajectory=trajectory, label=label, source=system))
    return named(prepare(runs))


Curve = dict[int, float]
"""Step accuracy by number of labels."""


def _repetition(runs: Sequence[Labelled], repetition: int) -> tuple[Curve, Curve]:
    """Return the curves of random and of chosen labels on one random half, measured on the other."""
    coin = random.Random(repetition)
    pool, tested = _halves(runs, coin)
    coin.shuffle(pool)
    counts = [n for n in STEPS if n < len(pool)]
    at_random = {n: _accuracy(_trained(pool[:n]), tested) for n in (*counts, len(pool))}
    taken, rest = list(pool[:FIRST]), list(pool[FIRST:])
    by_choice: Curve = {}
    while True:
        ranker = _trained(taken)
        if len(taken) in STEPS:
            by_choice[len(taken)] = _accuracy(ranker, tested)
        if len(taken) >= min(MOST, len(pool)) or not rest:
            return at_random, by_choice
        names = {f"{at}": one for at, one in enumerate(rest)}
        labelled = Counter(_issue(one, one.example.step) for one in taken)
        asked = choose(_candidates(names, ranker, repetition), labelled, BATCH)
        picked = {question.candidate.name[1] for question in asked}
        taken += [names[name] for name in sorted(picked)]
        rest = [one for name, one in names.items() if name not in picked]


def _halves(runs: Sequence[Labelled], coin: random.Random) -> tuple[list[Labelled], list[Labelled]]:
    """Split the runs; related ones stay on one side."""
    family = families([one.example.keys for one in runs], most=max(1, len(runs) // 5))
    names = sorted(set(family))
    coin.shuffle(names)
    held = set(names[: len(names) // 2])
    pool = [one for one, its in zip(runs, family, strict=True) if its not in held]
    return pool, [one for one, its in zip(runs, family, strict=True) if its in held]


def _candidates(names: Mapping[str, Labelled], ranker: Ranker, repetition: int) -> list[Candidate]:
    """Return the pool as the service sees it: suspects of the ranker, another method, and an issue."""
    found = []
    for name, one in names.items():
        shares = [math.exp(each) for each in ranker.rank(one.example.table)]
        signals = signal_shares(step_rows(one.example.table, ranker.records))
        tops = (shares.index(max(shares)), signals.index(max(signals)))
        group = _issue(one, tops[0])
        found.append(Candidate(name=(f"{repetition}", name), probabilities=shares, steps=tops, group=group))
    sizes = Counter(each.group for each in found)
    return [replace(each, size=sizes[each.group]) for each in found]


def _issue(one: Labelled, step: int) -> str:
    """Return what a run's recurring failure is known by: its system and the blamed agent."""
    return f"{one.example.system} {one.example.table.agents[step]}"


def _trained(runs: Sequence[Labelled]) -> Ranker:
    return train([one.example for one in runs])


def _accuracy(ranker: Ranker, runs: Sequence[Labelled]) -> float:
    right = 0
    for one in runs:
        shares = ranker.rank(one.example.table)
        right += shares.index(max(shares)) == one.example.step
    return right / len(runs)


def _print(name: str, n: int, curves: Sequence[tuple[Curve, Curve]]) -> None:
    print(f"{name}: {n} labelled runs, {len(curves)} random halves; step accuracy in percent")
    labels = [each for each in STEPS if all(each in one and each in other for one, other in curves)]
    means: list[tuple[int, float, float]] = []
    for count in labels:
        at_random = [100 * one[count] for one, _ in curves]
        by_choice = [100 * other[count] for _, other in curves]
        apart = [two - one for one, two in zip(at_random, by_choice, strict=True)]
        half = 1.96 * stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else math.inf
        means.append((count, fmean(at_random), fmean(by_choice)))
        gain = f"{fmean(apart):+.1f} [{fmean(apart) - half:+.1f}, {fmean(apart) + half:+.1f}]"
        print(f"    {count} labels: random {fmean(at_random):.1f}, chosen {fmean(by_choice):.1f}, {gain}")
    gains = [100 * fmean(other[count] - one[count] for count in labels) for one, other in curves]
    spread = 1.96 * stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
    print(f"    mean over these numbers of labels: chosen {fmean(gains):+.1f} points, +/- {spread:.1f}")
    ceiling = fmean(100 * one[max(one)] for one, _ in curves)
    print(f"    all labels of the half ({fmean(max(one) for one, _ in curves):.0f}): {ceiling:.1f}")
    last, goal = means[-1][0], means[-1][1]
    reached = next((count for count, _, found in means if found >= goal), None)
    fewer = "never in these" if reached is None else f"with {reached}, {1 - reached / last:.0%} fewer"
    print(f"    the accuracy of {last} random labels ({goal:.1f}): chosen reach it {fewer}", flush=True)
