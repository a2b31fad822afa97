"""What a trace request holds, without decoding it. Pure.

The hot path of all traffic: one pass over the framing finds each span and its trace id,
one search over all bytes finds those that are marked. Only spans of traces with a marker are
looked at more closely, for the assembler, which decides across requests when a run has ended; of all
others nothing is told but how many items they are.

Most encoders write fields in the order of their numbers, so a span begins with
its trace id and span id. The Collector writes them from its buffer's end, so
all stands in the opposite order: a value before its key, a span's ids last, the
scope behind its spans. Both are read quickly; any other order field by field.
What stands behind the ids of an unmarked span is not looked at: a backend that
refuses it has its request bisected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from collector_processor.framing import GROUP_TAG, fields, read_varint, require_message
from collector_processor.notes import MARKED_BIT, REMOTE_BIT, SpanNote, TraceNote, make_note
from collector_processor.otlp import MalformedRequestError
from collector_processor.raw_ids import (
    SHORTEST_SPAN,
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    has_usual_head,
    parent_id_of,
    span_ids,
)
from collector_processor.survey.facts import (
    Origin,
    Process,
    kind_from,
    linked_traces,
    read_facts,
    read_origin,
    read_process,
)
from collector_processor.survey.found import Survey
from collector_processor.survey.marks import (
    ANY_ORDER,
    CARRIER_BIT,
    MARKED,
    OURS,
    PLAIN,
    ROOMY,
    USUAL,
    Manner,
    Place,
    facts_of,
    marked_spans,
    scope_kind,
)
from semconv.markers import OWN_CALL_TRACE_PREFIX
from semconv.model import TraceId

OUR_TRACES: Final = bytes.fromhex(OWN_CALL_TRACE_PREFIX)
"""How the ids of traces of our own model calls begin."""
_NO_TRACE: Final = bytes(TRACE_ID_BYTES)
_FLAGS_TAG: Final = b"\x85\x01"
_ROOM: Final = 4
"""The most bytes of a tag and a length below 2 MiB, where that is written no longer than it must be."""
_BEYOND: Final = 1 << 62
"""Past every offset in a request."""
_BEHIND_PARENT: Final = SHORTEST_SPAN + 2 + SPAN_ID_BYTES
"""Where a field stands that follows the parent, in a span that begins with its ids."""


def survey(body: bytes, known: Container[TraceId] = ()) -> Survey:
    """Look through a trace request.

    Args:
        body: an ``ExportTraceServiceRequest``.
        known: agent traces seen before; theirs get span notes though no marker is here.

    Raises:
        MalformedRequestError: the framing is broken.
    """
    try:
        found = _find_spans(body)
    except IndexError:
        raise MalformedRequestError("the request is cut short") from None
    places = found.places
    traces = dict.fromkeys([place[3] for place in places])
    invalid = 0
    if _NO_TRACE in traces:
        del traces[_NO_TRACE]
        invalid = sum(place[3] == _NO_TRACE for place in places)
    marked = marked_spans(body, places, found.manner)
    agents = {places[index][3] for index in marked}
    if found.has_marked_scope:
        agents.update(place[3] for place in places if place[2] != PLAIN)
    told = [trace_id for trace_id in traces if trace_id in agents or trace_id.hex() in known]
    return Survey(
        item_count=len(places) - invalid,
        traces=tuple(_notes(body, found, told, marked)) if told else (),
        invalid=found.strays + invalid,
        max_item_bytes=found.largest,
    )


_Group: TypeAlias = tuple[int, int, int, int, int]
"""Index of a scope's first span, and the bounds of its resource and scope messages."""


@dataclass(slots=True)
class _Found:
    """A request's spans."""

    places: list[Place] = field(default_factory=list)
    """In the order in which they stand in it."""
    strays: int = 0
    """Those with ids that are invalid; they have no place."""
    largest: int = 0
    """Bytes of the largest."""
    manner: Manner = USUAL
    has_marked_scope: bool = False
    """Some stand in a scope of an agent's, or of ours."""
    groups: list[_Group] = field(default_factory=list)
    """One entry per scope, in the order of ``places``."""


def _find_spans(body: bytes) -> _Found:
    found = _Found()
    for resource in fields(body, 0, len(body)):
        if resource.number != 1:
            continue
        require_message(resource)
        if resource.start < resource.end and body[resource.start] != GROUP_TAG:
            found.manner = ANY_ORDER  # the Resource, field 1, is not first
        elif resource.start - resource.at > _ROOM and found.manner is USUAL:
            found.manner = ROOMY
        for scope in fields(body, resource.start, resource.end):
            if scope.number == 2:
                require_message(scope)
                found.groups.append((len(found.places), resource.start, resource.end, scope.start, scope.end))
                _find_in_scope(body, scope.start, scope.end, found)
    return found


def _find_in_scope(body: bytes, at: int, end: int, found: _Found) -> None:  # noqa: C901, PLR0912 - hot
    """Add the spans of one scope.

    This loop is where the survey's time goes: hence inlined lengths and no calls.
    """
    kind = scope_kind(body, at, end)
    if kind != PLAIN:
        found.has_marked_scope = True  # or ours: looked at closely all the same
    add, largest = found.places.append, found.largest
    while at < end:
        tag = body[at]
        if tag != 0x12:
            at = _skip(body, at, end)
            continue
        length = body[at + 1]
        start = at + 2
        if length > 0x7F:
            high = body[at + 2]
            if high < 0x80:
                length += (high - 1) << 7
                start = at + 3
            else:
                length, start = read_varint(body, at + 1, end)
        at = start + length
        if at > end:
            raise MalformedRequestError("a span runs past the end of its scope")
        if length > largest:  # noqa: PLR1730 - hot: a call is dearer
            largest = length
        if (
            length > SHORTEST_SPAN
            and body[start] == 0x0A
            and body[start + 1] == 0x10
            and body[start + 18] == 0x12
            and body[start + 19] == 0x08
        ):
            add((start, at, kind, body[start + 2 : start + 18]))
        elif (
            length > SHORTEST_SPAN
            and body[start] != 0x0A
            and body[at - 18] == 0x0A
            and body[at - 17] == 0x10
            and body[at - 28] == 0x12
            and body[at - 27] == 0x08
        ):
            add((start, at, kind, body[at - 16 : at]))
        else:
            trace_id, span_id = span_ids(body, start, at)
            if len(trace_id) != TRACE_ID_BYTES or len(span_id) != SPAN_ID_BYTES:
                found.strays += 1
            else:
                add((start, at, kind, trace_id))
    found.largest = largest


def _skip(body: bytes, at: int, end: int) -> int:
    """Return where the field at ``at`` ends; a span that is no message is malformed."""
    found = next(fields(body, at, end))
    if found.number == 2:
        require_message(found)
        raise MalformedRequestError("a span's tag is written in more bytes than it needs")
    return found.end


def _notes(body: bytes, found: _Found, told: Iterable[bytes], marked: frozenset[int]) -> Iterator[TraceNote]:
    """Yield a note of each trace in ``told``, in that order."""
    own: dict[bytes, list[int]] = {trace_id: [] for trace_id in told}
    for index, place in enumerate(found.places):
        if place[3] in own:
            own[place[3]].append(index)
    origins = _Origins(body, found.groups)
    for trace_id, indexes in own.items():
        yield _trace_note(body, trace_id, indexes, found, marked, origins)


class _Origins:
    """The origins of a request's spans; each group and Resource is read once, on first use."""

    def __init__(self, body: bytes, groups: list[_Group]) -> None:
        self._body: Final = body
        self._groups: Final = groups
        self._known: Final[dict[int, Origin]] = {}
        self._processes: Final[dict[int, Process]] = {}

    def of(self, index: int) -> Origin:
        """Return the origin of the span at this place."""
        number = bisect_right(self._groups, (index, _BEYOND)) - 1
        if number not in self._known:
            _, resource_at, resource_end, scope_at, scope_end = self._groups[number]
            if resource_at not in self._processes:
                self._processes[resource_at] = read_process(self._body, resource_at, resource_end)
            process = self._processes[resource_at]
            self._known[number] = read_origin(self._body, process, scope_at, scope_end)
        return self._known[number]


def _trace_note(  # noqa: PLR0917 - what one request shows of one trace
    body: bytes,
    trace_id: bytes,
    indexes: list[int],
    found: _Found,
    marked: frozenset[int],
    origins: _Origins,
) -> TraceNote:
    """Look at each span; spans of our own model calls count as carriers."""
    places = found.places
    seen = () if trace_id.startswith(OUR_TRACES) else indexes
    noted = tuple(
        note
        for index in seen
        if (note := _span_note(body, places[index], found.manner, origins.of(index), index in marked))
    )
    return TraceNote(
        trace_id=TraceId(trace_id.hex()),
        span_count=len(indexes),
        byte_count=sum(places[index][1] - places[index][0] for index in indexes),
        is_agent=any(span.is_marked for span in noted),
        root_ended=any(span.parent_id is None for span in noted),
        carrier_count=len(indexes) - len(noted),
        spans=noted,
    )


def _span_note(
    body: bytes,
    place: Place,
    manner: Manner,
    origin: Origin,
    is_marked: bool,  # noqa: FBT001 - a fact
) -> SpanNote | None:
    """Return the span's note, ``None`` for a carrier."""
    start, end, kind, trace_id = place
    # What is a fact stands in a marked attribute.
    bits = MARKED_BIT | facts_of(body, start, end, manner) if is_marked else MARKED_BIT * (kind == MARKED)
    if kind == OURS or bits & CARRIER_BIT:
        return None
    if _flags_say_remote(body, start, end):
        bits |= REMOTE_BIT
    end_ns, name = read_facts(body, start, end)
    return make_note(
        span_ids(body, start, end)[1],
        parent_id_of(body, start, end),
        bits,
        end_ns=end_ns,
        source=origin.source,
        kind=kind_from(origin, name),
        links=linked_traces(body, start, end, trace_id),
    )


def _flags_say_remote(body: bytes, at: int, end: int) -> bool:
    """Whether the span's flags say that its parent is in another process.

    They are the last field, in the Collector's order stand before the parent, and .NET writes them
    behind it: a tag of two bytes, then four, of which the second holds the two bits.
    """
    if has_usual_head(body, at, end):
        flags = end - 6
        if not body.startswith(_FLAGS_TAG, flags):
            flags = min(flags, at + _BEHIND_PARENT)
    else:
        flags = end - 44
    return flags > at and body.startswith(_FLAGS_TAG, flags) and body[flags + 3] & 3 == 3
