"""Opening of a journal in a directory of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from collector_processor.journal.chunks import JournalError, JournalLimits
from collector_processor.journal.directory import (
    DirectoryLock,
    Measure,
    SegmentDirectory,
    is_in_use,
    measure_space,
)
from collector_processor.journal.journal import Journal
from collector_processor.journal.keeper import JournalKeeper
from collector_processor.journal.segments import SegmentFile


async def open_journal(
    path: Path,
    limits: JournalLimits | None = None,
    make_segment: Callable[[Path, int], SegmentFile] = SegmentFile,
    measure: Measure = measure_space,
) -> Journal:
    """Open or create the journal in a directory of its own, with all rows acknowledged earlier.

    Raises:
        JournalError: another process uses it, a newer version wrote it, or it cannot be created.
    """
    directory = SegmentDirectory(path=path, make=make_segment, measure=measure)
    loop = asyncio.get_running_loop()
    lock = await loop.run_in_executor(None, _locked, path)
    keeper = JournalKeeper(directory)
    recovering = loop.run_in_executor(None, keeper.recover)
    try:
        summaries = await asyncio.shield(recovering)
    except BaseException:
        # Cancelled: the thread still runs, and holds the lock until it is done.
        await asyncio.wait((recovering,))
        keeper.close()
        lock.release()
        raise
    return Journal(directory, keeper, lock, summaries, limits or JournalLimits())


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


def clear_journal(path: Path) -> None:
    """Delete the segments in a directory, if no process uses it; their numbers are not used again."""
    if path.is_dir() and not is_in_use(path):
        directory = SegmentDirectory(path=path)
        for number in directory.numbers():
            directory.remove(number)
        directory.sweep()


def relaxed_segment(path: Path, number: int) -> SegmentFile:
    """Open a segment of a journal whose rows are durable elsewhere, without waiting for the disk."""
    file = SegmentFile(path, number)
    file.relax()
    return file
