"""Runs a method over labelled runs, scores it, and compares it: the engine of ``blamespan bench``.

A method that learns is only tested on runs it has not seen: either it is trained on
another data set, from which the tested conversations and their tasks are removed, or by
cross-validation. The same holds for the threshold below which a method abstains to
reach a target precision.

A comparison is of two methods on the same runs, or of two annotators on the same conversations. A contender
is a method, a model, and whether the correct answer is shown, in the notation of ``--compare``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

from analyzer.inquiry.calibration import least_confidence
from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.match_agents import normalise, same_agent
from analyzer.inquiry.method import AttributionMethod, consult, drive
from analyzer.lab.evaluation.folds import RunKeys, families, history_key, keys_of, split, split_by_keys
from analyzer.lab.evaluation.scores import (
    TOTAL,
    Score,
    as_abstention,
    confident,
    score,
    share,
    share_interval,
)
from analyzer.lab.evaluation.significance import difference_interval, paired
from analyzer.lab.evaluation.training import train
from analyzer.lab.evaluation.validation import prepare
from analyzer.lab.published import ConstantAgent, ConstantStep
from analyzer.methods.attribution import Attributor, no_model, took
from semconv.model import Attribution, Trajectory

Attribute: TypeAlias = Callable[[Trajectory], Awaitable[Attribution]]
Progress: TypeAlias = Callable[[Score], None]
THRESHOLD_FOLDS: Final = 10
_FOLDS: Final = 5
"""A task with more runs than fit into one of this many folds is ignored when grouping related runs."""


class Learner(Protocol):
    """Trains on labelled runs and returns an attribution function."""

    @property
    def per_subset(self) -> bool:
        """Return whether a separate model is trained for each subset."""
        ...

    @property
    def usual_folds(self) -> int | None:
        """Return the default number of folds; ``None`` if it is used without cross-validation."""
        ...

    def learn(self, runs: Sequence[Conversation], base: Attributor) -> Attribute:
        """Learn from labelled runs (possibly none); ``base`` has the model and the budget."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run and its attribution function."""

    run: Conversation
    attribute: Attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A finished benchmark."""

    lines: tuple[dict[str, Any], ...]
    """One per subset, in order of first appearance, and the total last."""
    scores: tuple[Score, ...]
    """Scores in the order of the runs."""
    left_out: int
    """Runs whose label has no agent, or no existing step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Scores after abstaining, and the confidence threshold of each fold."""

    scores: tuple[Score, ...]
    thresholds: tuple[float | None, ...]
    """``None`` if no threshold reached the precision, so that nothing was answered."""


async def examine(
    jobs: Sequence[Job], *, concurrency: int = 8, progress: Progress = lambda _score: None
) -> tuple[Score, ...]:
    """Run the jobs, at most ``concurrency`` at once; an exception in one cancels the others."""
    slots = asyncio.Semaphore(max(1, concurrency))

    async def one(job: Job) -> Score:
        async with slots:
            attribution = await job.attribute(job.run.trajectory)
        result = _score(job.run, attribution)
        progress(result)
        return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(job)) for job in jobs]
    return tuple(task.result() for task in tasks)


def labelled(runs: Sequence[Conversation]) -> list[Conversation]:
    """Return the runs whose label names an agent and an existing step: only those can be scored."""
    return [run for run in runs if run.label is not None and _names_a_step(run.label, run.trajectory)]


def out_of_fold(
    runs: Sequence[Conversation], learner: Learner, base: Attributor, folds: int
) -> tuple[Job, ...]:
    """Return one job per run, in order, each with a method trained on the other folds."""
    jobs: dict[int, Job] = {}
    for part in _systems(runs, learner):
        members = [runs[index] for index in part]
        for fold in split(members, folds):
            attribute = learner.learn([run for i, run in enumerate(members) if i not in fold], base)
            jobs.update({part[i]: Job(run=members[i], attribute=attribute) for i in fold})
    return tuple(jobs[index] for index in range(len(runs)))


def trained_on(
    training: Sequence[Conversation], runs: Sequence[Conversation], learner: Learner, base: Attributor
) -> tuple[Job, ...]:
    """Return one job per run, with a method trained on ``training`` except these runs and related ones."""
    others = labelled(training)
    keys = [keys_of(run) for run in (*runs, *others)]
    family = families(keys, most=max(1, len(keys) // _FOLDS))
    tested = set(family[: len(runs)])
    rest = [run for run, its in zip(others, family[len(runs) :], strict=True) if its not in tested]
    attribute = learner.learn(rest, base)
    return tuple(Job(run=run, attribute=attribute) for run in runs)


def blinded(runs: Sequence[Conversation]) -> list[Conversation]:
    """Return the runs without their correct answers."""
    return [replace(run, trajectory=replace(run.trajectory, reference=None)) for run in runs]


def select(scores: Sequence[Score], precision: float) -> Selected:
    """Abstain where confidence is too low for the target precision of the step.

    Each fold's threshold is chosen on the others.
    """
    kept = list(scores)
    thresholds: list[float | None] = []
    for fold in split_by_keys([RunKeys(subset=s.subset, history=s.history) for s in scores], THRESHOLD_FOLDS):
        others = confident([s for i, s in enumerate(scores) if i not in fold])
        threshold = least_confidence(others, precision)
        thresholds.append(threshold)
        for index in fold:
            sure = scores[index].confidence
            if sure is not None and (threshold is None or sure < threshold):
                kept[index] = as_abstention(scores[index])
    return Selected(scores=tuple(kept), thresholds=tuple(thresholds))


def withhold(scores: Sequence[Score], floor: float) -> tuple[Score, ...]:
    """Abstain below a confidence."""
    return tuple(s if s.confidence is None or s.confidence >= floor else as_abstention(s) for s in scores)


def _names_a_step(label: Label, trajectory: Trajectory) -> bool:
    return label.agent is not None and label.step is not None and 0 <= label.step < len(trajectory.steps)


def _systems(runs: Sequence[Conversation], learner: Learner) -> list[list[int]]:
    if not learner.per_subset:
        return [list(range(len(runs)))]
    subsets: Mapping[str, list[int]] = {run.subset: [] for run in runs}
    for index, run in enumerate(runs):
        subsets[run.subset].append(index)
    return list(subsets.values())


def _score(run: Conversation, attribution: Attribution) -> Score:
    assert run.label is not None
    return score(
        attribution,
        run.label,
        run.subset,
        steps=len(run.trajectory.steps),
        history=history_key(run.trajectory),
    )


_RANKED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MostFrequentSteps:
    """Strong baseline: always the step that was most often decisive in runs of the same subset."""

    per_subset: bool = True
    usual_folds: int | None = 10

    def learn(self, runs: Sequence[Conversation], base: Attributor) -> Attribute:
        """Return a ``constant`` of the commonest labelled steps, ties by position; step 1 without runs."""
        counts = Counter(run.label.step for run in runs if run.label and run.label.step is not None)
        order = sorted(counts, key=lambda step: (-counts[step], step))[:_RANKED] or [1]
        shares = tuple(counts[step] / counts.total() for step in order) if counts else ()
        return without_model(ConstantStep(steps=tuple(order), shares=shares), base)


@dataclass(frozen=True, slots=True, kw_only=True)
class MostBlamedAgents:
    """Strong baseline: the first step of the agent most often to blame in the same subset."""

    per_subset: bool = True
    usual_folds: int | None = 10

    def learn(self, runs: Sequence[Conversation], base: Attributor) -> Attribute:
        """Return a ``constant-agent`` of the agents most often labelled; ties in order of name."""
        blamed, first = Counter[str](), Counter[str]()
        for run in runs:
            if run.label is None or run.label.agent is None:
                continue
            agent = normalise(run.label.agent)
            blamed[agent] += 1
            starts = (s.index for s in run.trajectory.steps if s.index and normalise(s.agent) == agent)
            first[agent] += next(starts, None) == run.label.step
        order = tuple(sorted(blamed, key=lambda agent: (-blamed[agent], agent)))
        shares = tuple(first[agent] / blamed[agent] for agent in order)
        return without_model(ConstantAgent(agents=order, shares=shares), base)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRanker:
    """The ranker, trained on the runs of all subsets; agents' names tell the subsets apart."""

    per_subset: bool = False
    usual_folds: int | None = 5

    def learn(self, runs: Sequence[Conversation], base: Attributor) -> Attribute:
        """Return an attributor with a ranker trained on these runs, without their correct answers.

        Raises:
            TrainingImpossible: too few labels, or scikit-learn is missing.
        """
        ranker = train([one.example for one in prepare(runs)])
        return replace(base, method="ranker", ranker=ranker, model=None, with_reference=False)


def without_model(method: AttributionMethod, base: Attributor) -> Attribute:
    """Return the attribution function of a method that calls no model."""

    async def attribute_run(trajectory: Trajectory) -> Attribution:
        started = base.clock()
        found = await drive(consult(method, trajectory), no_model)
        return took(found.attribution, base.clock() - started)

    return attribute_run


LEARNERS: Final[Mapping[str, Learner]] = {
    "constant": MostFrequentSteps(),
    "constant-agent": MostBlamedAgents(),
    "ranker": TrainedRanker(),
}


WITH_REFERENCE: Final = "+reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One side of a comparison; ``None`` means the value from the settings."""

    method: str | None = None
    model: str | None
    with_reference: bool = False


def read_contender(text: str, base: Contender) -> Contender:
    """Read ``METHOD[+reference][@MODEL]``; missing parts come from ``base``."""
    name, at, model = text.partition("@")
    return Contender(
        method=name.removesuffix(WITH_REFERENCE),
        model=model if at else base.model,
        with_reference=base.with_reference or name.endswith(WITH_REFERENCE),
    )


_CLAIMS: Final[Mapping[str, Callable[[Score], bool]]] = {
    "step": lambda scored: scored.step_right,
    "agent": lambda scored: scored.agent_right,
    "joint": lambda scored: scored.step_right and scored.agent_right,
    "top3_step": lambda scored: scored.in_top_three,
}


def compare(
    first: Sequence[Score], second: Sequence[Score], *, dataset: str, names: tuple[str, str]
) -> tuple[dict[str, Any], ...]:
    """Return one line per subset and the total last: McNemar's exact test on runs in the same order.

    Raises:
        ValueError: the scores are not of the same runs.
    """
    if [s.run_id for s in first] != [s.run_id for s in second]:
        raise ValueError("two methods can only be compared on the same runs in the same order")
    pairs = list(zip(first, second, strict=True))
    subsets = dict.fromkeys(one.subset for one, _ in pairs)
    parts = [(name, [pair for pair in pairs if pair[0].subset == name]) for name in subsets]
    return tuple(
        {
            "dataset": dataset,
            "subset": name,
            "n": len(part),
            "compare": list(names),
            **{claim: _paired(part, holds) for claim, holds in _CLAIMS.items()},
        }
        for name, part in [*parts, (TOTAL, pairs)]
        if part
    )


def second_labels(runs: Sequence[Conversation]) -> Mapping[str, Label]:
    """Return other annotators' labels by conversation."""
    return {history_key(run.trajectory): run.label for run in runs if run.label is not None}


def multi_reference(scores: Sequence[Score], second: Mapping[str, Label]) -> dict[str, Any]:
    """Score the runs with two labels against either label, and the labels against each other."""
    twice = [(s, second[s.history]) for s in scores if s.history in second]
    complete = [(s, label) for s, label in twice if label.step is not None and label.agent is not None]
    return {
        "n": len(complete),
        "step_accuracy_first": share([s.step_right for s, _ in complete]),
        "step_accuracy_second": share([s.step == label.step for s, label in complete]),
        "step_accuracy_either": share([s.step_right or s.step == label.step for s, label in complete]),
        "step_accuracy_either_ci": share_interval(
            [s.step_right or s.step == label.step for s, label in complete]
        ),
        "agent_accuracy_first": share([s.agent_right for s, _ in complete]),
        "agent_accuracy_second": share([same_agent(s.agent, label.agent) for s, label in complete]),
        "agent_accuracy_either": share(
            [s.agent_right or same_agent(s.agent, label.agent) for s, label in complete]
        ),
        "labels_agree_on_step": share([_apart(s, label) == 0 for s, label in complete]),
        "labels_agree_within_3": share([_apart(s, label) <= 3 for s, label in complete]),
        "labels_agree_on_agent": share([same_agent(s.label.agent, label.agent) for s, label in complete]),
    }


def _apart(scored: Score, label: Label) -> int:
    assert scored.label.step is not None
    assert label.step is not None
    return abs(scored.label.step - label.step)


def _paired(part: Sequence[tuple[Score, Score]], holds: Callable[[Score], bool]) -> dict[str, Any]:
    first, second = [holds(one) for one, _ in part], [holds(other) for _, other in part]
    split = paired(first, second)
    interval = difference_interval(first, second)
    return {
        "first": share(first),
        "second": share(second),
        "both": split.both,
        "only_first": split.only_first,
        "only_second": split.only_second,
        "neither": split.neither,
        "difference": split.difference,
        "difference_ci": [round(interval.low, 6), round(interval.high, 6)],
        "p_value": split.p_value,
    }
