"""How well a ranker does on runs it has not seen: in its own system, in others, and with fewer labels.

Every figure comes from verdicts on runs that had no part in making the model that gave them.
``train`` makes all of its choices inside the runs it is given, so a plain loop around
it is nested cross-validation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from analyzer.conversation import Conversation
from analyzer.learning.folds import families, split_kin
from analyzer.learning.ranker import Ranker
from analyzer.learning.training import FEWEST, Example, as_example, train
from analyzer.measuring.scoring import Score, confident, score
from analyzer.measuring.tabulation import Subject, tabulate
from analyzer.methods.ranker import rank
from semconv.model import Attribution

FOLDS: Final = 5
SPLITS: Final = 3
"""Outer splits that a model's card tells of, so that its figures are not those of one lucky split."""
CURVE: Final = (10, 20, 30, 40, 50)
_CARD: Final = (
    "subset",
    "n",
    "step_accuracy",
    "step_accuracy_ci",
    "agent_accuracy",
    "agent_accuracy_ci",
    "top3_step_accuracy",
    "top3_step_accuracy_ci",
    "brier",
    "ece",
    "ece_if_calibrated",
)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A run that can be learned from."""

    run: Conversation
    example: Example


def prepare(runs: Sequence[Conversation]) -> tuple[Labelled, ...]:
    """Keep the runs whose label names an agent and a step of theirs.

    A conversation that a second source labels again is kept once, as the first
    source has it: a second label is no second run.
    """
    kept: list[Labelled] = []
    source_of: dict[str, str] = {}
    for run in runs:
        example = as_example(run)
        if example is not None and source_of.setdefault(example.kin.history, run.source) == run.source:
            kept.append(Labelled(run=run, example=example))
    return tuple(kept)


def cross_validated(
    runs: Sequence[Labelled], folds: int = FOLDS, seed: int = 0, fewer: int | None = None
) -> tuple[Score, ...]:
    """Score each run by a model trained on the other folds, or on ``fewer`` runs drawn from them."""
    scores: dict[int, Score] = {}
    generator = random.Random(seed)  # noqa: S311 - a draw of training runs, no secret
    for held in split_kin([one.example.kin for one in runs], folds, salt=seed):
        others = [one.example for position, one in enumerate(runs) if position not in held]
        drawn = others if fewer is None else generator.sample(others, min(fewer, len(others)))
        ranker = train(drawn, seed)
        scores.update({position: scored(ranker, runs[position]) for position in held})
    return tuple(scores[position] for position in range(len(runs)))


def across_systems(runs: Sequence[Labelled], seed: int = 0) -> tuple[Score, ...]:
    """Score each run by a model trained on every other system, without kin of any run of its own.

    Systems beside which too few labels are left to train on are left out; none for a single system.
    """
    scores: list[Score] = []
    family = families([one.example.kin for one in runs], most=len(runs) // FOLDS)
    for system in dict.fromkeys(one.example.system for one in runs):
        held = [place for place, one in enumerate(runs) if one.example.system == system]
        alike = {family[place] for place in held}
        others = [one.example for one, its in zip(runs, family, strict=True) if its not in alike]
        if len(others) >= FEWEST:
            ranker = train(others, seed)
            scores += [scored(ranker, runs[place]) for place in held]
    return tuple(scores)


def certify(
    runs: Sequence[Labelled], *, date: str, folds: int, seed: int, curve: Sequence[int], progress: Progress
) -> Ranker:
    """Train on all runs, and write into the model's card what cross-validation says of such models.

    Raises:
        TrainingImpossible: too few labels, or a library is missing.
    """
    progress("training on all runs")
    ranker = train([one.example for one in runs], seed)
    splits = []
    for salt in range(seed, seed + SPLITS):
        progress(f"nested {folds}-fold cross-validation, split {salt - seed + 1} of {SPLITS}")
        splits.append(cross_validated(runs, folds, salt))
    progress("leaving one system out")
    outside = _lines(across_systems(runs, seed))
    points = []
    for labels in curve:
        if labels < len(runs) * (folds - 1) // folds:
            progress(f"learning curve: {labels} labels")
            line = _lines(cross_validated(runs, folds, seed, fewer=labels))[-1]
            points.append({"labels": labels, **line})
    card = {
        **ranker.card,
        "date": date,
        "seed": seed,
        "trained_on": _count(runs),
        "features_version": ranker.features_version,
        "folds": folds,
        "in_distribution": _lines(splits[0]),
        "splits": [{"seed": seed + number, **_lines(scores)[-1]} for number, scores in enumerate(splits)],
        "confidences": [[confidence, int(right)] for confidence, right in confident(splits[0])],
        "out_of_distribution": outside,
        "learning_curve": points,
    }
    return replace(ranker, card=card)


def scored(ranker: Ranker, one: Labelled) -> Score:
    """Score a model's verdict on a run, which it sees without the right answer."""
    trajectory = replace(one.run.trajectory, reference=None)
    attribution = Attribution(run_id=trajectory.run_id, verdict=rank(ranker, trajectory), method="ranker")
    assert one.run.label is not None
    steps, history = len(trajectory.steps), one.example.kin.history
    return score(attribution, one.run.label, one.example.system, steps=steps, history=history)


def _lines(scores: Sequence[Score]) -> list[dict[str, Any]]:
    if not scores:
        return []
    lines = tabulate(scores, Subject(dataset="", method="ranker"))
    return [{key: line[key] for key in _CARD if key in line} for line in lines]


def _count(runs: Sequence[Labelled]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for one in runs:
        counts[one.example.system] = counts.get(one.example.system, 0) + 1
    return counts
