"""Scripted model with predefined replies, for tests, demonstrations and offline use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from analyzer.inquiry.errors import ModelError, ModelFailure
from analyzer.inquiry.method import Prompt, Reply


@dataclass(slots=True, kw_only=True)
class ScriptedModel:
    """Answers with its replies in order, and records the prompts.

    A reply that is an error is raised. After the last reply the model is unavailable.
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
            ModelError: the next reply is an error, or there is none left.
        """
        self.prompts.append(prompt)
        if len(self.prompts) > len(self.replies):
            raise ModelError("the script has no more replies", kind=ModelFailure.UNAVAILABLE)
        reply = self.replies[len(self.prompts) - 1]
        if isinstance(reply, ModelError):
            raise reply
        return Reply(text=reply, cost_usd=self.cost_usd) if isinstance(reply, str) else reply

    def price(self, _prompt: Prompt) -> float | None:
        """Return the price of a call."""
        return self.cost_usd
