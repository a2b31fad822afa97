"""Recorded runs from files: told by their content, never by their name.

OTLP (JSON, one document or one a line; protobuf, bare or length-prefixed as the
Collector's file exporter writes it), Jaeger JSON, Tempo JSON, conversation
logs; each gzipped or not. Foreign JSON is turned into OTLP/JSON and then into
protobuf, so that a file takes the same way as live spans from there on.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from analyzer.conversation import Conversation, is_conversation, read_conversation
from analyzer.errors import UnreadableInput
from analyzer.recordings.jaeger import is_jaeger, jaeger_to_otlp
from analyzer.recordings.tempo import is_tempo, tempo_to_otlp
from collector_processor.decode import decode, decode_logs
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.from_json import to_protobuf
from semconv.json_text import read_json

MAX_BYTES: Final = 1 << 30
"""A file may not unpack to more than this."""
_GZIP: Final = b"\x1f\x8b"
_OTLP_LISTS: Final = {
    Signal.TRACES: ("resourceSpans", "resource_spans"),
    Signal.LOGS: ("resourceLogs", "resource_logs"),
    Signal.METRICS: ("resourceMetrics", "resource_metrics"),
}
_EXPECTED: Final = (
    "expected OTLP (JSON or protobuf), Jaeger JSON, Tempo JSON,"
    ' or a conversation log with a "history" or "conversation" list; gzip or not'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What one file holds."""

    requests: tuple[tuple[Signal, bytes], ...] = ()
    """Export requests as protobuf, in file order."""
    conversations: tuple[Conversation, ...] = ()

    def bodies(self, signal: Signal) -> tuple[bytes, ...]:
        """The requests of one signal."""
        return tuple(body for kind, body in self.requests if kind is signal)


def read_recording(data: bytes) -> Recording:
    """Read one file's bytes.

    Raises:
        UnreadableInput: it is none of the formats; the message says what was expected.
    """
    plain = _unpack(data)
    text = _as_text(plain)
    if text is None:
        return Recording(requests=tuple(_protobuf_requests(plain)))
    requests: list[tuple[Signal, bytes]] = []
    conversations: list[Conversation] = []
    for document in _documents(text):
        if is_conversation(document):
            conversations.append(read_conversation(document))
        else:
            requests.extend(_otlp_requests(document))
    return Recording(requests=tuple(requests), conversations=tuple(conversations))


def _unpack(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    plain = bytearray()
    while data:  # files that were appended to have several members
        unpacker = zlib.decompressobj(wbits=31)
        try:
            plain += unpacker.decompress(data, MAX_BYTES + 1 - len(plain))
        except zlib.error as error:
            raise UnreadableInput(f"broken gzip: {error}") from error
        if len(plain) > MAX_BYTES:
            raise UnreadableInput(f"unpacks to more than {MAX_BYTES >> 20} MiB")
        if not unpacker.eof:
            raise UnreadableInput("broken gzip: the end is missing")
        data = unpacker.unused_data
    return bytes(plain)


def _as_text(plain: bytes) -> str | None:
    """JSON as text, or ``None`` for what is not JSON."""
    if plain.lstrip()[:1] not in {b"{", b"["} and not plain.startswith(b"\xef\xbb\xbf"):
        return None
    try:
        return plain.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _documents(text: str) -> Iterator[Any]:
    """One document, or one a line; a list at the top is its items."""
    try:
        documents = [read_json(text)]
    except ValueError as whole:
        documents = list(_lines(text, whole))
    for document in documents:
        yield from document if isinstance(document, list) and not is_conversation(document) else [document]


def _lines(text: str, whole: ValueError) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield read_json(line)
        except ValueError as error:
            # If not even the first line is JSON, it was one document, broken where the whole says.
            where = str(whole) if number == 1 else f"line {number}: {error}"
            raise UnreadableInput(f"broken JSON: {where}; {_EXPECTED}") from error


def _otlp_requests(document: Any) -> Iterator[tuple[Signal, bytes]]:
    if not isinstance(document, dict):
        raise UnreadableInput(_EXPECTED)
    inner = document["result"] if isinstance(document.get("result"), dict) else document  # Jaeger's v3 API
    found = [signal for signal, names in _OTLP_LISTS.items() if any(name in inner for name in names)]
    if found:
        for signal in found:
            yield signal, _encoded(signal, inner)
    elif is_jaeger(document):
        yield Signal.TRACES, _encoded(Signal.TRACES, _translated(jaeger_to_otlp, document, "Jaeger"))
    elif is_tempo(document):
        yield Signal.TRACES, _encoded(Signal.TRACES, _translated(tempo_to_otlp, document, "Tempo"))
    else:
        raise UnreadableInput(_EXPECTED)


def _translated(translate: Any, document: dict[str, Any], whose: str) -> dict[str, Any]:
    try:
        translated: dict[str, Any] = translate(document)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UnreadableInput(f"{whose} JSON with something unexpected in it: {error!r}") from error
    return translated


def _encoded(signal: Signal, document: dict[str, Any]) -> bytes:
    only = {name: document[name] for name in _OTLP_LISTS[signal] if name in document}
    try:
        return to_protobuf(signal, json.dumps(only).encode())
    except MalformedRequestError as error:
        raise UnreadableInput(f"OTLP/JSON that cannot be read: {error}") from error


def _protobuf_requests(plain: bytes) -> list[tuple[Signal, bytes]]:
    """Return the requests, bare or framed; nothing in the bytes but what they hold tells spans from logs.

    Read as spans, log records have no ids and are none; so spans are looked for first.
    """
    for bodies in ([plain], _frames(plain)):
        for signal, holds_any in _HOLDS_ANY.items():
            try:
                if bodies and any(holds_any(body) for body in bodies):
                    return [(signal, body) for body in bodies]
            except MalformedRequestError:
                continue
    raise UnreadableInput(_EXPECTED)


def _holds_spans(body: bytes) -> bool:
    return bool(decode(body).spans)


def _holds_log_records(body: bytes) -> bool:
    """Say whether there is a record that says something; spans read as logs are records of nothing."""
    return any(record.event.body is not None or record.event.attributes for record in decode_logs(body))


_HOLDS_ANY: Final[Mapping[Signal, Callable[[bytes], bool]]] = {
    Signal.TRACES: _holds_spans,
    Signal.LOGS: _holds_log_records,
}


def _frames(plain: bytes) -> list[bytes]:
    """Requests behind their length in four bytes, big-endian; none where it is not that."""
    bodies, at = [], 0
    while at + 4 <= len(plain):
        size = int.from_bytes(plain[at : at + 4], "big")
        if not size:
            return []
        bodies.append(plain[at + 4 : at + 4 + size])
        at += 4 + size
    return bodies if at == len(plain) else []
