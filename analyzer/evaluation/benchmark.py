"""Run a method over labelled runs and score it: the engine of ``blamespan bench``.

A method that learns is only ever tested on runs it has not seen: either it is
trained on another data set, from which the tested conversations and their tasks
are taken out, or by cross-validation. The same holds for the threshold below which a method
abstains to reach a wanted precision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

from analyzer.attribution import Attributor
from analyzer.conversation import Conversation, Label
from analyzer.learning.folds import Kin, families, history_key, kin_of, split, split_kin
from analyzer.measuring.reliability import least_confidence
from analyzer.measuring.scoring import Score, confident, score, withheld
from analyzer.measuring.tabulation import Subject, tabulate
from semconv.model import Attribution, Trajectory

Attribute: TypeAlias = Callable[[Trajectory], Awaitable[Attribution]]
Progress: TypeAlias = Callable[[Score], None]
THRESHOLD_FOLDS: Final = 10
_FOLDS: Final = 5
"""A task of more runs than one of so many folds holds is every run's, and makes no kin."""


class Learner(Protocol):
    """Makes something that attributes out of labelled runs."""

    @property
    def per_subset(self) -> bool:
        """Tell whether each subset, being a system of its own, is learned for itself."""
        ...

    @property
    def usual_folds(self) -> int | None:
        """Return how many folds it is tested in where none are asked for; ``None``: it is used as it is."""
        ...

    def learn(self, runs: Sequence[Conversation], base: Attributor) -> Attribute:
        """Learn from labelled runs, of which there may be none; ``base`` has the model and the budget."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run, and what attributes it."""

    run: Conversation
    attribute: Attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A finished benchmark."""

    lines: tuple[dict[str, Any], ...]
    """One a subset, in order of first appearance, and the total last."""
    scores: tuple[Score, ...]
    """In the order of the runs."""
    left_out: int = 0
    """Runs whose label lacks an agent, or a step that the run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Scores after abstaining, and the confidence below which that was done, by fold."""

    scores: tuple[Score, ...]
    thresholds: tuple[float | None, ...]
    """``None`` where no threshold reached the precision, so that nothing was answered."""


async def bench(
    runs: Sequence[Conversation],
    attribute: Attribute,
    subject: Subject,
    *,
    concurrency: int = 8,
    progress: Progress = lambda _score: None,
) -> Benchmark:
    """Attribute every labelled run and score the verdicts; that the runs failed is taken as given."""
    scored = labelled(runs)
    jobs = [Job(run=run, attribute=attribute) for run in scored]
    scores = await examine(jobs, concurrency=concurrency, progress=progress)
    return Benchmark(lines=tabulate(scores, subject), scores=scores, left_out=len(runs) - len(scored))


async def examine(
    jobs: Sequence[Job], *, concurrency: int = 8, progress: Progress = lambda _score: None
) -> tuple[Score, ...]:
    """Do the jobs, at most ``concurrency`` at once; what an ``attribute`` raises ends all of them."""
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
    """Return the runs whose label names both an agent and a step of theirs: no other can be right."""
    return [run for run in runs if run.label is not None and _names_a_step(run.label, run.trajectory)]


def out_of_fold(
    runs: Sequence[Conversation], learner: Learner, base: Attributor, folds: int
) -> tuple[Job, ...]:
    """Return a job a run, in order, each with what was learned from the other folds."""
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
    """Return a job a run, all with what was learned from ``training`` less the runs and their kin."""
    others = labelled(training)
    kin = [kin_of(run) for run in (*runs, *others)]
    family = families(kin, most=max(1, len(kin) // _FOLDS))
    tested = set(family[: len(runs)])
    rest = [run for run, its in zip(others, family[len(runs) :], strict=True) if its not in tested]
    attribute = learner.learn(rest, base)
    return tuple(Job(run=run, attribute=attribute) for run in runs)


def blinded(runs: Sequence[Conversation]) -> list[Conversation]:
    """Return the runs without their right answers."""
    return [replace(run, trajectory=replace(run.trajectory, reference=None)) for run in runs]


def select(scores: Sequence[Score], precision: float, folds: int = THRESHOLD_FOLDS) -> Selected:
    """Abstain where confidence is too low for the wanted share of right steps.

    Each fold's threshold is chosen on the others.
    """
    kept = list(scores)
    thresholds: list[float | None] = []
    for fold in split_kin([Kin(subset=s.subset, history=s.history) for s in scores], folds):
        others = confident([s for i, s in enumerate(scores) if i not in fold])
        threshold = least_confidence(others, precision)
        thresholds.append(threshold)
        for index in fold:
            sure = scores[index].confidence
            if sure is not None and (threshold is None or sure < threshold):
                kept[index] = withheld(scores[index])
    return Selected(scores=tuple(kept), thresholds=tuple(thresholds))


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
