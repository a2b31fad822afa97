"""What a dialect is able to tell, declared beside it: the source of ``docs/support.md``.

One `Support` is one framework as one instrumentation of it writes spans. The declarations are
checked against recordings (``tests/contract/test_support.py``): what is claimed must be there, and
what is denied must not be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ASPECTS: Final = ("agent", "text", "tools", "handoff", "task", "errors")
"""What is declared, in the order of the page's columns; fields of `Support`."""


class Level(StrEnum):
    """How much of something the spans tell."""

    YES = "yes"
    """All that happened."""
    PARTLY = "partly"
    """Some of it, or only with a setting; the note says which."""
    NO = "no"
    """Nothing; the note says what stands in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gift:
    """What the spans tell of one aspect."""

    level: Level
    note: str = ""
    """Where it stands, or why it is missing and what mends that; one line of Markdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """What one framework's spans tell, as one instrumentation writes them."""

    framework: str
    """As its users call it: ``openai-agents``, ``langgraph``."""
    instrumentation: str
    """What writes the spans, with the version that was read or recorded."""
    source: str
    """``recorded`` if spans of a real run were seen, ``source`` if only the code that writes them."""
    agent: Gift
    """Whose each step is."""
    text: Gift
    """What went into and came out of model calls."""
    tools: Gift
    """Tool calls with arguments and results."""
    handoff: Gift
    """Who handed over to whom."""
    task: Gift
    """What the run was asked, and what it answered."""
    errors: Gift
    """What failed, and with which words."""
    scopes: tuple[str, ...] = ()
    """Beginnings of the scope names its spans carry; tells recordings of one dialect apart."""
    recordings: tuple[str, ...] = ()
    """Names, without suffix, of recorded runs that show it (``../shared/captures``, ``tests/fixtures``)."""
    switches: tuple[str, ...] = ()
    """Settings that make it tell more, as a user writes them: ``TRACELOOP_TRACE_CONTENT=true``."""

    def gifts(self) -> Iterator[tuple[str, Gift]]:
        """Yield the aspects by name, in the order of ``ASPECTS``."""
        for name in ASPECTS:
            yield name, getattr(self, name)


def gives(note: str = "") -> Gift:
    """Say that spans tell all of it; ``note`` says where it stands."""
    return Gift(level=Level.YES, note=note)


def partly(note: str) -> Gift:
    """Say that spans tell some of it; ``note`` says what is missing, or which setting it needs."""
    return Gift(level=Level.PARTLY, note=note)


def lacks(note: str) -> Gift:
    """Say that spans tell nothing of it; ``note`` says what we do instead."""
    return Gift(level=Level.NO, note=note)
