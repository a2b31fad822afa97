"""Signed sessions that ended before they expire, kept in a file so that a restart forgets none. Not pure."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

MOST: Final = 10_000
"""Sessions remembered; the oldest are forgotten first."""
_MOST_BYTES: Final = 1 << 20
"""Of the file when it is read: ``MOST`` lines take three quarters of it."""


@dataclass(slots=True, kw_only=True)
class SignedOut:
    """The ended sessions of one process and of those before it; digests only, as an id lets its owner in."""

    path: Path | None = None
    """A file of its own; ``None`` to remember in memory."""
    wall_s: Callable[[], float] = time.time
    _ends: dict[str, int] = field(default_factory=dict)
    """By digest, when the session would have expired, in Unix seconds."""

    def __post_init__(self) -> None:
        try:
            text = b"" if self.path is None else self.path.read_bytes()[-_MOST_BYTES:]
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("signed-out sessions cannot be read", extra={"error": error.strerror})
            return
        for line in text.decode("ascii", "replace").splitlines():
            digest, _, ends_s = line.partition(" ")
            if ends_s.isdecimal() and len(ends_s) < 20 and self.wall_s() < int(ends_s):
                self._ends[digest] = int(ends_s)
        self._write()

    def __contains__(self, id_: str) -> bool:
        """Tell whether the session ended."""
        return _digest(id_) in self._ends

    def add(self, id_: str, ends_s: float) -> None:
        """Remember that a session ended, until it would have expired at ``ends_s`` (Unix seconds)."""
        self._ends[_digest(id_)] = int(min(ends_s, 1e15))
        while len(self._ends) > MOST:
            del self._ends[next(iter(self._ends))]
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        written = self.path.with_name(f"{self.path.name}.new")
        try:
            written.write_text("".join(f"{digest} {ends}\n" for digest, ends in self._ends.items()))
            written.replace(self.path)
        except OSError as error:
            logger.warning("a signed-out session is kept in memory only", extra={"error": error.strerror})


def _digest(id_: str) -> str:
    return hashlib.sha256(id_.encode("utf-8", "replace")).hexdigest()
