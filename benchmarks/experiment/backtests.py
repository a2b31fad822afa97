"""Backtests in worlds of known rates: how often nothing is called fixed, and what a fix costs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

from analyzer.experiment.backtest.plan import Outcome, Plan, Side, Verdict
from analyzer.experiment.sequential import ALPHA, Draw, TrialResult
from analyzer.inquiry.intervals import wilson

Rates: TypeAlias = Callable[[str, Side], float]
"""Success rate of an arm of a run."""

_RUNS: Final = (1, 4, 10)


def play(plan: Plan, rates: Rates, coin: random.Random, blamed: str = "") -> Verdict:
    """Run all trials of a plan whose decisive requests differ; every answer is another."""
    number = 0
    while (key := plan.begin()) is not None:
        number += 1
        draw = Draw(source="m", request="same", answer=str(number))
        result = TrialResult(success=coin.random() < rates(*key), draws=(draw,))
        plan.end(key, Outcome(result=result, differs=key[1] is Side.TODAY, blamed=blamed))
    return plan.verdict


def backtests(worlds: int) -> int:
    """Print the verdicts without an effect, and those of changes with one."""
    most = 0.0
    print(f"{'world':>22} runs worlds  fixed upper 95 % trials p50  other verdicts")
    for name, rates in _WORLDS.items():
        for n in _RUNS:
            coin, found, trials = random.Random(f"{name} {n}"), Counter[Verdict](), []
            for _ in range(worlds):
                plan = Plan([(f"run{number}", "analyst") for number in range(n)])
                found[play(plan, rates, coin)] += 1
                trials.append(sum(state.today.n + state.yesterday.n for state in plan.failed))
            fixed = found.pop(Verdict.FIXED, 0)
            most = max(most, fixed / worlds if name.startswith("null") else 0.0)
            others = ", ".join(f"{verdict} {count}" for verdict, count in found.most_common())
            upper = wilson(fixed, worlds).high
            print(
                f"{name:>22} {n:4} {worlds:6} {fixed / worlds:6.3f} {upper:10.3f}"
                f" {sorted(trials)[worlds // 2]:10}  {others}",
                flush=True,
            )
    print(f"highest share of worlds without an effect that are called fixed: {most:.3f} (allowed: {ALPHA})")
    return int(most > ALPHA)


def _flat(today: float, yesterday: float) -> Rates:
    return lambda _, side: today if side is Side.TODAY else yesterday


def _of_its_own(run: str, _: Side) -> float:
    return (int(run.removeprefix("run")) % 10 + 0.5) / 10


_WORLDS: Final = {
    **{f"null {rate}": _flat(rate, rate) for rate in (0.02, 0.3, 0.55, 0.8)},
    "null, rate of each run": _of_its_own,
    **{f"{low} to {high}": _flat(high, low) for low, high in ((0.0, 1.0), (0.1, 0.8), (0.3, 0.7))},
}
