"""Opening the journal in a directory of its own, which no other process uses. A shell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from collector_processor.journal.chunks import JournalError, JournalLimits
from collector_processor.journal.directory import SegmentDirectory
from collector_processor.journal.journal import Journal
from collector_processor.journal.keeper import DirectoryLock, JournalKeeper
from collector_processor.journal.reserve import Measure, measure_space
from collector_processor.journal.segments import SegmentFile


async def open_journal(
    path: Path,
    limits: JournalLimits | None = None,
    make_segment: Callable[[Path, int], SegmentFile] = SegmentFile,
    measure: Measure = measure_space,
) -> Journal:
    """Open the journal in a directory of its own, or make it; everything acknowledged is there again.

    Raises:
        JournalError: another process uses it, a newer version wrote it, or it cannot be made.
    """
    directory = SegmentDirectory(path=path, make=make_segment, measure=measure)
    loop = asyncio.get_running_loop()
    lock = await loop.run_in_executor(None, _lock, path)
    keeper = JournalKeeper(directory)
    recovering = loop.run_in_executor(None, keeper.recover)
    try:
        summaries = await asyncio.shield(recovering)
    except BaseException:
        await asyncio.wait(
            (recovering,)
        )  # cancelled: its thread goes on, and nobody else may begin meanwhile
        keeper.close()
        lock.release()
        raise
    return Journal(directory, keeper, lock, summaries, limits or JournalLimits())


def _lock(path: Path) -> DirectoryLock:
    try:
        path.mkdir(parents=True, exist_ok=True)
        return DirectoryLock(path)
    except OSError as error:
        raise JournalError(f"the journal cannot be kept in {path}: {error.strerror}") from error


def is_in_use(path: Path) -> bool:
    """Whether a running process has the journal in this directory."""
    return DirectoryLock.is_taken(path)
