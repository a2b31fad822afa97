"""``python -m benchmarks.experiment null | power | walks | systems | command | ranked | injected | gates
| perfect | retried | retried-command | transferred``.

``null``: walks in which no step heals, and the share that still proves one. ``power``: two arms.
``walks``: chains of calls with one decisive error. ``systems``: the example systems and their scripted model,
in this process. ``command``: the same with their frameworks, through the command line. ``ranked``: signals
and a ranker of ``blamespan train`` on such runs, without trials. ``injected``: labels of injected faults.
``perfect``: the gate against organic failures, with a perfect injector. ``gates``: the gate of retries over
a grid of known shares. ``retried``: its shares on the example systems.
``retried-command``: ``experiment --retry`` on runs of their frameworks. ``transferred``: rankers trained on
the labels that ``injected`` wrote to ``--out``, of the system itself or of the others, on organic failures.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import NormalDist

from analyzer.experiment.candidates import ArmKey
from analyzer.experiment.sequential import Decision
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
                most = max(most, share)
                print(
                    f"{rate:5} {n:5} {shape:>8} {walks:6} {share:7.3f} {_upper(share, walks):10.3f}"
                    f" {tally.trials(0.5):10}",
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


def walks(number: int) -> int:
    """Print how many walks over chains with one decisive error find it, and how many trials they take."""
    print(f"{'calls':>5} {'low':>4} {'high':>4} {'decided':>7} {'right':>6} {'trials p50':>10} {'p90':>5}")
    for n in (3, 6, 12, 24):
        for low, high in ((0.0, 0.75), (0.1, 0.7), (0.2, 0.6)):
            coin, tally, right = random.Random(f"{n} {low} {high}"), Tally(), 0
            for _ in range(number):
                decisive = coin.randrange(n)

                def rate(
                    key: object, decisive: int = decisive, low: float = low, high: float = high
                ) -> float:
                    return low if decisive in key.recorded else high  # type: ignore[attr-defined]

                done = walk(chain(opinion(n, decisive, coin)), rate, coin)
                tally.walks.append(done)
                right += done.proved[:1] == (decisive,)
            decided = tally.share(lambda each: bool(each.proved))
            print(
                f"{n:5} {low:4} {high:4} {decided:7.2f} {right / max(1, round(decided * number)):6.2f}"
                f" {tally.trials(0.5):10} {tally.trials(0.9):5}",
                flush=True,
            )
    return 0


def _upper(share: float, n: int) -> float:
    """Return the upper end of Wilson's 95 % interval."""
    z = NormalDist().inv_cdf(0.975)
    centre, spread = share + z * z / (2 * n), z * ((share * (1 - share) + z * z / (4 * n)) / n) ** 0.5
    upper: float = (centre + spread) / (1 + z * z / n)
    return upper


def main() -> int:
    """Run the requested part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiment", description=__doc__)
    parser.add_argument(
        "what",
        choices=(
            *("null", "power", "walks", "systems", "command", "ranked", "injected"),
            *("perfect", "gates", "retried", "retried-command", "transferred"),
        ),
    )
    parser.add_argument("--number", type=int, default=1000, help="walks, pairs of arms or failed runs a row")
    parser.add_argument("--system", choices=("pipeline", "orchestrator", "debate"), help="one system alone")
    parser.add_argument("--ranker", type=Path, default=Path("ranker.json"), help="of `blamespan train`")
    parser.add_argument("--out", type=Path, default=Path("experiments.jsonl"), help="the systems' runs")
    parser.add_argument(
        "--seed",
        type=int,
        nargs="+",
        default=[0],
        help="of ``injected``: orders, model and faults; several add up",
    )
    asked = parser.parse_args()
    if asked.what in {"ranked", "transferred"}:
        from benchmarks.experiment.ranked import FLOWS, ranked  # noqa: PLC0415 - imports litellm
        from benchmarks.experiment.transferred import transferred  # noqa: PLC0415 - as above

        chosen = [asked.system] if asked.system else list(FLOWS)
        is_ranked = asked.what == "ranked"
        call = partial(ranked, ranker=asked.ranker) if is_ranked else partial(transferred, labels=asked.out)
        return call(chosen, asked.number)
    if asked.what == "injected":
        from benchmarks.experiment.injected import injected  # noqa: PLC0415 - imports litellm
        from benchmarks.experiment.systems import FLOWS  # noqa: PLC0415 - as above

        return injected([asked.system] if asked.system else list(FLOWS), asked.number, asked.out, asked.seed)
    if asked.what in {"gates", "perfect", "retried"}:
        from benchmarks.experiment.perfect import perfect  # noqa: PLC0415 - imports litellm
        from benchmarks.experiment.retried import gates, retried  # noqa: PLC0415 - as above
        from benchmarks.experiment.systems import FLOWS  # noqa: PLC0415 - as above

        chosen = [asked.system] if asked.system else list(FLOWS)
        simulated: dict[str, Callable[[int], int]] = {"gates": gates, "perfect": perfect}
        return simulated.get(asked.what, partial(retried, chosen))(asked.number)
    if asked.what == "retried-command":
        from benchmarks.experiment.through_command import retried_through_command  # noqa: PLC0415 - as above

        asyncio.run(retried_through_command(asked.system or "orchestrator", asked.number))
        return 0
    if asked.what in {"systems", "command"}:
        from benchmarks.experiment.systems import FLOWS, in_process, table  # noqa: PLC0415 - imports litellm
        from benchmarks.experiment.through_command import through_command  # noqa: PLC0415 - as above

        measure = in_process if asked.what == "systems" else through_command
        for system in [asked.system] if asked.system else FLOWS:
            asyncio.run(measure(system, asked.number, asked.out))
        table(asked.out)
        return 0
    run: Callable[[int], int] = {"null": null, "power": power, "walks": walks}[asked.what]
    return run(asked.number)


if __name__ == "__main__":
    sys.exit(main())
