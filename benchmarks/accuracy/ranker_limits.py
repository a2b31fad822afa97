"""Limits of the ranker: ``python -m benchmarks.accuracy.ranker_limits DATASET [--table NAME] [--splits N]``.

Each table is nested cross-validation over several outer splits, with mean, minimum and maximum; all choices
are made inside. Takes minutes.

- ``splits``: does the result depend on a lucky split? Also abstention to reach a precision, with the
  threshold chosen out of fold (``precision``);
- ``curve``: the learning curve;
- ``alternatives``: other models: the signals alone, boosted trees (which a model file cannot hold, so they
  are here and not in the package), an isotonic curve instead of the temperature;
- ``bounds``: how often the right step is among the first k, and the agent of the first step against the agent
  with the highest total probability.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzer.evaluation.benchmark import select
from analyzer.evaluation.dataset import read_dataset
from analyzer.evaluation.folds import split_by_keys
from analyzer.evaluation.scores import Score
from analyzer.evaluation.significance import calibration_error, error_if_calibrated
from analyzer.evaluation.training import Example, count_records, fit_curve, library, train
from analyzer.evaluation.validation import CURVE, FOLDS, Labelled, cross_validated, prepare, scored
from analyzer.inquiry.calibration import Calibration, calibrate
from analyzer.inquiry.intervals import wilson
from analyzer.inquiry.match_agents import normalise
from analyzer.inquiry.posterior import LogShares, Opinion, log_softmax, pool
from analyzer.methods.learned.ranker import Ranker, signal_shares, step_rows

SPLITS = 3
PRECISIONS = (0.5, 0.6, 0.7, 0.8)
FIRST = (1, 2, 3, 5)

Learn = Callable[[Sequence[Example]], Callable[[Example], LogShares]]
"""Trains on labelled examples; returns a function for the probabilities of another run's steps."""


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

    def shares(self, salt: int) -> list[LogShares]:
        """Return the rankers' probabilities for the runs that they did not see."""
        said = {
            i: fold.ranker.rank(self.runs[i].example.table) for fold in self.folds(salt) for i in fold.held
        }
        return [said[i] for i in range(len(self.runs))]

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
    return [*_head("outer split"), *rows, _row("mean (least to most)", found)]


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
    return [*_head("labels"), *rows]


def alternatives_table(study: Study) -> list[str]:
    """Print the results of other models on the same splits."""
    runs, salts = study.runs, range(study.splits)
    rivals: tuple[tuple[str, Learn], ...] = (
        ("`signals` alone", _signals_alone),
        ("boosted trees + signals", _boosted),
    )
    return [
        *_head("model"),
        _row("the trained model", [_measured(runs, study.shares(salt)) for salt in salts]),
        *(
            _row(name, [_measured(runs, out_of_fold(runs, learn, s)) for s in salts])
            for name, learn in rivals
        ),
        _row("isotonic curve for the temperature", [_measured(runs, _curved(study, salt)) for salt in salts]),
    ]


def bounds_table(study: Study) -> list[str]:
    """Print how often the right step is among the first k, and two ways to name the agent."""
    found: dict[str, list[float]] = {}
    for salt in range(study.splits):
        judged = list(zip(study.runs, study.shares(salt), strict=True))
        for k in FIRST:
            hits = [one.example.step in _order(share)[:k] for one, share in judged]
            found.setdefault(f"right step among the first {k}", []).append(100 * statistics.fmean(hits))
        for name, agent_of in (
            ("first step's agent", _agent_of_step),
            ("agent with the highest total probability", _agent_of_mass),
        ):
            hits = [normalise(_labelled(one)) == agent_of(one, share) for one, share in judged]
            found.setdefault(f"{name} right", []).append(100 * statistics.fmean(hits))
    rows = [f"| {name} | {_spread(values)} |" for name, values in found.items()]
    return ["| | % of runs |", "|---|---|", *rows]


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


def out_of_fold(runs: Sequence[Labelled], learn: Learn, salt: int) -> list[LogShares]:
    """Return the probabilities of each run from the model of the other folds."""
    examples = [one.example for one in runs]
    said: dict[int, LogShares] = {}
    for held in split_by_keys([example.keys for example in examples], FOLDS, salt):
        judge = learn([example for place, example in enumerate(examples) if place not in held])
        said.update({place: judge(examples[place]) for place in held})
    return [said[place] for place in range(len(runs))]


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


def _signals_alone(examples: Sequence[Example]) -> Callable[[Example], LogShares]:
    heard = [signal_shares(step_rows(one.table, {})) for one in examples]
    calibration = calibrate(heard, [one.step for one in examples], fit_curve)
    return lambda example: calibration.apply(signal_shares(step_rows(example.table, {})))


def _boosted(examples: Sequence[Example]) -> Callable[[Example], LogShares]:
    """Train histogram gradient boosting (small steps, shallow trees), pooled with the signals."""
    numpy, ensemble = library("numpy"), library("sklearn.ensemble")
    records = count_records(examples)
    rows = [step_rows(one.table, records, own=one.agent) for one in examples]
    is_right = [place == one.step for one in examples for place in range(len(one.table.rows))]
    model = ensemble.HistGradientBoostingClassifier(
        max_iter=60,
        learning_rate=0.05,
        max_depth=3,
        min_samples_leaf=5,
        l2_regularization=5.0,
        early_stopping=False,
        random_state=0,
    ).fit(numpy.vstack(rows), is_right)

    def judge(example: Example) -> LogShares:
        own = step_rows(example.table, records)
        boosted = log_softmax([float(x) for x in model.decision_function(numpy.asarray(own))])
        return pool([Opinion(shares=boosted, weight=0.5), Opinion(shares=signal_shares(own), weight=0.5)])

    return judge


def _curved(study: Study, salt: int) -> list[LogShares]:
    """Calibrate each fold by an isotonic curve fitted to the verdicts on the others."""
    shares = study.shares(salt)
    steps = [one.example.step for one in study.runs]
    mended = list(shares)
    for held in split_by_keys([one.example.keys for one in study.runs], FOLDS, salt + 1):
        rest = [place for place in range(len(shares)) if place not in held]
        curve = Calibration(curve=fit_curve(*_stated(shares, steps, rest)))
        for place in held:
            mended[place] = curve.apply(shares[place])
    return mended


def _stated(
    shares: Sequence[LogShares], steps: Sequence[int], places: Sequence[int]
) -> tuple[list[float], list[bool]]:
    said = [(math.exp(share), i == steps[place]) for place in places for i, share in enumerate(shares[place])]
    return [share for share, _ in said], [right for _, right in said]


def _measured(runs: Sequence[Labelled], shares: Sequence[LogShares]) -> Measured:
    judged = list(zip(runs, shares, strict=True))
    pairs = [(math.exp(max(share)), _order(share)[0] == one.example.step) for one, share in judged]
    return Measured(
        step=100 * statistics.fmean(right for _, right in pairs),
        agent=100
        * statistics.fmean(normalise(_labelled(one)) == _agent_of_step(one, s) for one, s in judged),
        top3=100 * statistics.fmean(one.example.step in _order(share)[:3] for one, share in judged),
        ece=calibration_error(pairs) or 0.0,
        if_calibrated=error_if_calibrated(pairs) or 0.0,
    )


def _order(shares: LogShares) -> list[int]:
    return sorted(range(len(shares)), key=lambda place: (-shares[place], place))


def _agent_of_step(one: Labelled, shares: LogShares) -> str:
    return one.example.table.agents[_order(shares)[0]]


def _agent_of_mass(one: Labelled, shares: LogShares) -> str:
    masses: dict[str, float] = {}
    for agent, share in zip(one.example.table.agents, shares, strict=True):
        masses[agent] = masses.get(agent, 0.0) + math.exp(share)
    return max(masses, key=masses.__getitem__)


def _labelled(one: Labelled) -> str:
    assert one.run.label is not None
    assert one.run.label.agent is not None
    return one.run.label.agent


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
    "alternatives": alternatives_table,
    "bounds": bounds_table,
}


if __name__ == "__main__":
    main()
