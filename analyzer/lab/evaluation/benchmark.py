"""Run a method over labelled runs and score it: the engine of ``blamespan bench``.

A method that learns is only tested on runs it has not seen: either it is trained on
another data set, from which the tested conversations and their tasks are removed, or by
cross-validation. The same holds for the threshold below which a method abstains to
reach a target precision.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

from analyzer.inquiry.calibration import least_confidence
from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.match_agents import normalise
from analyzer.inquiry.method import AttributionMethod, consult, drive
from analyzer.lab.evaluation.dataset import RunKeys, families, history_key, keys_of, split, split_by_keys
from analyzer.lab.evaluation.scores import Score, as_abstention, confident, score
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
