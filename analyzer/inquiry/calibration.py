"""Making confidences mean what they say; how far they do is measured in ``measuring/reliability.py``.

Temperature scaling (Guo et al., arXiv:1706.04599) has one parameter, which is what
some fifty labels can bear. Isotonic regression on the steps' probabilities (Zadrozny &
Elkan, KDD 2002) can mend any monotone distortion, and follows the noise of few labels
(Niculescu-Mizil & Caruana, ICML 2005): it is tried from ``ENOUGH_FOR_A_CURVE`` runs on,
and taken only where it does better on runs that it was not fitted to.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.posterior import LogShares, log_softmax, temper

ENOUGH_FOR_A_CURVE: Final = 200
"""Labelled runs below which a temperature is all that is fitted."""
_FACTOR: Final = 1.05
"""Between one temperature and the next that is tried; 1 wins where nothing is gained."""
_COOLEST: Final = 0.4
_HOTTEST: Final = 8.0
_SLOPE: Final = 0.01
"""Added to the curve's, so that its flats keep the order of the steps and nothing becomes impossible."""
_PARTS: Final = 2

Knots: TypeAlias = tuple[tuple[float, float], ...]
"""Of a curve: stated and true probability, both ascending."""
FitCurve: TypeAlias = Callable[[Sequence[float], Sequence[bool]], Knots]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How stated probabilities become true ones: a temperature, then, if there is one, a curve."""

    temperature: float = 1.0
    curve: Knots = ()

    def apply(self, shares: LogShares) -> LogShares:
        """Return the calibrated log-probabilities; the order of the steps stays."""
        cooled = temper(shares, self.temperature)
        if not self.curve:
            return cooled
        return log_softmax([math.log(_read_off(self.curve, math.exp(share))) for share in cooled])


def calibrate(
    shares: Sequence[LogShares],
    right: Sequence[int],
    fit_curve: FitCurve,
    enough: int = ENOUGH_FOR_A_CURVE,
) -> Calibration:
    """Return the calibration of opinions that did not see these runs' labels.

    ``right`` holds the position of each run's right step.
    """
    cooled = Calibration(temperature=fit_temperature(shares, right))
    if len(shares) < enough:
        return cooled
    curved = unseen = 0.0
    for part in range(_PARTS):
        rest = [place for place in range(len(shares)) if place % _PARTS != part]
        chosen = _curved(cooled, [shares[i] for i in rest], [right[i] for i in rest], fit_curve)
        held = (shares[part::_PARTS], right[part::_PARTS])
        curved += surprise(chosen, *held)
        unseen += surprise(cooled, *held)
    return _curved(cooled, shares, right, fit_curve) if curved < unseen else cooled


def fit_temperature(shares: Sequence[LogShares], right: Sequence[int]) -> float:
    """Return the temperature under which the right steps are least surprising; 1 without any.

    ``shares`` must come from models that did not see these runs' labels; ``right``
    holds the position of each run's right step.
    """
    best, least = 1.0, surprise(Calibration(), shares, right)
    for factor in (_FACTOR, 1 / _FACTOR):  # the log-loss has one valley: walk down from 1, either way
        heat = best * factor
        while _COOLEST <= heat <= _HOTTEST and (loss := surprise(_tempered(heat), shares, right)) < least:
            best, least = heat, loss
            heat *= factor
    return round(best, 4)


def surprise(calibration: Calibration, shares: Sequence[LogShares], right: Sequence[int]) -> float:
    """Return the log-loss: the sum over the runs of minus the logarithm of the right step's probability."""
    pairs = zip(shares, right, strict=True)
    return -math.fsum(calibration.apply(one)[step] for one, step in pairs)


def _tempered(temperature: float) -> Calibration:
    return Calibration(temperature=temperature)


def _curved(
    cooled: Calibration, shares: Sequence[LogShares], right: Sequence[int], fit_curve: FitCurve
) -> Calibration:
    stated: list[float] = []
    true: list[bool] = []
    for one, step in zip(shares, right, strict=True):
        stated += [math.exp(share) for share in cooled.apply(one)]
        true += [position == step for position in range(len(one))]
    return Calibration(temperature=cooled.temperature, curve=fit_curve(stated, true))


def _read_off(curve: Knots, stated: float) -> float:
    """Interpolate, flat beyond the ends, with a slope that is never 0."""
    after = bisect_right(curve, stated, key=lambda knot: knot[0])
    if after in (0, len(curve)):
        level = curve[0 if not after else -1][1]
    else:
        (x0, y0), (x1, y1) = curve[after - 1], curve[after]
        level = y0 + (y1 - y0) * (stated - x0) / (x1 - x0)
    return level + _SLOPE * (stated + 1e-6)
