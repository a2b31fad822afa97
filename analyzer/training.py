"""Labelled runs → a ranker. Whatever is fitted is fitted inside the runs given.

So ``train`` may be called on the training part of any outer split, and what it
returns has seen nothing else: nested cross-validation is calling it in a loop.
Nothing is chosen that can be averaged; what is left is the temperature, and it is
fitted to inner folds.

The linear learner is a conditional logit (McFadden 1974) with a ridge penalty;
the forest is scikit-learn's extremely randomised trees (Geurts et al. 2006),
which suit a few dozen labels because nothing in them is tuned to the data but
the leaves. One thread and fixed seeds: the same runs give the same model.

scikit-learn is needed here and only here; using a model needs none of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from analyzer.agent_names import normalise, same_agent
from analyzer.calibration import fit_temperature
from analyzer.conversation import Conversation
from analyzer.errors import AnalyzerError
from analyzer.features import VERSION, Table, featurise
from analyzer.folds import history_key, split_keys
from analyzer.posterior import LogShares
from analyzer.ranker import Panel, Ranker, Record, Tree, step_rows

_PENALTIES: Final = (60.0, 100.0, 150.0)
"""Averaged, not chosen: on a few dozen labels the choice is a coin toss, the mean is as good as the best."""
_TREES: Final = 200
_INNER_TREES: Final = 100
"""For the temperature alone: what more trees would change is far below its own uncertainty."""
_LEAST_IN_LEAF: Final = 3
_FLOOR: Final = 1e-3
_DEPTH: Final = 8
_INNER_FOLDS: Final = 4
_FEWEST: Final = 5
"""Labels below which there is nothing to learn from."""

Rows = Sequence[Sequence[float]]


class TrainingImpossible(AnalyzerError):  # noqa: N818 - a statement reads better where it is raised
    """The ranker cannot be trained; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One labelled run as the learners see it."""

    table: Table
    step: int
    """Position of the labelled step."""
    agent: str
    """Normalised; the labelled agent, or who acted in the labelled step if no step is the label's agent's."""
    system: str
    likeness: str
    """Equal for identical histories, which must never stand on both sides of a split."""


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
        system="/".join(part for part in (run.source, run.subset) if part),
        likeness=history_key(run.trajectory),
    )


def train(examples: Sequence[Example], seed: int = 0) -> Ranker:
    """Return a ranker of the examples, with a temperature cross-validated among them.

    Raises:
        TrainingImpossible: too few labels, or scikit-learn is not installed.
    """
    if len(examples) < _FEWEST:
        raise TrainingImpossible(f"{len(examples)} labelled runs: a ranker needs {_FEWEST} at the least")
    temperature = _temperature(examples, seed)
    return Ranker(
        features_version=VERSION,
        steps=_panel(examples, count_records(examples), _TREES, seed),
        records=count_records(examples),
        temperature=temperature,
        systems=tuple(sorted({example.system for example in examples})),
        card={"temperature": temperature, "labels": len(examples)},
    )


def count_records(examples: Iterable[Example]) -> dict[str, Record]:
    """Count in how many runs each agent took part, and in how many it was to blame."""
    runs, blamed = Counter[str](), Counter[str]()
    for example in examples:
        runs.update(set(example.table.agents))
        blamed[example.agent] += 1
    return {name: Record(runs=runs[name], blamed=blamed[name]) for name in sorted(runs)}


def _temperature(examples: Sequence[Example], seed: int) -> float:
    """Fit the temperature to what models say of runs that they have not seen."""
    shares: list[LogShares] = []
    right: list[int] = []
    for held in split_keys([(e.system, e.likeness) for e in examples], _INNER_FOLDS):
        seen = [example for position, example in enumerate(examples) if position not in held]
        if not seen:
            continue
        records = count_records(seen)
        panel = _panel(seen, records, _INNER_TREES, seed)
        for example in (examples[position] for position in held):
            shares.append(panel.opinion(step_rows(example.table, records)))
            right.append(example.step)
    return fit_temperature(shares, right)


def _panel(examples: Sequence[Example], records: Mapping[str, Record], trees: int, seed: int) -> Panel:
    rows = [step_rows(example.table, records, own=example.agent) for example in examples]
    right = [example.step for example in examples]
    fits = [fit_linear(rows, right, penalty) for penalty in _PENALTIES]
    return Panel(
        weights=tuple(sum(weights) / len(fits) for weights in zip(*fits, strict=True)),
        trees=_fit_forest(rows, right, trees, seed),
        floor=_FLOOR,
    )


def fit_linear(runs: Sequence[Rows], right: Sequence[int], penalty: float) -> tuple[float, ...]:
    """Minimise the log-loss of the right rows among their runs' plus a ridge on standardised weights."""
    numpy, optimize = _library("numpy"), _library("scipy.optimize")
    table = numpy.vstack([numpy.asarray(rows, dtype=float) for rows in runs])
    scale = table.std(axis=0) + 1e-6
    table = (table - table.mean(axis=0)) / scale
    sizes = [len(rows) for rows in runs]
    starts = numpy.concatenate([[0], numpy.cumsum(sizes)[:-1]])
    run_of_row = numpy.repeat(numpy.arange(len(runs)), sizes)
    wanted = table[starts + numpy.asarray(right)].sum(axis=0)

    def loss_and_slope(weights: Any) -> tuple[float, Any]:
        scores = table @ weights
        highest = numpy.maximum.reduceat(scores, starts)
        shares = numpy.exp(scores - highest[run_of_row])
        totals = numpy.add.reduceat(shares, starts)
        loss = (highest + numpy.log(totals)).sum() - wanted @ weights
        slope = table.T @ (shares / totals[run_of_row]) - wanted + penalty * weights
        return float(loss + penalty / 2 * weights @ weights), slope

    found = optimize.minimize(loss_and_slope, numpy.zeros(table.shape[1]), jac=True, method="L-BFGS-B")
    return tuple(float(f"{weight:.9g}") for weight in found.x / scale)


def _fit_forest(runs: Sequence[Rows], right: Sequence[int], trees: int, seed: int) -> tuple[Tree, ...]:
    numpy, ensemble = _library("numpy"), _library("sklearn.ensemble")
    table = numpy.vstack([numpy.asarray(rows, dtype=float) for rows in runs])
    is_right = numpy.concatenate(
        [numpy.arange(len(rows)) == position for rows, position in zip(runs, right, strict=True)]
    )
    forest = ensemble.ExtraTreesClassifier(
        n_estimators=trees,
        max_depth=_DEPTH,
        min_samples_leaf=_LEAST_IN_LEAF,
        max_features=0.3,
        n_jobs=1,
        random_state=seed,
    ).fit(table, is_right)
    return tuple(_copied(one.tree_) for one in forest.estimators_)


def _copied(tree: Any) -> Tree:
    """Take the numbers out of scikit-learn's tree; the share of right rows is the second of two classes."""
    counts = tree.value[:, 0, :]
    return Tree(
        feature=tuple(max(-1, int(feature)) for feature in tree.feature),
        threshold=tuple(float(f"{threshold:.7g}") for threshold in tree.threshold),
        left=tuple(max(0, int(child)) for child in tree.children_left),
        right=tuple(max(0, int(child)) for child in tree.children_right),
        value=tuple(round(float(one[-1] / one.sum()), 5) for one in counts),
    )


def _library(name: str) -> Any:
    """Import what only training needs, when it trains: the libraries are large.

    Raises:
        TrainingImpossible: it is not installed.
    """
    import importlib  # noqa: PLC0415

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        message = f"training needs {error.name}: pip install 'blamespan[ranker]'"
        raise TrainingImpossible(message) from error
