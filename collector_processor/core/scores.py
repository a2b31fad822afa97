"""Scores of a run for evaluation tools: what an outbox entry of a sink says. Pure.

An entry is the whole new state of one run: the scores that now hold, and those that no longer do. So it can
be delivered twice, and a later entry of the run replaces what an earlier one wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, NewType

from collector_processor.otlp import NO_TENANT, Tenant

Lane = NewType("Lane", str)
"""The part of the outbox that one sink reads, such as ``scores:phoenix``."""
LANES: Final = "scores:"
"""Beginning of every lane's name; no signal begins so."""


class ScoreBackend(StrEnum):
    """Backends that show scores of their own."""

    PHOENIX = "phoenix"
    MLFLOW = "mlflow"
    LANGFUSE = "langfuse"


def lane_of(backend: ScoreBackend, tenant: Tenant) -> Lane:
    """Return the lane of a tenant's sink."""
    return Lane(f"{LANES}{backend}" if tenant == NO_TENANT else f"{LANES}{backend}@{tenant}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePlace:
    """The place of a score: a name at a span."""

    name: str
    trace_id: str
    span_id: str
    """Empty if only the trace is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score that holds."""

    place: ScorePlace
    score: float | None
    """1 is good, 0 is bad; ``None`` where nobody said so."""
    label: str
    explanation: str
    """As the export setting allows; may be empty."""
    annotator: str
    """HUMAN, LLM or CODE."""
    metadata: Mapping[str, Any]
    """Where it comes from, by our attributes' names; values are JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """The new state of one run's scores."""

    tenant: Tenant
    run_id: str
    decided_ns: int
    """Unix ns of the verdict, or of the run's deletion."""
    started_ns: int = 0
    """Start of the run's root in Unix ns, the same for each verdict on the run; 0 if it is deleted."""
    scores: tuple[Score, ...] = ()
    withdrawn: tuple[ScorePlace, ...] = ()
    """Places of earlier scores that no longer hold."""


def pack_change(change: ScoreChange) -> bytes:
    """Return the bytes of an outbox entry."""
    return json.dumps(asdict(change), separators=(",", ":")).encode()


def unpack_change(body: bytes) -> ScoreChange:
    """Return what an outbox entry says.

    Raises:
        ValueError: it is damaged, or from a newer version.
    """
    try:
        fields = json.loads(body)
        scores = tuple(Score(**{**one, "place": ScorePlace(**one["place"])}) for one in fields["scores"])
        withdrawn = tuple(ScorePlace(**one) for one in fields["withdrawn"])
        return ScoreChange(**{**fields, "scores": scores, "withdrawn": withdrawn})
    except (KeyError, TypeError) as error:
        raise ValueError(f"an entry of scores cannot be read: {error!r}") from error
