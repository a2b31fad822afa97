"""Second opinions of this process: by the method and the model that a person chose.

A person can only choose from the offered methods and models: a model's name decides where runs are sent and
what that costs, so it never comes from a form. All models share one hourly budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from analyzer.analyses.local_analyst import LocalAnalyst
from analyzer.inquiry.errors import ModelError, ModelFailure
from analyzer.inquiry.method import DelegatingModel, Model, Prompt, Reply
from analyzer.inquiry.verdict import TRIAGE
from analyzer.methods.choice import WITH_REFERENCE, Called, Choice, Offer
from analyzer.methods.registry import AUTO, METHODS
from collector_processor.core.analysis import NOTHING_EARNED, Earned
from semconv.model import Attribution, Trajectory

_BASELINES: Final = frozenset({"random", "first-agent-step", "constant", "constant-agent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOpinions:
    """``Opinions`` of this process."""

    analyst: LocalAnalyst
    models: Mapping[str, Model] = field(default_factory=dict)
    """Models on offer besides the analyst's own, by name."""

    async def offer(self) -> Offer:
        """Return the methods available with the configured models, and these models."""
        own = self.analyst.model
        has_model = own is not None or bool(self.models)
        methods = [name for name, entry in METHODS.items() if self._can(name, entry.needs_model, has_model)]
        return Offer(methods=(AUTO, *methods), model=own.name if own else "", models=tuple(self.models))

    async def ask(
        self, trajectory: Trajectory, choice: Choice, called: Called, earned: Earned = NOTHING_EARNED
    ) -> Attribution:
        """Analyse; computation does not block the event loop."""
        (await self.offer()).require(choice)
        chosen = self.models[choice.model] if choice.model else self.analyst.model
        model = None if chosen is None else _limited(chosen, called, choice.budget_usd)
        sees = choice.with_reference and bool(trajectory.reference)
        attribution = await self.analyst.consult(
            trajectory,
            choice.method,
            model,
            earned=earned,
            takes_as_failed=choice.takes_as_failed,
            with_reference=sees,
        )
        if not sees or attribution.method == TRIAGE:
            return attribution
        return replace(attribution, method=attribution.method + WITH_REFERENCE)

    def _can(self, name: str, needs_model: bool, has_model: bool) -> bool:  # noqa: FBT001 - facts, not modes
        if name == "ranker":
            return self.analyst.ranker is not None
        if name == "history":
            return self.analyst.knows_runs
        return name not in _BASELINES and (has_model or not needs_model)


def _limited(model: Model, called: Called, budget_usd: float | None) -> Model:
    """Return a model that reports its calls and keeps to a budget; calls of unknown price count as free."""
    spent = 0.0

    async def ask(prompt: Prompt) -> Reply:
        nonlocal spent
        price = model.price(prompt) or 0.0
        if budget_usd is not None and price and spent + price > budget_usd:
            told = f"the budget of ${budget_usd:.4g} for this run does not allow another call"
            raise ModelError(told, kind=ModelFailure.OVER_BUDGET)
        called(1, price)
        spent += price  # before the answer: several calls may be in progress
        reply = await model.complete(prompt)
        rest = 0.0 if reply.cost_usd is None else reply.cost_usd - price
        spent += rest
        called(0, rest)
        return reply

    return DelegatingModel(model=model, ask=ask)
