"""Tables of shares with Wilson intervals, in Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from analyzer.inquiry.intervals import wilson
from analyzer.lineage.clue import BASE_RATE, DEFAULT_FALSE_ALARMS
from benchmarks.accuracy.suspicion.fit import Example

_EVEN: Final = 0.5


def threshold(scores: Sequence[float], tolerated: float) -> float:
    """Return the lowest probability that at most this share of good runs reaches.

    Up to the default share it is at least one half: whoever is suspected then more likely failed than not.
    Beyond it, it is at least the base rate: a weaker clue does not tell a run from others.
    """
    ordered = sorted(scores, reverse=True)
    allowed = int(tolerated * len(ordered))
    above = [score for score in ordered if score > ordered[allowed]]
    least = _EVEN if tolerated <= DEFAULT_FALSE_ALARMS else BASE_RATE
    return max(least, round(min(above, default=1.0), 4))


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
