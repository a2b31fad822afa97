"""What all analyses of an hour may cost together: a ``Model`` that refuses to be asked once it is spent."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from analyzer.errors import ModelError, ModelFailure
from analyzer.method import Clock, Model, Prompt, Reply

HOUR_S: Final = 3600.0


@dataclass(slots=True, kw_only=True)
class HourlyBudget:
    """Wraps a model; calls under way count with the most they may cost.

    A call whose price nobody knows (most local models) counts with what it was
    said to have cost, which is nothing.
    """

    model: Model
    usd: float
    """For any sixty minutes."""
    clock: Clock
    refused: int = 0
    """Calls that were not made, since the budget was used up."""
    _spent: deque[tuple[float, float]] = field(default_factory=deque)
    _under_way: float = 0.0

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def context_tokens(self) -> int:
        """The model's context."""
        return self.model.context_tokens

    def price(self, prompt: Prompt) -> float | None:
        """The most the call may cost in USD; ``None`` if the price is not known."""
        return self.model.price(prompt)

    @property
    def spent_usd(self) -> float:
        """What the last sixty minutes cost."""
        horizon = self.clock() - HOUR_S
        while self._spent and self._spent[0][0] < horizon:
            self._spent.popleft()
        return sum(usd for _, usd in self._spent)

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask the model, unless the hour's budget forbids it.

        Raises:
            ModelError: the budget is used up, or the model failed.
        """
        most = self.price(prompt) or 0.0
        if self.spent_usd + self._under_way + most > self.usd:
            self.refused += 1
            raise ModelError(f"the budget of ${self.usd:g} an hour is used up", kind=ModelFailure.OVER_BUDGET)
        self._under_way += most
        try:
            reply = await self.model.complete(prompt)
        except ModelError:
            self._spent.append((self.clock(), most))  # it may have been charged all the same
            raise
        finally:
            self._under_way -= most
        self._spent.append((self.clock(), reply.cost_usd or 0.0))
        return reply
