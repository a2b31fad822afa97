"""Labelled runs → a ranker. Whatever is chosen or fitted is chosen and fitted inside the runs given.

So ``train`` may be called on the training part of any outer split, and what it
returns has seen nothing else: nested cross-validation is calling it in a loop.
Inner folds decide between the candidates (family, penalty, features, the signals' weight) and
calibrate the one that is chosen.

scikit-learn is needed here and only here; using a model needs none of it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.agent_names import normalise, same_agent
from analyzer.calibration import Calibration, calibrate, surprise
from analyzer.conversation import Conversation
from analyzer.learning.candidates import CANDIDATES, Candidate, Learner, Linear
from analyzer.learning.features import FEATURES, FEATURES_OF, VERSION, Table, featurise
from analyzer.learning.fitting import Rows, TrainingImpossible, fit_curve, fit_forest, fit_linear
from analyzer.learning.folds import Kin, history_key, split_kin, task_key
from analyzer.learning.ranker import MOST_ASKED, Panel, Ranker, Record, familiarity, signal_shares, step_rows
from analyzer.posterior import LogShares, Opinion, pool

_TREES: Final = 200
_INNER_TREES: Final = 60
"""For choosing and calibrating: what more trees would change is far below its own uncertainty."""
_INNER_FOLDS: Final = 4
_DOUBT: Final = 3.0
"""Standard errors: of a dozen candidates no better than the first, one would be 2 ahead by chance in a
quarter of trainings if they were independent, 3 ahead in one of sixty."""
_STRANGERS: Final = 0.05
"""Share of a system's own runs that may be taken for another's."""
_LEAST_ASKED: Final = 0.1
FEWEST: Final = 5
"""Labels below which there is nothing to learn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One labelled run as the learners see it."""

    table: Table
    step: int
    """Position of the labelled step."""
    agent: str
    """Normalised; the labelled agent, or who acted in the labelled step if no step is the label's agent's."""
    kin: Kin
    """Runs that are kin must never stand on both sides of a split."""

    @property
    def system(self) -> str:
        """Return the system or data set that the run is of."""
        return self.kin.subset


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The candidate that is used, and how all of them did on inner folds."""

    candidate: Candidate
    calibration: Calibration
    surprises: Mapping[str, float]
    """Log-loss a run, by candidate, each calibrated as well as it can be."""


def as_example(run: Conversation) -> Example | None:
    """Return a run as an example; ``None`` if its label lacks an agent or names no step of it."""
    label, steps = run.label, run.trajectory.steps
    if label is None or label.agent is None or label.step is None or not 0 <= label.step < len(steps):
        return None
    agents = (normalise(step.agent) for step in steps if same_agent(step.agent, label.agent))
    return Example(
        table=featurise(replace(run.trajectory, reference=None)),  # production has none
        step=label.step,
        agent=next(agents, normalise(steps[label.step].agent)),
        kin=Kin(
            subset="/".join(part for part in (run.source, run.subset) if part),
            history=history_key(run.trajectory),
            task=task_key(run.trajectory),
        ),
    )


def train(examples: Sequence[Example], seed: int = 0, candidates: Sequence[Candidate] = CANDIDATES) -> Ranker:
    """Return a ranker of the examples, made as cross-validation among them advises.

    Raises:
        TrainingImpossible: too few labels, or scikit-learn is not installed.
    """
    if len(examples) < FEWEST:
        raise TrainingImpossible(f"{len(examples)} labelled runs: a ranker needs {FEWEST} at the least")
    choice = choose(examples, candidates, seed)
    records = count_records(examples)
    rows = [step_rows(example.table, records, own=example.agent) for example in examples]
    right = [example.step for example in examples]
    fits = {learner: _fit(learner, rows, right, _TREES, seed) for learner, _ in choice.candidate.learners}
    return Ranker(
        features_version=VERSION,
        steps=_joined(choice.candidate, fits),
        records=records,
        calibration=choice.calibration,
        home=_home(examples),
        systems=tuple(sorted({example.system for example in examples})),
        card={
            "labels": len(examples),
            "chosen": choice.candidate.name,
            "candidates": {name: round(value, 4) for name, value in choice.surprises.items()},
            "temperature": choice.calibration.temperature,
            "calibrated_by": "a curve" if choice.calibration.curve else "a temperature",
        },
    )


def choose(examples: Sequence[Example], candidates: Sequence[Candidate], seed: int = 0) -> Choice:
    """Choose by the log-loss on inner folds: the first, unless another is better beyond doubt.

    Beyond doubt is by more than ``_DOUBT`` standard errors of the difference on the same runs; of
    those, the best. Taking whatever did best would be taking what was luckiest.
    """
    heard = _heard_out_of_fold(examples, candidates, seed)
    right = [example.step for example in examples]
    calibrations = {name: calibrate(shares, right, fit_curve) for name, shares in heard.items()}
    losses = {
        name: [surprise(calibrations[name], [one], [step]) for one, step in zip(shares, right, strict=True)]
        for name, shares in heard.items()
    }
    first = candidates[0]
    better = [one for one in candidates if _is_beyond_doubt(losses[first.name], losses[one.name])]
    best = min(better, key=lambda candidate: math.fsum(losses[candidate.name]), default=first)
    return Choice(
        candidate=best,
        calibration=calibrations[best.name],
        surprises={name: math.fsum(loss) / len(loss) for name, loss in losses.items()},
    )


def _is_beyond_doubt(usual: Sequence[float], other: Sequence[float]) -> bool:
    gains = [one - two for one, two in zip(usual, other, strict=True)]
    return statistics.fmean(gains) > _DOUBT * statistics.stdev(gains) / math.sqrt(len(gains))


def count_records(examples: Iterable[Example]) -> dict[str, Record]:
    """Count in how many runs each agent took part, and in how many it was to blame."""
    runs, blamed = Counter[str](), Counter[str]()
    for example in examples:
        runs.update(set(example.table.agents))
        blamed[example.agent] += 1
    return {name: Record(runs=runs[name], blamed=blamed[name]) for name in sorted(runs)}


def _home(examples: Sequence[Example]) -> float:
    """Return the familiarity that all but a few of the examples reach with models that did not see them.

    Where every run has agents of its own, little is familiar at home too.
    """
    reached: list[float] = []
    for held in split_kin([example.kin for example in examples], _INNER_FOLDS):
        known = count_records(example for place, example in enumerate(examples) if place not in held)
        reached += [familiarity(known, examples[place].table.agents) for place in held]
    usual = sorted(reached)[int(_STRANGERS * len(reached))]
    return min(MOST_ASKED, max(_LEAST_ASKED, usual))


def _heard_out_of_fold(
    examples: Sequence[Example], candidates: Sequence[Candidate], seed: int
) -> dict[str, list[LogShares]]:
    """Return what each candidate, fitted to the other folds, says of each example."""
    learners = dict.fromkeys(learner for candidate in candidates for learner, _ in candidate.learners)
    heard: dict[str, list[LogShares]] = {one.name: [()] * len(examples) for one in candidates}
    for held in split_kin([example.kin for example in examples], _INNER_FOLDS):
        seen = [example for position, example in enumerate(examples) if position not in held]
        if not seen:
            continue
        records = count_records(seen)
        rows = [step_rows(example.table, records, own=example.agent) for example in seen]
        right = [example.step for example in seen]
        fits = {learner: _fit(learner, rows, right, _INNER_TREES, seed) for learner in learners}
        for position in held:
            unseen = step_rows(examples[position].table, records)
            told = {learner: panel.opinion(unseen) for learner, panel in fits.items()}
            for candidate in candidates:
                heard[candidate.name][position] = _pooled(candidate, told, signal_shares(unseen))
    return heard


def _pooled(candidate: Candidate, told: Mapping[Learner, LogShares], signals: LogShares) -> LogShares:
    learned = (Opinion(shares=told[learner], weight=weight) for learner, weight in candidate.learners)
    return pool([*learned, Opinion(shares=signals, weight=candidate.signals)])


def _fit(learner: Learner, rows: Sequence[Rows], right: Sequence[int], trees: int, seed: int) -> Panel:
    """Return a panel of one learner."""
    shown = [_showing(learner.groups, run) for run in rows]
    if isinstance(learner, Linear):
        return Panel(weights=fit_linear(shown, right, learner.penalty))
    return Panel(trees=fit_forest(shown, right, learner, trees, seed), forest=1.0)


def _joined(candidate: Candidate, fits: Mapping[Learner, Panel]) -> Panel:
    """Return one panel of all the candidate's learners; a pool of linear learners is linear."""
    scaled = [[weight * x for x in fits[one].weights] for one, weight in candidate.learners]
    grown = [(fits[one].trees, weight) for one, weight in candidate.learners if fits[one].trees]
    if len(grown) > 1:
        raise ValueError(f"{candidate.name}: expected at most one forest")
    trees, forest = grown[0] if grown else ((), 0.0)
    return Panel(
        weights=tuple(math.fsum(column) for column in zip(*filter(None, scaled), strict=True)),
        trees=trees,
        forest=forest,
        signals=candidate.signals,
    )


def _showing(groups: Sequence[str], rows: Rows) -> Rows:
    """Set the columns of other groups to 0 in all rows, which tells a learner nothing."""
    hidden = {
        FEATURES.index(name) for group, names in FEATURES_OF.items() if group not in groups for name in names
    }
    if not hidden:
        return rows
    return [[0.0 if place in hidden else value for place, value in enumerate(row)] for row in rows]
