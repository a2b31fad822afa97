"""Whether a store takes work: noted by the thread that uses it, read by the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

REFUSING_S: Final = 30.0
"""Seconds for which a refusal counts: refused work is tried again every few seconds."""
SILENT_S: Final = 10.0
"""Seconds without an answer after which a store hangs; a statement normally takes milliseconds."""


class Fault(StrEnum):
    """Fault of a store."""

    REFUSES = "refuses"
    """Full, read-only, damaged, or its server is away."""
    HANGS = "does not answer"


class Condition:
    """Notes of one store's calls; each is a single assignment, so that two threads may share it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Create the notes of a store without a fault."""
        self._monotonic: Final = monotonic
        self._asked_at: float | None = None
        self._refused_at: float | None = None

    def asked(self) -> None:
        """Note that a call begins."""
        self._asked_at = self._monotonic()

    def answered(self) -> None:
        """Note that a call has ended."""
        self._asked_at = None

    def refused(self) -> None:
        """Note that the store refused the call."""
        self._refused_at = self._monotonic()

    @property
    def fault(self) -> Fault | None:
        """The current fault; ``None`` if none is known."""
        now, asked_at, refused_at = self._monotonic(), self._asked_at, self._refused_at
        if asked_at is not None and now - asked_at > SILENT_S:
            return Fault.HANGS
        if refused_at is not None and now - refused_at < REFUSING_S:
            return Fault.REFUSES
        return None
