"""Protocol of attribution methods, and the generator that drives one.

A method is a generator: it yields prompts, is sent replies and returns a
verdict (h11's idea of a protocol engine without a socket, applied to model
calls). Models, networks, clocks, retries and caches stay outside, so a method
can be tested with a scripted model, and runs the same in a benchmark as in the
pipeline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from analyzer.inquiry.errors import ModelError, ModelFailure
from semconv.model import Abstention, Attribution, Effort, Status, Trajectory, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a prompt."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSchema:
    """JSON schema of the reply, for models that support one."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question to a model."""

    messages: tuple[Message, ...]
    max_output_tokens: int
    response_schema: ResponseSchema | None = None
    truncated: bool = False
    """Whether any text of the trajectory was folded to fit."""
    coverage: float = 1.0
    """Share of the trajectory's text in this prompt, 0..1."""
    sample: int = 0
    """0 for the model's likeliest answer; 1, 2, … for further samples of the same question."""
    temperature: float | None = 0.0
    """Temperature of the first sample; ``None`` for the provider's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's answer and its cost."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """``None`` if the model's price is unknown."""
    is_usage_suspect: bool = False
    """Whether the server reported more usage than the request could have; the excess is not counted."""


_MAY_HAVE_COST: Final = frozenset({ModelFailure.TIMEOUT, ModelFailure.TOO_LARGE})
"""Failures after which a provider may still charge for the call."""

Inquiry: TypeAlias = Generator[Prompt, Reply, Verdict]
Clock: TypeAlias = Callable[[], float]
"""Returns seconds of any monotonic clock."""


class Model(Protocol):
    """A language model behind any provider or wrapper."""

    @property
    def name(self) -> str:
        """Return the model's name, as shown in verdicts."""
        ...

    async def complete(self, prompt: Prompt) -> Reply:
        """Answer one prompt.

        Raises:
            ModelError: there is no reply after all retries.
        """
        ...

    @property
    def context_tokens(self) -> int:
        """Return the maximum number of tokens of a prompt and its answer together.

        It may import for seconds, or wait for an import: read it in a thread.
        """
        ...

    def price(self, prompt: Prompt) -> float | None:
        """Return an upper bound for the call's cost in USD; ``None`` if the price is not known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatingModel:
    """A ``Model`` like ``model`` whose calls go through ``ask``."""

    model: Model
    ask: Callable[[Prompt], Awaitable[Reply]]

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def context_tokens(self) -> int:
        """The model's context in tokens."""
        return self.model.context_tokens

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask through ``ask``.

        Raises: ModelError: as ``ask``.
        """
        return await self.ask(prompt)

    def price(self, prompt: Prompt) -> float | None:
        """The model's price of a call."""
        return self.model.price(prompt)


class AttributionMethod(Protocol):
    """An algorithm that finds the decisive error. Knows prompts, never models or networks."""

    @property
    def name(self) -> str:
        """Return the method's name in the registry and in verdicts."""
        ...

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Start an inquiry; it must terminate for every sequence of replies."""
        ...


def answered(verdict: Verdict) -> Inquiry:
    """Return an inquiry that makes no model call and ends with ``verdict`` at once."""
    yield from ()
    return verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Spending limit of one run."""

    usd: float | None
    """``None``: no limit."""
    purpose: str = "a run"
    """Purpose of the budget, quoted in the message when it is used up."""


UNLIMITED = Budget(usd=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prompt to be answered, and the budget left for the answer."""

    prompt: Prompt
    usd: float | None
    """``None``: no limit."""


Answer: TypeAlias = Reply | ModelError | None
"""Answer to a question; ``None`` if the call may cost more than the remaining budget."""
Result = TypeVar("Result")
Steps: TypeAlias = Generator[Question, Answer, Attribution]
"""An attribution that yields questions to a model."""
Ask: TypeAlias = Callable[[Question], Awaitable[Answer]]


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

    def effort(self) -> Effort:
        return Effort(
            calls=self.calls,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_usd=self.cost_usd if self.cost_known else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InquiryResult:
    """A finished inquiry: its attribution, and the failure that ended it, if one did."""

    attribution: Attribution
    failure: ModelError | None


def consult(
    method: AttributionMethod, trajectory: Trajectory, *, budget: Budget = UNLIMITED, model: str | None = None
) -> Generator[Question, Answer, InquiryResult]:
    """Run one inquiry to its end and count its cost, without calling a model or reading a clock.

    A model failure or an exhausted budget ends in an ``error`` abstention whose effort holds the cost so
    far. Nothing else that the method raises is caught.
    """
    tally, failure = _Tally(), None
    inquiry = method.investigate(trajectory)
    try:
        prompt = next(inquiry)
        while True:
            left = None if budget.usd is None else budget.usd - tally.cost_usd
            answer = yield Question(prompt=prompt, usd=left)
            if answer is None:
                verdict: Verdict = _over_budget(budget, tally)
                break
            tally.sent(prompt)
            if isinstance(answer, ModelError):
                failure = answer
                tally.cost_known &= answer.kind not in _MAY_HAVE_COST
                reason = f"model call failed ({answer.kind}): {answer}"
                verdict = Abstention(status=Status.ERROR, reason=reason)
                break
            tally.received(answer)
            prompt = inquiry.send(answer)
    except StopIteration as finished:
        verdict = finished.value
    finally:
        inquiry.close()
    failed = isinstance(verdict, Abstention) and verdict.status is Status.ERROR
    attribution = Attribution(
        run_id=trajectory.run_id,
        verdict=verdict,
        method=method.name,
        model=model,
        truncated=tally.truncated,
        coverage=1.0 if tally.coverage is None else tally.coverage,
        effort=tally.effort(),
        error=verdict.reason if failed else None,
    )
    return InquiryResult(attribution=attribution, failure=failure)


async def drive(consultation: Generator[Question, Answer, Result], ask: Ask) -> Result:
    """Answer a consultation's questions until it ends; its computation runs here, between the answers."""
    try:
        question = next(consultation)
        while True:
            question = consultation.send(await ask(question))
    except StopIteration as finished:
        result: Result = finished.value
        return result
    finally:
        consultation.close()


def asking(model: Model) -> Ask:
    """Return a function that puts questions to a model, within the budget left for each.

    A call of unknown price (most local models) counts as free: its cost is reported as unknown, never as
    zero.
    """

    async def ask(question: Question) -> Answer:
        if question.usd is not None and (model.price(question.prompt) or 0.0) > question.usd:
            return None
        try:
            return await model.complete(question.prompt)
        except ModelError as error:
            return error

    return ask


def _over_budget(budget: Budget, tally: _Tally) -> Abstention:
    reason = (
        f"the budget of ${budget.usd:.4g} {budget.purpose} does not allow another call "
        f"(${tally.cost_usd:.4g} spent in {tally.calls} calls)"
    )
    return Abstention(status=Status.ERROR, reason=reason)
