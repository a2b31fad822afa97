"""In what share of its runs an agent is to blame, allowing for a method that is wrong now and then.

What a method says is not what was. Of the runs in which it blames the agent, some
were another's fault; of the others, some were the agent's. Both shares are known
from people's labels, as surely as there are labels: the estimate of A. Tenenbein
(JASA 65, 1970, double sampling), in the form that holds where people choose what
they label by the verdict. Intervals are of the posterior (Jeffreys' priors), drawn
with a fixed seed: the same counts give the same interval.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

_DRAWS: Final = 2000
_SEED: Final = 1970
_Z_95: Final = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """So many of so many."""

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
        blamed: runs in which the method blames it, of those in which it took part.
        rightly: labelled runs in which it was to blame, of those labelled in which the
            method blames it.
        missed: labelled runs in which it was to blame, of those labelled in which the
            method does not.
    """
    chance = random.Random(_SEED)  # noqa: S311 - draws for an interval, no secret
    draws = sorted(_draw(chance, blamed, rightly, missed) for _ in range(_DRAWS))
    return Share(
        estimate=draws[_DRAWS // 2],
        low=draws[int(_DRAWS * 0.025)],
        high=draws[int(_DRAWS * 0.975)],
    )


def _draw(chance: random.Random, blamed: Count, rightly: Count, missed: Count) -> float:
    said = _beta(chance, blamed)
    return said * _beta(chance, rightly) + (1 - said) * _beta(chance, missed)


def _beta(chance: random.Random, count: Count) -> float:
    return chance.betavariate(count.hits + 0.5, count.n - count.hits + 0.5)


def compared(one: Count, other: Count) -> Share:
    """Return how many times as often the one happens as the other, with its 95 % interval.

    The ratio of two shares after D. Katz et al. (Biometrics 34, 1978), half a hit added
    to each, so that none is infinite. For an agent against its past or its fellows,
    counted by the same method: its mistakes are in both, and a ratio of 1 stays 1.
    """
    first, second = (one.hits + 0.5) / (one.n + 1), (other.hits + 0.5) / (other.n + 1)
    spread = math.sqrt(1 / (one.hits + 0.5) - 1 / (one.n + 1) + 1 / (other.hits + 0.5) - 1 / (other.n + 1))
    ratio = first / second
    return Share(estimate=ratio, low=ratio * math.exp(-_Z_95 * spread), high=ratio * math.exp(_Z_95 * spread))
