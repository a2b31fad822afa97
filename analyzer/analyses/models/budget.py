"""Hourly budget of all analyses: a ``Model`` that refuses calls once the budget is spent.

Spending is stored, so that a restarted process continues the same hour. Processes that share a store share
the budget: a call is recorded there before it is made, and refused if the calls of all no longer fit.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from analyzer.inquiry.errors import ModelError, ModelFailure
from analyzer.inquiry.method import Clock, DelegatingModel, Model, Prompt, Reply
from collector_processor.core.disk import StoreError
from collector_processor.store.small_tables import SpendingRows

HOUR_S: Final = 3600.0
_NS: Final = 1_000_000_000

InDb: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a store's call on the store's thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSpending:
    """Record of calls in a store, written before they are made.

    Ages use the wall clock, the only one that survives a restart: if it is set back, entries count as new; if
    it is set forward by an hour between two processes, they expire.
    """

    rows: SpendingRows
    in_db: InDb
    wall_ns: Callable[[], int]

    async def last_hour(self) -> Sequence[tuple[float, float]]:
        """Return the hour's entries as (age in seconds 0..3600, USD); oldest first."""
        now = self.wall_ns()
        found: Sequence[tuple[int, float]] = await self.in_db(self.rows.spent, now - int(HOUR_S * _NS), now)
        return [((now - at_ns) / _NS, usd) for at_ns, usd in found]

    async def reserve(self, usd: float, most_usd: float) -> int | None:
        """Record a call's maximum cost durably; return the entry.

        Returns ``None`` if the hour's calls of all processes on this store would then exceed ``most_usd``.

        Raises:
            StoreError: the disk cannot be written.
        """
        now = self.wall_ns()
        entry: int | None = await self.in_db(self.rows.reserve, now, usd, now - int(HOUR_S * _NS), most_usd)
        return entry

    async def settle(self, entry: int, usd: float) -> None:
        """Record the call's actual cost.

        Raises:
            StoreError: the disk cannot be written; the reserved amount stays.
        """
        await self.in_db(self.rows.settle, entry, usd)


logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class HourlyBudget:
    """Wraps a model; calls in progress count with their maximum cost.

    A call of unknown price (most local models) counts with its reported cost, which
    is nothing. With stored spending, each call is recorded before it is made: a process that
    crashes repeatedly on one analysis does not exceed the budget.
    """

    model: Model
    usd: float
    """Budget for any sixty minutes."""
    clock: Clock
    purpose: str = "an hour"
    """Text that follows the amount in messages."""
    refused: int = 0
    """Calls refused because the budget was used up."""
    suspect: int = 0
    """Replies whose server reported more usage than the request could have."""
    _spent: deque[tuple[float, float]] = field(default_factory=deque)
    _under_way: float = 0.0
    _spent_by_all: float = 0.0
    _book: StoredSpending | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def context_tokens(self) -> int:
        """The model's context."""
        return self.model.context_tokens

    def price(self, prompt: Prompt) -> float | None:
        """Upper bound for the call's cost in USD; ``None`` if the price is not known."""
        return self.model.price(prompt)

    @property
    def spent_usd(self) -> float:
        """Cost of the last sixty minutes."""
        horizon = self.clock() - HOUR_S
        while self._spent and self._spent[0][0] < horizon:
            self._spent.popleft()
        return sum(usd for _, usd in self._spent)

    @property
    def spent_by_all_usd(self) -> float:
        """Cost of the last sixty minutes, with calls in progress at their maximum cost.

        Calls of other processes count as of the last ``look``.
        """
        return max(self.spent_usd + self._under_way, self._spent_by_all)

    async def look(self) -> None:
        """Read what other processes have spent, for metrics; calls are checked in the store.

        Raises:
            StoreError: the store refuses.
        """
        if self._book is not None:
            self._spent_by_all = sum(usd for _, usd in await self._book.last_hour())

    async def keep_in(self, book: StoredSpending) -> None:
        """Restore the spending of earlier processes, and record each call from now on."""
        now = self.clock()
        before = [(now - age_s, usd) for age_s, usd in await book.last_hour()]
        self._spent.extendleft(reversed(before))
        self._book = book

    async def complete(self, prompt: Prompt) -> Reply:
        """Call the model, unless the hourly budget forbids it.

        Raises:
            ModelError: the budget is used up, or cannot be recorded, or the model failed.
        """
        return await self.spend(self.model, prompt)

    def lend(self, model: Model) -> Model:
        """Return another model whose calls are paid from the same budget."""
        return DelegatingModel(model=model, ask=partial(self.spend, model))

    async def spend(self, model: Model, prompt: Prompt) -> Reply:
        """Call a model, the wrapped one or another, unless the hourly budget forbids it.

        Raises:
            ModelError: as for ``complete``.
        """
        most = model.price(prompt) or 0.0
        if self.spent_usd + self._under_way + most > self.usd:
            raise self._used_up()
        self._under_way += most
        try:
            entry = await self._reserve(most)
            return await self._ask(model, prompt, most, entry)
        finally:
            self._under_way -= most

    async def _ask(self, model: Model, prompt: Prompt, most: float, entry: int | None) -> Reply:
        usd = most  # a failed or cancelled call may have been charged
        try:
            reply = await model.complete(prompt)
            usd = reply.cost_usd or 0.0
            self.suspect += reply.is_usage_suspect
        finally:
            self._spent.append((self.clock(), usd))
        if entry is not None and self._book is not None and usd != most:
            try:
                await self._book.settle(entry, usd)
            except StoreError as error:  # after a restart it counts with its maximum cost
                logger.warning("cannot record the cost of a model call", extra={"reason": str(error)})
        return reply

    async def _reserve(self, most: float) -> int | None:
        if self._book is None:
            return None
        try:
            entry = await self._book.reserve(most, self.usd)
        except StoreError as error:
            reason = f"the budget of ${self.usd:g} {self.purpose} cannot be kept: {error}"
            raise self._refusal(reason) from error
        if entry is None:  # other processes have spent it
            raise self._used_up()
        return entry

    def _used_up(self) -> ModelError:
        return self._refusal(f"the budget of ${self.usd:g} {self.purpose} is used up")

    def _refusal(self, reason: str) -> ModelError:
        self.refused += 1
        return ModelError(reason, kind=ModelFailure.OVER_BUDGET)
