"""Reader of recorded runs from files: the format is detected by content, never by name.

Formats: OTLP (JSON, one document or one per line; protobuf, bare or length-prefixed as the
Collector's file exporter writes it), Jaeger JSON, Tempo JSON, a Langfuse export, conversation
logs (also in YAML); each gzipped or not. Foreign JSON is converted to OTLP/JSON and then to
protobuf, so that a file is processed like live spans from there on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.backend_json import is_jaeger, is_tempo, jaeger_to_otlp, tempo_to_otlp
from analyzer.recordings.conversation_log import is_conversation, is_message, read_conversation
from analyzer.recordings.file_bytes import unpack
from analyzer.recordings.langfuse_export import is_langfuse, langfuse_to_otlp
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_protobuf
from collector_processor.rebuild.decode import decode, decode_logs
from semconv.json_text import read_json

_OTLP_LISTS: Final = {
    Signal.TRACES: ("resourceSpans", "resource_spans"),
    Signal.LOGS: ("resourceLogs", "resource_logs"),
    Signal.METRICS: ("resourceMetrics", "resource_metrics"),
}
MAX_YAML_BYTES: Final = 16 << 20
"""Largest YAML file: its parser reads about a megabyte a second."""
_YAML: Final = re.compile(r"\s*(?:#[^\n]*\n\s*|---\s+)*(?:- |[A-Za-z_][\w-]*:\s)")
_EXPECTED: Final = (
    "expected OTLP (JSON or protobuf), Jaeger JSON, Tempo JSON, a Langfuse export,"
    ' or a conversation log: messages, or a list of them as "history" (JSON or YAML); gzipped or not'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The contents of one file."""

    requests: tuple[tuple[Signal, bytes], ...] = ()
    """Export requests as protobuf, in file order."""
    conversations: tuple[Conversation, ...] = ()

    def bodies(self, signal: Signal) -> tuple[bytes, ...]:
        """Return the requests of one signal."""
        return tuple(body for kind, body in self.requests if kind is signal)


def read_recording(data: bytes) -> Recording:
    """Read one file's bytes.

    Raises:
        UnreadableInput: the file has none of the formats; the message lists them.
    """
    plain = unpack(data)
    try:
        return _read(plain)
    except RecursionError as error:
        raise UnreadableInput("values nested too deeply to be read") from error


def _read(plain: bytes) -> Recording:
    text = _as_text(plain)
    if text is None:
        documents = _yaml_documents(plain)
        if not documents:
            return Recording(requests=tuple(_protobuf_requests(plain)))
    else:
        documents = list(_documents(text))
    requests: list[tuple[Signal, bytes]] = []
    conversations: list[Conversation] = []
    for document in documents:
        if is_conversation(document):
            conversations.append(read_conversation(document))
        else:
            requests.extend(_otlp_requests(document))
    return Recording(requests=tuple(requests), conversations=tuple(conversations))


def _as_text(plain: bytes) -> str | None:
    """Return JSON as text, or ``None`` for anything else."""
    if plain.lstrip()[:1] not in {b"{", b"["} and not plain.startswith(b"\xef\xbb\xbf"):
        return None
    try:
        return plain.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _documents(text: str) -> Iterator[Any]:
    """Yield one document, one per line, or the items of a top-level list."""
    try:
        documents = [read_json(text)]
    except ValueError as whole:
        documents = list(_lines(text, whole))
    if len(documents) > 1 and all(map(is_message, documents)):  # a conversation, one message per line
        documents = [documents]
    for document in documents:
        is_one = not isinstance(document, list) or is_conversation(document) or is_langfuse(document)
        yield from [document] if is_one else document


def _yaml_documents(plain: bytes) -> list[Any]:
    """Return the documents of a YAML file; empty if it does not look like one."""
    if not _YAML.match(plain[:4096].decode("utf-8-sig", errors="replace")):
        return []
    if len(plain) > MAX_YAML_BYTES:
        raise UnreadableInput(f"YAML of more than {MAX_YAML_BYTES >> 20} MiB: convert it to JSON")
    try:
        found = read_yaml(plain.decode("utf-8-sig"))
    except ValueError as error:  # the encoding may be wrong too
        raise UnreadableInput(f"YAML that cannot be read: {error}; {_EXPECTED}") from error
    return [document for document in found if document is not None]


def _lines(text: str, whole: ValueError) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield read_json(line)
        except ValueError as error:
            # If even the first line is not JSON, it is one broken document: report that error.
            where = str(whole) if number == 1 else f"line {number}: {error}"
            raise UnreadableInput(f"broken JSON: {where}; {_EXPECTED}") from error


def _otlp_requests(document: Any) -> Iterator[tuple[Signal, bytes]]:
    if is_langfuse(document):
        yield Signal.TRACES, _encoded(Signal.TRACES, _translated(langfuse_to_otlp, document, "Langfuse"))
        return
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


def _translated(translate: Any, document: Any, whose: str) -> dict[str, Any]:
    try:
        translated: dict[str, Any] = translate(document)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UnreadableInput(f"cannot be read as {whose} JSON: {error!r}") from error
    return translated


def _encoded(signal: Signal, document: dict[str, Any]) -> bytes:
    only = {name: document[name] for name in _OTLP_LISTS[signal] if name in document}
    try:
        return to_protobuf(signal, json.dumps(only).encode())
    except MalformedRequestError as error:
        raise UnreadableInput(f"OTLP/JSON that cannot be read: {error}") from error


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
    raise UnreadableInput(_EXPECTED)


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


# YAML, built from parser events with a stack of our own: PyYAML's composer recurses, so that nested text ends
# the process, its numbers of base 60 take quadratic time, and aliases unfold a small file into gigabytes.

MAX_DEPTH: Final = 100
"""Bound on nested lists and mappings."""
_LITERAL: Final = re.compile(r"true|false|-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?")
"""Pattern of plain scalars that are not text; dates, ``yes`` and other YAML 1.1 forms stay text, as in YAML
1.2."""
_TAGS: Final = frozenset({None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))})
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


def read_yaml(text: str) -> list[Any]:
    """Return the documents of a YAML text as JSON types: dicts with text keys, lists, scalars.

    Raises:
        ValueError: the text is not YAML, or it holds aliases, tags, keys that are not text, or more than
            ``MAX_DEPTH`` levels; the message says which.
    """
    documents: list[Any] = []
    stack: list[list[Any]] = [documents]
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            _take(event, stack)
    except yaml.YAMLError as error:
        raise ValueError(str(error).partition("\n")[0]) from error
    return documents


def _take(event: yaml.Event, stack: list[list[Any]]) -> None:
    """Add one event to the innermost list; a mapping is a list of keys and values until it ends."""
    if isinstance(event, yaml.AliasEvent):
        raise ValueError("YAML aliases are not supported")  # noqa: TRY004 - the text is wrong, not an argument's type
    if isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent) and event.tag not in _TAGS:
        raise ValueError(f"a value with the tag {event.tag}")
    if isinstance(event, yaml.CollectionStartEvent):
        if len(stack) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels of nesting")
        stack.append([])
    elif isinstance(event, yaml.ScalarEvent):
        stack[-1].append(_scalar(event))
    elif isinstance(event, yaml.SequenceEndEvent):
        ended = stack.pop()
        stack[-1].append(ended)
    elif isinstance(event, yaml.MappingEndEvent):
        ended = stack.pop()
        stack[-1].append(_mapping(ended))


def _mapping(items: list[Any]) -> dict[str, Any]:
    keys = items[::2]
    if not all(isinstance(key, str) for key in keys):
        raise ValueError("a key that is not text")
    return dict(zip(keys, items[1::2], strict=True))


def _scalar(event: yaml.ScalarEvent) -> Any:
    is_plain = event.implicit[0]
    text: str = event.value
    if is_plain and text in _NULLS:
        return None
    return json.loads(text) if is_plain and _LITERAL.fullmatch(text) else text
