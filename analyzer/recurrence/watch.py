"""Has an agent begun to fail more often? Looked at after every run, with a bound on false alarms.

A test made again after each run must pay for looking so often, or it cries wolf
sooner or later. This is the e-detector of J. Shin, A. Ramdas and A. Rinaldo
("E-detectors", arXiv 2203.03532, section 3) of Shiryaev-Roberts kind: a bet begun at every run, all
added up. While each bet is fair, the sum after n runs is n on average, so that the chance
that it ever reaches c within n runs is at most n / c (Ville's inequality for the sum
less n). ``threshold`` chooses c by that.

What share is normal nobody knows, only what was. A bet is against what all runs so far,
the past and those since, let one expect of the next (the predictive share under Jeffreys'
prior): fair on average over all shares that could have had such a past, whatever its size.
For a single share it is only nearly so, hence the margin in ``threshold``;
``tests/bench/alert_delay.py`` measures what comes of it.

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
FALSE_ALARMS: Final = 0.03
"""Periods with a false alarm that the threshold is made for; 0.05 are promised."""
_DOUBT: Final = 0.02
"""How likely an alarm's end may be while the share is still doubled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One agent under watch."""

    known: Count
    """Runs in which the method blamed it, of those in which it took part: the past, and since."""
    sums: tuple[float, ...] = tuple(0.0 for _ in RATIOS)
    """Of the bets on each ratio."""
    is_alarm: bool = False
    calm_runs: int = 0
    """While there is an alarm: runs since it was last blamed."""

    @property
    def expected(self) -> float:
        """The chance that it is blamed in the next run, if nothing has changed; above 0, below 1."""
        return (self.known.hits + 0.5) / (self.known.n + 1)

    @property
    def evidence(self) -> float:
        """About 1 a run while nothing has changed; grows without bound once it has."""
        return sum(self.sums) / len(self.sums)


def begin_watch(past: Count) -> Watch:
    """Begin to watch an agent with a past, or with none: then it is known as its runs come.

    Args:
        past: runs in which the method blamed it, of those in which it took part.
    """
    return Watch(known=past)


def observe(watch: Watch, limit: float, *, is_blamed: bool) -> Watch:
    """Take note of one more run in which the agent took part.

    Args:
        watch: as it was.
        limit: the evidence at which an alarm is raised (``threshold``).
        is_blamed: whether the method blames it.
    """
    if watch.is_alarm:
        return _in_alarm(watch, is_blamed=is_blamed)
    base = watch.expected
    sums = []
    for ratio, before in zip(RATIOS, watch.sums, strict=True):
        bet = min(base * ratio, (base + 1) / 2)
        factor = bet / base if is_blamed else (1 - bet) / (1 - base)
        sums.append((before + 1) * factor)
    known = Count(hits=watch.known.hits + is_blamed, n=watch.known.n + 1)
    after = replace(watch, sums=tuple(sums), known=known)
    return replace(after, is_alarm=after.evidence >= limit)


def _in_alarm(watch: Watch, *, is_blamed: bool) -> Watch:
    """Wait for so many runs without blame in a row as would be rare were the share still doubled.

    What is expected stays as it was when the alarm was raised: what is wrong does not become normal.
    """
    calm = 0 if is_blamed else watch.calm_runs + 1
    doubled = min(2 * watch.expected, (watch.expected + 1) / 2)
    if calm * math.log1p(-doubled) > math.log(_DOUBT):
        return replace(watch, calm_runs=calm)
    return begin_watch(watch.known)


def threshold(runs: int, agents: int, false_alarms: float = FALSE_ALARMS) -> float:
    """Return the evidence at which to raise an alarm.

    Args:
        runs: expected in the period for which false alarms are bounded, for each agent.
        agents: watched side by side; any one's false alarm is one.
        false_alarms: the most periods with a false alarm that are allowed, as a share.
    """
    return max(runs, 1) * max(agents, 1) / false_alarms
