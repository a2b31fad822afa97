"""Quality gates of an injected data set: share of correct labels, and shortcuts to the label. Pure.

A shortcut is a step number that is always the same, or a word that only faulty answers contain: a ranker
trained on such labels learns the shortcut.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Any, Final

from analyzer.experiment.replay.tape import Tape
from analyzer.lab.injection.injector import Failure, Tried
from semconv.model import StepKind
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
    chance = sum(1.0 / max(1, len(_suspects(each))) for each in failures) / max(1, n)
    known = {
        word
        for tape in tapes
        for call in tape.calls
        for text in (call.answer.text, *(message.text for message in call.messages))
        for word in _words(text)
    }
    position = sum(_by_position(each, failures) for each in failures) / max(1, n)
    markers = sum(_by_markers(each, known) for each in failures) / max(1, n)
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
    raw = [_flip_rate(each) / often[_place_of(each)] for each in failures]
    most = max(raw, default=1.0)
    return [max(round(each / most, 4), 1 / _RAREST) for each in raw]


def _weighted_position(failures: Sequence[Failure]) -> Gate:
    """Return the gate of the best constant place; not held out, so rather too strict."""
    weights = balanced_weights(failures)
    whole, held = sum(weights) or 1.0, Counter[int | None]()
    for each, weight in zip(failures, weights, strict=True):
        held[_place_of(each)] += weight  # type: ignore[assignment]  # Counter counts floats too
    chances = [weight / len(_suspects(each)) for each, weight in zip(failures, weights, strict=True)]
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
