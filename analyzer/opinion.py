"""Another opinion on a run: by a method and a model that a person chose, of those the operator allows.

A person names what was offered and nothing else: a model's name decides whom we send runs
to and what it costs, so it never comes from a form. All models spend the same hour's money.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from analyzer.analyst import RunAnalyst
from analyzer.errors import AnalyzerError
from analyzer.method import Model, Prompt, Reply
from analyzer.methods import AUTO, METHODS, registered
from analyzer.through import Through
from semconv.model import Attribution, Trajectory

_BASELINES: Final = frozenset({"random", "first-agent-step", "constant", "constant-agent"})

Called = Callable[[], None]
"""Is told of each call to a model."""


class NotOffered(AnalyzerError):  # noqa: N818 - a statement reads better where it is raised
    """The method or model is none that may be chosen; the message says which may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a person chose."""

    method: str = AUTO
    model: str = ""
    """Empty: the one that the operator set, if there is one."""
    takes_as_failed: bool = False
    """Whether the run is a failure without asking whether it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What can be chosen."""

    methods: tuple[str, ...]
    model: str = ""
    """The operator's own, used where none is chosen; empty where there is none."""
    models: tuple[str, ...] = ()
    """Others that may be chosen."""

    def require(self, choice: Choice) -> None:
        """Make sure that a choice can be had.

        Raises:
            NotOffered: it cannot.
        """
        if choice.method not in self.methods:
            raise NotOffered(f"method: expected one of {', '.join(self.methods)}")
        if choice.model and choice.model not in self.models:
            known = ", ".join(self.models) or "none: BLAMESPAN_PAGE_MODELS names those that may be chosen"
            raise NotOffered(f"model: expected one of {known}")
        if _asks_model(choice.method) and not (choice.model or self.model):
            raise NotOffered(f"method: {choice.method} asks a model: choose one")


class Opinions(Protocol):
    """Gives opinions."""

    async def offer(self) -> Offer:
        """Return what can be chosen.

        Raises:
            AnalyzerError: nobody who could say so can be reached.
        """
        ...

    async def ask(self, trajectory: Trajectory, choice: Choice, called: Called) -> Attribution:
        """Return what comes of a choice that was offered; what it computes keeps no loop waiting.

        Raises:
            AnalyzerError: nobody who could say so can be reached.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOpinions:
    """``Opinions`` of this process."""

    analyst: RunAnalyst
    models: Mapping[str, Model] = field(default_factory=dict)
    """What may be chosen beside the analyst's own, by name."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of those that compute: side by side they would be no faster, and pages would wait for all of them."""

    async def offer(self) -> Offer:
        """Return what can be chosen, with what there is."""
        own = self.analyst.attributor.model
        has_model = own is not None or bool(self.models)
        methods = [name for name, entry in METHODS.items() if self._can(name, entry.needs_model, has_model)]
        return Offer(methods=(AUTO, *methods), model=own.name if own else "", models=tuple(self.models))

    async def ask(self, trajectory: Trajectory, choice: Choice, called: Called) -> Attribution:
        """Analyse; beside the loop where nothing is waited for."""
        (await self.offer()).require(choice)
        given = self.analyst.attributor
        chosen = self.models[choice.model] if choice.model else given.model
        model = None if chosen is None else _told(chosen, called)
        attributor = replace(given, method=choice.method, model=model)
        analyst = replace(self.analyst, attributor=attributor)

        async def analyse() -> Attribution:
            if choice.takes_as_failed:
                return await attributor(trajectory)
            return (await analyst.analyse(trajectory)).attribution

        if model is None or (choice.method != AUTO and not _asks_model(choice.method)):
            async with self.turn:
                return await asyncio.to_thread(_run_to_end, analyse)
        return await analyse()

    def _can(self, name: str, needs_model: bool, has_model: bool) -> bool:  # noqa: FBT001 - facts, no modes
        if name == "ranker":
            return self.analyst.attributor.ranker is not None
        return name not in _BASELINES and (has_model or not needs_model)


def _told(model: Model, called: Called) -> Model:
    """Return a model whose calls are told."""

    async def ask(prompt: Prompt) -> Reply:
        called()
        return await model.complete(prompt)

    return Through(model=model, ask=ask)


def _asks_model(method: str) -> bool:
    return method != AUTO and registered(method).needs_model


def _run_to_end(analyse: Callable[[], Awaitable[Attribution]]) -> Attribution:
    """Run an inquiry that waits for nothing, on a thread that has no loop."""

    async def all_of_it() -> Attribution:
        return await analyse()

    return asyncio.run(all_of_it())
