"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"
    """There was nothing to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at."""

    check: str
    health: Health
    detail: str
    mend: str = ""
