"""Reader of recorded runs from files: the format is detected by content, never by name.

A file is unpacked and split into records (the lines, rows or list items of JSON, YAML or a table, or the only
document). OTLP is read here; the other formats are in ``formats``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_bytes import unpack
from analyzer.recordings.file_text import FileText, split_text
from analyzer.recordings.otlp_file import OTLP
from analyzer.recordings.recording import Recording, read_as
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.rebuild.decode import decode, decode_logs
from semconv.record import replace


def read_recording(data: bytes) -> Recording:
    """Read one file's bytes.

    Raises:
        UnreadableInput: the file has none of the formats; the message describes what it looks like.
    """
    plain = unpack(data)
    try:
        with _without_collections():
            return _read(plain)
    except RecursionError as error:
        raise UnreadableInput("values nested too deeply to be read") from error


@contextmanager
def _without_collections() -> Iterator[None]:
    """Switch the cyclic garbage collector off.

    Readers make millions of values and no cycles: the collector would visit all of them again and again,
    which takes a third of the time, and more the larger the file.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read(plain: bytes) -> Recording:
    text = split_text(plain)
    if text is None:
        return Recording(requests=tuple(_protobuf_requests(plain)))
    recording = _recording_of(text)
    if not recording.requests and not recording.conversations:
        raise UnreadableInput("no agent speaks in it and no tool answers: at most a person's messages")
    return replace(recording, warnings=(*recording.warnings, *text.warnings))


def _recording_of(text: FileText) -> Recording:
    if text.records and OTLP.recognizes(text.records):
        return read_as(OTLP, text.records)
    # Importing fifty readers takes as long as reading a small file.
    from analyzer.recordings.formats import read_records  # noqa: PLC0415

    return read_records(text)


def _protobuf_requests(plain: bytes) -> list[tuple[Signal, bytes]]:
    """Return the requests, bare or framed; only their content distinguishes spans from logs.

    Log records read as spans have no ids, so spans are tried first.
    """
    for bodies in ([plain], _frames(plain)):
        for signal, holds_any in _HOLDS_ANY.items():
            try:
                if bodies and any(holds_any(body) for body in bodies):
                    return [(signal, body) for body in bodies]
            except MalformedRequestError:
                continue
    from analyzer.recordings.formats import described  # noqa: PLC0415 - as above

    raise UnreadableInput(described(None, ()))


def _holds_spans(body: bytes) -> bool:
    return bool(decode(body).spans)


def _holds_log_records(body: bytes) -> bool:
    """Tell whether there is a log record with content; spans read as logs have none."""
    return any(record.event.body is not None or record.event.attributes for record in decode_logs(body))


_HOLDS_ANY: Final[Mapping[Signal, Callable[[bytes], bool]]] = {
    Signal.TRACES: _holds_spans,
    Signal.LOGS: _holds_log_records,
}


def _frames(plain: bytes) -> list[bytes]:
    """Return requests with four-byte big-endian length prefixes; empty if the format does not match."""
    bodies, at = [], 0
    while at + 4 <= len(plain):
        size = int.from_bytes(plain[at : at + 4], "big")
        if not size:
            return []
        bodies.append(plain[at + 4 : at + 4 + size])
        at += 4 + size
    return bodies if at == len(plain) else []
