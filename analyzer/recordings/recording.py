"""What a reader of one file format is, and what it returns: spans, export requests, conversations. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from types import NoneType
from typing import Any, Final, TypeAlias, TypeVar

from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.defects import DOCUMENTS, Words, where_and_why
from collector_processor.otlp import MOST_EVENTS, MOST_LINKS, Signal
from semconv.model import Attributes, AttributeValue, Event, Link, Resource, Scope, Span, SpanStatus
from semconv.record import record

T = TypeVar("T")

Records: TypeAlias = Sequence[Any]
"""Values of one file: its lines, its rows, the items of its list, or its only document."""
Spans: TypeAlias = Iterable[Span]
"""What most readers make of a file."""
_SPANS_AT_ONCE: Final = 1_000
DEFECTS: Final = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What a document of an unexpected shape makes a reader raise."""


@record
class Recording:
    """The contents of one file."""

    requests: tuple[tuple[Signal, bytes | tuple[Span, ...]], ...] = ()
    """Export requests in file order: as protobuf, or the spans that one would hold."""
    conversations: tuple[Conversation, ...] = ()
    warnings: tuple[str, ...] = ()
    """What of the file could not be read, a sentence each."""

    @property
    def traces(self) -> tuple[bytes | tuple[Span, ...], ...]:
        """The requests with spans, for ``rebuild``."""
        return tuple(body for signal, body in self.requests if signal is Signal.TRACES)

    def bodies(self, signal: Signal) -> tuple[bytes, ...]:
        """Return the requests of one signal as protobuf, which takes longer than reading them did."""
        return tuple(as_protobuf(body) for kind, body in self.requests if kind is signal)


@record
class FileFormat:
    """One format: how its records are recognised, and their reader."""

    name: str
    """As its users call it: "LangSmith runs"."""
    source: str
    """Where the format is documented or which program writes it."""
    how: str
    """How its users get such a file, as Markdown without ``|``: a command, a line of code, or a button."""
    example: str
    """Name of the file in ``examples/files`` that shows it."""
    recognizes: Callable[[Records], bool]
    """Tells by the keys of the records, not by their texts. Never raises."""
    read: Callable[[Records], Recording | Spans]
    """Reads records that were recognised, as spans unless they are requests or conversations already.

    May raise anything in ``DEFECTS`` for values of the wrong type, also when its spans are iterated.
    """
    agent: str = ""
    """The name given to an agent for which the format records none; empty if it records one."""
    records_tools: bool = True
    """Whether calls of tools are recorded, so that a tool that fails can be seen."""
    kinds: tuple[FileFormat, ...] = ()
    """Formats that recognise and read the records in place of this one, if it is a name for several."""

    def of(self, records: Records) -> FileFormat | None:
        """Return what recognises records: this format or one of its kinds; ``None`` without any."""
        return next((kind for kind in self.kinds or (self,) if kind.recognizes(records)), None)


def read_as(
    file_format: FileFormat, records: Records, *, words: Words = DOCUMENTS, place: str = ""
) -> Recording:
    """Read records in a format that recognised them.

    Args:
        file_format: the format.
        records: what it recognised.
        words: what the file's records are called.
        place: where they stand, if they are a part of a file.

    Raises:
        UnreadableInput: a value has a type that the format does not allow; the message says where.
    """
    try:
        found = file_format.read(records)
        return found if isinstance(found, Recording) else of_spans(found)
    except UnreadableInput:
        raise
    except DEFECTS as error:
        why = where_and_why(error, records, words)
        name = file_format.name.partition(" (")[0]
        raise UnreadableInput(f"cannot be read as {name}: {place}{why}") from error


def as_protobuf(request: bytes | tuple[Span, ...]) -> bytes:
    """Return a request, or the one that holds these spans, as protobuf."""
    if isinstance(request, bytes):
        return request
    starts = range(0, len(request), _SPANS_AT_ONCE)
    # Requests may follow one another in the same bytes; building a large one takes several times its size.
    from collector_processor.rebuild.encode import encode  # noqa: PLC0415 - imports protobuf

    return b"".join(encode(request[start : start + _SPANS_AT_ONCE]) for start in starts)


def of_spans(spans: Spans) -> Recording:
    """Return the recording that holds these spans; without any, it is empty.

    Values that OTLP cannot hold (numbers of more than 64 bits, say) become what a backend would get.

    Raises:
        TypeError, ValueError: a value is of no type that OTLP has.
    """
    found = tuple(spans)
    known: set[Any] = set()
    request = found if all(_is_exact(span, known) for span in found) else as_protobuf(found)
    return Recording(requests=((Signal.TRACES, request),) if found else ())


def merged(recordings: Iterable[Recording]) -> Recording:
    """Return the contents of several recordings as one."""
    found = tuple(recordings)
    return Recording(
        requests=tuple(request for recording in found for request in recording.requests),
        conversations=tuple(conversation for recording in found for conversation in recording.conversations),
        warnings=tuple(dict.fromkeys(warning for recording in found for warning in recording.warnings)),
    )


# --- what OTLP holds ---
#
# Encoding and decoding takes longer than all else that is done to read messages. These tests are quick; they
# may say no of spans that would stay equal.

_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_SPAN_ID: Final = re.compile(r"(?!0{16})[0-9a-f]{16}")
_INT64: Final = range(-(2**63), 2**63)
_UINT64: Final = 1 << 64
_UINT32: Final = 1 << 32
_KINDS: Final = 6
"""Least numbers that are too large for a time, for flags and counts, and for a kind."""
_SCALARS: Final = frozenset({bool, float, bytes, NoneType})


def _is_exact(span: Span, known: set[Any]) -> bool:
    """Tell whether a span is equal once it has been encoded and decoded.

    Args:
        span: one of several, which are all held meanwhile.
        known: ids of traces and parents that are valid, and ``id`` of each valid resource and scope.
    """
    return (
        (span.trace_id in known or _is_id(_TRACE_ID, span.trace_id, known))
        and _SPAN_ID.fullmatch(span.span_id) is not None
        and (span.parent_id is None or span.parent_id in known or _is_id(_SPAN_ID, span.parent_id, known))
        and _are_texts((span.name, span.status_message, span.trace_state))
        and span.start_ns.__class__ is span.end_ns.__class__ is span.kind.__class__ is int
        and span.flags.__class__ is span.dropped_attributes.__class__ is int
        and 0 <= span.start_ns < _UINT64
        and 0 <= span.end_ns < _UINT64
        and 0 <= span.kind < _KINDS
        and 0 <= span.flags < _UINT32
        and 0 <= span.dropped_attributes < _UINT32
        and span.status.__class__ is SpanStatus
        and _are_exact(span.attributes)
        and not span.logs
        and (not span.events or _all_exact(_is_exact_event, span.events, MOST_EVENTS))
        and (not span.links or _all_exact(_is_exact_link, span.links, MOST_LINKS))
        and (id(span.resource) in known or _is_source(span.resource, known))
        and (id(span.scope) in known or _is_source(span.scope, known))
    )


def _is_id(form: re.Pattern[str], text: str, known: set[Any]) -> bool:
    if not form.fullmatch(text):
        return False
    known.add(text)
    return True


def _all_exact(is_exact: Callable[[T], bool], found: Sequence[T], most: int) -> bool:
    return len(found) <= most and all(map(is_exact, found))


def _is_exact_event(event: Event) -> bool:
    is_number = event.time_ns.__class__ is int and 0 <= event.time_ns < _UINT64
    is_timed = is_number and _are_texts((event.name,))
    return is_timed and event.body is None and _are_exact(event.attributes)


def _is_exact_link(link: Link) -> bool:
    is_valid = _TRACE_ID.fullmatch(link.trace_id) and _SPAN_ID.fullmatch(link.span_id)
    return bool(is_valid) and _are_exact(link.attributes)


def _is_source(source: Resource | Scope, known: set[Any]) -> bool:
    named = (source.name, source.version) if isinstance(source, Scope) else ()
    if not _are_texts((source.schema_url, *named)) or not _are_exact(source.attributes):
        return False
    known.add(id(source))
    return True


def _are_exact(attributes: Attributes) -> bool:
    return _are_texts(attributes) and (
        _are_texts(attributes.values()) or all(map(_is_value, attributes.values()))
    )


def _is_value(value: AttributeValue) -> bool:
    if isinstance(value, tuple):
        return all(not isinstance(each, tuple) and _is_value(each) for each in value)
    is_number = value.__class__ is int and value in _INT64
    return is_number or value.__class__ in _SCALARS or _are_texts((value,))


def _are_texts(values: Iterable[Any]) -> bool:
    """Tell whether all values are texts that UTF-8 can hold: half a surrogate pair it cannot."""
    try:
        return all(map(str.isascii, values)) or bool("".join(values).encode())
    except (TypeError, UnicodeEncodeError):
        return False
