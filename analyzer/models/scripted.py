"""A model that says what it was told to say: for tests, demonstrations and offline use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from analyzer.errors import ModelError, ModelFailure
from analyzer.method import Prompt, Reply


@dataclass(slots=True, kw_only=True)
class ScriptedModel:
    """Answers with its replies in order, and keeps the prompts it was sent.

    A reply that is an error is raised. When the script is over the model is unavailable.
    """

    replies: Sequence[Reply | ModelError | str]
    name: str = "scripted"
    context_tokens: int = 128_000
    cost_usd: float | None = 0.0
    """Price of every call."""
    prompts: list[Prompt] = field(default_factory=list)

    async def complete(self, prompt: Prompt) -> Reply:
        """Return the next reply.

        Raises:
            ModelError: the script says so, or is over.
        """
        self.prompts.append(prompt)
        if len(self.prompts) > len(self.replies):
            raise ModelError("the script is over", kind=ModelFailure.UNAVAILABLE)
        reply = self.replies[len(self.prompts) - 1]
        if isinstance(reply, ModelError):
            raise reply
        return Reply(text=reply, cost_usd=self.cost_usd) if isinstance(reply, str) else reply

    def price(self, _prompt: Prompt) -> float | None:
        """Return the price of a call."""
        return self.cost_usd
