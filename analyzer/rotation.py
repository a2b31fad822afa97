"""Several models as one: each sample of a vote goes to the next of them.

Different families of models make different mistakes, so their votes tell more than as many of
one model. A method asked without votes gets the first model's answers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analyzer.method import Model, Prompt, Reply
from analyzer.methods.votes import STRIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """A ``Model`` of at least one model, tried in turn by sample.

    Raises:
        ValueError: there are no models.
    """

    models: Sequence[Model]

    def __post_init__(self) -> None:
        if not self.models:
            message = "no models to rotate: expected at least one"
            raise ValueError(message)

    @property
    def name(self) -> str:
        """Return the models' names, as they go into verdicts."""
        return " + ".join(model.name for model in self.models)

    @property
    def context_tokens(self) -> int:
        """Return the smallest of the models' contexts: a prompt must fit whoever gets it."""
        return min(model.context_tokens for model in self.models)

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask the model whose turn the prompt's sample is.

        Raises:
            ModelError: as that model does.
        """
        model, asked = self._turn(prompt)
        return await model.complete(asked)

    def price(self, prompt: Prompt) -> float | None:
        """Return what the model whose turn it is asks; ``None`` if its price is not known."""
        model, asked = self._turn(prompt)
        return model.price(asked)

    def _turn(self, prompt: Prompt) -> tuple[Model, Prompt]:
        vote, draw = divmod(prompt.sample, STRIDE)
        again, turn = divmod(vote, len(self.models))
        return self.models[turn], replace(prompt, sample=again * STRIDE + draw)
