"""Quality gates of an injected data set: share of correct labels, and shortcuts to the label. Pure.

A shortcut is a step number that is always the same, or a word that only faulty answers contain: a ranker
trained on such labels learns the shortcut.

The last gate compares injected with organic failures: can a simple classifier tell them apart? If it can, a
ranker trained on the injected ones may learn the difference in place of the diagnosis. One classifier looks
at the *shape* of a run (its elements and the lengths of its outputs), another at its *words*; both are naive
Bayes over facts that a run has or lacks. Each run is judged by the runs of other origins, so that runs with a
common beginning do not recognise each other.

The fault must be all that differs. A run gives at most a few labels, but a hard task gives dozens of organic
failures; so an injected failure is compared only with organic failures of the same run (failures from
production, which repeat no run, are compared with all). Failures of one run share its beginning, and are no
independent observations: the interval is over runs.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from statistics import NormalDist, fmean
from typing import Any, Final

from analyzer.experiment.replay.tape import Tape
from analyzer.history.elements import action_of, elements_of
from analyzer.inquiry.intervals import Z_95, Interval
from analyzer.lab.injection.injector import Failure, Tried
from semconv.model import StepKind, Trajectory
from semconv.record import record

_WORD: Final = re.compile(r"[^\W\d_]+")
_FEWEST: Final = 10
"""Fewest labels for which a gate gives a verdict."""
_RAREST: Final = 20
"""Largest ratio of two labels' weights."""


@record
class Gate:
    """Accuracy of a shortcut on the labels."""

    name: str
    accuracy: float
    chance: float
    """Accuracy of a guess among the model's calls."""
    n: int
    effective: float | None = None
    """Number of equally weighted labels that say as much (Kish); ``None`` if all weigh the same."""

    @property
    def verdict(self) -> str:
        """``passed`` if the shortcut may be no better than chance, ``failed``, or ``too few labels``."""
        n = self.n if self.effective is None else self.effective
        if n < _FEWEST:
            return "too few labels"
        return "failed" if _wilson(self.accuracy, n)[0] > self.chance else "passed"


@record
class Purity:
    """Share of correct labels."""

    tried: int
    kept: int
    flip_rate: float
    """Share of the trials with a fault that failed, averaged over the labels; 0 without a label."""
    organic: float
    """Upper end of the 95 % interval of the share of failures, over the labels' trials without a fault."""
    discarded: Sequence[tuple[str, int]]
    """Reasons of faults that make no label, most frequent first."""


def purity(tried: Sequence[Tried]) -> Purity:
    """Return the purity of an injected data set."""
    kept = [each for each in tried if each.failure is not None]
    rates = [1.0 - each.twin.faulty.rate for each in kept]
    arms = [arm for each in kept for arm in (each.twin.recorded, each.twin.restored)]
    n, failures = sum(arm.n for arm in arms), sum(arm.n - arm.successes for arm in arms)
    reasons = Counter(each.reason.partition(":")[0] for each in tried if each.failure is None)
    return Purity(
        tried=len(tried),
        kept=len(kept),
        flip_rate=sum(rates) / len(rates) if rates else 0.0,
        organic=_wilson(failures / n, n)[1] if n else 1.0,
        discarded=tuple(reasons.most_common()),
    )


def shortcut_gates(failures: Sequence[Failure], tapes: Iterable[Tape]) -> tuple[Gate, ...]:
    """Return the gates: position alone, the same with the weights of training, and marker words alone.

    Args:
        failures: the labelled failures.
        tapes: the passing runs, whose words are no markers.
    """
    n = len(failures)
    chance = sum(1.0 / max(1, len(_suspects(failure))) for failure in failures) / max(1, n)
    known = {
        word
        for tape in tapes
        for call in tape.calls
        for text in (call.answer.text, *(message.text for message in call.messages))
        for word in _words(text)
    }
    position = sum(_by_position(failure, failures) for failure in failures) / max(1, n)
    markers = sum(_by_markers(failure, known) for failure in failures) / max(1, n)
    return (
        Gate(name="position alone", accuracy=position, chance=chance, n=n),
        _weighted_position(failures),
        Gate(name="marker words alone", accuracy=markers, chance=chance, n=n),
    )


def balanced_weights(failures: Sequence[Failure]) -> list[float]:
    """Return the labels' weights in training: the flip rate, divided by the frequency of the label's place.

    So no place among the model's calls is more often decisive than another that has labels at all. The
    largest weight is 1; none is below a ``_RAREST``th of the largest, so that single labels do not decide.
    """
    often = Counter(map(_place_of, failures))
    raw = [_flip_rate(failure) / often[_place_of(failure)] for failure in failures]
    most = max(raw, default=1.0)
    return [max(round(each / most, 4), 1 / _RAREST) for each in raw]


def _weighted_position(failures: Sequence[Failure]) -> Gate:
    """Return the gate of the best constant place; not held out, so rather too strict."""
    weights = balanced_weights(failures)
    whole, held = sum(weights) or 1.0, Counter[int | None]()
    for each, weight in zip(failures, weights, strict=True):
        held[_place_of(each)] += weight  # type: ignore[assignment]  # Counter counts floats too
    chances = [weight / len(_suspects(failure)) for failure, weight in zip(failures, weights, strict=True)]
    return Gate(
        name="position alone, weighted",
        accuracy=max(held.values(), default=0) / whole,
        chance=sum(chances) / whole,
        n=len(failures),
        effective=sum(weights) ** 2 / (sum(each * each for each in weights) or 1.0),
    )


def _place_of(failure: Failure) -> int | None:
    return _suspects(failure).index(failure.step) if _has(failure) else None


def _flip_rate(failure: Failure) -> float:
    weight = failure.document.get("label", {}).get("weight", 1.0)
    return float(weight) or 1.0


def purity_json(found: Purity) -> dict[str, Any]:
    """Return the purity as JSON."""
    return {
        "tried": found.tried,
        "kept": found.kept,
        "flip_rate": round(found.flip_rate, 4),
        "organic_upper": round(found.organic, 4),
        "discarded": [{"reason": reason, "n": n} for reason, n in found.discarded],
    }


def gate_json(gate: Gate) -> dict[str, Any]:
    """Return a gate as JSON."""
    shown = {"accuracy": round(gate.accuracy, 4), "chance": round(gate.chance, 4), "n": gate.n}
    effective = None if gate.effective is None else round(gate.effective, 1)
    return {"name": gate.name, **shown, "effective_n": effective, "verdict": gate.verdict}


def gate_line(gate: Gate) -> str:
    """Return a gate as a line of text."""
    found = f"finds {gate.accuracy:.0%} of {gate.n}, chance {gate.chance:.0%}"
    return f"gate, {gate.name}: {found}: {gate.verdict}"


def _suspects(failure: Failure) -> list[int]:
    kinds = {StepKind.LLM, StepKind.HANDOFF, StepKind.AGENT}
    return [step.index for step in failure.trajectory.steps if step.kind in kinds] or [failure.step]


def _by_position(failure: Failure, every: Sequence[Failure]) -> float:
    """Guess the most frequent place of the other labels; ties share."""
    others = Counter(_suspects(each).index(each.step) for each in every if each is not failure and _has(each))
    most = max(others.values(), default=0)
    guesses = [place for place, count in others.items() if count == most]
    suspects = _suspects(failure)
    right = sum(place < len(suspects) and suspects[place] == failure.step for place in guesses)
    return right / len(guesses) if guesses else 1.0 / len(suspects)


def _has(failure: Failure) -> bool:
    return failure.step in _suspects(failure)


def _by_markers(failure: Failure, known: set[str]) -> float:
    """Guess the step with most words that no passing run has; ties share."""
    steps = failure.trajectory.steps
    odd = {index: len(_words(steps[index].output) - known) for index in _suspects(failure)}
    most = max(odd.values())
    guesses = [index for index, count in odd.items() if count == most]
    return (failure.step in guesses) / len(guesses)


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _wilson(share: float, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval."""
    z = NormalDist().inv_cdf(0.975)
    centre, spread = share + z * z / (2 * n), z * ((share * (1 - share) + z * z / (4 * n)) / n) ** 0.5
    return (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)


NAME: Final = "gate, injected against organic failures"
FEWEST: Final = 10
"""Fewest failures of each sort for which a comparison gives a verdict."""
MOST_ALIKE: Final = 0.6
"""Area under the curve up to which the sorts are alike enough (the aim of the project)."""
_FOLDS: Final = 5
_LEAST_RUNS: Final = 2
"""Runs of the other folds that must have a fact before it is looked at."""
_LEAST_CLUSTERS: Final = 5
"""Fewest origins whose spread gives an interval."""
_NEARLY: Final = 0.01
"""Bound of the shares that facts are shrunk to, so that no fact decides alone."""

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
    """95 %, by the jackknife over origins; 0 to 1 with one origin."""
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
    n = sum(bool(sample.kind) for sample in samples)
    if not n or n == len(samples):
        return ()
    views: Mapping[str, Callable[[Trajectory], Facts]] = {"shape": _shape, "words": _words_of_run}
    return tuple(
        _likeness(by, samples, [look(sample.trajectory) for sample in samples]) for by, look in views.items()
    )


def samples_of(tried: Iterable[Tried], trajectories: Iterable[Trajectory]) -> list[Sample]:
    """Return the labelled failures, those of the trials without a fault, and given organic ones.

    Failures of a run without a label are left out: no injected one repeats that run.
    """
    found = [Sample(trajectory=trajectory, kind="", origin=trajectory.run_id) for trajectory in trajectories]
    tries = list(tried)
    labelled = {one.run_id for one in tries if one.failure is not None}
    for one in (each for each in tries if each.run_id in labelled):
        found += [Sample(trajectory=trajectory, kind="", origin=one.run_id) for trajectory in one.organic]
        if one.failure is not None:
            kind = one.fault.kind.value
            found.append(Sample(trajectory=one.failure.trajectory, kind=kind, origin=one.run_id))
    return found


def likeness_json(likeness: Likeness) -> dict[str, Any]:
    """Return a comparison as JSON."""
    return {
        "by": likeness.by,
        "auc": round(likeness.area, 4),
        "interval": [round(likeness.interval.low, 4), round(likeness.interval.high, 4)],
        "injected": likeness.injected,
        "organic": likeness.organic,
        "kinds": [{"kind": kind, "auc": round(area, 4), "n": n} for kind, area, n in likeness.kinds],
        "verdict": likeness.verdict,
    }


def likeness_line(likeness: Likeness) -> str:
    """Return a comparison as a line of text."""
    kinds = ", ".join(f"{kind} {area:.2f}" for kind, area, _ in likeness.kinds)
    return (
        f"{NAME}, by {likeness.by}: AUC {likeness.area:.2f} [{likeness.interval.low:.2f},"
        f" {likeness.interval.high:.2f}] of {likeness.injected} and {likeness.organic},"
        f" at most {MOST_ALIKE}: {likeness.verdict} ({kinds})"
    )


def _likeness(by: str, samples: Sequence[Sample], facts: Sequence[Facts]) -> Likeness:
    scored = _out_of_fold(samples, facts)
    kinds = sorted({sample.kind for sample in samples if sample.kind})
    area, interval = _compared(scored, kinds)
    areas = [
        (kind, _compared(scored, [kind])[0], sum(sample.kind == kind for sample in samples)) for kind in kinds
    ]
    return Likeness(
        by=by,
        area=area,
        interval=interval,
        injected=sum(bool(sample.kind) for sample in samples),
        organic=sum(not sample.kind for sample in samples),
        kinds=tuple(sorted(areas, key=lambda one: (-one[1], one[0]))),
    )


@record
class _Scored:
    """A failure, its log-odds of being injected, and the classifier that gave them."""

    sample: Sample
    score: float
    fold: int


def _compared(scored: Sequence[_Scored], kinds: Collection[str]) -> tuple[float, Interval]:
    """Return the area over the comparable pairs, and its interval over the injected failures' origins."""
    injected = [each for each in scored if each.sample.kind in kinds]
    organic = [each for each in scored if not each.sample.kind]
    repeated = {each.sample.origin for each in scored if each.sample.kind}
    won: dict[str, list[float]] = {}
    for each in injected:
        others = [one.score for one in organic if _comparable(each, one, repeated)]
        if others:
            won.setdefault(each.sample.origin, []).append(area_under([each.score], others))
    return _over_clusters(list(won.values()))


def _comparable(injected: _Scored, organic: _Scored, repeated: Collection[str]) -> bool:
    """Tell whether the scores of the two compare: one classifier gave both, and they repeat the same run.

    Failures from production repeat no run, and compare with all.
    """
    origin = organic.sample.origin
    return injected.fold == organic.fold and (origin == injected.sample.origin or origin not in repeated)


def _over_clusters(clusters: Sequence[Sequence[float]]) -> tuple[float, Interval]:
    """Return the mean, and its 95 % interval by leaving out one cluster at a time."""
    n, total = sum(map(len, clusters)), sum(map(sum, clusters))
    if len(clusters) < _LEAST_CLUSTERS:
        return (total / n if n else 0.5), Interval(low=0.0, high=1.0)
    without = [(total - sum(own)) / (n - len(own)) for own in clusters]
    spread = math.sqrt(fmean((each - fmean(without)) ** 2 for each in without) * (len(clusters) - 1))
    half = _t_95(len(clusters) - 1) * spread
    return total / n, Interval(low=max(0.0, total / n - half), high=min(1.0, total / n + half))


def _t_95(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t, within 2 % (Cornish and Fisher's expansion)."""
    z = Z_95
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return z + (z**3 + z) / (4 * freedom) + second


def area_under(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Return the probability that one of the first is larger than one of the second; ties count half."""
    won = sum((one > other) + (one == other) / 2 for one in higher for other in lower)
    return won / (len(higher) * len(lower)) if higher and lower else 0.5


def _out_of_fold(samples: Sequence[Sample], facts: Sequence[Facts]) -> list[_Scored]:
    """Return the failures with their log-odds of being injected, learned from the other folds."""
    origins = sorted({sample.origin for sample in samples}, key=lambda one: sha256(one.encode()).digest())
    fold_of = {origin: place % _FOLDS for place, origin in enumerate(origins)}
    weights = _weights(samples)
    rows = list(zip(samples, facts, weights, strict=True))
    found = []
    for fold in range(min(_FOLDS, len(origins))):
        classifier = _Classifier([row for row in rows if fold_of[row[0].origin] != fold])
        held = [(sample, own) for sample, own, _ in rows if fold_of[sample.origin] == fold]
        found += [_Scored(sample=sample, score=classifier.log_odds(own), fold=fold) for sample, own in held]
    return found


def _weights(samples: Sequence[Sample]) -> list[float]:
    """Return the weights in training: a run's organic failures weigh together as much as its injected ones.

    Otherwise the classifier would learn which runs are hard.
    """
    injected = Counter(sample.origin for sample in samples if sample.kind)
    organic = Counter(sample.origin for sample in samples if not sample.kind)
    is_pair = {origin: origin in injected for origin in organic}
    return [
        injected[each.origin] / organic[each.origin] if not each.kind and is_pair[each.origin] else 1.0
        for each in samples
    ]


class _Classifier:
    """Naive Bayes; the sorts count as equally frequent.

    The share of runs with a fact is shrunk to its mean over both sorts. With a fixed prior, facts that
    neither sort has shown would count as a sign of the rarer sort.
    """

    def __init__(self, rows: Iterable[tuple[Sample, Facts, float]]) -> None:
        runs = [0.0, 0.0]
        having: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        seen: Counter[str] = Counter()
        for sample, own, weight in rows:
            sort = bool(sample.kind)
            runs[sort] += weight
            seen.update(own)
            for fact in own:
                having[sort][fact] += weight  # type: ignore[assignment]  # Counter counts floats too
        known = sorted(fact for fact, n in seen.items() if n >= _LEAST_RUNS)
        shares = {fact: _shares([having[sort][fact] for sort in (0, 1)], runs) for fact in known}
        self._with = {fact: math.log(ours / theirs) for fact, (theirs, ours) in shares.items()}
        self._without = {fact: math.log((1 - ours) / (1 - theirs)) for fact, (theirs, ours) in shares.items()}

    def log_odds(self, own: Facts) -> float:
        """Return the log-odds that a run with these facts is an injected failure."""
        return sum(self._with[fact] if fact in own else odds for fact, odds in self._without.items())


def _shares(having: Sequence[float], runs: Sequence[float]) -> tuple[float, float]:
    """Return the shares of organic and of injected failures with a fact, shrunk to their mean."""
    mean = fmean(count / n if n else 0.0 for count, n in zip(having, runs, strict=True))
    mean = min(1.0 - _NEARLY, max(_NEARLY, mean))
    theirs, ours = (
        min(count + mean, n + 1 - _NEARLY) / (n + 1) for count, n in zip(having, runs, strict=True)
    )
    return theirs, ours


def _shape(trajectory: Trajectory) -> Facts:
    """Return a run's elements, its number of steps, and each action's lengths and repetitions of outputs."""
    steps = trajectory.steps
    facts = {element.key for element in elements_of(trajectory)}
    facts |= {f"steps {len(steps)}"}
    facts |= {f"length {action_of(step)} {len(step.output).bit_length()}" for step in steps}
    said = Counter(step.output.strip() for step in steps if step.output.strip())
    return frozenset(facts | {f"said {n} times" for n in said.values() if n > 1})


def _words_of_run(trajectory: Trajectory) -> Facts:
    return frozenset(word.lower() for step in trajectory.steps for word in step.output.split())
