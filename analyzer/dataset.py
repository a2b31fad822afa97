"""Labelled runs from files: JSON lines, one JSON document, or a folder of documents; gzip or not.

A shell: it touches the file system, and nothing else here does.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from analyzer.conversation import Conversation, read_conversation
from analyzer.errors import UnreadableInput
from semconv.json_text import read_json

_GZIP_MAGIC: Final = b"\x1f\x8b"


def read_dataset(path: Path) -> tuple[Conversation, ...]:
    """Read every run of a data set, in the order of its lines or file names.

    Raises:
        UnreadableInput: no such file, or something in it that is no conversation
            log; the message says where.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in {".json", ".jsonl", ".gz"})
        return tuple(run for file in files for run in _read_file(file, subset=file.parent.name))
    return tuple(_read_file(path, subset=_stem(path)))


def _read_file(path: Path, subset: str) -> Iterator[Conversation]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw.startswith(_GZIP_MAGIC) else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UnreadableInput(f"{path}: cannot be read as JSON, plain or gzip: {error}") from error
    for place, document in _documents(path, text):
        try:
            run = read_conversation(document)
        except UnreadableInput as error:
            raise UnreadableInput(f"{path}{place}: {error}") from error
        yield run if run.subset else replace(run, subset=subset)


def _documents(path: Path, text: str) -> Iterator[tuple[str, object]]:
    """Yield each document with its place: one JSON value (an array's items), or one a line."""
    try:
        whole = read_json(text)
    except ValueError:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    yield f":{number}", read_json(line)
                except ValueError as error:
                    raise UnreadableInput(f"{path}:{number}: not JSON: {error}") from error
        return
    for number, document in enumerate(whole if isinstance(whole, list) else [whole]):
        yield f"[{number}]" if isinstance(whole, list) else "", document


def _stem(path: Path) -> str:
    return path.name.split(".")[0]
