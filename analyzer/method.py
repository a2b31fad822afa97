"""What an attribution method is, and how one is driven.

A method is a generator: it yields prompts, is sent replies and returns a
verdict (h11's idea of a protocol engine without a socket, applied to model
calls). Models, networks, clocks, retries and caches are outside; so a method
is tested with a scripted model, and runs the same on a benchmark as in the
pipeline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from analyzer.errors import ModelError, ModelFailure
from semconv.model import Abstention, Attribution, Effort, Status, Trajectory, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a prompt."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSchema:
    """The JSON the reply should be, where the model can be held to a schema."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question to a model."""

    messages: tuple[Message, ...]
    max_output_tokens: int
    response_schema: ResponseSchema | None = None
    truncated: bool = False
    """Whether any text of the trajectory was folded away to fit."""
    coverage: float = 1.0
    """Share of the trajectory's text in this prompt, 0..1."""
    sample: int = 0
    """0: the model's likeliest answer; 1, 2, …: a further answer to the same question, drawn afresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model answered, and what it cost."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """``None`` when the model's price is not known."""


_MAY_HAVE_COST: Final = frozenset({ModelFailure.TIMEOUT, ModelFailure.TOO_LARGE})
"""Failures after which a provider may charge for what we never got, or could not use."""

Inquiry: TypeAlias = Generator[Prompt, Reply, Verdict]
Complete: TypeAlias = Callable[[Prompt], Awaitable[Reply]]
Price: TypeAlias = Callable[[Prompt], "float | None"]
"""The most a call may cost in USD, asked before it is made; ``None`` if the price is not known."""
Clock: TypeAlias = Callable[[], float]
"""Seconds of any monotonic clock."""


class Model(Protocol):
    """A language model, however it is reached."""

    @property
    def name(self) -> str:
        """Return the model's name as it goes into verdicts."""
        ...

    async def complete(self, prompt: Prompt) -> Reply:
        """Answer one prompt.

        Raises:
            ModelError: there is no reply, after whatever retries there were.
        """
        ...

    @property
    def context_tokens(self) -> int:
        """Return how many tokens a prompt and its answer may take together."""
        ...

    def price(self, prompt: Prompt) -> float | None:
        """Return the most the call may cost in USD; ``None`` if the price is not known."""
        ...


class AttributionMethod(Protocol):
    """A way to find the decisive error. Knows prompts, never models or networks."""

    @property
    def name(self) -> str:
        """Return the name it goes by in the registry and in verdicts."""
        ...

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Begin an inquiry; it must end for every sequence of replies."""
        ...


def answered(verdict: Verdict) -> Inquiry:
    """Return the inquiry of a method that asks nothing: it ends with ``verdict`` at once."""
    yield from ()
    return verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one run may cost.

    A call whose price is not known (most local models) counts as free: its
    cost is then reported as unknown, never as zero.
    """

    usd: float | None
    """``None``: no limit."""
    price: Price = lambda _prompt: None
    purpose: str = "a run"
    """What the money is for, in the words of the message that it is used up."""

    def forbids(self, prompt: Prompt, spent_usd: float) -> bool:
        """Tell whether the next call may exceed the budget."""
        return self.usd is not None and spent_usd + (self.price(prompt) or 0.0) > self.usd


UNLIMITED = Budget(usd=None)


@dataclass(slots=True)
class _Tally:
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    cost_known: bool = True
    truncated: bool = False
    coverage: float | None = None

    def sent(self, prompt: Prompt) -> None:
        self.calls += 1
        self.truncated |= prompt.truncated
        self.coverage = max(self.coverage or 0.0, prompt.coverage)

    def received(self, reply: Reply) -> None:
        self.input_tokens += reply.input_tokens
        self.output_tokens += reply.output_tokens
        self.cost_usd += reply.cost_usd or 0.0
        self.cost_known &= reply.cost_usd is not None

    def effort(self, duration_s: float) -> Effort:
        return Effort(
            calls=self.calls,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_usd=self.cost_usd if self.cost_known else None,
            duration_s=duration_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquest:
    """A finished inquiry: its attribution, and the failure that ended it, if one did."""

    attribution: Attribution
    failure: ModelError | None = None


async def attribute(
    method: AttributionMethod,
    trajectory: Trajectory,
    complete: Complete,
    *,
    clock: Clock,
    budget: Budget = UNLIMITED,
    model: str | None = None,
) -> Inquest:
    """Run one inquiry to its end and count what it cost.

    A model that fails and a budget that is used up end in an ``error``
    abstention, whose effort says what was spent until then. Nothing else that
    ``complete`` or the method raises is caught.
    """
    started, tally = clock(), _Tally()
    failure: ModelError | None = None
    try:
        verdict = await _drive(method.investigate(trajectory), complete, budget, tally)
    except ModelError as error:
        failure = error
        tally.cost_known &= error.kind not in _MAY_HAVE_COST
        reason = f"model call failed ({error.kind}): {error}"
        verdict = Abstention(status=Status.ERROR, reason=reason)
    failed = isinstance(verdict, Abstention) and verdict.status is Status.ERROR
    attribution = Attribution(
        run_id=trajectory.run_id,
        verdict=verdict,
        method=method.name,
        model=model,
        truncated=tally.truncated,
        coverage=1.0 if tally.coverage is None else tally.coverage,
        effort=tally.effort(clock() - started),
        error=verdict.reason if failed else None,
    )
    return Inquest(attribution=attribution, failure=failure)


async def _drive(inquiry: Inquiry, complete: Complete, budget: Budget, tally: _Tally) -> Verdict:
    try:
        prompt = next(inquiry)
        while True:
            if budget.forbids(prompt, tally.cost_usd):
                return _over_budget(budget, tally)
            tally.sent(prompt)
            reply = await complete(prompt)
            tally.received(reply)
            prompt = inquiry.send(reply)
    except StopIteration as finished:
        verdict: Verdict = finished.value
        return verdict
    finally:
        inquiry.close()


def _over_budget(budget: Budget, tally: _Tally) -> Abstention:
    reason = (
        f"the budget of ${budget.usd:.4g} {budget.purpose} does not allow another call "
        f"(${tally.cost_usd:.4g} spent in {tally.calls} calls)"
    )
    return Abstention(status=Status.ERROR, reason=reason)
