"""Ways of intervening in a run that looks failed, and the gate: whether that does more good than harm. Pure.

An intervention recovers a share r of the failed runs it meets, and disrupts a share d of the good ones. Where
a share p of them has failed, it gains p r - (1 - p) d, which is positive if p > d / (r + d). A critic that is
often right can still cost accuracy (arXiv:2602.03338), so the three shares are measured on pilot runs first.

Each share has Jeffreys' prior, which is uniform in the angle a of sin(a)^2, so equal steps of the angle carry
the posterior without special functions. Pilot runs are evaluated only once, with one
trial per arm for each run, so that runs are independent.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from semconv.record import record

GENERIC_HINT: Final = (
    "Your answer to this may be wrong. Check every number, name and condition against the conversation"
    " before you answer."
)
"""The hint that knows nothing of the run."""
SURE: Final = 0.95
"""Probability from which the sign of the gain counts as known."""
FEWEST: Final = 10
"""Runs of each share below which nothing is decided."""
_STEPS: Final = 96
"""Angles of a posterior; 50 runs have a standard deviation of 0.07 in the angle, four steps."""
_COARSE: Final = 40


class RetryArm(StrEnum):
    """One way of going on from the suspected step."""

    NONE = "none"
    """The recorded answer; what follows is live."""
    BLIND = "blind"
    """The model is asked again, with nothing added."""
    GENERIC = "generic"
    """With ``GENERIC_HINT``."""
    FIX = "fix"
    """With the verdict's fix; with ``GENERIC_HINT`` where the verdict has none."""


INTERVENTIONS: Final = (RetryArm.BLIND, RetryArm.GENERIC, RetryArm.FIX)


class Trigger(StrEnum):
    """The runs in which an intervention would be made."""

    ALWAYS = "always"
    """In every run."""
    FLAGGED = "flagged"
    """In runs that the verdict takes as failed."""


class Choice(StrEnum):
    """Answer of a gate; only ``intervene`` opens it."""

    INTERVENE = "intervene"
    REFUSE = "refuse"
    """The intervention costs more good runs than it recovers failed ones."""
    UNSURE = "unsure"
    """The pilot runs do not tell; treated as ``refuse``."""


@record
class Share:
    """A measured share: ``k`` of ``n``."""

    k: int = 0
    n: int = 0

    @property
    def rate(self) -> float:
        """The share; 0 if nothing was measured."""
        return self.k / self.n if self.n else 0.0


@record
class Gate:
    """Whether to intervene, with the shares that decide it."""

    failed: Share
    """p: failed runs among those in which the intervention would be made."""
    recovered: Share
    """r: failed runs that succeed after the intervention."""
    disrupted: Share
    """d: passing runs that fail after the intervention."""
    choice: Choice
    probability: float
    """Probability that the gain is positive."""
    gain: float
    """Expected change of the success rate, where the intervention would be made; 0 if nowhere."""
    interval: tuple[float, float]
    """95 % credible interval of the gain."""

    @property
    def allows(self) -> bool:
        """Whether the intervention may be made."""
        return self.choice is Choice.INTERVENE

    @property
    def threshold(self) -> float:
        """Failure rate above which the intervention helps, d / (r + d); 1 if it recovers nothing."""
        r, d = self.recovered.rate, self.disrupted.rate
        return d / (r + d) if r > 0 else 1.0


def gate(failed: Share, recovered: Share, disrupted: Share, *, sure: float = SURE) -> Gate:
    """Decide whether to intervene.

    Args:
        failed: p, among the runs in which the intervention would be made.
        recovered: r, over failed pilot runs.
        disrupted: d, over passing pilot runs.
        sure: probability from which the sign of the gain counts as known, 0.5 to 1.
    """
    probability = probability_of_gain(failed, recovered, disrupted)
    return Gate(
        failed=failed,
        recovered=recovered,
        disrupted=disrupted,
        choice=_choice(probability, min(failed.n, recovered.n, disrupted.n), sure),
        probability=round(probability, 4),
        gain=round(_gain(failed.rate, recovered.rate, disrupted.rate), 4) if failed.n else 0.0,
        interval=_interval(failed, recovered, disrupted),
    )


def probability_of_gain(failed: Share, recovered: Share, disrupted: Share) -> float:
    """Return the probability that p r > (1 - p) d."""
    harms = _posterior(disrupted, _STEPS)
    places = [place for place, _ in harms]
    below = [0.0, *accumulate(weight for _, weight in harms)]
    total = 0.0
    for p, p_weight in _posterior(failed, _STEPS):
        odds = p / (1.0 - p)
        total += p_weight * math.fsum(
            weight * below[bisect_right(places, odds * r)] for r, weight in _posterior(recovered, _STEPS)
        )
    return min(1.0, total)


def to_json(found: Gate) -> dict[str, Any]:
    """Return a gate as JSON for programs."""
    shares = {"failed": found.failed, "recovered": found.recovered, "disrupted": found.disrupted}
    return {
        "choice": found.choice.value,
        "probability": found.probability,
        "gain": found.gain,
        "interval": list(found.interval),
        "threshold": round(found.threshold, 4),
        **{name: {"k": share.k, "n": share.n} for name, share in shares.items()},
    }


def read_gate(document: object) -> Gate:
    """Read a gate from its JSON; it is decided anew from the counts.

    Raises:
        ValueError: the document is not a gate.
    """
    try:
        failed, recovered, disrupted = (
            _share(document[name])  # type: ignore[index]
            for name in ("failed", "recovered", "disrupted")
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("expected a gate of `blamespan experiment --retry --gate FILE`") from error
    return gate(failed, recovered, disrupted)


def _share(found: object) -> Share:
    k, n = found["k"], found["n"]  # type: ignore[index]
    if not (type(k) is int and type(n) is int and 0 <= k <= n <= _MOST_RUNS):
        raise ValueError("expected counts")
    return Share(k=k, n=n)


_MOST_RUNS: Final = 10**6


def _choice(probability: float, fewest: int, sure: float) -> Choice:
    if fewest < FEWEST:
        return Choice.UNSURE
    if probability >= sure:
        return Choice.INTERVENE
    return Choice.REFUSE if probability <= 1.0 - sure else Choice.UNSURE


def _gain(p: float, r: float, d: float) -> float:
    return p * r - (1.0 - p) * d


def _interval(failed: Share, recovered: Share, disrupted: Share) -> tuple[float, float]:
    gains = sorted(
        (_gain(p, r, d), p_weight * r_weight * d_weight)
        for p, p_weight in _posterior(failed, _COARSE)
        for r, r_weight in _posterior(recovered, _COARSE)
        for d, d_weight in _posterior(disrupted, _COARSE)
    )
    return _quantile(gains, 0.025), _quantile(gains, 0.975)


def _quantile(weighted: Sequence[tuple[float, float]], share: float) -> float:
    reached = accumulate(weight for _, weight in weighted)
    place = next((at for at, sum_ in enumerate(reached) if sum_ >= share), len(weighted) - 1)
    return round(weighted[place][0], 4)


@lru_cache(maxsize=4096)
def _posterior(share: Share, steps: int) -> tuple[tuple[float, float], ...]:
    """Return values of a share in ascending order, with their weights."""
    places = [math.sin((step + 0.5) / steps * math.pi / 2) ** 2 for step in range(steps)]
    logs = [share.k * math.log(x) + (share.n - share.k) * math.log1p(-x) for x in places]
    highest = max(logs)
    weights = [math.exp(log - highest) for log in logs]
    total = math.fsum(weights)
    return tuple((x, weight / total) for x, weight in zip(places, weights, strict=True))
