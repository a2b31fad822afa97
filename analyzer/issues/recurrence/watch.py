"""Detector of agents that begin to fail more often: tests after every run, with bounded false alarms.

A test that is repeated after each run needs a stricter threshold, or it raises a false
alarm sooner or later. This is the e-detector of J. Shin, A. Ramdas and A. Rinaldo
("E-detectors", arXiv 2203.03532, section 3), of Shiryaev-Roberts kind: a bet is begun at every run,
and all bets are added up. While each bet is fair, the sum after n runs is n on average, so that the chance
that it ever reaches c within n runs is at most n / c (Ville's inequality for the sum
less n). ``threshold`` chooses c accordingly.

The normal share of failures is unknown; only the past share is known. Each bet is against the share predicted
for the next run from all runs so far, past and current (the predictive share under Jeffreys' prior): it is
fair on average over all shares that could have produced such a past, of any size. For a single share it is
only approximately fair, hence the margin in ``threshold``; ``benchmarks/alerting/alert_delay.py`` measures
the result.

It counts the method's verdicts. In a stable system the method is wrong in a
stable share of runs: its errors delay an alarm and never cause one.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Final

_DRAWS: Final = 2000
_SEED: Final = 1970
_Z_95: Final = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A number of hits in a number of trials."""

    hits: int = 0
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """An estimate with its 95 % interval."""

    estimate: float
    low: float
    high: float


def share_of(blamed: Count, rightly: Count, missed: Count) -> Share:
    """Return the share of runs in which an agent was to blame.

    Args:
        blamed: runs in which the method blames it, out of those in which it took part.
        rightly: runs in which it was to blame, out of the labelled ones in which the method blames it.
        missed: runs in which it was to blame, out of the labelled ones in which the method does not
            blame it.
    """
    chance = random.Random(_SEED)  # noqa: S311 - draws for an interval, not secrets
    draws = sorted(_draw(chance, blamed, rightly, missed) for _ in range(_DRAWS))
    return Share(estimate=draws[_DRAWS // 2], low=draws[int(_DRAWS * 0.025)], high=draws[int(_DRAWS * 0.975)])


def observed(blamed: Count) -> Share:
    """Return the share of runs in which the method blamed an agent, with its 95 % interval."""
    chance = random.Random(_SEED)  # noqa: S311 - draws for an interval, not secrets
    draws = sorted(_beta(chance, blamed) for _ in range(_DRAWS))
    share = blamed.hits / blamed.n if blamed.n else draws[_DRAWS // 2]
    return Share(
        estimate=share,
        low=min(share, draws[int(_DRAWS * 0.025)]),
        high=max(share, draws[int(_DRAWS * 0.975)]),
    )


def _draw(chance: random.Random, blamed: Count, rightly: Count, missed: Count) -> float:
    said = _beta(chance, blamed)
    return said * _beta(chance, rightly) + (1 - said) * _beta(chance, missed)


def _beta(chance: random.Random, count: Count) -> float:
    return chance.betavariate(count.hits + 0.5, count.n - count.hits + 0.5)


def compared(one: Count, other: Count) -> Share:
    """Return the ratio of two shares, with its 95 % interval.

    The ratio of two shares after D. Katz et al. (Biometrics 34, 1978), half a hit added to each, so that none
    is infinite. Used for an agent against its own past or against other agents, counted by the same method:
    its mistakes are in both counts, so a ratio of 1 stays 1.
    """
    first, second = (one.hits + 0.5) / (one.n + 1), (other.hits + 0.5) / (other.n + 1)
    spread = math.sqrt(1 / (one.hits + 0.5) - 1 / (one.n + 1) + 1 / (other.hits + 0.5) - 1 / (other.n + 1))
    ratio = first / second
    return Share(estimate=ratio, low=ratio * math.exp(-_Z_95 * spread), high=ratio * math.exp(_Z_95 * spread))


RATIOS: Final = (1.25, 1.5, 2.0, 3.0, 5.0)
"""Growth factors of the share that are bet on together, because the actual one is unknown."""
FALSE_ALARMS: Final = 0.03
"""Share of periods with a false alarm that the threshold is designed for; 0.05 is promised."""
_DOUBT: Final = 0.02
"""Highest probability of ending an alarm while the share is still doubled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One agent under watch."""

    known: Count
    """Runs in which the method blamed it, of those in which it took part: before the watch and during it."""
    sums: tuple[float, ...] = tuple(0.0 for _ in RATIOS)
    """Sums of the bets, one for each ratio."""
    is_alarm: bool = False
    calm_runs: int = 0
    """Runs since the agent was last blamed, during an alarm."""

    @property
    def expected(self) -> float:
        """The chance that it is blamed in the next run, if nothing has changed; above 0, below 1."""
        return (self.known.hits + 0.5) / (self.known.n + 1)

    @property
    def evidence(self) -> float:
        """The evidence of a change: about 1 per run without a change; grows without bound after one."""
        return sum(self.sums) / len(self.sums)


def observe(watch: Watch, limit: float, *, is_blamed: bool) -> Watch:
    """Add one more run in which the agent took part.

    Args:
        watch: the watch so far.
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
    """End the alarm after a series of runs without blame that a doubled share would make improbable.

    The expected share is frozen when the alarm is raised, so that the failures do not become normal.
    """
    calm = 0 if is_blamed else watch.calm_runs + 1
    doubled = min(2 * watch.expected, (watch.expected + 1) / 2)
    if calm * math.log1p(-doubled) > math.log(_DOUBT):
        return replace(watch, calm_runs=calm)
    return Watch(known=watch.known)


def threshold(runs: int, agents: int) -> float:
    """Return the evidence at which to raise an alarm.

    Args:
        runs: expected number per agent, in the period for which false alarms are bounded.
        agents: number of agents watched together; a false alarm for any of them counts.
    """
    return max(runs, 1) * max(agents, 1) / FALSE_ALARMS
