"""Promotions in simulated contests: wrong ones under no difference, and labels until right ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

from analyzer.evaluation.promotion import ALPHA, Ruling, contest
from analyzer.inquiry.intervals import wilson

MOST = 500
"""Labels of the random runs after which a simulation ends."""
NULLS = ((0.3, 0.0), (0.3, 0.5), (0.5, 0.0), (0.5, 0.5), (0.5, 0.9), (0.8, 0.5))
"""Accuracy of both rankers, and how often they share their answer."""
GAINS = ((0.3, 0.4), (0.3, 0.5), (0.4, 0.6), (0.5, 0.55))
"""Accuracy of the champion and of the challenger, independent of each other."""


def promotions(number: int) -> int:
    """Print the shares of promotions; return 1 if too many are wrong."""
    worst = 0
    print(f"{number} simulations a row, up to {MOST} labels, looked at after each")
    for accuracy, shared in NULLS:
        coin = random.Random(f"null {accuracy} {shared}")
        wrong = sum(contest(_alike(accuracy, shared, coin)).ruling is Ruling.PROMOTE for _ in range(number))
        worst = max(worst, wrong)
        print(f"both right {accuracy:.0%}, same answer {shared:.0%}: promoted {_share(wrong, number)}")
    for old, new in GAINS:
        coin = random.Random(f"gain {old} {new}")
        found = [contest(_apart(old, new, coin)) for _ in range(number)]
        labels = sorted(each.n for each in found if each.ruling is Ruling.PROMOTE)
        median = labels[len(labels) // 2] if labels else None
        rejected = sum(each.ruling is Ruling.REJECT for each in found)
        print(
            f"right {old:.0%} against {new:.0%}: promoted {_share(len(labels), number)}, after"
            f" {median} labels (median); rejected {rejected}"
        )
    print(f"most wrong promotions in a row: {worst / number:.1%} (allowed {ALPHA:.0%})")
    return int(worst / number > ALPHA)


def _alike(accuracy: float, shared: float, coin: random.Random) -> Iterator[tuple[bool, bool]]:
    for _ in range(MOST):
        champion = coin.random() < accuracy
        yield champion, champion if coin.random() < shared else coin.random() < accuracy


def _apart(old: float, new: float, coin: random.Random) -> Iterator[tuple[bool, bool]]:
    for _ in range(MOST):
        yield coin.random() < old, coin.random() < new


def _share(k: int, n: int) -> str:
    found = wilson(k, n)
    return f"{k / n:.1%} [{found.low:.1%}, {found.high:.1%}]"
