"""States of a disk after a power cut: everything that was flushed, and any part of the rest.

Read from the log of ``recorder.c``, after the model of ALICE (Pillai et al., OSDI 2014). A file's bytes are
durable once a flush of that file has ended that began after the write; names (created, renamed, removed) once
a flush of the folder has. Unflushed data may be present, missing, or partly present, cut at a sector; names
change in order, as in journalling file systems.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

SECTOR: Final = 512
_HEAD: Final = struct.Struct("<cQII")


class Op(StrEnum):
    """An operation; the values are the letters of the log."""

    WRITE = "w"
    TRUNCATE = "t"
    FLUSH = "f"
    FLUSHED = "F"
    RENAME = "r"
    UNLINK = "u"
    CREATE = "c"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of the log."""

    op: Op
    offset: int
    """Offset of a write, new size of a truncation, or number of a flush."""
    path: str
    data: bytes


def records(log: bytes) -> Iterator[Record]:
    """Read the log, without an incomplete last record: that operation was not carried out."""
    at = 0
    while at + _HEAD.size <= len(log):
        op, offset, path_size, size = _HEAD.unpack_from(log, at)
        end = at + _HEAD.size + path_size + size
        if end > len(log):
            return
        path = log[at + _HEAD.size : end - size].decode()
        yield Record(op=Op(op.decode()), offset=offset, path=path, data=log[end - size : end])
        at = end


@dataclass(slots=True)
class File:
    """A file under any name: its first content, and its changes."""

    first: bytes = b""
    changes: list[Record] = field(default_factory=list)
    durable: int = 0
    """Number of changes that are certainly on the disk."""

    def after(self, chance: random.Random) -> bytes:
        """Return a possible content of it."""
        held = bytearray(self.first)
        for change in self.changes[: self.durable]:
            _apply(held, change)
        for change in _survivors(self.changes[self.durable :], chance):
            _apply(held, change)
        return bytes(held)


def _survivors(changes: list[Record], chance: random.Random) -> Iterator[Record]:
    """Choose the unflushed writes that reached the disk: none, the first few, or any subset."""
    match chance.randrange(3):
        case 0:
            return
        case 1:
            yield from changes[: chance.randint(0, len(changes))]
        case _:
            for change in changes:
                if chance.random() < 0.5:
                    yield change if chance.random() < 0.7 else _torn(change, chance)


def _torn(change: Record, chance: random.Random) -> Record:
    if change.op is not Op.WRITE:
        return change
    kept = change.data[: SECTOR * chance.randint(0, len(change.data) // SECTOR)]
    return Record(op=change.op, offset=change.offset, path=change.path, data=kept)


def _apply(held: bytearray, change: Record) -> None:
    """Apply a write or a truncation; a hole is filled with zeros."""
    end = change.offset + len(change.data) if change.op is Op.WRITE else change.offset
    if len(held) < end:
        held.extend(bytes(end - len(held)))
    if change.op is Op.WRITE:
        held[change.offset : end] = change.data
    else:
        del held[end:]


class Disk:
    """One folder, from its content at the process's start."""

    def __init__(self, folder: str, held: Mapping[str, bytes]) -> None:
        self._folder: Final = folder
        self._first: Final = {path: File(first=content) for path, content in held.items()}
        self._names: Final = dict(self._first)
        self._renamings: Final[list[tuple[Record, File]]] = []
        """Changes of names, each with its file."""
        self._durable = 0
        """Number of name changes that are certainly on the disk."""
        self._flushes: Final[dict[int, int]] = {}
        """Flushes that began: how much of their target had been recorded by then."""

    def follow(self, record: Record) -> None:
        """Apply one record of the log."""
        match record.op:
            case Op.WRITE | Op.TRUNCATE:
                self._file(record.path).changes.append(record)
            case Op.FLUSH:
                is_folder = record.path == self._folder
                self._flushes[record.offset] = (
                    len(self._renamings) if is_folder else len(self._file(record.path).changes)
                )
            case Op.FLUSHED:
                self._flushed(record.path, self._flushes.pop(record.offset))
            case Op.CREATE | Op.RENAME | Op.UNLINK:
                self._rename(record)

    def _file(self, path: str) -> File:
        return self._names.setdefault(path, File())

    def _flushed(self, path: str, upto: int) -> None:
        if path == self._folder:
            self._durable = max(self._durable, upto)
        elif path in self._names:
            self._names[path].durable = max(self._names[path].durable, upto)

    def _rename(self, record: Record) -> None:
        file = File() if record.op is Op.CREATE else self._file(record.path)
        self._renamings.append((record, file))
        _name(self._names, record, file)

    def after(self, chance: random.Random) -> dict[str, bytes]:
        """Return a possible content by path."""
        names = dict(self._first)
        for record, file in self._renamings[: chance.randint(self._durable, len(self._renamings))]:
            _name(names, record, file)
        return {path: file.after(chance) for path, file in names.items()}


def _name(names: dict[str, File], record: Record, file: File) -> None:
    if record.op is Op.CREATE:
        names[record.path] = file
        return
    names.pop(record.path, None)
    if record.op is Op.RENAME:
        names[record.data.decode()] = file


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by path, without shared memory, which is never on disk."""
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }
