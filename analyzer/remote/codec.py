"""Runs and attributions as the JSON that the two halves exchange. Pure.

Pydantic reads and writes the records as they are declared, so that there is no second
list of their fields: a field that only one side knows is left out or has its default,
and halves of neighbouring versions understand each other. Nothing of a run is lost,
unlike in ``kept_run.py``, which keeps what is learned from and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import TypeAdapter

from analyzer.errors import UnreadableInput
from analyzer.opinion import Choice, Offer
from semconv.model import Attribution, Blame, Trajectory

PATH: Final = "/v1/analyse"
OFFER_PATH: Final = "/v1/offer"
MAX_ANSWER_BYTES: Final = 4 << 20
"""An attribution is some KiB; a ranking grows with the run's steps."""

_RUN: Final = TypeAdapter(Trajectory)
_ANSWER: Final = TypeAdapter(Attribution)
_OFFER: Final = TypeAdapter(Offer)


def write_run(trajectory: Trajectory) -> bytes:
    """Return a run as JSON.

    Raises:
        UnreadableInput: a text is no Unicode.
    """
    try:
        return _RUN.dump_json(trajectory)
    except ValueError as error:
        raise UnreadableInput(f"the run cannot be written as JSON: {type(error).__name__}") from error


def read_run(body: bytes) -> Trajectory:
    """Read a run.

    Raises:
        UnreadableInput: it is none; nothing of it stands in the message.
    """
    try:
        return _RUN.validate_json(body)
    except ValueError as error:
        raise UnreadableInput("expected a run as JSON, as a collector half writes it") from error


def write_answer(attribution: Attribution) -> bytes:
    """Return an attribution as JSON.

    Raises:
        UnreadableInput: a text is no Unicode.
    """
    try:
        return _ANSWER.dump_json(attribution)
    except ValueError as error:
        raise UnreadableInput(f"the attribution cannot be written as JSON: {type(error).__name__}") from error


def read_answer(body: bytes, trajectory: Trajectory) -> Attribution:
    """Read the attribution of a run, and make sure that it can be one of this run.

    Raises:
        UnreadableInput: it is none, or of another run, or blames what the run does not have.
    """
    try:
        attribution = _ANSWER.validate_json(body)
    except ValueError as error:
        raise UnreadableInput("expected an attribution as JSON") from error
    if attribution.run_id != trajectory.run_id:
        raise UnreadableInput("expected the attribution of the run that was asked about")
    verdict = attribution.verdict
    steps = {step.index for step in trajectory.steps}
    named = {candidate.step for candidate in verdict.ranking}
    if isinstance(verdict, Blame):
        named |= {verdict.step, *(evidence.step for evidence in verdict.evidence)}
        if not 0.0 <= verdict.confidence <= 1.0:
            raise UnreadableInput("expected a confidence in 0..1")
    if not named <= steps:
        raise UnreadableInput("expected steps that the run has")
    return attribution


def write_offer(offer: Offer) -> bytes:
    """Return what can be chosen as JSON."""
    return _OFFER.dump_json(offer)


def read_offer(body: bytes) -> Offer:
    """Read what can be chosen.

    Raises:
        UnreadableInput: it says nothing of the kind.
    """
    try:
        return _OFFER.validate_json(body)
    except ValueError as error:
        raise UnreadableInput("expected what can be chosen as JSON") from error


def write_choice(choice: Choice | None) -> dict[str, str]:
    """Return a choice as the parameters of a question; none for the settings of who is asked."""
    if choice is None:
        return {}
    return {"method": choice.method, "model": choice.model, "failed": "yes" if choice.takes_as_failed else ""}


def read_choice(query: Mapping[str, str]) -> Choice | None:
    """Read the choice of a question; ``None`` where none was made. Whether it can be had, an offer knows."""
    if "method" not in query:
        return None
    return Choice(
        method=query["method"], model=query.get("model", ""), takes_as_failed=query.get("failed") == "yes"
    )
