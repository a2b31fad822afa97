"""Dialects: how frameworks write spans, one file each.

A further dialect is one file and one line in ``DIALECTS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from semconv.dialects.action import Action, ActionKind, Dialect, Judgement, Message, ToolCall
from semconv.dialects.blamespan import BLAMESPAN
from semconv.dialects.openinference import OPENINFERENCE
from semconv.dialects.otel_genai import OTEL_GENAI
from semconv.dialects.surroundings import Surroundings
from semconv.model import Span

DIALECTS: Final[tuple[Dialect, ...]] = (
    BLAMESPAN,
    OPENINFERENCE,  # before gen_ai: pydantic-ai's and Strands' OpenInference spans carry both
    OTEL_GENAI,
)
"""First match wins."""


def read_action(
    span: Span, surroundings: Surroundings, dialects: Sequence[Dialect] = DIALECTS
) -> Action | None:
    """Return what the span stands for, or ``None`` for a span that no dialect knows."""
    return next(
        (action for dialect in dialects if (action := dialect.read(span, surroundings)) is not None), None
    )


__all__ = [
    "DIALECTS",
    "Action",
    "ActionKind",
    "Dialect",
    "Judgement",
    "Message",
    "Surroundings",
    "ToolCall",
    "read_action",
]
