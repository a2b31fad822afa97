"""Results of trials, and their number of independent observations. Pure.

Two trials with equal live requests and equal live answers may show the same answer of the model twice: at
temperature 0, or from a cache. They count once, unless the model is known to sample: somewhere in the
experiment it gave two answers to the same request, at a temperature other than 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from analyzer.experiment.sequential import MOST_REASONS, Arm, Reason
from semconv.record import record


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


def count(trials: Iterable[TrialResult], known: Sampling) -> Arm:
    """Count the trials of one arm, with copies counted once."""
    n = successes = copies = 0
    seen: set[tuple[bool, frozenset[Draw]]] = set()
    invalid: list[str] = []
    for trial in trials:
        if trial.invalid:
            invalid.append(trial.invalid)
            continue
        key = (trial.success, frozenset(trial.draws))
        if key in seen and known.may_be_copies(trial.draws):
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
