"""Limits of the ranker: ``python -m benchmarks.accuracy.ranker_limits DATASET [--table NAME] [--splits N]``.

Each table is nested cross-validation over several outer splits, with mean, minimum and maximum; all choices
are made inside. Takes minutes.

- ``splits``: does the result depend on a lucky split? Also abstention to reach a precision, with the
  threshold chosen out of fold (``precision``);
- ``curve``: the learning curve.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzer.inquiry.intervals import wilson
from analyzer.lab.evaluation.benchmark import select
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.evaluation.folds import split_by_keys
from analyzer.lab.evaluation.scores import Score
from analyzer.lab.evaluation.significance import calibration_error, error_if_calibrated
from analyzer.lab.evaluation.training import train
from analyzer.lab.evaluation.validation import CURVE, FOLDS, Labelled, cross_validated, prepare, scored
from analyzer.methods.ranker import Ranker
from benchmarks.accuracy.trivial import best_agent, best_step

SPLITS = 3
PRECISIONS = (0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Results of one split of the runs, in percent except for the calibration error."""

    step: float
    agent: float
    top3: float
    ece: float
    if_calibrated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """The runs of a fold, by position, and a ranker trained on all others."""

    held: tuple[int, ...]
    ranker: Ranker


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The runs, and the rankers trained on all folds but one of each split, cached."""

    runs: Sequence[Labelled]
    splits: int
    made: dict[int, list[Fold]] = field(default_factory=dict)

    def folds(self, salt: int) -> list[Fold]:
        """Return the folds of a split, each with the ranker that did not see it."""
        if salt not in self.made:
            examples = [one.example for one in self.runs]
            self.made[salt] = [
                Fold(held=held, ranker=train([one for i, one in enumerate(examples) if i not in held]))
                for held in split_by_keys([example.keys for example in examples], FOLDS, salt)
            ]
        return self.made[salt]

    def scores(self, salt: int) -> list[Score]:
        """Return the scores of their verdicts."""
        found = {i: scored(fold.ranker, self.runs[i]) for fold in self.folds(salt) for i in fold.held}
        return [found[i] for i in range(len(self.runs))]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--table", choices=TABLES, action="append", help="only this one; may be repeated")
    parser.add_argument("--splits", type=int, default=SPLITS)
    chosen = parser.parse_args()
    study = Study(runs=prepare(read_dataset(chosen.dataset)), splits=chosen.splits)
    for name in chosen.table or TABLES:
        print(name, *TABLES[name](study), "", sep="\n", flush=True)


def splits_table(study: Study) -> list[str]:
    """Print the same nested cross-validation on other outer splits."""
    found = [of_scores(study.scores(salt)) for salt in range(study.splits)]
    rows = [_row(f"split {salt}", [one]) for salt, one in enumerate(found)]
    return [*_head("outer split"), *rows, _row("mean (least to most)", found), _trivial(study)]


def curve_table(study: Study) -> list[str]:
    """Print the same with fewer labels, drawn from the training folds."""
    rows = [
        _row(
            str(labels),
            [
                of_scores(cross_validated(study.runs, FOLDS, salt, fewer=labels))
                for salt in range(study.splits)
            ],
        )
        for labels in CURVE
        if labels < len(study.runs) * (FOLDS - 1) // FOLDS
    ]
    return [*_head("labels"), *rows, _trivial(study)]


def _trivial(study: Study) -> str:
    runs = [one.run for one in study.runs]
    return f"| best trivial rule | {best_step(runs).share} | {best_agent(runs).share} | | |"


def precision_table(study: Study) -> list[str]:
    """Print, for target precisions, the number of answers and of right answers."""
    rows = [
        f"| precision wanted | answered of {len(study.runs)} | right of these % | target in interval |",
        "|---|---|---|---|",
    ]
    found = [study.scores(salt) for salt in range(study.splits)]
    for wanted in PRECISIONS:
        kept = [select(scores, wanted).scores for scores in found]
        answers = [[s.step_right for s in scores if s.step is not None] for scores in kept]
        right, given = sum(map(sum, answers)), sum(map(len, answers))
        cells = (
            f"{100 * wanted:.0f} %",
            f"{given / study.splits:.1f}",
            f"{100 * right / given:.1f}" if given else "-",
            f"{sum(_holds(wanted, one) for one in answers)} of {study.splits}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def of_scores(scores: Sequence[Score]) -> Measured:
    """Return the measures of scored verdicts."""
    pairs = [(s.confidence, s.step_right) for s in scores if s.confidence is not None]
    return Measured(
        step=100 * statistics.fmean(s.step_right for s in scores),
        agent=100 * statistics.fmean(s.agent_right for s in scores),
        top3=100 * statistics.fmean(s.in_top_three for s in scores),
        ece=calibration_error(pairs) or 0.0,
        if_calibrated=error_if_calibrated(pairs) or 0.0,
    )


def _holds(wanted: float, answers: Sequence[bool]) -> bool:
    interval = wilson(sum(answers), len(answers))
    return interval.low <= wanted <= interval.high


def _head(name: str) -> Iterator[str]:
    yield f"| {name} | step % | agent % | step in top 3 % | ECE (if calibrated) |"
    yield "|---|---|---|---|---|"


def _row(name: str, found: Sequence[Measured]) -> str:
    shares = [_spread([getattr(one, key) for one in found]) for key in ("step", "agent", "top3")]
    error, ideal = (statistics.fmean(getattr(one, key) for one in found) for key in ("ece", "if_calibrated"))
    return f"| {name} | {' | '.join(shares)} | {error:.3f} ({ideal:.3f}) |"


def _spread(values: Sequence[Any]) -> str:
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.1f} to {max(values):.1f})"


TABLES: Mapping[str, Callable[[Study], list[str]]] = {
    "splits": splits_table,
    "precision": precision_table,
    "curve": curve_table,
}


if __name__ == "__main__":
    main()
