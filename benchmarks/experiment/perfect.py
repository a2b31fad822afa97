"""Rate at which the gate against organic failures fails a perfect injector: the script's own mistakes.

No classifier can tell such labels from organic failures by anything but chance, so the share of simulated
data sets that fail the gate is its rate of false failures. If the faulty answers lack the opening sentences
of all others, it must fail.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Final

from analyzer.experiment.injection.organic import Likeness, Sample, likenesses
from analyzer.inquiry.intervals import wilson
from benchmarks.experiment.systems import FLOWS, Order, order, succeeded
from semconv.model import SpanId, Step, StepKind, Trajectory

# isort: split
from script import LOOKING_UP, rate, reply  # type: ignore[import-not-found]  # ``light`` sets the path

RUNS: Final = 16
"""Passing runs of a data set."""
_TRIALS: Final = 12
"""Trials of each call with its recorded answer, as those of a twin."""
_LABELS: Final = 3
_SELDOM: Final = 0.2
"""Success rate with a fault up to which it makes a label."""


def perfect(sets: int) -> int:
    """Print how often the gate fails without a difference, and with one; return 1 if too often without."""
    worst = 0.0
    print(f"{sets} data sets a row; share of failed gates, % [95 %]")
    for system in FLOWS:
        for marked in (False, True):
            found = [_compared(system, f"{system} {one}", marked=marked) for one in range(sets)]
            for by in found[0]:
                worst = max(worst, _print(system, by, [each[by] for each in found], marked=marked))
    return int(worst > 0.1)


def _print(system: str, by: str, found: Sequence[Likeness], *, marked: bool) -> float:
    """Print a row; return the share of failed gates without a difference."""
    failed, sets = sum(each.verdict == "failed" for each in found), len(found)
    areas, interval = [each.area for each in found], wilson(failed, sets)
    print(
        f"{system}{', without opening sentences' * marked}, by {by}: failed {100 * failed / sets:.1f}"
        f" [{100 * interval.low:.0f}, {100 * interval.high:.0f}];"
        f" AUC {fmean(areas):.2f}, SD {pstdev(areas):.2f}",
        flush=True,
    )
    return 0.0 if marked else failed / sets


def _compared(system: str, seed: str, *, marked: bool) -> dict[str, Likeness]:
    """Return the comparisons of one data set."""
    coin, task = random.Random(seed), 10_000_000 + random.Random(seed).randrange(10**7)
    samples: list[Sample] = []
    origins = 0
    while origins < RUNS:
        asked, task = order(task), task + 1
        said = _played(system, asked, [], coin)
        if succeeded(asked, said[-1]):
            samples += _failures(system, asked, said, coin, marked=marked)
            origins += 1
    return {one.by: one for one in likenesses(samples)}


def _failures(
    system: str, asked: Order, said: Sequence[str], coin: random.Random, *, marked: bool
) -> list[Sample]:
    """Return a run's labels, and what failed among the trials with its recorded answers."""
    name, found, labels = str(asked.number), list[Sample](), 0
    for place in coin.sample(range(len(said)), len(said)):
        ended = [_played(system, asked, said[: place + 1], coin) for _ in range(_TRIALS)]
        failed = [texts for texts in ended if not succeeded(asked, texts[-1])]
        found += [Sample(trajectory=_run(system, texts), kind="", origin=name) for texts in failed]
        if labels == _LABELS or (len(failed) * 5 > _TRIALS):
            continue
        wrong = _mistake(system, asked, said[:place], coin)
        if wrong is None or rate(system, asked, [*said[:place], wrong], n=40) > _SELDOM:
            continue
        if marked:
            wrong = wrong.rsplit(". ", 1)[-1]
        texts = _played(system, asked, [*said[:place], wrong], coin)
        if not succeeded(asked, texts[-1]):
            found.append(Sample(trajectory=_run(system, texts), kind="mistake", origin=name))
            labels += 1
    return found


def _mistake(system: str, asked: Order, said: Sequence[str], coin: random.Random) -> str | None:
    """Return a wrong answer of the script's own, if it makes one soon."""
    role = FLOWS[system][len(said)]
    if role == LOOKING_UP and role not in FLOWS[system][: len(said)]:
        return None
    right = reply(role, asked, said, None).text
    texts = (str(reply(role, asked, said, coin).text) for _ in range(200))
    return next((text for text in texts if not text.endswith(right)), None)


def _played(system: str, asked: Order, said: Sequence[str], coin: random.Random) -> list[str]:
    texts, flow = list(said), FLOWS[system]
    for place in range(len(texts), len(flow)):
        looked_up = flow[place] != LOOKING_UP or flow[place] in flow[:place]
        texts.append(reply(flow[place], asked, texts, coin, looked_up=looked_up).text)
    return texts


def _run(system: str, texts: Sequence[str]) -> Trajectory:
    steps = [
        Step(index=at, agent=role, kind=StepKind.LLM, output=text, span_id=SpanId(f"{at + 1:016x}"))
        for at, (role, text) in enumerate(zip(FLOWS[system], texts, strict=True))
    ]
    return Trajectory(run_id="0" * 32, steps=tuple(steps))
