"""Refusals of disks and databases: which errors may pass, how to wait, notes of a store's state. Not pure."""

from __future__ import annotations

import errno
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, TypeVar

from collector_processor.otlp import CollectorError

logger = logging.getLogger(__name__)

T = TypeVar("T")

RUNS: Final = "store.sqlite"
"""The store's file in the data directory."""
STORE_RETRY_S: Final = 2.0
"""Seconds between attempts to write while the disk refuses."""
REFUSING_S: Final = 30.0
"""Seconds for which a refusal counts: refused work is tried again every few seconds."""
SILENT_S: Final = 10.0
"""Seconds without an answer after which a store counts as hung; a statement normally takes milliseconds."""
_MAY_PASS: Final = frozenset(
    {
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
        errno.ESTALE,
    }
)
"""Error numbers of a disk or system that refuses, perhaps temporarily."""
_SQLITE_MAY_PASS: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,  # a process without free descriptors may recover too
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
    }
)
_PRIMARY: Final = 0xFF
"""Mask for the primary code in SQLite's extended error codes."""
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
MEND: Final = "stop blamespan and put the file of a backup in its place"


class StoreError(CollectorError):
    """The store refuses (disk full, server unreachable); nothing was written, and the call may be retried."""


def is_refusal(error: BaseException) -> bool:
    """Return whether the disk or the system refused for a reason that may pass.

    True for a full disk or too many open files; false for a permanent fault: a missing or
    damaged file, or a bug of ours.
    """
    if isinstance(error, sqlite3.OperationalError):
        # Errors that Python's module itself raises have no code.
        return getattr(error, "sqlite_errorcode", 0) & _PRIMARY in _SQLITE_MAY_PASS
    if isinstance(error, OSError):
        return error.errno in _MAY_PASS
    return isinstance(error, StoreError)


def in_our_words(error: BaseException) -> BaseException:
    """Return the error to raise instead: callers handle a refusing store without knowing SQLite.

    A damaged file counts as a refusal too: spans are still forwarded, and work that needs the store waits
    until a person repairs it.
    """
    is_damaged = getattr(error, "sqlite_errorcode", 0) & _PRIMARY in _DAMAGED
    is_damaged |= isinstance(error, UnicodeDecodeError)  # SQLite quotes damaged bytes
    if isinstance(error, StoreError) or not (is_damaged or is_refusal(error)):
        return error
    refused = StoreError(f"the store cannot be used: {error}" + f"; unless this passes, {MEND}" * is_damaged)
    refused.__cause__ = error
    return refused


def refusing(read: Callable[[], T]) -> T:
    """Read; raise ``StoreError`` if the store refuses."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - it is raised again
        raise in_our_words(error) from None


async def patiently(work: Callable[[], Awaitable[T]], pause: Callable[[float], Awaitable[None]]) -> T:
    """Run work that needs the disk; repeat it while the disk refuses.

    Args:
        work: restarted from its beginning each time.
        pause: sleeps for the given seconds.
    """
    while True:
        try:
            return await work()
        except Exception as error:
            if not is_refusal(error):
                raise
            logger.warning("waiting for the disk", extra={"reason": str(error)})
        await pause(STORE_RETRY_S)


class Fault(StrEnum):
    """Fault of a store."""

    REFUSES = "refuses"
    """Full, read-only, damaged, or its server is unreachable."""
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
