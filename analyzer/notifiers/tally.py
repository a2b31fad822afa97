"""How often one receiver was told, and how often in vain, since the process began."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class NoticeTally:
    """The counts of one receiver; they only grow."""

    receiver: str
    sent: int = 0
    """Messages that it took."""
    failed: int = 0
    """Messages that did not reach it, and are sent again."""
    merged: int = 0
    """Notices that went out within another's message."""
    dropped: int = 0
    """Notices given up."""
