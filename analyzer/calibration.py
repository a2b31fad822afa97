"""Making confidences mean what they say; how far they do is measured in ``reliability.py``.

Temperature scaling (Guo et al., arXiv:1706.04599): one parameter, which is what
some fifty labels can bear, where isotonic regression on as many would follow the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from analyzer.posterior import LogShares, temper

_TEMPERATURES: Final = (1.0, *(round(0.5 * 1.1**power, 3) for power in range(25)))
"""0.5 to about 4.9, and exactly 1, which wins where nothing is gained."""


def fit_temperature(shares: Sequence[LogShares], right: Sequence[int]) -> float:
    """Return the temperature under which the right steps are least surprising; 1 without any.

    ``shares`` must come from models that did not see these runs' labels; ``right``
    holds the position of each run's right step.
    """

    def surprise(temperature: float) -> float:
        pairs = zip(shares, right, strict=True)
        return -math.fsum(temper(one, temperature)[step] for one, step in pairs)

    return min(_TEMPERATURES, key=surprise)
