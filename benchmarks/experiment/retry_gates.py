"""The gate of retries on simulated pilots whose shares are known."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from functools import cache

from analyzer.experiment.retry_gate import SURE, Share, probability_of_gain
from analyzer.inquiry.intervals import wilson

RECOVERED = (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
DISRUPTED = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
FAILED = (0.1, 0.2, 0.35, 0.5, 0.7)
PILOTS = (50, 100, 200, 400)
NEGLIGIBLE = 0.03
"""Gain from which a decision matters: 3 runs of 100."""


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
