"""One thing that a trace lacks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from semconv.model import Span


class Severity(StrEnum):
    """What a lack costs."""

    ERROR = "error"
    """A verdict cannot name the agent or the step, or has nothing to judge by."""
    WARNING = "warning"
    """Verdicts are less sure, or some steps cannot be judged."""
    INFO = "info"
    """It works as it is, until something else goes wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is missing, how often, where, and what mends it."""

    rule: str
    """Stable name, for people and scripts: ``content-off``."""
    severity: Severity
    what: str
    """What is missing and what that costs, in one sentence without trace content."""
    spans: tuple[Span, ...]
    """The spans that lack it, in order; at least one."""
    of: int
    """How many spans could have had it."""
    framework: str = ""
    """What wrote them: their scope's name."""
    mend: tuple[str, ...] = ()
    """Lines of code or settings, as one types them."""
