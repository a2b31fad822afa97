"""Codec for everything sent to another process or machine: JSON. Pure.

Pydantic reads and writes the records as declared, with bytes as base64: a field that only one side knows is
dropped or gets its default, so neighbouring versions interoperate. The content may come from hostile text and
is read as data only.

Worker processes receive traces and return prepared runs, each message preceded by its length. Analyzer halves
get a run as a job in the store and return an attribution, which is checked against the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Final, Generic, Self, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter

from analyzer.analyses.consulting import Order, StepResult
from analyzer.analyses.prepared import (
    Analysed,
    Open,
    Prepared,
    PreparedRun,
    ToAsk,
    TraceBytes,
    Unchanged,
)
from analyzer.inquiry.errors import ModelError, ModelFailure, UnreadableInput
from analyzer.inquiry.method import Answer, Question, Reply
from analyzer.methods.choice import Choice, Offer
from collector_processor.core.analysis import Earned, TrackRecord
from semconv.model import Attribution, Blame, Status, Trajectory

Record = TypeVar("Record")

LENGTH_BYTES: Final = 4
MAX_MESSAGE_BYTES: Final = 1 << 30


class _Form(Generic[Record]):
    """Reads and writes records of one type; built at first use: each process needs few of them."""

    def __init__(self, build: Callable[[], TypeAdapter[Record]]) -> None:
        self._build: Final = build

    @cached_property
    def adapter(self) -> TypeAdapter[Record]:
        """The reader and writer."""
        return self._build()


_BASE64: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_TRACES: Final = _Form(lambda: TypeAdapter(tuple[TraceBytes, ...], config=_BASE64))
_ByState: TypeAlias = tuple[Open | None, Unchanged | None, Analysed | None, ToAsk | None]
"""A run, in the place of its state: a reader need not try one state after the other."""
_PREPARED: Final = _Form(lambda: TypeAdapter(tuple[Prepared | None, tuple[_ByState, ...]], config=_BASE64))
"""A prepared trace without its runs, and these."""
_RUN: Final = _Form(lambda: TypeAdapter(Trajectory))
_ANSWER: Final = _Form(lambda: TypeAdapter(Attribution))
_OFFER: Final = _Form(lambda: TypeAdapter(Offer))
_EARNED: Final = _Form(lambda: TypeAdapter(dict[str, TrackRecord]))
_EARNED_BY: Final = "earned"
"""Key of a job's choice: the record of each model with the run's tenant."""
_MOST_RECORDS: Final = 8
_LONGEST_NAME: Final = 200
_MOST_LABELLED: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Model calls of an analysis so far, and the dollars for them."""

    calls: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    cost_usd: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] = 0.0


_PROGRESS: Final = _Form(lambda: TypeAdapter(Progress))


STEP: Final = b"{"
"""Prefix of messages that ask for a step; lists of traces begin differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """A model's answer; neither field is set if the call would have been too expensive."""

    reply: Reply | None = None
    failure: ModelFailure | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAsked:
    """Request for the step of an analysis that follows these answers."""

    id: str
    order: Order | None
    """``None`` if an earlier message contained it."""
    given: tuple[_Given, ...]

    @classmethod
    def of(cls, order_id: str, order: Order | None, answers: Sequence[Answer]) -> Self:
        """Return the message for some answers."""
        return cls(id=order_id, order=order, given=tuple(map(_given, answers)))

    def answers(self) -> tuple[Answer, ...]:
        """Return the answers."""
        return tuple(
            ModelError(one.message, kind=one.failure) if one.failure is not None else one.reply
            for one in self.given
        )


def _given(answer: Answer) -> _Given:
    if isinstance(answer, ModelError):
        return _Given(failure=answer.kind, message=str(answer))
    return _Given(reply=answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepAnswer:
    """Response: the next question, or the end; neither if the order is unknown."""

    question: Question | None = None
    attribution: Attribution | None = None


_STEP: Final = _Form(lambda: TypeAdapter(StepAsked))
_STEP_ANSWER: Final = _Form(lambda: TypeAdapter(_StepAnswer))


def write_step(asked: StepAsked) -> bytes:
    """Return a message that asks for a step."""
    return _STEP.adapter.dump_json(asked)


def read_step(message: bytes) -> StepAsked:
    """Read a message that asks for a step.

    Raises:
        ValueError: it is not such a message.
    """
    return _STEP.adapter.validate_json(message)


def write_result(result: StepResult | None) -> bytes:
    """Return the outcome of a step as a message; ``None`` means that the order is unknown."""
    if isinstance(result, Attribution):
        return _STEP_ANSWER.adapter.dump_json(_StepAnswer(attribution=result))
    return _STEP_ANSWER.adapter.dump_json(_StepAnswer(question=result))


def read_result(message: bytes) -> StepResult | None:
    """Read the outcome of a step.

    Raises:
        ValueError: it is not such a message.
    """
    result = _STEP_ANSWER.adapter.validate_json(message)
    return result.question or result.attribution


def with_length(message: bytes) -> bytes:
    """Return a message in the form sent over a pipe."""
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def length_of(head: bytes) -> int:
    """Return the length of the message that follows.

    Raises:
        ValueError: it exceeds the bound.
    """
    length = int.from_bytes(head, "big")
    if length > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {length} bytes, expected {MAX_MESSAGE_BYTES} at most")
    return length


def write_traces(traces: Sequence[TraceBytes]) -> bytes:
    """Return traces as a message."""
    return _TRACES.adapter.dump_json(tuple(traces))


def read_traces(message: bytes) -> tuple[TraceBytes, ...]:
    """Read traces.

    Raises:
        ValueError: the message is not such a list.
    """
    return _TRACES.adapter.validate_json(message)


def write_prepared(prepared: Prepared | None) -> bytes:
    """Return a prepared trace as a message; ``None`` if that failed or a text is not Unicode."""
    try:
        if prepared is not None:
            return _PREPARED.adapter.dump_json(
                (replace(prepared, runs=()), tuple(map(_by_state, prepared.runs)))
            )
    except ValueError:
        pass
    return _PREPARED.adapter.dump_json((None, ()))


def _by_state(run: PreparedRun) -> _ByState:
    return (
        run if isinstance(run, Open) else None,
        run if isinstance(run, Unchanged) else None,
        run if isinstance(run, Analysed) else None,
        run if isinstance(run, ToAsk) else None,
    )


def read_prepared(message: bytes) -> Prepared | None:
    """Read a prepared trace.

    Raises:
        ValueError: the message is not a prepared trace.
    """
    prepared, runs = _PREPARED.adapter.validate_json(message)
    found = tuple(one for run in runs for one in run if one is not None)
    return prepared and replace(prepared, runs=found)


def write_run(trajectory: Trajectory) -> bytes:
    """Return a run as JSON.

    Raises:
        UnreadableInput: a text is not valid Unicode.
    """
    return _written(_RUN, trajectory, "run")


def read_run(body: bytes) -> Trajectory:
    """Read a run.

    Raises:
        UnreadableInput: the body is not a run; the message does not quote it.
    """
    return _read(_RUN, body, "a run as JSON, as a collector half writes it")


def write_answer(attribution: Attribution) -> bytes:
    """Return an attribution as JSON.

    Raises:
        UnreadableInput: a text is not valid Unicode.
    """
    return _written(_ANSWER, attribution, "attribution")


def read_answer(body: bytes, trajectory: Trajectory) -> Attribution:
    """Read the attribution of a run, and check that it fits this run.

    Raises:
        UnreadableInput: it is no attribution, belongs to another run, or names a step that the run lacks.
    """
    attribution = _read(_ANSWER, body, "an attribution as JSON")
    if attribution.run_id != trajectory.run_id:
        raise UnreadableInput("expected the attribution of the run that was asked about")
    verdict = attribution.verdict
    steps = {step.index for step in trajectory.steps}
    named = {candidate.step for candidate in verdict.ranking}
    if (both := attribution.pooled) is not None:
        named |= {both.step, both.own_step}
        if not (max(both.weight, both.accuracy) <= 1 and 0 <= both.right <= both.labelled <= _MOST_LABELLED):
            raise UnreadableInput("expected a record of the model that is possible")
    if isinstance(verdict, Blame):
        named |= {verdict.step, *(evidence.step for evidence in verdict.evidence)}
        named |= set(verdict.step_set.steps if verdict.step_set else ())
        if not 0.0 <= verdict.confidence <= 1.0 or not 0.0 <= verdict.certainty <= 1.0:
            raise UnreadableInput("expected probabilities in 0..1")
        if verdict.failed_probability is not None and verdict.status is not Status.SUSPECTED:
            raise UnreadableInput("expected a probability of failure with a suspicion only")
    if not named <= steps:
        raise UnreadableInput("expected steps that the run has")
    return attribution


def write_progress(progress: Progress) -> bytes:
    """Return progress as JSON."""
    return _PROGRESS.adapter.dump_json(progress)


def read_progress(body: bytes) -> Progress:
    """Read progress.

    Raises:
        UnreadableInput: the body is not progress.
    """
    return _read(_PROGRESS, body, "progress as JSON")


def write_offer(offer: Offer) -> bytes:
    """Return the methods and models that can be chosen as JSON."""
    return _OFFER.adapter.dump_json(offer)


def read_offer(body: bytes) -> Offer:
    """Read the methods and models that can be chosen.

    Raises:
        UnreadableInput: the body is not an offer.
    """
    return _read(_OFFER, body, "what can be chosen as JSON")


def _written(form: _Form[Record], record: Record, name: str) -> bytes:
    try:
        return form.adapter.dump_json(record)
    except ValueError as error:
        raise UnreadableInput(f"the {name} cannot be written as JSON: {type(error).__name__}") from error


def _read(form: _Form[Record], body: bytes, expected: str) -> Record:
    try:
        return form.adapter.validate_json(body)
    except ValueError as error:
        raise UnreadableInput(f"expected {expected}") from error


def write_choice(choice: Choice | None) -> dict[str, str]:
    """Return a choice in the form of a job; empty for the analyzer's own settings."""
    if choice is None:
        return {}
    budget = {} if choice.budget_usd is None else {"budget_usd": repr(choice.budget_usd)}
    failed = "yes" if choice.takes_as_failed else ""
    sees = {"with_reference": "yes"} if choice.with_reference else {}
    return {"method": choice.method, "model": choice.model, "failed": failed, **sees, **budget}


def write_earned(earned: Earned) -> dict[str, str]:
    """Return what models have earned as an entry of a job's choice: of the models with the most labels."""
    named = {name: record for name, record in earned.items() if len(name) <= _LONGEST_NAME}
    most = sorted(named, key=lambda name: -named[name].labelled)[:_MOST_RECORDS]
    known = {name: named[name] for name in most}
    return {_EARNED_BY: _EARNED.adapter.dump_json(known).decode()} if known else {}


def read_earned(given: Mapping[str, str]) -> Earned:
    """Read what models have earned.

    Raises:
        UnreadableInput: the entry is not that.
    """
    found = _read(_EARNED, given.get(_EARNED_BY, "{}").encode(), "what models have earned as JSON")
    for record in found.values():
        parts = (
            record.won,
            record.lost,
            record.right - record.won,
            record.labelled - record.right - record.lost,
        )
        if not (all(part >= 0 for part in parts) and record.labelled <= _MOST_LABELLED):
            raise UnreadableInput("expected records of models that are possible")
    return found


def read_choice(given: Mapping[str, str]) -> Choice | None:
    """Read a choice; ``None`` if there is none. Does not check whether it is on offer.

    Raises:
        UnreadableInput: its budget is not a number.
    """
    if "method" not in given:
        return None
    budget = given.get("budget_usd")
    try:
        budget_usd = None if budget is None else float(budget)
    except ValueError as error:
        raise UnreadableInput("expected a budget in dollars") from error
    return Choice(
        method=given["method"],
        model=given.get("model", ""),
        takes_as_failed=given.get("failed") == "yes",
        with_reference=given.get("with_reference") == "yes",
        budget_usd=budget_usd,
    )
