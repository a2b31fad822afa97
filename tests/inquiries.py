"""Runs one inquiry with a function in place of a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from analyzer.inquiry.method import (
    UNLIMITED,
    AttributionMethod,
    Budget,
    InquiryResult,
    Prompt,
    Reply,
    asking,
    consult,
    drive,
)
from semconv.model import Trajectory

MARKER = "#marker-of-tests"
"""Begins lines of structure in prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """A model implemented by a function."""

    answer: Callable[[Prompt], Awaitable[Reply]]
    usd: float | None = None
    name: str = "answering"
    context_tokens: int = 128_000

    async def complete(self, prompt: Prompt) -> Reply:
        return await self.answer(prompt)

    def price(self, _prompt: Prompt) -> float | None:
        return self.usd


async def attribute(
    method: AttributionMethod,
    trajectory: Trajectory,
    complete: Callable[[Prompt], Awaitable[Reply]],
    *,
    budget: Budget = UNLIMITED,
    price: float | None = None,
    model: str | None = None,
) -> InquiryResult:
    """Run one inquiry to its end."""
    ask = asking(Answering(answer=complete, usd=price))
    return await drive(consult(method, trajectory, budget=budget, model=model), ask)
