"""Simulated walks: trials are coin flips with known rates, so right decisions are known."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from analyzer.experiment.candidates import ArmKey, Candidate
from analyzer.experiment.sequential import ALPHA, Arm, Decision, TrialResult, decide
from analyzer.experiment.walk import FOR_THE_BLAMED, LEAST_PROBABILITY, Patience, Walk

Rate = Callable[[ArmKey], float]


@dataclass(frozen=True, kw_only=True)
class Walked:
    """One simulated walk."""

    proved: tuple[int, ...]
    trials: int
    takes_back: bool = False
    """Whether the most suspect step was refuted."""


@dataclass(kw_only=True)
class Tally:
    """Counts of walks of one kind."""

    walks: list[Walked] = field(default_factory=list)

    def share(self, holds: Callable[[Walked], bool]) -> float:
        return sum(map(holds, self.walks)) / len(self.walks)

    def trials(self, quantile: float) -> int:
        ordered = sorted(walk.trials for walk in self.walks)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]


def chain(beliefs: Sequence[float]) -> tuple[Candidate, ...]:
    """Return a chain of sequential calls: neighbours share an arm."""
    total = sum(beliefs)
    prefixes = [ArmKey(recorded=frozenset(range(length))) for length in range(len(beliefs) + 1)]
    return tuple(
        Candidate(
            call=k,
            step=k,
            agent=f"agent {k}",
            belief=belief / total,
            control=prefixes[k + 1],
            treatment=prefixes[k],
            resampled=prefixes[k],
        )
        for k, belief in enumerate(beliefs)
    )


def texts(beliefs: Sequence[float]) -> tuple[Candidate, ...]:
    """Return the same chain with a replacement text: treatments are not shared."""
    return tuple(
        Candidate(
            call=one.call,
            step=one.step,
            agent=one.agent,
            belief=one.belief,
            control=one.control,
            treatment=ArmKey(recorded=one.treatment.recorded, fixed=one.call),
            resampled=one.resampled,
        )
        for one in chain(beliefs)
    )


def walk(
    candidates: tuple[Candidate, ...],
    rate: Rate,
    coin: random.Random,
    most: int = 40,
    rule: tuple[float, Patience] = (LEAST_PROBABILITY, FOR_THE_BLAMED),
) -> Walked:
    """Run a walk to its end; ``rule`` says when a candidate is dropped, and the most suspect one."""
    least, patience = rule
    state = Walk(candidates, most_trials=most, least_probability=least, patience=patience)
    trials = 0
    while (key := state.begin()) is not None:
        trials += 1
        state.end(key, TrialResult(success=coin.random() < rate(key)))
    blamed = max(candidates, key=lambda candidate: candidate.belief)
    return Walked(
        proved=tuple(candidate.call for candidate in state.proved),
        trials=trials,
        takes_back=state.decision(blamed) is Decision.REFUTED,
    )


def two_arms(
    low: float, high: float, alpha: float, coin: random.Random, most: int = 40
) -> tuple[Decision, int]:
    """Compare two arms after each pair of trials."""
    lows = highs = 0
    for n in range(1, most + 1):
        lows += coin.random() < low
        highs += coin.random() < high
        found = decide(Arm(n=n, successes=lows), Arm(n=n, successes=highs), alpha)
        if found is not Decision.UNDECIDED:
            return found, n
    return Decision.UNDECIDED, most


def opinion(n: int, decisive: int, coin: random.Random, accuracy: float = 0.39) -> list[float]:
    """Return a ranking like that of the best method without a model on new runs: right in 39 %."""
    named = decisive if coin.random() < accuracy else coin.randrange(n)
    return [0.4 if k == named else 0.6 / max(1, n - 1) for k in range(n)]


__all__ = ["ALPHA", "Tally", "Walked", "chain", "opinion", "texts", "two_arms", "walk"]
