"""Logistic models of the clues, fitted with numpy; one for each kind."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from analyzer.lineage.clue import BASE_RATE, REASONED, weigh
from analyzer.signals.suspicion import Clue

_RIDGE: Final = 0.3
_IMAGINED: Final = 0.5
"""Runs of either kind added to each kind of clue (Jeffreys): so that a clue in no good run is not treated as
certain."""
_ROUNDS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One run with its clues."""

    story: str
    """Kind of the story: folds leave a kind out."""
    dialect: str
    fault: str
    """Empty for a good run."""
    clues: tuple[Clue, ...]
    of_twin: frozenset[tuple[str, str]] = frozenset()
    """Clues that the good twin also has, so that they do not show the fault."""
    step: int | None = None
    """The step at fault, if the fault is one text."""


def fit(examples: Sequence[Example]) -> dict[str, dict[str, float]]:
    """Return the coefficients that separate clues of faulted runs from those of good runs.

    Kinds whose odds are reasoned keep these: the faults here were not made for them.
    """
    rows: defaultdict[str, list[tuple[Clue, float, float]]] = defaultdict(list)
    weights = _weights(examples)
    for example, weight in zip(examples, weights, strict=True):
        for clue in example.clues:
            is_fault = bool(example.fault) and (clue.kind, clue.reason) not in example.of_twin
            rows[clue.kind].append((clue, float(is_fault), weight))
    fitted = {kind: _fit_one(found) for kind, found in sorted(rows.items()) if kind not in REASONED}
    return fitted | {kind: dict(odds) for kind, odds in REASONED.items()}


def _weights(examples: Sequence[Example]) -> list[float]:
    """Weigh runs as if half of them had failed, with all faults equally frequent."""
    faults = {example.fault for example in examples if example.fault}
    count = {fault: sum(example.fault == fault for example in examples) for fault in {*faults, ""}}
    share = 1 / max(1, len(faults))
    return [1.0 if not one.fault else share * count[""] / count[one.fault] for one in examples]


def _fit_one(rows: Iterable[tuple[Clue, float, float]]) -> dict[str, float]:
    found = list(rows)
    signs = sorted({sign for clue, _, _ in found for sign in clue.signs})
    features = np.array([[1.0, *(clue.signs.get(sign, 0.0) for sign in signs)] for clue, _, _ in found])
    labels = np.array([label for _, label, _ in found])
    weights = np.array([weight for _, _, weight in found])
    features = np.vstack([features, features.mean(axis=0), features.mean(axis=0)])
    labels, weights = np.append(labels, [0.0, 1.0]), np.append(weights, [_IMAGINED, _IMAGINED])
    coefficients = np.zeros(features.shape[1])
    ridge = np.diag([0.01, *([_RIDGE] * len(signs))])
    for _ in range(_ROUNDS):
        told = 1 / (1 + np.exp(-np.clip(features @ coefficients, -30, 30)))
        slope = features.T @ (weights * (told - labels)) + ridge @ coefficients
        curve = (features * (weights * np.maximum(told * (1 - told), 1e-6))[:, None]).T @ features + ridge
        move = np.linalg.solve(curve, slope)
        coefficients -= np.clip(move, -2.0, 2.0)
        if float(np.abs(move).max()) < 1e-6:
            break
    coefficients[0] += math.log(BASE_RATE / (1 - BASE_RATE))  # fitted as if half of the runs had failed
    return dict(zip(["", *signs], (round(float(value), 3) for value in coefficients), strict=True))


def out_of_fold(examples: Sequence[Example]) -> list[float]:
    """Return each run's probability by coefficients fitted without any run of its kind of story."""
    scores = [0.0] * len(examples)
    for story in sorted({example.story for example in examples}):
        weights = fit([example for example in examples if example.story != story])
        for place, example in enumerate(examples):
            if example.story == story:
                scores[place] = weigh(example.clues, weights).probability
    return scores
