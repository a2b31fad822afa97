"""What a model's answer is worth, in money: how ``auto`` decides whether to ask. Pure.

An answer is worth what it is expected to add to the chance of naming the right step
(``posterior.gain_of_asking``: nothing, where no answer could change ours) times what
the right step is worth. That is the most that may be spent on it; and for next to no
gain nothing is asked, however cheap: a free model costs time, and an opinion that
cannot help can only mislead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from analyzer.posterior import LogShares, gain_of_asking

RIGHT_STEP_USD: Final = 5.0
"""What the right step of a failed run is worth: five minutes of an engineer at 60 USD an hour, less than
a person takes to read one."""
LEAST_GAIN: Final = 0.02
"""Expected gain in the chance of naming the right step below which a call is not made."""
SIGNALS_ACCURACY: Final = 0.2
"""Steps that signals name rightly on systems they were not written for: 20.5 of 100 (docs/accuracy.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What a further opinion is expected to bring."""

    gain: float
    """Rise of the chance of naming the right step, 0..1."""
    usd: float

    @property
    def is_any(self) -> bool:
        """Whether the answer is expected to change ours, and for the better."""
        return self.gain >= LEAST_GAIN

    def limit(self, budget_usd: float | None) -> tuple[float, str]:
        """Return the most to spend on it, of what a run may cost at most, and what for, in words."""
        if budget_usd is not None and budget_usd <= self.usd:
            return budget_usd, "a run"
        return self.usd, f"for an answer that raises the chance of the right step by {self.gain:.0%}"


def worth_of(shares: LogShares, accuracy: float) -> Worth:
    """Weigh a further opinion against what is believed already.

    Args:
        shares: what is believed: the log-probability of each step.
        accuracy: how often the further opinion names the right step, 0..1.
    """
    gain = gain_of_asking(shares, accuracy)
    return Worth(gain=gain, usd=gain * RIGHT_STEP_USD)


def belief_in_signals(steps: int) -> LogShares:
    """Return what to believe of a run that only signals have judged.

    Their own confidence is calibrated on no system; how often they are right is known. Which step
    they name makes no difference here: the first stands for it.
    """
    if steps < 2:
        return (0.0,) * steps
    first = max(SIGNALS_ACCURACY, 1 / steps)
    others = math.log((1 - first) / (steps - 1))
    return (math.log(first), *(others for _ in range(steps - 1)))
