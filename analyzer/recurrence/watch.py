"""Has an agent begun to fail more often? Looked at after every run, with a bound on false alarms.

A test made again after each run must pay for looking so often, or it cries wolf
sooner or later. This is the e-detector of J. Shin, A. Ramdas and A. Rinaldo
("E-detectors", arXiv 2203.03532, section 3) of Shiryaev-Roberts kind: a bet begun at every run, all
added up. While the share is at most the baseline, the sum after n runs is n on
average, so that the chance that it ever reaches c within n runs is at most n / c
(Ville's inequality for the sum less n). ``threshold`` chooses c by that.

It counts what the method says. In a stable system a method that is wrong makes a
stable share of wrong statements: its errors delay an alarm and never cause one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from analyzer.recurrence.share import Count

RATIOS: Final = (1.25, 1.5, 2.0, 3.0, 5.0)
"""Growths that are bet on, all at once: nobody knows which will come."""
_MAX_SHARE: Final = 0.98
_SURENESS: Final = 2.326348
"""Standard deviations of one-sided 99 %: how far above the past's share the baseline stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One agent under watch."""

    baseline: float
    """The highest share that its past allows for."""
    sums: tuple[float, ...] = tuple(0.0 for _ in RATIOS)
    """Of the bets on each ratio."""
    runs: int = 0

    @property
    def evidence(self) -> float:
        """About 1 a run while nothing has changed; grows without bound once it has."""
        return sum(self.sums) / len(self.sums)


def begin_watch(past: Count) -> Watch:
    """Begin to watch an agent with a past; the less there is of it, the higher the baseline.

    Args:
        past: runs in which the method blamed it, of those in which it took part. May be
            empty: then only near certain failure is an alarm, and new issues must do.
    """
    return Watch(baseline=min(_MAX_SHARE / max(RATIOS[0], 1), _upper(past)))


def _upper(count: Count) -> float:
    """Return the upper Wilson bound of a share (E. B. Wilson, JASA 22, 1927), one-sided 99 %."""
    if not count.n:
        return 1.0
    share, z2 = count.hits / count.n, _SURENESS**2
    middle = share + z2 / (2 * count.n)
    spread = _SURENESS * math.sqrt(share * (1 - share) / count.n + z2 / (4 * count.n * count.n))
    return min(1.0, (middle + spread) / (1 + z2 / count.n))


def observe(watch: Watch, *, is_blamed: bool) -> Watch:
    """Take note of one more run in which the agent took part."""
    base = watch.baseline
    sums = []
    for ratio, before in zip(RATIOS, watch.sums, strict=True):
        bet = min(base * ratio, (base + 1) / 2)
        factor = bet / base if is_blamed else (1 - bet) / (1 - base)
        sums.append((before + 1) * factor)
    return replace(watch, sums=tuple(sums), runs=watch.runs + 1)


def threshold(runs: int, agents: int, false_alarms: float = 0.05) -> float:
    """Return the evidence at which to raise an alarm.

    Args:
        runs: expected in the period for which false alarms are bounded, for each agent.
        agents: watched side by side; any one's false alarm is one.
        false_alarms: the most periods with a false alarm that are allowed, as a share.
    """
    return max(runs, 1) * max(agents, 1) / false_alarms
