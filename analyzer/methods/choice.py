"""A person's choice of method and model for one run: what is on offer, and the port that analyses by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from analyzer.inquiry.errors import AnalyzerError
from analyzer.methods.registry import AUTO, registered
from collector_processor.core.analysis import Earned
from semconv.model import Attribution, Trajectory

WITH_REFERENCE: Final = "+reference"
"""Suffix of a method's name if a person let the method see the expected answer."""

Called = Callable[[int, float], None]
"""Called with further model calls and dollars; the dollars are negative if a call cost less than expected."""


class NotOffered(AnalyzerError):  # noqa: N818 - reads better at the ``raise``
    """The method or model is not on offer; the message lists those that are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A person's choice of method and model."""

    method: str = AUTO
    model: str = ""
    """The model; if empty, the operator's model, if any."""
    takes_as_failed: bool = False
    """Whether to treat the run as failed without triage."""
    with_reference: bool = False
    """Whether the method may see the expected answer, if the run has one."""
    budget_usd: float | None = None
    """Most dollars for the run, within the operator's budgets; ``None``: only these apply."""

    @property
    def shown_method(self) -> str:
        """The method's name, with a mark if it sees the expected answer."""
        return self.method + WITH_REFERENCE if self.with_reference else self.method


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The methods and models on offer."""

    methods: tuple[str, ...]
    model: str
    """The operator's model, used if none is chosen; empty if there is none."""
    models: tuple[str, ...]
    """Other models on offer."""

    def require(self, choice: Choice) -> None:
        """Check that a choice is on offer.

        Raises:
            NotOffered: it is not.
        """
        if choice.method not in self.methods:
            raise NotOffered(f"method: expected one of {', '.join(self.methods)}")
        if choice.model and choice.model not in self.models:
            known = ", ".join(self.models) or "none: list them in BLAMESPAN_MODEL, after the first"
            raise NotOffered(f"model: expected one of {known}")
        if _asks_model(choice.method) and not (choice.model or self.model):
            raise NotOffered(f"method: {choice.method} asks a model: choose one")


class Opinions(Protocol):
    """Analyses runs by a person's choice of method and model."""

    async def offer(self) -> Offer:
        """Return the methods and models on offer.

        Raises:
            AnalyzerError: no analyzer can be reached.
        """
        ...

    async def ask(
        self, trajectory: Trajectory, choice: Choice, called: Called, earned: Earned
    ) -> Attribution:
        """Analyse by a choice on offer; computation does not block the event loop.

        Raises:
            AnalyzerError: no analyzer can be reached.
        """
        ...


def _asks_model(method: str) -> bool:
    return method != AUTO and registered(method).needs_model
