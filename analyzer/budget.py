"""What all analyses of an hour may cost together: a ``Model`` that refuses to be asked once it is spent."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial

from analyzer.errors import ModelError, ModelFailure
from analyzer.method import Clock, Model, Prompt, Reply
from analyzer.spending import HOUR_S, SpendingBook
from analyzer.through import Through
from collector_processor.stores import StoreError

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class HourlyBudget:
    """Wraps a model; calls under way count with the most they may cost.

    A call whose price nobody knows (most local models) counts with what it was
    said to have cost, which is nothing. With a book, each call is noted before it
    is made: a process that dies of an analysis again and again spends no more.
    """

    model: Model
    usd: float
    """For any sixty minutes."""
    clock: Clock
    refused: int = 0
    """Calls that were not made, since the budget was used up."""
    _spent: deque[tuple[float, float]] = field(default_factory=deque)
    _under_way: float = 0.0
    _book: SpendingBook | None = None

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

    async def keep_in(self, book: SpendingBook) -> None:
        """Go on from what earlier processes spent, and note each call from now on."""
        now = self.clock()
        before = [(now - age_s, usd) for age_s, usd in await book.last_hour()]
        self._spent.extendleft(reversed(before))
        self._book = book

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask the model, unless the hour's budget forbids it.

        Raises:
            ModelError: the budget is used up, or cannot be kept, or the model failed.
        """
        return await self.spend(self.model, prompt)

    def lend(self, model: Model) -> Model:
        """Return another model, whose calls are paid of the same hour's money."""
        return Through(model=model, ask=partial(self.spend, model))

    async def spend(self, model: Model, prompt: Prompt) -> Reply:
        """Ask a model, this one's or another, unless the hour's budget forbids it.

        Raises:
            ModelError: as for ``complete``.
        """
        most = model.price(prompt) or 0.0
        if self.spent_usd + self._under_way + most > self.usd:
            raise self._refusal(f"the budget of ${self.usd:g} an hour is used up")
        self._under_way += most
        try:
            entry = await self._reserve(most)
            return await self._ask(model, prompt, most, entry)
        finally:
            self._under_way -= most

    async def _ask(self, model: Model, prompt: Prompt, most: float, entry: int | None) -> Reply:
        usd = most  # where it fails, or is cut short, it may have been charged all the same
        try:
            reply = await model.complete(prompt)
            usd = reply.cost_usd or 0.0
        finally:
            self._spent.append((self.clock(), usd))
        if entry is not None and self._book is not None and usd != most:
            try:
                await self._book.settle(entry, usd)
            except StoreError as error:  # after a restart it counts with the most it may have cost
                logger.warning("cost of a model call cannot be noted", extra={"reason": str(error)})
        return reply

    async def _reserve(self, most: float) -> int | None:
        if self._book is None:
            return None
        try:
            return await self._book.reserve(most)
        except StoreError as error:
            raise self._refusal(f"the budget of ${self.usd:g} an hour cannot be kept: {error}") from error

    def _refusal(self, reason: str) -> ModelError:
        self.refused += 1
        return ModelError(reason, kind=ModelFailure.OVER_BUDGET)
