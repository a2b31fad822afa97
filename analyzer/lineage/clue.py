"""Clues that a run failed, and the probability of failure that they give.

A logistic model for each kind of clue gives the probability that a run with this clue failed, assuming that
one in ten runs that report no failure did fail. The strongest clue of each kind counts; kinds are taken as
independent. Coefficients and thresholds: ``weights.py``, made by
``python -m benchmarks.accuracy.suspicion --write``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from analyzer.lineage.weights import THRESHOLDS, WEIGHTS
from semconv.model import Evidence


class ClueKind(StrEnum):
    """The kind of a clue."""

    WRONG_FIGURE = "wrong_figure"
    """A figure of the answer that neither a tool nor arithmetic gives."""
    WRONG_SUM = "wrong_sum"
    """A calculation whose result is wrong."""
    UNSOURCED = "unsourced"
    """An id, a link, a quotation or a named source that occurs nowhere in the run."""
    IGNORED_ERROR = "ignored_error"
    """A call that failed or returned nothing, which no later step mentions."""
    LOOP = "loop"
    """The same call with the same result, again and again."""
    CONSTRAINT = "constraint"
    """A demand of the task that the answer does not meet."""
    UNDONE = "undone"
    """An answer that gives nothing of what was asked for."""
    INVENTED = "invented"
    """An answer or a claim of success in place of what a failed call did not give."""
    CHANGED = "changed"
    """A value of the answer or of a call that differs in one place from the one that was given."""
    EXCEEDED = "exceeded"
    """A call that takes more than the maximum that an earlier one returned."""
    MISREPORTED = "misreported"
    """An answer with another figure than the result of the deed that it reports."""
    CLAIMED = "claimed"
    """A deed that the answer claims and no call did."""
    CUT_SHORT = "cut_short"
    """An answer that counts fewer entries than the list has from which it takes them."""
    OUT_OF_DATE = "out_of_date"
    """An answer for today from a result that is long out of date."""
    OTHER_LANGUAGE = "other_language"
    """An answer in another language than the task, which nobody asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """One clue that a run failed."""

    step: int
    """The step that made the mistake."""
    kind: ClueKind
    reason: str
    """A predicate in the past tense; its subject is the agent of ``step``."""
    evidence: tuple[Evidence, ...] = ()
    value: float | None = None
    """The wrong figure."""
    is_miscalculated: bool = False
    """Whether it is known to be the wrong result of a calculation."""
    signs: Mapping[str, float] = field(default_factory=dict)
    """Signs by which it is weighed, each 0 to 1."""
    most: float = 1.0
    """Highest probability that it gives, where a reason outside the fitted signs makes it weak."""


REASONED: Final[Mapping[str, Mapping[str, float]]] = {
    "wrong_figure": {"": 1.0, "product": 0.5},
    "ignored_error": {
        "": -4.7,
        "failed": 1.6,
        "figures": 3.5,
        "nothing_else": 1.2,
        "others_succeed": -3.7,
        "others_succeeded": 0.8,
    },
    "undone": {"": 0.5, "failed": 0.6, "words": -0.4, "promise": 0.4},
    "invented": {"": 0.5, "figures": 1.0, "claimed": 0.8},
    "other_language": {"": 0.62},
    "changed": {"": 1.0, "name": -0.4, "argument": 0.5},
    "exceeded": {"": 1.5},
    "misreported": {"": 1.2},
    "claimed": {"": 0.8},
    "cut_short": {"": 0.8},
    "out_of_date": {"": 0.6},
}
"""Log-odds of kinds of clues for which no labelled runs like those of others exist; chosen, not measured.

Each is above even, since nothing in the run supports the answer, and far from certain: an agent may know by
itself what a call did not give. An error that nobody mentions is above even only beside figures that nothing
gives: people leave out the calls on which nothing depended. ``words`` alone stays the weakest. An answer in
another language is odd in any run, but its reader may have chosen the language outside the run: 0.65.
"""
Weights: TypeAlias = Mapping[str, Mapping[str, float]]
"""Coefficients of each kind of clue by sign; ``""`` is the constant."""
ALL_WEIGHTS: Final[Weights] = {**WEIGHTS, **REASONED}
BASE_RATE: Final = 0.1
"""Assumed share of failures among runs that report none."""
DEFAULT_FALSE_ALARMS: Final = 0.02
_MOST: Final = 0.95
"""Highest probability: evidence within a run never proves that its answer is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """Clues with the probability that each gives, the strongest first, and their combined probability."""

    probability: float
    clues: tuple[tuple[float, Clue], ...]


def weigh(clues: Sequence[Clue], weights: Weights = ALL_WEIGHTS) -> Weighed:
    """Return the probability that a run with these clues failed."""
    scored = sorted(
        ((_probability(clue, weights), clue) for clue in clues), key=lambda pair: (-pair[0], pair[1].step)
    )
    strongest: dict[str, float] = {}
    for probability, clue in scored:
        strongest.setdefault(clue.kind, probability)
    innocent = math.prod(1 - probability for probability in strongest.values())
    return Weighed(probability=round(min(_MOST, 1 - innocent), 4) if scored else 0.0, clues=tuple(scored))


def least_suspicion(false_alarms: float) -> float | None:
    """Return the probability from which to suspect a run, by the tolerated share of good runs.

    Returns ``None`` to suspect no run. The probabilities are those of measured good runs, each scored by
    coefficients fitted to other kinds of runs.
    """
    allowed = [threshold for share, threshold in THRESHOLDS if share <= false_alarms]
    return min(allowed, default=None)


def _probability(clue: Clue, weights: Weights) -> float:
    table = weights.get(clue.kind, {})
    score = table.get("", 0.0) + sum(table.get(sign, 0.0) * value for sign, value in clue.signs.items())
    return min(clue.most, 1 / (1 + math.exp(-max(-30.0, min(30.0, score)))))
