"""Durable buffer between acknowledging and forwarding: an append-only log in segments, with group commit.

``journal`` is the entry point, opened here, and decides when segments are thinned or deleted. ``dispatch`` is
between the event loop and the thread of ``writer``, which commits; ``keeper`` reads, thins and deletes on a
thread of its own. ``recovery`` reads what an earlier process left. ``accounts`` counts the bytes of each
queue and trace, ``segment_accounts`` knows where each row is. ``directory`` manages the files, and
``log_format`` defines their records.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from collector_processor.journal.chunks import JournalError, JournalLimits
from collector_processor.journal.directory import (
    DirectoryLock,
    Disk,
    Measure,
    RelaxedDisk,
    SegmentDirectory,
    is_in_use,
    measure_space,
)
from collector_processor.journal.journal import Journal
from collector_processor.journal.recovery import RecoveredSegment, recover_segments

__all__ = [
    "Disk", "Journal", "JournalError", "JournalLimits", "RelaxedDisk", "clear_journal", "is_in_use",
    "open_journal", "require_known_kind",
]  # fmt: skip


async def open_journal(
    path: Path,
    limits: JournalLimits | None = None,
    disk: Disk | None = None,
    measure: Measure = measure_space,
) -> Journal:
    """Open or create the journal in a directory of its own, with all rows acknowledged earlier.

    Args:
        path: the directory.
        limits: its bounds.
        disk: the calls to the disk; default: those of the operating system.
        measure: returns the space of the file system.

    Raises:
        JournalError: another process uses it, another version wrote it, or it cannot be created.
    """
    directory = SegmentDirectory(path=path, disk=disk or Disk(), measure=measure)
    loop = asyncio.get_running_loop()
    lock = await loop.run_in_executor(None, _locked, path)
    recovering = loop.run_in_executor(None, _recovered, directory)
    try:
        recovered = await asyncio.shield(recovering)
    except BaseException:
        # Cancelled: the thread still runs, and holds the lock until it is done.
        await asyncio.wait((recovering,))
        lock.release()
        raise
    return Journal(directory, lock, recovered, limits or JournalLimits())


def _recovered(directory: SegmentDirectory) -> list[RecoveredSegment]:
    directory.refuse_old_kind()
    return recover_segments(directory)


def _locked(path: Path) -> DirectoryLock:
    """Create the directory, if it is missing, and lock it.

    Raises:
        JournalError: another process has it, or it cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        return DirectoryLock(path)
    except OSError as error:
        raise JournalError(f"cannot open the journal in {path}: {error.strerror}") from error


def require_known_kind(path: Path) -> None:
    """Check that no earlier version wrote a directory's journal; reads only.

    Raises:
        JournalError: one did; says how much of it was not sent, and what to do.
    """
    SegmentDirectory(path=path).refuse_old_kind()


def clear_journal(path: Path) -> None:
    """Delete the segments in a directory, if no process uses it; their numbers are not used again."""
    if path.is_dir() and not is_in_use(path):
        directory = SegmentDirectory(path=path)
        for number in directory.segments():
            directory.remove(number)
        directory.sweep()
        for old in path.glob("*.sqlite*"):  # of an earlier version
            old.unlink()
