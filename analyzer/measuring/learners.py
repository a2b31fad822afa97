"""What can be learned from labelled runs, by method name; ``blamespan bench`` tests it out of fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.agent_names import normalise
from analyzer.attribution import Attributor
from analyzer.conversation import Conversation
from analyzer.learning.training import train
from analyzer.measuring.benchmark import Attribute, Learner
from analyzer.measuring.validation import prepare
from analyzer.method import AttributionMethod, Prompt, Reply, attribute
from analyzer.methods.baselines import ConstantAgent, ConstantStep
from semconv.model import Attribution, Trajectory

_RANKED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MostFrequentSteps:
    """The strong floor: always the step that most often was the one, in runs of the same subset."""

    per_subset: bool = True
    usual_folds: int | None = 10

    def learn(self, runs: Sequence[Conversation], base: Attributor) -> Attribute:
        """Return a ``constant`` of the commonest labelled steps, the earlier first; step 1 without runs."""
        counts = Counter(run.label.step for run in runs if run.label and run.label.step is not None)
        order = sorted(counts, key=lambda step: (-counts[step], step))[:_RANKED] or [1]
        shares = tuple(counts[step] / counts.total() for step in order) if counts else ()
        return without_model(ConstantStep(steps=tuple(order), shares=shares), base)


@dataclass(frozen=True, slots=True, kw_only=True)
class MostBlamedAgents:
    """The other strong floor: the first step of whoever most often was to blame in the same subset."""

    per_subset: bool = True
    usual_folds: int | None = 10

    def learn(self, runs: Sequence[Conversation], base: Attributor) -> Attribute:
        """Return a ``constant-agent`` of the agents most often labelled, by name among equals."""
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
    """The ranker, trained on the runs of all subsets together: their agents' names tell them apart."""

    per_subset: bool = False
    usual_folds: int | None = 5

    def learn(self, runs: Sequence[Conversation], base: Attributor) -> Attribute:
        """Return an attributor with a ranker of these runs; it never sees a right answer.

        Raises:
            TrainingImpossible: too few labels, or scikit-learn is missing.
        """
        ranker = train([one.example for one in prepare(runs)])
        return replace(base, method="ranker", ranker=ranker, model=None, with_reference=False)


def without_model(method: AttributionMethod, base: Attributor) -> Attribute:
    """Return what attributes by a method that asks no model."""

    async def attribute_run(trajectory: Trajectory) -> Attribution:
        return (await attribute(method, trajectory, _no_model, clock=base.clock)).attribution

    return attribute_run


async def _no_model(_prompt: Prompt) -> Reply:
    message = "a method that is registered as needing no model asked one"
    raise AssertionError(message)


LEARNERS: Final[Mapping[str, Learner]] = {
    "constant": MostFrequentSteps(),
    "constant-agent": MostBlamedAgents(),
    "ranker": TrainedRanker(),
}
