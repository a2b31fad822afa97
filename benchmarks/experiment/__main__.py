"""``python -m benchmarks.experiment PART``: how sure proofs are.

``null``: walks in which no step heals, and the share that still proves one. ``power``: two arms.
``futility``: walks with and without dropping steps of which a proof is improbable. ``gates``: the gate of
retries over a grid of known shares. ``backtest``: how often a change without effect is called fixed, and how
many trials a right one needs. ``loop``: backtests of planted fixes by the command. ``systems``: the example
systems and their scripted model, in this process. How
well a run is replayed is measured by ``benchmarks.experiment.fidelity``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from analyzer.experiment.candidates import ArmKey
from analyzer.experiment.sequential import Decision
from analyzer.experiment.walk import FOR_THE_BLAMED, LEAST_PROBABILITY, USUAL
from analyzer.inquiry.intervals import wilson
from benchmarks.experiment.backtests import backtests
from benchmarks.experiment.retry_gates import gates
from benchmarks.experiment.simulated import ALPHA, Tally, chain, opinion, texts, two_arms, walk


def null(walks: int) -> int:
    """Print the number of false proofs in walks in which no change matters."""
    most = 0.0
    print(" rate calls     arms  walks  proved upper 95 % trials p50")
    for shape, build in (("shared", chain), ("text", texts)):
        for n in (1, 4, 12):
            for rate in (0.02, 0.1, 0.3, 0.5, 0.7):
                coin, tally = random.Random(f"{shape} {n} {rate}"), Tally()
                for _ in range(walks):
                    candidates = build(opinion(n, coin.randrange(n), coin))
                    tally.walks.append(walk(candidates, partial(_flat, rate), coin))
                share = tally.share(lambda each: bool(each.proved))
                upper = wilson(round(share * walks), walks).high
                most = max(most, share)
                print(
                    f"{rate:5} {n:5} {shape:>8} {walks:6} {share:7.3f} {upper:10.3f} {tally.trials(0.5):10}",
                    flush=True,
                )
    print(f"highest share of walks that prove a step where none heals: {most:.3f} (allowed: {ALPHA})")
    return int(most > ALPHA)


def _flat(rate: float, _: ArmKey) -> float:
    return rate


def power(pairs: int) -> int:
    """Print the number of trial pairs needed for a decision."""
    print("control treatment  alpha  proved refuted trials an arm p50  p90")
    for alpha in (0.05, 0.0125, 0.005):
        for low, high in (
            (0.0, 0.75),
            (0.1, 0.7),
            (0.2, 0.6),
            (0.3, 0.5),
            (0.0, 0.0),
            (0.1, 0.1),
            (0.7, 0.7),
        ):
            coin = random.Random(f"{alpha} {low} {high}")
            found = [two_arms(low, high, alpha, coin) for _ in range(pairs)]
            counts = sorted(n for _, n in found)
            proved = sum(decision is Decision.PROVED for decision, _ in found) / pairs
            refuted = sum(decision is Decision.REFUTED for decision, _ in found) / pairs
            p50, p90 = counts[len(counts) // 2], counts[len(counts) * 9 // 10]
            print(f"{low:7} {high:9} {alpha:6} {proved:7.2f} {refuted:7.2f} {p50:17} {p90:4}", flush=True)
    return 0


def futility(walks: int) -> int:
    """Print trials and decisions with the rules that drop a step, with one rule for all, and without."""
    rules = ((LEAST_PROBABILITY, FOR_THE_BLAMED), (LEAST_PROBABILITY, USUAL), (0.0, USUAL))
    print("of each: as it is (as impatient with the blamed step as with all) [no step dropped]")
    print("calls  low high  proved  right  blamed step refuted  trials, mean")
    for n in (1, 4):
        for low, high in ((0.02, 0.02), (0.3, 0.3), (0.5, 0.5), (0.7, 0.7), (0.05, 0.75), (0.2, 0.7)):
            cells = []
            for rule in rules:
                tally, right = Tally(), 0
                for number in range(walks):
                    coin = random.Random(f"{n} {low} {high} {number}")  # the same coins with and without
                    decisive = coin.randrange(n)
                    rate = partial(_decisive, decisive, low, high)
                    one = walk(chain(opinion(n, decisive, coin)), rate, coin, rule=rule)
                    tally.walks.append(one)
                    right += one.proved[:1] == (decisive,)
                trials = sum(one.trials for one in tally.walks) / walks
                proved = tally.share(lambda each: bool(each.proved))
                refuted = tally.share(lambda each: each.takes_back)
                cells.append((proved, right / walks, refuted, trials))
            told = "  ".join("{:7.3f} ({:.3f}) [{:.3f}]".format(*each) for each in zip(*cells, strict=True))
            print(f"{n:5} {low:4} {high:4}  {told}", flush=True)
    return 0


def _decisive(call: int, low: float, high: float, key: ArmKey) -> float:
    return low if call in key.recorded else high


def systems(number: int, chosen: Sequence[str], out: Path) -> int:
    """Measure failed runs of the example systems, and print how often experiments name the decisive step."""
    from benchmarks.experiment.systems import FLOWS, measure, table  # noqa: PLC0415 - imports litellm

    for system in chosen or FLOWS:
        asyncio.run(measure(system, number, out))
    table(out)
    return 0


def loop(number: int, out: Path) -> int:
    """Run backtests of planted fixes, and print how often they conclude rightly."""
    from benchmarks.experiment.loop import measure, table  # noqa: PLC0415 - for this part only

    measure(number, out)
    table(out)
    return 0


def main() -> int:
    """Run the requested part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiment", description=__doc__)
    parser.add_argument("what", choices=("null", "power", "futility", "gates", "backtest", "loop", "systems"))
    parser.add_argument(
        "--number", type=int, default=1000, help="walks, pairs of arms, pilots or failed runs a row"
    )
    parser.add_argument("--system", action="append", choices=("pipeline", "orchestrator", "debate"))
    parser.add_argument(
        "--out", type=Path, default=Path("experiments.jsonl"), help="the systems' runs, or the backtests"
    )
    asked = parser.parse_args()
    if asked.what == "loop":
        return loop(asked.number, asked.out)
    if asked.what == "systems":
        return systems(asked.number, asked.system or (), asked.out)
    parts: dict[str, Callable[[int], int]] = {
        "null": null,
        "power": power,
        "futility": futility,
        "gates": gates,
        "backtest": backtests,
    }
    return parts[asked.what](asked.number)


if __name__ == "__main__":
    sys.exit(main())
