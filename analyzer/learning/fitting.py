"""Numbers → weights, trees and curves: the only importer of numpy, SciPy and scikit-learn, when it trains.

One thread and fixed seeds: the same rows give the same model. What comes back is plain numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from analyzer.errors import AnalyzerError
from analyzer.learning.candidates import Forest
from analyzer.learning.ranker import Tree

Rows: TypeAlias = Sequence[Sequence[float]]
"""The steps of one run."""


class TrainingImpossible(AnalyzerError):  # noqa: N818 - a statement reads better where it is raised
    """The ranker cannot be trained; the message says what is missing."""


def fit_linear(runs: Sequence[Rows], right: Sequence[int], penalty: float) -> tuple[float, ...]:
    """Minimise the log-loss of the right rows among their runs' plus a ridge on standardised weights."""
    numpy, optimize = library("numpy"), library("scipy.optimize")
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


def fit_forest(
    runs: Sequence[Rows], right: Sequence[int], shape: Forest, trees: int, seed: int
) -> tuple[Tree, ...]:
    """Grow trees that tell right rows from others; each keeps the share of right rows in its leaves."""
    numpy, ensemble = library("numpy"), library("sklearn.ensemble")
    table = numpy.vstack([numpy.asarray(rows, dtype=float) for rows in runs])
    is_right = numpy.concatenate(
        [numpy.arange(len(rows)) == position for rows, position in zip(runs, right, strict=True)]
    )
    forest = ensemble.ExtraTreesClassifier(
        n_estimators=trees,
        max_depth=shape.depth,
        min_samples_leaf=shape.least_in_leaf,
        max_features=0.3,
        n_jobs=1,
        random_state=seed,
    ).fit(table, is_right)
    return tuple(_copied(one.tree_) for one in forest.estimators_)


def fit_curve(stated: Sequence[float], true: Sequence[bool]) -> tuple[tuple[float, float], ...]:
    """Return the knots of the isotonic regression of what was true on what was stated, in order."""
    isotonic = library("sklearn.isotonic").IsotonicRegression(out_of_bounds="clip", y_min=0.0, y_max=1.0)
    isotonic.fit(stated, [float(one) for one in true])
    knots = zip(isotonic.X_thresholds_, isotonic.y_thresholds_, strict=True)
    return tuple((float(f"{x:.9g}"), float(f"{y:.9g}")) for x, y in knots)


def library(name: str) -> Any:
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
