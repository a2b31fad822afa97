"""Calibration of confidences: temperature scaling, then isotonic regression if there are enough labels.

``evaluation/significance.py`` measures how well calibrated the result is.

The confidence of signals is corrected with the user's own labels and proofs (``Worth``): its odds are
multiplied by those of being right, divided by those that were stated, over labelled verdicts with the same
kind of evidence. ``_ASSUMED`` verdicts as right as stated are assumed beside them.

Temperature scaling (Guo et al., arXiv:1706.04599) has one parameter, which about fifty labels can support.
Isotonic regression on the steps' probabilities (Zadrozny & Elkan, KDD 2002) can correct any monotone
distortion, but overfits few labels (Niculescu-Mizil & Caruana, ICML 2005): it is tried from
``ENOUGH_FOR_A_CURVE`` runs, and used only if it does better on runs that it was not fitted to.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from analyzer.inquiry.posterior import LogShares, log_softmax, temper
from semconv.model import UNKNOWN_AGENT, Abstention, Attribution, Blame, Status

ENOUGH_FOR_A_CURVE: Final = 200
"""Labelled runs below which only a temperature is fitted."""
_FACTOR: Final = 1.05
"""Ratio between consecutive temperatures tried; 1 is kept if no other does better."""
_COOLEST: Final = 0.4
_HOTTEST: Final = 8.0
_SLOPE: Final = 0.01
"""Minimum slope added to the curve: so flat parts keep the order of the steps, and no step gets 0."""
_PARTS: Final = 2

_STATED: Final = 10.0
"""Weight of the mean stated confidence against the observed precision, as a number of answers."""

_ASSUMED: Final = 10
_USUAL: Final = 0.36
"""Mean confidence of shown verdicts of signals in the labelled systems of docs/accuracy.md."""
_LEAST_LABELLED: Final = 5
"""Labelled verdicts below which nothing is corrected."""
_MOST: Final = 0.9
"""Highest corrected confidence: labels of other runs prove nothing about this one."""

Confident: TypeAlias = tuple[float, bool]
"""Confidence in the blamed step, and whether it was correct."""
Knots: TypeAlias = tuple[tuple[float, float], ...]
"""Points of a curve (stated probability, true probability), both ascending."""
FitCurve: TypeAlias = Callable[[Sequence[float], Sequence[bool]], Knots]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What labels and proofs said of verdicts with one kind of evidence, as runs; a proof counts half."""

    labelled: float = 0.0
    right: float = 0.0
    """Those whose step was the decisive one."""
    stated: float = 0.0
    """The sum of the confidences of all of them."""

    def corrected(self, confidence: float) -> float:
        """Return the confidence that a verdict with such evidence deserves; unchanged with few labels."""
        if self.labelled < _LEAST_LABELLED or not 0 < confidence < 1:
            return confidence
        before = _odds(self.stated + _ASSUMED * _USUAL, self.labelled + _ASSUMED)
        after = _odds(self.right + _ASSUMED * _USUAL, self.labelled + _ASSUMED)
        odds = confidence / (1 - confidence) * after / before
        return min(max(_MOST, confidence), odds / (1 + odds))


def _odds(count: float, of: float) -> float:
    return count / (of - count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Mapping from stated to true probabilities: a temperature, then an optional curve."""

    temperature: float = 1.0
    curve: Knots = ()

    def apply(self, shares: LogShares) -> LogShares:
        """Return the calibrated log-probabilities; keeps the order of the steps."""
        cooled = temper(shares, self.temperature)
        if not self.curve:
            return cooled
        return log_softmax([math.log(_read_off(self.curve, math.exp(share))) for share in cooled])


def calibrate(
    shares: Sequence[LogShares], right: Sequence[int], fit_curve: FitCurve, enough: int = ENOUGH_FOR_A_CURVE
) -> Calibration:
    """Fit a calibration to opinions that did not see these runs' labels.

    ``right`` holds the position of each run's correct step.
    """
    cooled = Calibration(temperature=fit_temperature(shares, right))
    if len(shares) < enough:
        return cooled
    curved = unseen = 0.0
    for part in range(_PARTS):
        rest = [place for place in range(len(shares)) if place % _PARTS != part]
        chosen = _curved(cooled, [shares[i] for i in rest], [right[i] for i in rest], fit_curve)
        held = (shares[part::_PARTS], right[part::_PARTS])
        curved += log_loss(chosen, *held)
        unseen += log_loss(cooled, *held)
    return _curved(cooled, shares, right, fit_curve) if curved < unseen else cooled


def fit_temperature(shares: Sequence[LogShares], right: Sequence[int]) -> float:
    """Return the temperature with the lowest log-loss on the correct steps; 1 without runs.

    ``shares`` must come from models that did not see these runs' labels; ``right``
    holds the position of each run's correct step.
    """
    best, least = 1.0, log_loss(Calibration(), shares, right)
    for factor in (_FACTOR, 1 / _FACTOR):  # the log-loss has one minimum: walk down from 1, either way
        heat = best * factor
        while _COOLEST <= heat <= _HOTTEST and (loss := log_loss(_tempered(heat), shares, right)) < least:
            best, least = heat, loss
            heat *= factor
    return round(best, 4)


def log_loss(calibration: Calibration, shares: Sequence[LogShares], right: Sequence[int]) -> float:
    """Return the log-loss: minus the log-probability of each run's correct step, summed over the runs."""
    pairs = zip(shares, right, strict=True)
    return -math.fsum(calibration.apply(one)[step] for one, step in pairs)


def least_confidence(pairs: Sequence[Confident], precision: float) -> float | None:
    """Return the lowest threshold with an expected precision of at least ``precision``.

    The observed precision is shrunk towards the mean confidence of the answered runs, with a weight of
    ``_STATED`` answers: the threshold with the best *observed* precision is partly luck, and does
    worse on other runs. ``None`` if no threshold reaches the precision.
    """
    ordered = sorted(pairs, key=lambda pair: -pair[0])
    found: float | None = None
    right, stated = 0, 0.0
    for number, (confidence, was_right) in enumerate(ordered, start=1):
        right += was_right
        stated += confidence
        ends_a_tie = number == len(ordered) or ordered[number][0] < confidence
        if ends_a_tie and (right + _STATED * stated / number) / (number + _STATED) >= precision:
            found = confidence
    return found


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
    """Interpolate the curve at a value; constant beyond its ends, plus a small slope that keeps the order."""
    after = bisect_right(curve, stated, key=lambda knot: knot[0])
    if after in (0, len(curve)):
        level = curve[0 if not after else -1][1]
    else:
        (x0, y0), (x1, y1) = curve[after - 1], curve[after]
        level = y0 + (y1 - y0) * (stated - x0) / (x1 - x0)
    return level + _SLOPE * (stated + 1e-6)


def doubted(attribution: Attribution, least_confidence: float) -> Attribution:
    """Return the attribution, with its blame withheld if its confidence is below ``least_confidence``.

    A suspicion is not withheld: whether the run failed has a threshold of its own (``least_suspicion``).
    """
    verdict = attribution.verdict
    if not isinstance(verdict, Blame) or verdict.status is Status.SUSPECTED:
        return attribution
    if verdict.confidence >= least_confidence:
        return attribution
    named = "" if verdict.agent == UNKNOWN_AGENT else f" of {verdict.agent}"
    reason = (
        f"The evidence is too weak to blame an agent: step {verdict.step}{named} is the best candidate,"
        f" with a probability of {verdict.confidence:.0%}; a verdict needs {least_confidence:.0%}."
        f" {verdict.reason}"
    )
    abstention = Abstention(status=Status.UNDETERMINED, reason=reason, ranking=verdict.ranking)
    return replace(attribution, verdict=abstention)


def may_be_corrected(attribution: Attribution) -> bool:
    """Tell whether labels may correct the confidence: of a blame by signals alone, not of a suspicion."""
    return attribution.method == "signals" and attribution.verdict.status is Status.ATTRIBUTED


def as_labelled(attribution: Attribution, worths: Mapping[str, Worth]) -> Attribution:
    """Return the attribution, with the confidence of signals as labels of such evidence correct it.

    Args:
        attribution: any; only a blame by signals alone is corrected.
        worths: what labels said, by the verdict's mode.
    """
    verdict = attribution.verdict
    if not may_be_corrected(attribution) or not isinstance(verdict, Blame) or verdict.mode not in worths:
        return attribution
    worth = worths[verdict.mode]
    stated, deserved = verdict.confidence, round(worth.corrected(verdict.confidence), 4)
    if deserved == stated:
        return attribution
    others = min(deserved / stated, (1 - deserved) / (1 - stated))
    first, *rest = verdict.ranking
    ranking = (
        replace(first, probability=deserved),
        *(replace(one, probability=round(one.probability * others, 4)) for one in rest),
    )
    reason = (
        f"{verdict.reason} Such evidence was right in {worth.right:g} of {worth.labelled:g} labelled runs, so"
        f" the confidence is {deserved:.0%} instead of {stated:.0%}."
    )
    corrected = replace(verdict, reason=reason, confidence=deserved, ranking=ranking)
    return replace(attribution, verdict=corrected, stated=stated)
