"""Where the journal's segments lie: their names, numbers and files. Synchronous.

A segment is an SQLite file, its WAL and the register of its rows; its name is its number, and no
number is used twice. Knows nothing of what is in them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector_processor.journal.register import SUFFIX as REGISTER
from collector_processor.journal.register import RowRegister
from collector_processor.journal.reserve import Measure, measure_space
from collector_processor.journal.segments import SegmentFile

_SUFFIX: Final = ".sqlite"
_SALVAGED: Final = ".salvaged"
_NEXT_FILE: Final = "next"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDirectory:
    """Where the segments lie; their names are their numbers."""

    path: Path
    make: Callable[[Path, int], SegmentFile] = SegmentFile
    measure: Measure = measure_space
    """How much room there is where they lie."""

    def open(self, number: int) -> SegmentFile:
        """Open a connection to a segment, or make it.

        Raises:
            JournalError: a newer version wrote it, or it is something else.
            sqlite3.DatabaseError: the file is damaged, or the disk is full.
        """
        return self.make(self.file(number), number)

    def open_relaxed(self, number: int) -> SegmentFile:
        """Open a connection to a segment that takes no more rows; raises as ``open`` does."""
        file = self.open(number)
        file.relax()
        return file

    def remove(self, number: int) -> None:
        """Remove a segment that nobody has open."""
        for suffix in ("", "-wal", "-shm", REGISTER):
            self.file(number).with_name(self.file(number).name + suffix).unlink(missing_ok=True)

    def numbers(self) -> list[int]:
        """Return the numbers of the segments there are, ascending."""
        stems = [path.stem for path in self.path.glob(f"*{_SUFFIX}")]
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def next_number(self) -> int:
        """Return a number that was never used, even where all segments are deleted by now."""
        try:
            reserved = int((self.path / _NEXT_FILE).read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            reserved = 1
        return max(reserved, *(number + 1 for number in self.numbers()), 1)

    def reserve(self, number: int) -> None:
        """Remember, for good, that a number is used.

        Raises:
            OSError: the disk refuses.
        """
        draft = self.path / f"{_NEXT_FILE}.new"
        with draft.open("w", encoding="ascii") as file:
            file.write(str(number + 1))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path / _NEXT_FILE)
        _flush_names(self.path)

    def sweep(self) -> None:
        """Remove what a kill in the middle of a deletion has left; end a salvage that one has cut short."""
        for draft in self.path.glob(f"*{_SALVAGED}"):
            whole = draft.with_suffix(_SUFFIX)
            if whole.exists():
                draft.unlink()  # begun, and begun again now
            elif draft.stem.isdigit():
                self.set_aside(int(draft.stem))
        for suffix in ("-wal", "-shm", REGISTER):
            for path in self.path.glob(f"*{_SUFFIX}{suffix}"):
                if not path.with_name(path.name.removesuffix(suffix)).exists():
                    path.unlink()

    def register(self, number: int) -> RowRegister:
        """Open the register of a segment's rows, or make it."""
        return RowRegister(self.file(number))

    def file(self, number: int) -> Path:
        """Return where a segment lies."""
        return self.path / f"{number:08}{_SUFFIX}"

    def draft(self, number: int) -> Path:
        """Return where what can be saved of a damaged segment is gathered."""
        return self.path / f"{number:08}{_SALVAGED}"

    def set_aside(self, number: int) -> None:
        """Rename a damaged segment, which is kept and not opened again; put what was saved in its place.

        The file first: a start after a kill goes on here where that is gone, and begins anew where it is not.
        Its WAL goes too, or would be taken for that of what was saved; its register goes on with that.
        """
        for suffix in ("", "-wal", "-shm"):
            path = self.file(number).with_name(self.file(number).name + suffix)
            if path.exists():
                path.rename(path.with_name(f"{path.name}.damaged"))
        if self.draft(number).exists():
            self.draft(number).replace(self.file(number))
        _flush_names(self.path)


def _flush_names(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; a file's own flush does not promise that."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
