"""Training of a ranker from labelled runs, and its promotion over the one in use.

Everything is chosen and fitted on the given runs only, so ``train`` may be called on the training part of any
outer split, and its result has seen nothing else: nested cross-validation calls it in a loop. Inner folds
calibrate the model. The same rows give the same model.

The only module that imports numpy, SciPy and scikit-learn, and only for training.

A newly trained ranker is promoted over the one in use by a sequential test on the same runs. Only runs on
which exactly one of the two is right count. If neither ranker is better, each is equally likely to be the
right one. The evidence is the likelihood averaged over shares from one half to one, divided by the likelihood
of one half. It may be tested after every label: without a difference, the probability that it ever exceeds
1/alpha is at most alpha (Ville's inequality; as in ``experiment/sequential.py``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from analyzer.inquiry.calibration import calibrate
from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.match_agents import normalise, same_agent
from analyzer.inquiry.posterior import LEAST_RUNS, LogShares, SetRule, set_rule
from analyzer.lab.evaluation.folds import RunKeys, history_key, split_by_keys, task_key
from analyzer.methods.ranker import MOST_ASKED, Panel, Ranker, Record, familiarity, step_rows
from analyzer.methods.ranker_features import VERSION, Table, featurise
from semconv.model import Step
from semconv.record import record

Rows: TypeAlias = Sequence[Sequence[float]]
"""The steps of one run."""


class TrainingImpossible(AnalyzerError):  # noqa: N818 - reads better at the ``raise``
    """The ranker cannot be trained; the message says what is missing."""


def fit_linear(
    runs: Sequence[Rows],
    right: Sequence[int],
    penalty: float,
    trust: Sequence[float] = (),
    refuted: Sequence[bool] = (),
) -> tuple[float, ...]:
    """Minimise the log-loss of each run's correct row plus a ridge penalty on standardised weights.

    Args:
        runs: rows of each run.
        right: the correct row of each run; for a refuted run, a wrong row.
        penalty: strength of the ridge penalty.
        trust: weights of the runs; without it, all weigh 1.
        refuted: the runs with only a wrong row known; their loss is that of all their other rows together.
    """
    numpy, optimize = library("numpy"), library("scipy.optimize")
    table = numpy.vstack([numpy.asarray(rows, dtype=float) for rows in runs])
    scale = table.std(axis=0) + 1e-6
    table = (table - table.mean(axis=0)) / scale
    sizes = [len(rows) for rows in runs]
    starts = numpy.concatenate([[0], numpy.cumsum(sizes)[:-1]])
    run_of_row = numpy.repeat(numpy.arange(len(runs)), sizes)
    of_run = numpy.asarray(trust or [1.0] * len(runs))
    is_wrong = numpy.asarray(refuted or [False] * len(runs))
    named = starts + numpy.asarray(right)
    wanted = (of_run[:, None] * table[named])[~is_wrong].sum(axis=0)
    is_other = numpy.repeat(is_wrong, sizes)
    is_other[named] = False
    others, counts = table[is_other], numpy.asarray(sizes)[is_wrong] - 1

    def loss_and_slope(weights: Any) -> tuple[float, Any]:
        scores = table @ weights
        highest = numpy.maximum.reduceat(scores, starts)
        shares = numpy.exp(scores - highest[run_of_row])
        totals = numpy.add.reduceat(shares, starts)
        loss = (of_run * (highest + numpy.log(totals))).sum() - wanted @ weights
        slope = table.T @ (of_run[run_of_row] * (shares / totals[run_of_row])) - wanted + penalty * weights
        if len(others):
            said, drift = _log_sums(numpy, others, counts, of_run[is_wrong], weights)
            loss, slope = loss - said, slope - drift
        return float(loss + penalty / 2 * weights @ weights), slope

    found = optimize.minimize(loss_and_slope, numpy.zeros(table.shape[1]), jac=True, method="L-BFGS-B")
    return tuple(float(f"{weight:.9g}") for weight in found.x / scale)


def _log_sums(numpy: Any, rows: Any, counts: Any, of_run: Any, weights: Any) -> tuple[float, Any]:
    """Return the weighted sum over runs of the log-sum-exp of each run's rows, and its gradient."""
    starts = numpy.cumsum(counts) - counts
    scores = rows @ weights
    highest = numpy.maximum.reduceat(scores, starts)
    shares = numpy.exp(scores - numpy.repeat(highest, counts))
    totals = numpy.add.reduceat(shares, starts)
    slope = rows.T @ (numpy.repeat(of_run / totals, counts) * shares)
    return (of_run * (highest + numpy.log(totals))).sum(), slope


def fit_curve(stated: Sequence[float], true: Sequence[bool]) -> tuple[tuple[float, float], ...]:
    """Return the knots of the isotonic regression of outcomes on stated probabilities, in order."""
    isotonic = library("sklearn.isotonic").IsotonicRegression(out_of_bounds="clip", y_min=0.0, y_max=1.0)
    isotonic.fit(stated, [float(one) for one in true])
    knots = zip(isotonic.X_thresholds_, isotonic.y_thresholds_, strict=True)
    return tuple((float(f"{x:.9g}"), float(f"{y:.9g}")) for x, y in knots)


def library(name: str) -> Any:
    """Import a library that only training needs, lazily because it is large.

    Raises:
        TrainingImpossible: the library is not installed.
    """
    import importlib  # noqa: PLC0415

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        message = f"training needs {error.name}: pip install '.[server,ranker]' in a checkout"
        raise TrainingImpossible(message) from error


PENALTIES: Final = (10.0, 30.0, 100.0, 300.0)
"""Ridge penalties of the linear learners, pooled evenly: a few dozen labels cannot tell which is best, and an
even pool is seldom beaten by the one that seemed best (Smith & Wallis, Oxford Bulletin 2009)."""
SIGNALS: Final = 0.5
"""Weight of the signals in the pool."""
_INNER_FOLDS: Final = 4
_SET_FOLDS: Final = 10
"""Parts in which the coverage of sets is observed: the quantile of nine tenths is near that of all."""
_STRANGERS: Final = 0.05
"""Share of a system's own runs that may count as unknown."""
_LEAST_ASKED: Final = 0.1
FEWEST: Final = 5
"""Fewest labels to train on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One labelled run as the learners see it."""

    table: Table
    step: int
    """Position of the labelled step."""
    agent: str
    """Normalised labelled agent, or the labelled step's actor if the labelled agent has no step; empty if the
    step is refuted."""
    keys: RunKeys
    """Keys that relate runs; related runs must stay on one side of a split."""
    trust: float
    """Weight of the label."""
    is_refuted: bool
    """True if the step is only known not to be decisive."""

    @property
    def system(self) -> str:
        """Return the run's system or data set."""
        return self.keys.subset


def as_example(run: Conversation) -> Example | None:
    """Return a run as an example; ``None`` if its label lacks an agent or names no step of it."""
    label, steps = run.label, run.trajectory.steps
    if label is None or label.step is None or not 0 <= label.step < len(steps):
        return None
    if (label.agent is None and not label.is_refuted) or (label.is_refuted and len(steps) < 2):
        return None
    return Example(
        table=featurise(replace(run.trajectory, reference=None)),  # production runs have no reference
        step=label.step,
        agent="" if label.is_refuted else _blamed(label, steps),
        keys=RunKeys(
            subset="/".join(part for part in (run.source, run.subset) if part),
            history=history_key(run.trajectory),
            task=task_key(run.trajectory),
        ),
        trust=label.trust,
        is_refuted=label.is_refuted,
    )


def _blamed(label: Label, steps: Sequence[Step]) -> str:
    agents = (normalise(step.agent) for step in steps if same_agent(step.agent, label.agent or ""))
    return next(agents, normalise(steps[label.step or 0].agent))


def train(examples: Sequence[Example]) -> Ranker:
    """Return a ranker of the examples, calibrated by cross-validation among them.

    Raises:
        TrainingImpossible: too few labels, or scikit-learn is not installed.
    """
    right = [example.step for example in examples if not example.is_refuted]
    if len(right) < FEWEST:
        raise TrainingImpossible(f"{len(right)} labelled runs: a ranker needs {FEWEST} at the least")
    heard = zip(_opinions_out_of_fold(examples), examples, strict=True)
    said = [opinion for opinion, example in heard if not example.is_refuted]
    calibration = calibrate(said, right, fit_curve)
    records = count_records(examples)
    return Ranker(
        features_version=VERSION,
        steps=_fit(examples, records),
        records=records,
        calibration=calibration,
        home=_home([example for example in examples if not example.is_refuted]),
        systems=tuple(sorted({example.system for example in examples if not example.is_refuted})),
        set_rule=_set_rule(
            [example.keys for example in examples if not example.is_refuted],
            [calibration.apply(one) for one in said],
            right,
        ),
        card={
            "labels": len(right),
            "temperature": calibration.temperature,
            "calibrated_by": "a curve" if calibration.curve else "a temperature",
        },
    )


def _set_rule(keys: Sequence[RunKeys], shares: Sequence[LogShares], right: Sequence[int]) -> SetRule | None:
    """Return how to make sets of steps; ``None`` with fewer labels than a set is shown for."""
    if len(keys) < LEAST_RUNS:
        return None
    return set_rule(shares, right, split_by_keys(keys, _SET_FOLDS))


def count_records(examples: Iterable[Example]) -> dict[str, Record]:
    """Count the runs in which each agent took part, and those in which it was to blame.

    Runs of which only a refuted step is known do not say which agent was.
    """
    runs, blamed = Counter[str](), Counter[str]()
    for example in examples:
        if example.is_refuted:
            continue
        runs.update(set(example.table.agents))
        blamed[example.agent] += 1
    return {name: Record(runs=runs[name], blamed=blamed[name]) for name in sorted(runs)}


def _home(examples: Sequence[Example]) -> float:
    """Return the familiarity that all but a few examples reach with models that did not see them.

    If every run has its own agents, familiarity is low even within the system.
    """
    reached: list[float] = []
    for held in split_by_keys([example.keys for example in examples], _INNER_FOLDS):
        known = count_records(example for place, example in enumerate(examples) if place not in held)
        reached += [familiarity(known, examples[place].table.agents) for place in held]
    usual = sorted(reached)[int(_STRANGERS * len(reached))]
    return min(MOST_ASKED, max(_LEAST_ASKED, usual))


def _opinions_out_of_fold(examples: Sequence[Example]) -> list[LogShares]:
    """For each example, return the opinion of a panel fitted to the other folds."""
    heard: list[LogShares] = [()] * len(examples)
    for held in split_by_keys([example.keys for example in examples], _INNER_FOLDS):
        seen = [example for position, example in enumerate(examples) if position not in held]
        if all(example.is_refuted for example in seen):
            continue
        records = count_records(seen)
        panel = _fit(seen, records)
        for position in held:
            heard[position] = panel.opinion(step_rows(examples[position].table, records))
    return heard


def _fit(examples: Sequence[Example], records: Mapping[str, Record]) -> Panel:
    """Fit the linear learners, pool them into one, and add the signals."""
    rows = [
        step_rows(example.table, records, own=None if example.is_refuted else example.agent)
        for example in examples
    ]
    right = [example.step for example in examples]
    trust = [example.trust for example in examples]
    refuted = [example.is_refuted for example in examples]
    fits = [fit_linear(rows, right, penalty, trust, refuted) for penalty in PENALTIES]
    share = (1.0 - SIGNALS) / len(PENALTIES)
    return Panel(
        weights=tuple(share * math.fsum(column) for column in zip(*fits, strict=True)), signals=SIGNALS
    )


ALPHA: Final = 0.05
"""Bound on the probability that a challenger that is no better is ever promoted."""


class Ruling(StrEnum):
    """Result of a comparison so far."""

    PROMOTE = "promote"
    REJECT = "reject"
    """The challenger is worse."""
    UNDECIDED = "undecided"


@record
class Contest:
    """Champion and challenger on the same labelled runs."""

    n: int = 0
    champion: int = 0
    """Runs in which the champion is right."""
    challenger: int = 0
    wins: int = 0
    """Runs in which only the challenger is right."""
    losses: int = 0

    @property
    def ruling(self) -> Ruling:
        """The decision at ``ALPHA``."""
        if log_evidence(self.wins, self.losses) >= -math.log(ALPHA):
            return Ruling.PROMOTE
        if log_evidence(self.losses, self.wins) >= -math.log(ALPHA):
            return Ruling.REJECT
        return Ruling.UNDECIDED


def contest(results: Iterable[tuple[bool, bool]]) -> Contest:
    """Count the results of champion and challenger, run by run, until the first decision.

    Later runs do not change a decision: a test that may be continued after it would not keep its bound.
    """
    so_far = Contest()
    for champion, challenger in results:
        if so_far.ruling is not Ruling.UNDECIDED:
            break
        so_far = Contest(
            n=so_far.n + 1,
            champion=so_far.champion + champion,
            challenger=so_far.challenger + challenger,
            wins=so_far.wins + (challenger and not champion),
            losses=so_far.losses + (champion and not challenger),
        )
    return so_far


def log_evidence(wins: int, losses: int) -> float:
    """Return the logarithm of the evidence that wins are more likely than losses.

    The average over shares uniform on one half to one is a Beta integral; its upper half is a sum of binomial
    coefficients, so the value is exact.
    """
    n = wins + losses
    upper = sum(math.comb(n + 1, k) for k in range(wins + 1))  # of 2 ** (n + 1)
    log_beta = math.lgamma(wins + 1) + math.lgamma(losses + 1) - math.lgamma(n + 2)
    return log_beta + math.log(upper)
