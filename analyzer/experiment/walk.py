"""The walk over candidates: the next trial, when a step is proved, and when it no longer may be. Pure.

A probability model guides the choice but decides nothing. It assumes one decisive call: arms that replay the
decisive answer seldom succeed, the others often, at rates averaged over a grid. The next trial goes to the
arm that halves the belief (every arm says something about each candidate), and once a candidate holds most of
it, to that candidate's arms. Decisions come only from ``sequential.decide``, at the candidate's share of
alpha. A candidate of which a proof has become improbable gets no further trials of its own; trials of arms
that it shares may make the proof probable again.

Each arm's rate has its posterior under Beta(1/2, 1/2), so the successes still to come follow a beta-binomial
distribution. Summed over the outcomes that ``sequential.decide`` calls a proof once both arms are full, this
is the predictive probability of a proof (Saville, Connor, Ayers & Alvarez, *The utility of Bayesian
predictive probabilities for interim monitoring of clinical trials*, 2014). A step at which it is small
is dropped, unless a refutation is near. The most suspect step gets more patience: its refutation takes a
blame back.

Dropping never adds a proof or a refutation: both are decided by e-processes, whose bounds hold however the
trials end. It may only miss one; docs/experiments.md says how many.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from analyzer.experiment.candidates import ArmKey, Candidate
from analyzer.experiment.sequential import (
    ALPHA,
    CLEAR_EFFECT,
    REFUTING_ALPHA,
    Arm,
    Comparison,
    Decision,
    Sampling,
    TrialResult,
    compare,
    count,
    decide,
    log_evidence_of_no_effect,
    log_evidence_of_passing,
    shares_of_alpha,
    unlike,
)
from semconv.record import record

MOST_TRIALS: Final = 40
"""Maximum number of valid trials per arm."""
_LARGE_SHARE: Final = 3
"""Bound on all trials of an arm, as a multiple of ``MOST_TRIALS``: copies and invalid ones cost money too."""
_CONCENTRATED: Final = 0.5
"""Belief in one candidate from which only its arms are tried."""
_NOTHING_HEALS: Final = 0.99
"""Belief that no candidate is decisive at which the walk ends."""
_PRIOR_OF_NONE: Final = 0.1
_RATES: Final = tuple(
    (low, high) for low in (0.02, 0.1, 0.2, 0.35) for high in (0.5, 0.65, 0.8, 0.95) if high - low >= 0.3
)
_FLAT_RATES: Final = (0.02, 0.1, 0.25, 0.5, 0.75, 0.95)
LEAST_PROBABILITY: Final = 0.02
"""Predictive probability of a proof below which a step is dropped: at 0.05, a tenth of the proofs of a step
that raises the rate from 0.2 to 0.6 was missed, at 0.02 one in a hundred (simulated)."""
_LEAST_TRIALS: Final = 3
"""Trials of each arm before a step is dropped: of fewer, the prior says more than the trials."""
_KNOWN_OUTCOMES: Final = 100_000


@record
class Room:
    """Valid trials that each arm may still get."""

    control: int
    treatment: int

    def within(self, trials: int) -> Room:
        """Return the part of it that this many further trials of each arm take."""
        return Room(control=min(self.control, trials), treatment=min(self.treatment, trials))


@record
class Patience:
    """When a step goes on although a proof is improbable: a refutation is near."""

    trials: int
    """Further trials of each arm within which it would have to come."""
    least: float
    """Probability of a refutation within them."""


USUAL: Final = Patience(trials=10, least=0.5)
FOR_THE_BLAMED: Final = Patience(trials=1_000, least=0.25)
"""For the most suspect step, as long as its arms have room. About as many innocent steps are refuted as
without dropping; with ``USUAL``, mostly a quarter to a third of them
(``python -m benchmarks.experiment futility``)."""


class Walk:
    """State of one walk: trials go in, the next arm and the decisions come out."""

    def __init__(
        self,
        candidates: tuple[Candidate, ...],
        *,
        most_trials: int = MOST_TRIALS,
        alpha: float = ALPHA,
        least_probability: float = LEAST_PROBABILITY,
        patience: Patience = FOR_THE_BLAMED,
    ) -> None:
        """Create a walk over at least one candidate.

        Args:
            candidates: the calls to try.
            most_trials: valid trials of an arm.
            alpha: bound on the probability of a wrong proof.
            least_probability: of a proof; a candidate below it is dropped.
            patience: with the most suspect candidate before it is dropped.
        """
        self.candidates = candidates
        self._most, self._least, self._patience = most_trials, least_probability, patience
        self._blamed = max(candidates, key=lambda candidate: candidate.belief).call
        shares = shares_of_alpha([candidate.belief for candidate in candidates], alpha)
        self._alphas = {c.call: share for c, share in zip(candidates, shares, strict=True)}
        self._trials: dict[ArmKey, list[TrialResult]] = {key: [] for c in candidates for key in _keys(c)}
        self._pending: Counter[ArmKey] = Counter()
        self._arms: dict[ArmKey, Arm] = dict.fromkeys(self._trials, Arm())
        self._decisions: dict[int, Decision] = {}
        self._futile: set[int] = set()
        self._sampling, self._counted_by = Sampling(), frozenset[str]()
        self._posterior: dict[int, float] | None = None

    def begin(self) -> ArmKey | None:
        """Start the next trial and return its arm; ``None`` if the walk has ended."""
        key = None if self.is_decided else self._choose()
        if key is not None:
            self._pending[key] += 1
        return key

    def end(self, key: ArmKey, result: TrialResult | None) -> None:
        """Take a trial's result; ``None`` if it was cancelled."""
        self._pending[key] -= 1
        if result is None:
            return
        self._trials[key].append(result)
        self._sampling.add(result)
        changed = [key]
        if self._sampling.sources != self._counted_by:  # trials taken for copies turned out not to be
            self._counted_by, changed = frozenset(self._sampling.sources), list(self._trials)
        for arm_key in changed:
            self._arms[arm_key] = count(self._trials[arm_key], self._sampling)
        self._decide(changed)
        self._posterior = None

    def arm(self, key: ArmKey) -> Arm:
        """Return an arm's trials so far."""
        return self._arms[key]

    @property
    def copies(self) -> int:
        """Valid trials of all arms that are not counted, because they may repeat another one's answers."""
        return sum(arm.copies for arm in self._arms.values())

    def comparison(self, candidate: Candidate) -> Comparison:
        """Compare a candidate's arms, with the interval."""
        return compare(
            self._arms[candidate.control], self._arms[candidate.treatment], self._alphas[candidate.call]
        )

    def decision(self, candidate: Candidate) -> Decision:
        """Return the decision on a candidate."""
        return self._decisions.get(candidate.call, Decision.UNDECIDED)

    @property
    def is_decided(self) -> bool:
        """Whether a step is proved, or none can be proved any more."""
        return bool(self.proved) or not self._open() or self._none_heals() >= _NOTHING_HEALS

    @property
    def proved(self) -> tuple[Candidate, ...]:
        """The candidates whose change heals, earliest first."""
        candidates = (c for c in self.candidates if self._decisions.get(c.call) is Decision.PROVED)
        return tuple(sorted(candidates, key=lambda candidate: candidate.step))

    @property
    def tried(self) -> tuple[Candidate, ...]:
        """The candidates whose arms both have trials, earliest first."""
        return tuple(c for c in self.candidates if self._arms[c.control].n and self._arms[c.treatment].n)

    def why_dropped(self, candidate: Candidate) -> str:
        """Return why an undecided candidate gets no further trials, or an empty text."""
        if candidate.call not in self._futile:
            return ""
        return f"more trials would prove it with a probability of less than {self._least:.0%}"

    def trials_left(self) -> int:
        """Return about how many trials the most suspect open candidate still needs; 0 if there is none."""
        beliefs = self.posterior()
        top = max(self._open(), key=lambda c: beliefs[c.call], default=None)
        if top is None:
            return 0
        control, treatment = self._arms[top.control], self._arms[top.treatment]
        return trials_left(control, treatment, self._alphas[top.call], self._room(top))

    def passes(self, candidate: Candidate) -> bool:
        """Return whether the run mostly succeeds with the recorded answers, so that there is no failure."""
        return log_evidence_of_passing(self._arms[candidate.control]) >= -math.log(ALPHA)

    def posterior(self) -> Mapping[int, float]:
        """Return the probability of each candidate's call; the rest up to 1 is "none of them"."""
        if self._posterior is None:
            logs = {c.call: self._log_belief(c) for c in self._open()}
            none = self._log_none()
            highest = max((*logs.values(), none))
            weights = {call: math.exp(log - highest) for call, log in logs.items()}
            total = sum(weights.values()) + math.exp(none - highest)
            self._posterior = {call: weight / total for call, weight in weights.items()}
        return self._posterior

    def _decide(self, changed: Collection[ArmKey]) -> None:
        for candidate in filter(self._may_go_on, self._undecided()):
            if candidate.control not in changed and candidate.treatment not in changed:
                continue
            control, treatment = self._arms[candidate.control], self._arms[candidate.treatment]
            decision = decide(control, treatment, self._alphas[candidate.call])
            if decision is Decision.UNDECIDED and self.passes(candidate):
                decision = Decision.REFUTED
            self._futile.discard(candidate.call)
            if decision is not Decision.UNDECIDED:
                self._decisions[candidate.call] = decision
            elif self._is_futile(candidate):
                self._futile.add(candidate.call)

    def _is_futile(self, candidate: Candidate) -> bool:
        control, treatment = self._arms[candidate.control], self._arms[candidate.treatment]
        alpha, room = self._alphas[candidate.call], self._room(candidate)
        patience = self._patience if candidate.call == self._blamed else USUAL
        return is_futile(control, treatment, alpha, room, patience, self._least)

    def _room(self, candidate: Candidate) -> Room:
        return Room(control=self._left(candidate.control), treatment=self._left(candidate.treatment))

    def _left(self, key: ArmKey) -> int:
        return max(0, self._most - self._arms[key].n)

    def _undecided(self) -> list[Candidate]:
        return [c for c in self.candidates if c.call not in self._decisions]

    def _open(self) -> list[Candidate]:
        """Return the candidates that further trials may decide."""
        return [c for c in self._undecided() if c.call not in self._futile and self._may_go_on(c)]

    def _may_go_on(self, candidate: Candidate) -> bool:
        control, treatment = candidate.control, candidate.treatment
        if unlike(self._arms[control], self._arms[treatment]):
            return False
        return self._has_room(control) or self._has_room(treatment)

    def _has_room(self, key: ArmKey) -> bool:
        under_way = self._pending[key]
        begun = len(self._trials[key]) + under_way
        return self._arms[key].n + under_way < self._most and begun < _LARGE_SHARE * self._most

    def _choose(self) -> ArmKey | None:
        beliefs = self.posterior()
        top = max(self._open(), key=lambda c: (beliefs[c.call], -c.call))
        if beliefs[top.call] >= _CONCENTRATED * sum(beliefs.values()):
            return self._behind(top)
        return self._halving(beliefs) or self._behind(top)

    def _behind(self, candidate: Candidate) -> ArmKey | None:
        """Return the candidate's arm with the fewest trials; the third arm gets half as many."""
        keys = {candidate.resampled: 2} | {candidate.treatment: 1, candidate.control: 1}
        free = [key for key in keys if self._has_room(key)]
        return min(free, key=lambda key: self._begun(key) * keys[key], default=None)

    def _begun(self, key: ArmKey) -> int:
        return self._arms[key].n + self._pending[key]

    def _halving(self, beliefs: Mapping[int, float]) -> ArmKey | None:
        """Return the arm that splits the belief most evenly; on ties, the one with fewest live calls."""
        free = [key for key in self._trials if self._has_room(key)]

        def worth(key: ArmKey) -> tuple[float, int]:
            low = sum(belief for call, belief in beliefs.items() if _is_low(call, key))
            return min(low, sum(beliefs.values()) - low), len(key.recorded)

        best = max(free, key=worth, default=None)
        return best if best is not None and worth(best)[0] > 0 else None

    def _log_belief(self, candidate: Candidate) -> float:
        lows = [arm for key, arm in self._arms.items() if arm.n and _is_low(candidate.call, key)]
        highs = [arm for key, arm in self._arms.items() if arm.n and not _is_low(candidate.call, key)]
        logs = [_log(_sum(lows), low) + _log(_sum(highs), high) for low, high in _RATES]
        prior = (1 - _PRIOR_OF_NONE) * max(candidate.belief, 1e-6)
        return math.log(prior) + _log_mean(logs)

    def _log_none(self) -> float:
        every = _sum(list(self._arms.values()))
        logs = [_log(every, rate) for rate in _FLAT_RATES]
        return math.log(_PRIOR_OF_NONE) + _log_mean(logs)

    def _none_heals(self) -> float:
        return 1.0 - sum(self.posterior().values())


def _keys(candidate: Candidate) -> tuple[ArmKey, ...]:
    return candidate.control, candidate.treatment, candidate.resampled


def _is_low(call: int, key: ArmKey) -> bool:
    """Return whether an arm seldom succeeds if this call is decisive: the arm replays the call's answer."""
    return call in key.recorded


def _sum(arms: list[Arm]) -> Arm:
    return Arm(n=sum(arm.n for arm in arms), successes=sum(arm.successes for arm in arms))


def _log(arm: Arm, rate: float) -> float:
    return arm.successes * math.log(rate) + (arm.n - arm.successes) * math.log(1 - rate)


def _log_mean(logs: list[float]) -> float:
    highest = max(logs)
    return highest + math.log(sum(math.exp(log - highest) for log in logs) / len(logs))


def is_futile(  # noqa: PLR0917 - two arms and what bounds them
    control: Arm,
    treatment: Arm,
    alpha: float,
    room: Room,
    patience: Patience = USUAL,
    least: float = LEAST_PROBABILITY,
) -> bool:
    """Return whether a proof is improbable, and no refutation near.

    Args:
        control: the trials with the recorded answer.
        treatment: the trials with the changed one.
        alpha: this candidate's share.
        room: the trials that may follow.
        patience: when a refutation is near.
        least: probability of a proof below which it is improbable; 0 for never.
    """
    if min(control.n, treatment.n) < _LEAST_TRIALS:
        return False
    if probability_of_proof(control, treatment, alpha, room) >= least:
        return False
    return _probability_of_refutation(control, treatment, room.within(patience.trials)) < patience.least


def probability_of_proof(control: Arm, treatment: Arm, alpha: float, room: Room) -> float:
    """Return the predictive probability that the step is proved when both arms are full."""
    n, m = control.n + room.control, treatment.n + room.treatment
    return sum(
        one * other
        for low, one in _outcomes(control, room.control)
        for high, other in _outcomes(treatment, room.treatment)
        if _is_proved(low, n, high, m, alpha)
    )


def trials_left(control: Arm, treatment: Arm, alpha: float, room: Room) -> int:
    """Return about how many trials a decision needs, if both arms go on at their measured rates.

    Returns:
        At most the trials that fit into both arms.
    """
    most = max(room.control, room.treatment)
    for more in range(1, most + 1):
        later = Room(control=min(more, room.control), treatment=min(more, room.treatment))
        one, other = _grown(control, later.control), _grown(treatment, later.treatment)
        if decide(one, other, alpha) is not Decision.UNDECIDED:
            return later.control + later.treatment
    return room.control + room.treatment


def _probability_of_refutation(control: Arm, treatment: Arm, room: Room) -> float:
    n, m = control.n + room.control, treatment.n + room.treatment
    return sum(
        one * other
        for low, one in _outcomes(control, room.control)
        for high, other in _outcomes(treatment, room.treatment)
        if _is_refuted(low, n, high, m)
    )


def _outcomes(arm: Arm, more: int) -> list[tuple[int, float]]:
    """Return the numbers of successes after more trials, each with its predictive probability."""
    a, b = arm.successes + 0.5, arm.n - arm.successes + 0.5
    whole = _log_beta(a, b)
    return [
        (
            arm.successes + k,
            math.comb(more, k) * math.exp(_log_beta(a + k, b + more - k) - whole),
        )
        for k in range(more + 1)
    ]


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@lru_cache(maxsize=_KNOWN_OUTCOMES)
def _is_proved(low: int, n: int, high: int, m: int, alpha: float) -> bool:
    if high * n - low * m < CLEAR_EFFECT * n * m - 1e-9:  # rules out most outcomes without their likelihoods
        return False
    decision = decide(Arm(n=n, successes=low), Arm(n=m, successes=high), alpha)
    return decision is Decision.PROVED


@lru_cache(maxsize=_KNOWN_OUTCOMES)
def _is_refuted(low: int, n: int, high: int, m: int) -> bool:
    evidence = log_evidence_of_no_effect(Arm(n=n, successes=low), Arm(n=m, successes=high))
    return evidence >= -math.log(REFUTING_ALPHA)


def _grown(arm: Arm, more: int) -> Arm:
    """Return the arm after more trials at its measured rate."""
    n = arm.n + more
    return Arm(n=n, successes=round(arm.rate * n))
