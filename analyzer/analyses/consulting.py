"""Runs the steps of analyses that ask a model, off the event loop. Not pure.

Such an analysis is a generator of questions (``RunAnalyst.steps``). The work between two answers (rendering a
run, parsing a reply) takes time that depends on hostile text. A step is repeatable: the same order and the
same answers lead to the same question. So a process that runs steps may end at any time: the next one repeats
them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypedDict

from analyzer.inquiry.method import Answer, Prompt, Question, Reply, Steps
from collector_processor.core.analysis import UNKNOWN, AnalysisLostError, Earned, TrackRecord
from semconv.model import Attribution, Trajectory

MOST_HELD: Final = 64
"""Analyses whose generators are kept between steps; the others are replayed from their answers."""
THREAD_S: Final = 60.0
"""Timeout in seconds of a step in a thread, which cannot be killed: its result is then ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Facts about a model for the steps of an analysis; cannot call it."""

    name: str
    context_tokens: int

    async def complete(self, _prompt: Prompt) -> Reply:
        """Raise: only the caller of the steps calls the model."""
        message = "a step asked a model"
        raise AssertionError(message)

    def price(self, _prompt: Prompt) -> float | None:
        """Return ``None``: the price is not known here."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A requested analysis: everything that its steps depend on, besides the settings."""

    id: str
    """A random id."""
    trajectory: Trajectory
    marker: str
    """Begins the lines of structure in prompts; random, so that no text contains it."""
    method: str
    model: ModelFacts | None
    takes_as_failed: bool = False
    """Whether to treat the run as failed without triage."""
    with_reference: bool = False
    """Whether the method may see the expected answer, besides what the settings allow."""
    record: TrackRecord = UNKNOWN
    """What the model has earned with the run's tenant."""


class Consulting(TypedDict, total=False):
    """What a person's analysis of a run may depend on, besides its method and model."""

    earned: Earned
    """Track records of the models, with the run's tenant; by default, none."""
    takes_as_failed: bool
    """Whether to skip the check for a failure."""
    with_reference: bool
    """Whether the method sees the right answer, although the analyst's own analyses do not."""


StepResult: TypeAlias = Question | Attribution
Stepping: TypeAlias = Callable[[Order, Sequence[Answer]], Awaitable[StepResult]]
"""Continues an analysis from its answers to its next question, or its end.

Raises ``AnalysisLostError`` if that takes too long or crashes."""


@dataclass(slots=True)
class _Held:
    order: Order
    steps: Steps
    result: StepResult
    answered: int = 0


class Stepper:
    """Runs steps in the calling thread; keeps the generators of recent analyses."""

    def __init__(self, begin: Callable[[Order], Steps]) -> None:
        """Start without analyses; ``begin`` starts one."""
        self._begin: Final = begin
        self._held: Final[OrderedDict[str, _Held]] = OrderedDict()

    def order_of(self, id_: str) -> Order | None:
        """Return the order of an analysis; ``None`` if it is not kept."""
        held = self._held.get(id_)
        return None if held is None else held.order

    def step(self, order: Order, answers: Sequence[Answer]) -> StepResult:
        """Return the question that follows these answers, or the attribution."""
        held = self._held.pop(order.id, None)
        if held is None or held.answered > len(answers):
            steps = self._begin(order)
            held = _Held(order, steps, _next(steps, None, is_first=True))
        while held.answered < len(answers) and isinstance(held.result, Question):
            held.result = _next(held.steps, answers[held.answered])
            held.answered += 1
        if isinstance(held.result, Question):
            self._held[order.id] = held
            if len(self._held) > MOST_HELD:
                self._held.popitem(last=False)[1].steps.close()
        return held.result


def _next(steps: Steps, answer: Answer, *, is_first: bool = False) -> StepResult:
    try:
        return next(steps) if is_first else steps.send(answer)
    except StopIteration as finished:
        attribution: Attribution = finished.value
        return attribution


class ThreadSteps:
    """Runs steps in threads of this process."""

    def __init__(self, begin: Callable[[Order], Steps]) -> None:
        """Start without analyses."""
        self._stepper: Final = Stepper(begin)

    async def __call__(self, order: Order, answers: Sequence[Answer]) -> StepResult:
        """Run a step.

        Raises:
            AnalysisLostError: it takes too long.
        """
        try:
            async with asyncio.timeout(THREAD_S):
                return await asyncio.to_thread(self._stepper.step, order, tuple(answers))
        except TimeoutError as error:
            raise AnalysisLostError(f"the analysis took more than {THREAD_S:g} s") from error
