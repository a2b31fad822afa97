"""Verdicts' documents as the pages and the API read them; a damaged one is shown as an error verdict.

SQLite keeps no checksums of its pages, so a flipped bit on the disk may be in any text.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from analyzer.inquiry.verdict import to_json
from semconv.model import Abstention, Attribution, Status, Trajectory

logger = logging.getLogger(__name__)

DAMAGED: Final = (
    "the stored verdict cannot be read: the store is damaged, `blamespan doctor` says how to mend it"
)


class _Evidence(BaseModel):
    step: int
    quote: str


class _Candidate(BaseModel):
    step: int
    agent: str
    probability: float


class _Document(BaseModel):
    """The fields whose types the pages rely on."""

    run_id: str = ""
    status: str = ""
    agent: str | None = None
    step: int | None = None
    span_id: str | None = None
    trace_id: str | None = None
    confidence: float | None = None
    reason: str = ""
    fix: str | None = None
    mode: str | None = None
    evidence: list[_Evidence] = []
    ranking: list[_Candidate] = []
    method: str = ""
    model: str | None = None
    fallback: str | None = None
    truncated: bool = False
    coverage: float = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    duration_s: float = 0
    error: str | None = None
    notes: list[str] = []
    early_warning: dict[str, Any] | None = None


_PLAIN: Final = TypeAdapter(dict[str, Any])


@cache
def _damaged() -> Mapping[str, Any]:
    verdict = Abstention(status=Status.ERROR, reason=DAMAGED)
    return to_json(
        Attribution(run_id="", verdict=verdict, method="", error=DAMAGED),
        Trajectory(run_id="", steps=()),
    )


def read_document(text: str, run_id: str) -> dict[str, Any]:
    """Return a verdict's document with all its fields; an ``error`` verdict if it is damaged."""
    damaged = {**_damaged(), "run_id": run_id, "evidence": [], "ranking": []}
    try:
        found = _PLAIN.validate_json(text)
        _Document.model_validate(found)
    except ValueError:
        logger.warning("a stored verdict is damaged", extra={"run_id": run_id})
        return damaged
    return {**damaged, "reason": "", "error": None, **found}
