"""One clue that a run failed: its subject, and the signs by which it is weighed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from semconv.model import Evidence


class ClueKind(StrEnum):
    """The kind of a clue."""

    WRONG_FIGURE = "wrong_figure"
    """A figure of the answer that neither a tool nor arithmetic gives."""
    WRONG_SUM = "wrong_sum"
    """A calculation whose result is wrong."""
    UNSOURCED = "unsourced"
    """An id, a link, a quotation or a named source that occurs nowhere in the run."""
    IGNORED_ERROR = "ignored_error"
    """A call that failed or returned nothing, which no later step mentions."""
    LOOP = "loop"
    """The same call with the same result, again and again."""
    CONSTRAINT = "constraint"
    """A demand of the task that the answer does not meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """One clue that a run failed."""

    step: int
    """The step that made the mistake."""
    kind: ClueKind
    reason: str
    """A predicate in the past tense; its subject is the agent of ``step``."""
    evidence: tuple[Evidence, ...] = ()
    value: float | None = None
    """The wrong figure."""
    is_miscalculated: bool = False
    """Whether it is known to be the wrong result of a calculation."""
    signs: Mapping[str, float] = field(default_factory=dict)
    """Signs by which it is weighed, each 0 to 1."""
