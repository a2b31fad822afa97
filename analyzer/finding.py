"""What a signal finds: a step, a reason in words, and a weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.reading import Reading

QUOTE: Final = 160
"""Characters of a step that are quoted at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason to blame a step, or not to."""

    step: int
    signal: str
    """Name of the signal, low cardinality."""
    weight: float
    """Log-odds added to the step."""
    reason: str
    quote: str = ""
    """Verbatim from the step; empty where the mark is not in its text."""
    quoted_step: int | None = None
    """The step that is quoted, where it is another."""


Signal: TypeAlias = Callable[[Reading], Iterator[Finding]]
