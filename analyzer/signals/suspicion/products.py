"""Finds the product that an answer should have stated, if the run leaves no doubt. Pure.

A rate (``$3 per GPU-hour``) is multiplied by the counts that the task and the tools give. That is certain
only if nothing else was given: one rate, at most three counts, each in the answer or in the task. If the rate
names the unit of every count, the units prove the product; if not, the stated figure must be a slip of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from analyzer.signals.suspicion.derivation import near_miss
from analyzer.signals.suspicion.figures import Figure, figures, unit_of

_PER: Final = re.compile(
    r"\s?(?:[A-Za-z€$£]{1,12}\s)?(?:(?:per|an?|for each|for every)\s([A-Za-z-]{1,30})|(?:each|apiece)\b)"
    r"|\s?[A-Za-z€$£]{0,8}/([A-Za-z-]{1,30})"
)
_MOST: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A figure given in the run."""

    figure: Figure
    per: tuple[str, ...] | None
    """Units of the rate's denominator; empty for ``each``; ``None`` if it is a count."""


def given_in(text: str) -> list[Given]:
    """Return the quantities in a text, with the denominators of rates."""
    return [
        Given(figure=one, per=_per(text, one)) for one in figures(text) if not one.is_label and one.value > 0
    ]


def right_product(claim: Figure, task: str, results: Sequence[str], told: Sequence[Figure]) -> str:
    """Return the product as text (``16 GPUs x 10 hours x $3 is $480``); empty if it is not certain."""
    asked = given_in(task)
    values = {one.figure.value for one in asked}
    returned = [one for text in results for one in given_in(text)]
    all_given = list({(one.figure.value, one.figure.unit): one for one in [*asked, *returned]}.values())
    rates = [one for one in all_given if one.per is not None]
    counts = [one for one in all_given if one.per is None]
    said = values | {figure.value for figure in told}
    if any(one.figure.unit == "%" for one in all_given):
        return ""
    if len(rates) != 1 or not 2 <= len(all_given) <= _MOST or any(c.figure.value not in said for c in counts):
        return ""
    product = math.prod(one.figure.value for one in all_given)
    if claim.unit and claim.unit != rates[0].figure.unit:
        return ""
    is_right = abs(product - claim.value) <= 0.51 * claim.step
    if is_right or not (_units_prove(rates[0], counts) or near_miss(claim, product)):
        return ""
    named = rates[0].per or ()
    counts.sort(key=lambda one: named.index(one.figure.unit) if one.figure.unit in named else len(named))
    shown = " x ".join([*(_shown(one, rates[0]) for one in counts), rates[0].figure.shown])
    return f"{shown} is {claim.shown.replace(claim.literal, f'{product:,.10g}')}"


def _units_prove(rate: Given, counts: Sequence[Given]) -> bool:
    return bool(counts) and sorted(one.figure.unit for one in counts) == sorted(rate.per or ())


def _shown(count: Given, rate: Given) -> str:
    return count.figure.shown if count.figure.unit in (rate.per or ()) else count.figure.literal


def _per(text: str, figure: Figure) -> tuple[str, ...] | None:
    found = _PER.match(text, figure.end)
    if found is None:
        return None
    return tuple(unit_of(word) for word in (found[1] or found[2] or "").split("-") if word)
