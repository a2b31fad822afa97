"""Comparison of injected with organic failures: can a simple classifier tell them apart? Pure.

If it can, a ranker trained on the injected ones may learn the difference in place of the diagnosis. Two
classifiers look, at the *shape* of a run (its elements and the lengths of its outputs) and at its *words*:
naive Bayes over facts that a run has or lacks. Each run is judged by the runs of other origins, so that
runs with a common beginning do not recognise each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from analyzer.experiment.injection.injector import Tried
from analyzer.history.elements import action_of, elements_of
from analyzer.inquiry.intervals import Interval
from semconv.model import Trajectory
from semconv.record import record

NAME: Final = "gate, injected against organic failures"
FEWEST: Final = 10
"""Failures of each sort from which a comparison says something."""
MOST_ALIKE: Final = 0.6
"""Area under the curve up to which the sorts are alike enough (the aim of the project)."""
_FOLDS: Final = 5
_Z: Final = 1.96
_LEAST_RUNS: Final = 2
"""Runs that must have a fact before it is looked at: with one run there is nothing to learn."""

Facts = frozenset[str]


@record
class Sample:
    """A failure, the kind of its fault (empty for an organic one), and the run that it repeats."""

    trajectory: Trajectory
    kind: str
    origin: str


@record
class Likeness:
    """Accuracy of one classifier that separates injected from organic failures."""

    by: str
    """``shape`` or ``words``."""
    area: float
    """Probability that it ranks an injected failure above an organic one (AUC); 0.5 is chance."""
    interval: Interval
    """95 %, by Hanley and McNeil (1982)."""
    injected: int
    organic: int
    kinds: Sequence[tuple[str, float, int]]
    """Area and number of each kind of fault, the most conspicuous first."""

    @property
    def verdict(self) -> str:
        """``failed`` if above ``MOST_ALIKE`` and above chance, ``passed``, or ``too few failures``."""
        if min(self.injected, self.organic) < FEWEST:
            return "too few failures"
        if self.area <= MOST_ALIKE:
            return "passed"
        return "failed" if self.interval.low > 0.5 else "too few failures"


def likenesses(samples: Sequence[Sample]) -> tuple[Likeness, ...]:
    """Return how well each classifier tells injected from organic failures; empty without both kinds."""
    n = sum(bool(each.kind) for each in samples)
    if not n or n == len(samples):
        return ()
    views: Mapping[str, Callable[[Trajectory], Facts]] = {"shape": _shape, "words": _words}
    return tuple(
        _likeness(by, samples, [look(each.trajectory) for each in samples]) for by, look in views.items()
    )


def samples_of(tried: Iterable[Tried], given: Iterable[Trajectory] = ()) -> list[Sample]:
    """Return the labelled failures, those of the trials without a fault, and given organic ones."""
    found = [Sample(trajectory=each, kind="", origin=each.run_id) for each in given]
    for one in tried:
        found += [Sample(trajectory=each, kind="", origin=one.run_id) for each in one.organic]
        if one.failure is not None:
            kind = one.fault.kind.value
            found.append(Sample(trajectory=one.failure.trajectory, kind=kind, origin=one.run_id))
    return found


def likeness_json(one: Likeness) -> dict[str, Any]:
    """Return a comparison as JSON."""
    return {
        "by": one.by,
        "auc": round(one.area, 4),
        "interval": [round(one.interval.low, 4), round(one.interval.high, 4)],
        "injected": one.injected,
        "organic": one.organic,
        "kinds": [{"kind": kind, "auc": round(area, 4), "n": n} for kind, area, n in one.kinds],
        "verdict": one.verdict,
    }


def likeness_line(one: Likeness) -> str:
    """Return a comparison as a line of text."""
    kinds = ", ".join(f"{kind} {area:.2f}" for kind, area, _ in one.kinds)
    return (
        f"{NAME}, by {one.by}: AUC {one.area:.2f} [{one.interval.low:.2f},"
        f" {one.interval.high:.2f}] of {one.injected} and {one.organic}, at most {MOST_ALIKE}: {one.verdict}"
        f" ({kinds})"
    )


def _likeness(by: str, samples: Sequence[Sample], facts: Sequence[Facts]) -> Likeness:
    folds = _out_of_fold(samples, facts)
    kinds = sorted({each.kind for each in samples if each.kind})
    injected, organic = (sum(bool(each.kind) is sort for each in samples) for sort in (True, False))
    area = _area(folds, kinds)
    areas = [(kind, _area(folds, [kind]), sum(each.kind == kind for each in samples)) for kind in kinds]
    return Likeness(
        by=by,
        area=area,
        interval=_interval(area, injected, organic),
        injected=injected,
        organic=organic,
        kinds=tuple(sorted(areas, key=lambda one: (-one[1], one[0]))),
    )


def _area(folds: Iterable[Sequence[tuple[Sample, float]]], kinds: Collection[str]) -> float:
    """Return the area over the pairs of each fold; scores of two folds come from different classifiers."""
    won = pairs = 0.0
    for fold in folds:
        organic = [score for each, score in fold if not each.kind]
        injected = [score for each, score in fold if each.kind in kinds]
        won += len(injected) * len(organic) * area_under(injected, organic)
        pairs += len(injected) * len(organic)
    return won / pairs if pairs else 0.5


def area_under(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Return the probability that one of the first is larger than one of the second; ties count half."""
    won = sum((one > other) + (one == other) / 2 for one in higher for other in lower)
    return won / (len(higher) * len(lower)) if higher and lower else 0.5


def _interval(area: float, first: int, second: int) -> Interval:
    one, other = area / (2 - area), 2 * area * area / (1 + area)
    spread = area * (1 - area) + (first - 1) * (one - area**2) + (second - 1) * (other - area**2)
    half = _Z * math.sqrt(max(0.0, spread) / (first * second))
    return Interval(low=max(0.0, area - half), high=min(1.0, area + half))


def _out_of_fold(samples: Sequence[Sample], facts: Sequence[Facts]) -> list[list[tuple[Sample, float]]]:
    """Return each fold's runs with their log-odds of being injected, learned from the other folds."""
    often = Counter(fact for each in facts for fact in each)
    known = sorted(fact for fact, n in often.items() if n >= _LEAST_RUNS)
    origins = sorted({each.origin for each in samples}, key=lambda one: sha256(one.encode()).digest())
    fold_of = {origin: place % _FOLDS for place, origin in enumerate(origins)}
    pairs = list(zip(samples, facts, strict=True))
    whole, found = _Counts(pairs), []
    for fold in range(min(_FOLDS, len(origins))):
        held = [pair for pair in pairs if fold_of[pair[0].origin] == fold]
        without = _Counts(held)
        found.append([(each, _log_odds(own, known, whole, without)) for each, own in held])
    return found


class _Counts:
    """Runs of each sort, and how many of them have each fact."""

    def __init__(self, pairs: Iterable[tuple[Sample, Facts]]) -> None:
        self.runs = [0, 0]
        self.having: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        for each, own in pairs:
            sort = bool(each.kind)
            self.runs[sort] += 1
            self.having[sort].update(own)


def _log_odds(own: Facts, known: Sequence[str], whole: _Counts, without: _Counts) -> float:
    """Return the log-odds of a run; the sorts count as equally frequent."""
    organic, injected = (whole.runs[sort] - without.runs[sort] for sort in (0, 1))
    total = 0.0
    for fact in known:
        ours = (whole.having[1][fact] - without.having[1][fact] + 0.5) / (injected + 1)
        theirs = (whole.having[0][fact] - without.having[0][fact] + 0.5) / (organic + 1)
        total += math.log(ours / theirs) if fact in own else math.log((1 - ours) / (1 - theirs))
    return total


def _shape(trajectory: Trajectory) -> Facts:
    """Return a run's elements, its number of steps, and each action's lengths and repetitions of outputs."""
    steps = trajectory.steps
    facts = {element.key for element in elements_of(trajectory)}
    facts |= {f"steps {len(steps)}"}
    facts |= {f"length {action_of(step)} {len(step.output).bit_length()}" for step in steps}
    said = Counter(step.output.strip() for step in steps if step.output.strip())
    return frozenset(facts | {f"said {n} times" for n in said.values() if n > 1})


def _words(trajectory: Trajectory) -> Facts:
    return frozenset(word.lower() for step in trajectory.steps for word in step.output.split())
