"""A model that is asked in another way than directly: paid by another's budget, or its calls told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from analyzer.method import Model, Prompt, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Through:
    """A ``Model`` that is ``model`` in all but how a prompt gets to it."""

    model: Model
    ask: Callable[[Prompt], Awaitable[Reply]]

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def context_tokens(self) -> int:
        """The model's."""
        return self.model.context_tokens

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask.

        Raises:
            ModelError: as ``ask`` does.
        """
        return await self.ask(prompt)

    def price(self, prompt: Prompt) -> float | None:
        """The model's."""
        return self.model.price(prompt)
