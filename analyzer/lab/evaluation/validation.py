"""Cross-validation of the ranker: on its own system, on other systems, and with fewer labels.

Every score is of a run that was not used to make the model. ``train`` makes all of its
choices inside the runs it is given, so a plain loop around it is nested cross-validation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from analyzer.inquiry.conversation import Conversation
from analyzer.lab.evaluation.folds import families, split_by_keys
from analyzer.lab.evaluation.scores import Score, Subject, confident, score, tabulate
from analyzer.lab.evaluation.training import FEWEST, Example, as_example, train
from analyzer.methods.ranker import Ranker
from analyzer.methods.without_model import rank
from semconv.model import Attribution

FOLDS: Final = 5
SPLITS: Final = 3
"""Outer splits reported in a model's card, so that no single lucky split decides."""
CURVE: Final = (10, 20, 30, 40, 50)
_CARD: Final = (
    "subset", "n", "step_accuracy", "step_accuracy_ci", "agent_accuracy", "agent_accuracy_ci",
    "top3_step_accuracy", "top3_step_accuracy_ci", "brier", "ece", "ece_if_calibrated",
)  # fmt: skip

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A run that a ranker can learn from."""

    run: Conversation
    example: Example


def prepare(runs: Sequence[Conversation]) -> tuple[Labelled, ...]:
    """Keep the runs whose label names an agent and an existing step, or a step that an experiment refuted.

    A conversation labelled by two sources is kept once, with the first source's label.
    """
    kept: list[Labelled] = []
    source_of: dict[str, str] = {}
    for run in runs:
        example = as_example(run)
        if example is not None and source_of.setdefault(example.keys.history, run.source) == run.source:
            kept.append(Labelled(run=run, example=example))
    return tuple(kept)


def named(runs: Sequence[Labelled]) -> list[Labelled]:
    """Return the runs whose decisive step is known: only these can be scored."""
    return [one for one in runs if not one.example.is_refuted]


def cross_validated(
    runs: Sequence[Labelled], folds: int, seed: int = 0, fewer: int | None = None
) -> tuple[Score, ...]:
    """Score each run by a model trained on the other folds, or on ``fewer`` runs drawn from them."""
    scores: dict[int, Score] = {}
    generator = random.Random(seed)  # noqa: S311 - draws training runs, not secrets
    for held in split_by_keys([one.example.keys for one in runs], folds, salt=seed):
        seen = [one for position, one in enumerate(runs) if position not in held]
        others = [one.example for one in (seen if fewer is None else named(seen))]
        drawn = others if fewer is None else generator.sample(others, min(fewer, len(others)))
        ranker = train(drawn)
        wanted = [position for position in held if not runs[position].example.is_refuted]
        scores.update({position: scored(ranker, runs[position]) for position in wanted})
    return tuple(scores[position] for position in sorted(scores))


def across_systems(runs: Sequence[Labelled]) -> tuple[Score, ...]:
    """Score each run by a model trained on every other system, without runs related to its own.

    Systems without enough labels in the others are left out; empty for a single system. Refuted steps are
    not learned from here.
    """
    runs = named(runs)
    scores: list[Score] = []
    family = families([one.example.keys for one in runs], most=len(runs) // FOLDS)
    for system in dict.fromkeys(one.example.system for one in runs):
        held = [place for place, one in enumerate(runs) if one.example.system == system]
        alike = {family[place] for place in held}
        others = [one.example for one, its in zip(runs, family, strict=True) if its not in alike]
        if len(others) >= FEWEST:
            ranker = train(others)
            scores += [scored(ranker, runs[place]) for place in held]
    return tuple(scores)


def certify(
    runs: Sequence[Labelled], *, date: str, folds: int, seed: int, curve: Sequence[int], progress: Progress
) -> Ranker:
    """Train on all runs, and write the cross-validation results into the model's card.

    Raises:
        TrainingImpossible: too few labels, or a library is missing.
    """
    progress("training on all runs")
    ranker = train([one.example for one in runs])
    splits = []
    for salt in range(seed, seed + SPLITS):
        progress(f"nested {folds}-fold cross-validation, split {salt - seed + 1} of {SPLITS}")
        splits.append(cross_validated(runs, folds, salt))
    progress("leaving one system out")
    outside = _lines(across_systems(runs))
    points = []
    for labels in curve:
        if labels < len(named(runs)) * (folds - 1) // folds:
            progress(f"learning curve: {labels} labels")
            line = _lines(cross_validated(runs, folds, seed, fewer=labels))[-1]
            points.append({"labels": labels, **line})
    card = {
        **ranker.card,
        "date": date,
        "seed": seed,
        "trained_on": _count(named(runs)),
        "refuted_steps": len(runs) - len(named(runs)),
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
    """Score a model's verdict on a run; the model is not shown the correct answer."""
    trajectory = replace(one.run.trajectory, reference=None)
    attribution = Attribution(run_id=trajectory.run_id, verdict=rank(ranker, trajectory), method="ranker")
    assert one.run.label is not None
    steps, history = len(trajectory.steps), one.example.keys.history
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
