"""Tables of shares with Wilson intervals, in Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from analyzer.inquiry.intervals import wilson
from benchmarks.accuracy.suspicion.fit import Example


def threshold(scores: Sequence[float], tolerated: float) -> float:
    """Return the lowest probability that at most this share of good runs reaches."""
    ordered = sorted(scores, reverse=True)
    allowed = int(tolerated * len(ordered))
    above = [score for score in ordered if score > ordered[allowed]]
    return round(min(above, default=1.0), 4)


def row(name: str, hits: int, n: int) -> str:
    """Return a row of the table, with Wilson's interval."""
    if not n:
        return f"| {name} | - | 0 | |"
    share = wilson(hits, n)
    return f"| {name} | {hits / n:.1%} | {n} | [{share.low:.1%}, {share.high:.1%}] |"


def table(
    title: str, scored: Sequence[tuple[Example, float]], least: float, by: Callable[[Example], str]
) -> None:
    """Print the share of runs at or above a probability, by a property."""
    print(f"\n| {title} | suspected | n | 95 % |\n|---|---|---|---|")
    groups: defaultdict[str, list[bool]] = defaultdict(list)
    for one, score in scored:
        groups[by(one)].append(score >= least)
    for name, found in groups.items():
        print(row(name, sum(found), len(found)))
    everything = [hit for found in groups.values() for hit in found]
    print(row("**all**", sum(everything), len(everything)))
