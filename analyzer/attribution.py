"""One run attributed by the method asked for: which that is, its budget, and what happens when it fails.

``auto`` is decided here and nowhere else. Where no ranker is trained for the run's
system: the judge if there is a model, signals if not; and if the judge fails,
signals answer in its place, and the verdict says so. Where one is, it answers; a
model is asked only where its answer is expected to change the ranker's, and the
two are pooled. Nothing is spent beyond what the answer is expected to be worth
(``economy.py``). A method that was asked for by name never gives way to another.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

from analyzer.economy import belief_in_signals, worth_of
from analyzer.errors import ModelFailure, ModelNeeded
from analyzer.learning.features import VERSION
from analyzer.learning.ranker import Ranker
from analyzer.method import Budget, Clock, Inquest, Model, Prompt, Reply, attribute
from analyzer.methods import AUTO, registered
from analyzer.methods.ranker import JUDGE_ACCURACY, LearnedRanking, Ranking, blame, concur, ranking
from analyzer.methods.signals import weigh
from analyzer.tampering import distrust
from analyzer.visible import visible_run
from semconv.model import Abstention, Attribution, Blame, Effort, Status, Trajectory

DEFAULT_BUDGET_USD: Final = 0.50
_FIXED_TOKENS: Final = 4_000
"""What the instructions, the answer's schema, the task and the answer itself take."""
_BYTES_PER_TOKEN: Final = 3
"""Low for English, about right for dense scripts, code and digits."""
_LEAST_BYTES: Final = 4_000
_CONTEXT_SHARES: Final = (1.0, 0.5, 0.2)
"""A model that says the prompt was too long is asked again with less of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributor:
    """How runs are attributed; shared by all runs, holds nothing of any.

    Raises:
        UnknownMethod: ``method`` names no method.
        ModelNeeded: ``method`` asks a model, and there is none.
    """

    method: str = AUTO
    model: Model | None = None
    ranker: Ranker | None = None
    """Trained on labelled runs; ``auto`` uses it for the systems it was trained on."""
    with_reference: bool = False
    """Whether the method may see the right answer, where it is known."""
    budget_usd: float | None = DEFAULT_BUDGET_USD
    """For one run; ``None`` is no limit."""
    least_confidence: float = 0.0
    """A blame below it becomes ``undetermined``, its ranking kept."""
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        if self.method != AUTO and registered(self.method).needs_model and self.model is None:
            raise ModelNeeded(f"the method {self.method!r} asks a model, and no model is set")

    async def __call__(self, trajectory: Trajectory) -> Attribution:
        """Attribute one run that failed; raises nothing for what a model or a run may do."""
        seen = self._seen(trajectory)
        attribution = await (self._auto(seen) if self.method == AUTO else self._run(self.method, seen))
        return self._doubt(_distrusted(attribution, seen))

    def at_once(self, trajectory: Trajectory) -> Attribution:
        """Attribute one run with no model, and not to be waited for.

        By the ranker where it is at home, else by signals, whatever the method; by
        signals where these were asked for by name.
        """
        seen = self._seen(trajectory)
        started = self.clock()
        ranked = None if self.method == "signals" else self._ranked_at_home(seen)
        verdict = blame(self.ranker, seen, ranked) if self.ranker and ranked else weigh(seen)
        method = "ranker" if ranked else "signals"
        effort = Effort(duration_s=self.clock() - started)
        error = verdict.reason if isinstance(verdict, Abstention) else None
        attribution = Attribution(
            run_id=trajectory.run_id, verdict=verdict, method=method, effort=effort, error=error
        )
        return self._doubt(attribution)

    def _seen(self, trajectory: Trajectory) -> Trajectory:
        """Return what a method may see of a run: what people see, and the right answer only if allowed."""
        return visible_run(trajectory if self.with_reference else replace(trajectory, reference=None))

    async def _auto(self, trajectory: Trajectory) -> Attribution:
        ranker, ranked = self.ranker, self._ranked_at_home(trajectory)
        without = "signals" if ranked is None else "ranker"
        believed = ranked.shares if ranked else belief_in_signals(len(trajectory.steps))
        worth = worth_of(believed, JUDGE_ACCURACY)
        if self.model is None or (trajectory.steps and not worth.is_any):
            return await self._run(without, trajectory)
        attribution = await self._run("judge", trajectory, worth.limit(self.budget_usd))
        if attribution.status is Status.ERROR and trajectory.steps:
            return await self._fall_back(attribution, trajectory, without)
        if ranker is None or ranked is None or not isinstance(attribution.verdict, Blame):
            return attribution
        pooled = concur(ranker, trajectory, ranked, attribution.verdict)
        return replace(attribution, verdict=pooled, method="judge+ranker")

    def _ranked_at_home(self, trajectory: Trajectory) -> Ranking | None:
        """Return what the ranker makes of a run of a system that it was trained on; else ``None``."""
        if self.ranker is None or not trajectory.steps or self.ranker.features_version != VERSION:
            return None
        ranked = ranking(self.ranker, trajectory)
        return ranked if ranked.is_at_home else None

    async def _run(
        self, name: str, trajectory: Trajectory, limit: tuple[float | None, str] | None = None
    ) -> Attribution:
        entry = registered(name)
        model = self.model if entry.needs_model else None
        if model is None:
            method = LearnedRanking(ranker=self.ranker) if name == "ranker" else entry.build(0)
            return (await attribute(method, trajectory, _no_model, clock=self.clock)).attribution
        spent, (usd, purpose) = Effort(), limit or (self.budget_usd, "a run")
        for share in _CONTEXT_SHARES:
            left = None if usd is None else usd - (spent.cost_usd or 0.0)
            budget = Budget(usd=left, price=model.price, purpose=purpose)
            inquest = await self._ask(name, model, trajectory, share, budget)
            inquest = _with(spent, inquest)
            spent = inquest.attribution.effort
            if inquest.failure is None or inquest.failure.kind is not ModelFailure.CONTEXT_TOO_LONG:
                break
        return inquest.attribution

    async def _ask(
        self, name: str, model: Model, trajectory: Trajectory, share: float, budget: Budget
    ) -> Inquest:
        room = (model.context_tokens - _FIXED_TOKENS) * _BYTES_PER_TOKEN
        method = registered(name).build(max(_LEAST_BYTES, int(room * share)))
        return await attribute(
            method, trajectory, model.complete, clock=self.clock, budget=budget, model=model.name
        )

    async def _fall_back(self, failed: Attribution, trajectory: Trajectory, instead: str) -> Attribution:
        answer = await self._run(instead, trajectory)
        return replace(
            answer,
            method=failed.method,
            model=failed.model,
            fallback=f"{instead}, because {failed.method} failed: {failed.error}",
            effort=_add(failed.effort, answer.effort),
        )

    def _doubt(self, attribution: Attribution) -> Attribution:
        verdict = attribution.verdict
        if not isinstance(verdict, Blame) or verdict.confidence >= self.least_confidence:
            return attribution
        reason = (
            f"the best candidate, step {verdict.step} of {verdict.agent}, has a confidence of"
            f" {verdict.confidence:.2f}, below {self.least_confidence:.2f}: {verdict.reason}"
        )
        abstention = Abstention(status=Status.UNDETERMINED, reason=reason, ranking=verdict.ranking)
        return replace(attribution, verdict=abstention)


async def attribute_trajectory(
    trajectory: Trajectory,
    *,
    method: str = AUTO,
    model: Model | None = None,
    with_reference: bool = False,
    budget_usd: float | None = DEFAULT_BUDGET_USD,
) -> Attribution:
    """Attribute one run that failed; see ``Attributor`` for many.

    Raises:
        UnknownMethod: ``method`` names no method.
        ModelNeeded: ``method`` asks a model, and there is none.
    """
    attributor = Attributor(method=method, model=model, with_reference=with_reference, budget_usd=budget_usd)
    return await attributor(trajectory)


async def _no_model(_prompt: Prompt) -> Reply:
    message = "a method that is registered as needing no model asked one"
    raise AssertionError(message)


def _with(spent: Effort, inquest: Inquest) -> Inquest:
    effort = _add(spent, inquest.attribution.effort)
    return replace(inquest, attribution=replace(inquest.attribution, effort=effort))


def _distrusted(attribution: Attribution, trajectory: Trajectory) -> Attribution:
    """Return the attribution with a model's blame believed as far as the run's text allows."""
    verdict = attribution.verdict
    if attribution.model is None or attribution.fallback or not isinstance(verdict, Blame):
        return attribution
    return replace(attribution, verdict=distrust(verdict, trajectory))


def _add(one: Effort, other: Effort) -> Effort:
    known = one.cost_usd is not None and other.cost_usd is not None
    return Effort(
        calls=one.calls + other.calls,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cost_usd=(one.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        duration_s=one.duration_s + other.duration_s,
    )
