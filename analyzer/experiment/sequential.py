"""Results of trials, counted in arms, and the comparison of two arms, valid after any number of looks. Pure.

A trial succeeds or fails. Whether the treatment succeeds more often than the control is decided by an
e-process: the likelihood of all trials so far, averaged over a prior of alternatives, divided by the highest
likelihood that any pair of rates without an effect gives them (Wasserman, Ramdas & Balakrishnan, *Universal
inference*, PNAS 2020, arXiv:1912.11436, section 8; Ramdas, Ruf, Larsson & Koolen, arXiv:2009.03167). Under
the null it exceeds 1/alpha with probability at most alpha, ever (Ville's inequality): after each trial, at
any size of the arms, whichever arm gets the next trial and for whatever reason. A walk needs this, because it
bisects, shares arms between candidates and may stop at any time; group-sequential boundaries need equal arms
and a schedule fixed beforehand. The price is about three more trials per arm than an exact test with a single
look.

Over several candidates alpha is divided by ``shares_of_alpha``, before the first trial.

Two trials with equal live requests and equal live answers may show the same answer of the model twice: at
temperature 0, or from a cache. They count once, unless the model is known to sample: somewhere in the
experiment it gave two answers to the same request, at a temperature other than 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from semconv.record import record

ALPHA: Final = 0.05
"""Bound on the probability that a whole walk proves a step although no step heals."""
REFUTING_ALPHA: Final = 0.05
"""Bound on the probability that a step is refuted although its change raises the rate by
``DECISIVE_EFFECT``."""
DECISIVE_EFFECT: Final = 0.4
"""Smallest rise of the success rate that makes a step decisive: such as from 0.2 to 0.6."""
CLEAR_EFFECT: Final = 0.3
"""Smallest measured rise for a proof: otherwise many trials would prove a negligible effect."""
_MOST_INVALID_DIFFERENCE: Final = 0.2
_LEAST_TRIALS_FOR_INVALID: Final = 5
"""Trials per arm, invalid ones included, before rates of invalid trials are compared."""
_HALF_OF_PRIOR: Final = 0.5

_THIRDS: Final = 30
"""Steps to the best pair of rates; each leaves two thirds: 5e-6 at the end."""
_HALVINGS: Final = 14
"""Steps to an end of the interval: 1e-4 at the end."""

_LOW: Final = (0.01, 0.05, 0.1, 0.2, 0.3)
_HIGH: Final = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)
_HEALING: Final = tuple((low, high) for low in _LOW for high in _HIGH if high - low >= CLEAR_EFFECT - 1e-9)
"""Alternatives (rate of the control, of the treatment) of a proof, equally likely."""
_LEVELS: Final = (0.01, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.97)
_EQUAL: Final = tuple((level, level) for level in _LEVELS)
"""Alternatives of a refutation: no effect at all."""


class Decision(StrEnum):
    """Decision on a step."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    NOT_REPLAYABLE = "not_replayable"


@record
class Reason:
    """A reason why trials are invalid."""

    text: str
    n: int
    """Number of trials with this reason."""


MOST_REASONS: Final = 3
"""Distinct reasons kept of an arm's invalid trials."""


@record
class Arm:
    """Trials that replayed the same calls."""

    n: int = 0
    """Valid trials, each counted once."""
    successes: int = 0
    invalid: int = 0
    reasons: tuple[Reason, ...] = ()
    """Reasons why trials are invalid: the ``MOST_REASONS`` latest distinct ones, newest first."""
    copies: int = 0
    """Valid trials that are not counted: they repeat the requests and answers of one that is."""

    @property
    def rate(self) -> float:
        """Share of successes among valid trials; 0 if there are none."""
        return self.successes / self.n if self.n else 0.0

    @property
    def invalid_rate(self) -> float:
        """Share of invalid trials among all."""
        return self.invalid / (self.n + self.invalid) if self.n + self.invalid else 0.0


@record
class Comparison:
    """Treatment against control so far."""

    decision: Decision
    effect: float
    """Rate of the treatment minus rate of the control, as measured."""
    interval: tuple[float, float]
    """95 % confidence interval of the effect, valid over all looks; for this step alone."""
    reason: str = ""
    """Reason why ``undecided`` is final; empty if further trials may decide."""


def shares_of_alpha(beliefs: Sequence[float], alpha: float = ALPHA) -> tuple[float, ...]:
    """Divide alpha over candidates: half of it by belief, half evenly.

    Args:
        beliefs: probability of each candidate before the first trial; at least one.
        alpha: the total to divide.
    """
    total = sum(beliefs)
    even = 1.0 / len(beliefs)
    believed = [belief / total if total > 0 else even for belief in beliefs]
    return tuple(alpha * (_HALF_OF_PRIOR * each + (1 - _HALF_OF_PRIOR) * even) for each in believed)


def compare(control: Arm, treatment: Arm, alpha: float = ALPHA) -> Comparison:
    """Compare two arms, with the interval of the effect.

    Args:
        control: the trials with the recorded answer.
        treatment: the trials with the changed one.
        alpha: this candidate's share.
    """
    return Comparison(
        decision=decide(control, treatment, alpha),
        effect=round(treatment.rate - control.rate, 4),
        interval=interval(control, treatment),
        reason=unlike(control, treatment),
    )


def decide(control: Arm, treatment: Arm, alpha: float = ALPHA) -> Decision:
    """Decide as ``compare`` does, without the interval; may be called after every trial."""
    if not control.n or not treatment.n or unlike(control, treatment):
        return Decision.UNDECIDED
    is_clear = treatment.rate - control.rate >= CLEAR_EFFECT
    if is_clear and log_evidence_of_healing(control, treatment) >= -math.log(alpha):
        return Decision.PROVED
    if log_evidence_of_no_effect(control, treatment) >= -math.log(REFUTING_ALPHA):
        return Decision.REFUTED
    return Decision.UNDECIDED


def unlike(control: Arm, treatment: Arm) -> str:
    """Return why the arms cannot be compared, or an empty text: breaking the replay is not a failure."""
    if min(control.n + control.invalid, treatment.n + treatment.invalid) < _LEAST_TRIALS_FOR_INVALID:
        return ""
    if abs(control.invalid_rate - treatment.invalid_rate) <= _MOST_INVALID_DIFFERENCE:
        return ""
    return (
        f"{control.invalid_rate:.0%} of the control's trials and {treatment.invalid_rate:.0%} of the"
        " treatment's are invalid: more than 20 points apart"
    )


def log_evidence_of_healing(control: Arm, treatment: Arm) -> float:
    """Return the logarithm of the e-process against "the treatment succeeds no more often"."""
    null = _highest(control, treatment, least_effect=None)
    return _averaged(control, treatment, _HEALING) - null


def log_evidence_of_no_effect(control: Arm, treatment: Arm) -> float:
    """Return the logarithm of the e-process against "the effect is at least ``DECISIVE_EFFECT``"."""
    null = _highest(control, treatment, least_effect=DECISIVE_EFFECT)
    return _averaged(control, treatment, _EQUAL) - null


def log_evidence_of_passing(arm: Arm, rate: float = 0.5) -> float:
    """Return the logarithm of the e-process against "the arm succeeds at most at this rate"."""
    if arm.rate <= rate:
        return -math.inf
    return _marginal(arm) - _log_likelihood(arm, rate)


def interval(control: Arm, treatment: Arm, alpha: float = ALPHA) -> tuple[float, float]:
    """Return the confidence sequence of the effect: the effects that the trials do not rule out.

    The likelihood of an effect is that of its best pair of rates; it is concave in the effect, so both ends
    are found by bisection.
    """
    least = _marginal(control) + _marginal(treatment) + math.log(alpha)
    effect = treatment.rate - control.rate
    return (
        round(_end(control, treatment, least, effect, -1.0), 4),
        round(_end(control, treatment, least, effect, 1.0), 4),
    )


def _end(control: Arm, treatment: Arm, least: float, inside: float, outside: float) -> float:
    if _profile(control, treatment, outside) > least:
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if _profile(control, treatment, middle) > least:
            inside = middle
        else:
            outside = middle
    return inside


def _highest(control: Arm, treatment: Arm, *, least_effect: float | None) -> float:
    """Return the highest log-likelihood of a null: no positive effect, or at least ``least_effect``."""
    effect = treatment.rate - control.rate
    most, least = (0.0, -1.0) if least_effect is None else (1.0, least_effect)
    if least <= effect <= most:
        return _pair(control, treatment, control.rate, treatment.rate)
    return _profile(control, treatment, max(least, min(effect, most)))


def _profile(control: Arm, treatment: Arm, effect: float) -> float:
    """Return the highest log-likelihood of rates that differ by ``effect``, by ternary search."""
    if not effect:
        pooled = (control.successes + treatment.successes) / max(1, control.n + treatment.n)
        return _pair(control, treatment, pooled, pooled)
    low, high = max(0.0, -effect), min(1.0, 1.0 - effect)
    for _ in range(_THIRDS):
        third = (high - low) / 3
        one, other = low + third, high - third
        if _pair(control, treatment, one, one + effect) < _pair(control, treatment, other, other + effect):
            low = one
        else:
            high = other
    middle = (low + high) / 2
    return _pair(control, treatment, middle, middle + effect)


def _averaged(control: Arm, treatment: Arm, alternatives: Sequence[tuple[float, float]]) -> float:
    """Return the log-likelihood averaged over alternatives."""
    logs = [_pair(control, treatment, low, high) for low, high in alternatives]
    highest = max(logs)
    return highest + math.log(sum(math.exp(log - highest) for log in logs) / len(logs))


def _pair(control: Arm, treatment: Arm, low: float, high: float) -> float:
    return _log_likelihood(control, low) + _log_likelihood(treatment, high)


def _log_likelihood(arm: Arm, rate: float) -> float:
    failures = arm.n - arm.successes
    return _times_log(arm.successes, rate) + _times_log(failures, 1.0 - rate)


def _times_log(count: int, rate: float) -> float:
    if not count:
        return 0.0
    return count * math.log(rate) if rate > 1e-12 else -math.inf


def _marginal(arm: Arm) -> float:
    """Return the log-likelihood of a sequence averaged over Beta(1/2, 1/2) (Krichevsky & Trofimov 1981)."""
    failures = arm.n - arm.successes
    return (
        math.lgamma(arm.successes + 0.5)
        + math.lgamma(failures + 0.5)
        - math.lgamma(arm.n + 1.0)
        - 2 * math.lgamma(0.5)
    )


@record
class Draw:
    """A model's live answer."""

    source: str
    """The model, with the sampling parameters of the request."""
    request: str
    """Digest of the request."""
    answer: str
    """Digest of the answer's content, without ids and times."""
    is_greedy: bool = False
    """Whether the request asked for temperature 0."""


@record
class TrialResult:
    """Result of one trial."""

    success: bool = False
    invalid: str = ""
    """Reason why the trial is invalid; empty if it is valid."""
    crashed: bool = False
    """Whether the workflow ended with an error of its own: it asked nothing new, and no live call failed."""
    draws: tuple[Draw, ...] = ()
    """Live answers, by their requests: the order of parallel calls is free."""
    served: int = 0
    masked: int = 0
    live: int = 0


class Sampling:
    """Models that are known to sample: they gave two answers to the same request."""

    def __init__(self) -> None:
        """Start with no such model."""
        self.sources: set[str] = set()
        self._answers: dict[tuple[str, str], str] = {}

    def add(self, trial: TrialResult) -> None:
        """Record a trial's answers."""
        for draw in trial.draws:
            if self._answers.setdefault((draw.source, draw.request), draw.answer) != draw.answer:
                self.sources.add(draw.source)

    def may_be_copies(self, draws: Sequence[Draw]) -> bool:
        """Return whether equal draws may be the same answer twice."""
        return bool(draws) and not any(draw.source in self.sources and not draw.is_greedy for draw in draws)


def count(trials: Iterable[TrialResult], sampling: Sampling) -> Arm:
    """Count the trials of one arm, with copies counted once."""
    n = successes = copies = 0
    seen: set[tuple[bool, frozenset[Draw]]] = set()
    invalid: list[str] = []
    for trial in trials:
        if trial.invalid:
            invalid.append(trial.invalid)
            continue
        key = (trial.success, frozenset(trial.draws))
        if key in seen and sampling.may_be_copies(trial.draws):
            copies += 1
            continue
        seen.add(key)
        n += 1
        successes += trial.success
    return Arm(n=n, successes=successes, invalid=len(invalid), reasons=latest_reasons(invalid), copies=copies)


def latest_reasons(given: Sequence[str]) -> tuple[Reason, ...]:
    """Return the last distinct reasons with their numbers of trials, newest first.

    Args:
        given: the reason of each invalid trial, in the order of their ends.
    """
    numbers = Counter(given)
    distinct = tuple(dict.fromkeys(reversed(given)))
    return tuple(Reason(text=text, n=numbers[text]) for text in distinct[:MOST_REASONS])
