"""What of a small disk new rows leave alone.

On a disk that is full to the last byte nobody can make room: a verdict cannot
be written, nor what was forwarded be noted, nor a segment be compacted. So new
rows are refused a little earlier, and the rest is for those. Another program
may still fill the disk; then all of us wait until it gives way.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

_SHARE: Final = 8
"""One part in so many of the disk is left alone, …"""
_MOST: Final = 32 << 20
"""… and no more than this: bytes."""


class Space(NamedTuple):
    """Bytes of a file system; a size of 0 means that it does not say."""

    size: int
    free: int


Measure: TypeAlias = Callable[[Path], Space]


def measure_space(folder: Path) -> Space:
    """Ask the file system of a folder."""
    found = os.statvfs(folder)
    return Space(size=found.f_blocks * found.f_frsize, free=found.f_bavail * found.f_frsize)


class DiskReserve:
    """Refuses rows that would take from the reserve; used by the writer only."""

    def __init__(self, folder: Path, measure: Measure = measure_space) -> None:
        """Watch the file system of ``folder``."""
        self._folder: Final = folder
        self._measure: Final = measure
        self._owed: Final[dict[int, int]] = {}

    def retired(self, segment: int, owed_bytes: int) -> None:
        """Note what a segment's file may still grow by, though it takes no more rows."""
        self._owed[segment] = owed_bytes

    def detached(self, segment: int) -> None:
        """Note that a segment is to be deleted."""
        self._owed.pop(segment, None)

    def check(self, packed_bytes: int, owed_bytes: int) -> None:
        """Let new rows pass if there is room for them.

        Args:
            packed_bytes: of the rows; they go to the WAL first, and to the file later.
            owed_bytes: what is in the active segment's WAL and not yet in its file.

        Raises:
            OSError: ``ENOSPC``, the reserve would be touched.
        """
        space = self._measure(self._folder)
        reserve = min(_MOST, space.size // _SHARE)
        needed = 2 * packed_bytes + owed_bytes + sum(self._owed.values())
        if space.size and space.free - needed < reserve:
            raise OSError(errno.ENOSPC, f"the disk is full but for a reserve of {reserve:,} bytes")
