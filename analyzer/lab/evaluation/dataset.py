"""Labelled runs from files: JSON lines, one JSON document, or a folder; plain, gzip or zstd. Not pure.

The only module of this package that reads files.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.conversation_log import read_conversation
from analyzer.recordings.file_bytes import read_bounded, unpack
from semconv.json_text import read_json

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""Byte order mark that some editors and spreadsheets write."""


def read_dataset(path: Path) -> tuple[Conversation, ...]:
    """Read every run of a data set, in the order of its lines or file names.

    Raises:
        UnreadableInput: there is no such file, or it holds something other than
            conversation logs; the message says where.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in {".json", ".jsonl", ".gz", ".zst"})
        return tuple(run for file in files for run in _read_file(file, subset=file.parent.name))
    return tuple(_read_file(path, subset=path.name.split(".")[0]))


def _read_file(path: Path, subset: str) -> Iterator[Conversation]:
    try:
        with path.open("rb") as file:
            raw = unpack(read_bounded(file)).removeprefix(_BYTE_ORDER_MARK)
    except (OSError, UnreadableInput) as error:
        raise UnreadableInput(f"{path}: cannot be read as JSON, plain, gzip or zstd: {error}") from error
    for place, document in _documents(path, raw):
        try:
            run = _labelled(document)
        except UnreadableInput as error:
            raise UnreadableInput(f"{path}{place}: {error}") from error
        yield run if run.subset else replace(run, subset=subset)


def _labelled(document: object) -> Conversation:
    if isinstance(document, dict) and isinstance(document.get("resourceSpans"), list):
        # Importing the decoder of spans takes longer than reading most data sets.
        from analyzer.recordings.otlp_file import read_labelled_trace  # noqa: PLC0415

        return read_labelled_trace(document)
    return read_conversation(document)


def _documents(path: Path, raw: bytes) -> Iterator[tuple[str, object]]:
    """Yield each document with its location: one JSON value (an array's items), or one per line."""
    whole = None if _begins_with_a_line_of_json(raw) else _whole(raw)
    if whole is None:
        yield from _lines(path, raw)
    elif isinstance(whole, list):
        yield from ((f"[{number}]", document) for number, document in enumerate(whole))
    else:
        yield "", whole


def _lines(path: Path, raw: bytes) -> Iterator[tuple[str, object]]:
    """Yield one document per line, each decoded separately: together they need several times the memory."""
    for number, line in enumerate(io.BytesIO(raw), start=1):
        if line.strip():
            try:
                yield f":{number}", read_json(line.decode())
            except UnicodeDecodeError as error:
                raise UnreadableInput(f"{path}:{number}: cannot be read as UTF-8: {error}") from error
            except ValueError as error:
                raise UnreadableInput(f"{path}:{number}: not JSON: {error}") from error


def _begins_with_a_line_of_json(raw: bytes) -> bool:
    end = raw.find(b"\n")
    return end >= 0 and bool(raw[end:].strip()) and _whole(raw[:end]) is not None


def _whole(raw: bytes) -> object:
    """Return the text's single JSON value; ``None`` for anything else, and for ``null``."""
    try:
        return cast("object", read_json(raw.decode()))
    except ValueError:
        return None
