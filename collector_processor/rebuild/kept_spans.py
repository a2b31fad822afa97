"""A run's spans and logs as received, without their secrets, packed for the store. Pure.

Every text of the requests is redacted, including short values that only their key shows to be secrets
(``{"password": "…"}``). Everything that may hold a secret counts as a text: names, keys, values, bytes, and
numbers as long as a card number. If a run is too large, its texts are shortened; JSON stays JSON.

A run usually takes 2 to 10 KiB, at most ``MAX_PACKED``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import zstandard

from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.decode import parse_logs, parse_traces
from collector_processor.rebuild.redaction import Redactor, RunRedactor
from semconv.model import Span

FORMAT: Final = 1
MAX_PACKED: Final = 8 << 20
"""Largest kept run, in compressed bytes."""
MAX_PLAIN: Final = 16 << 20
"""Largest kept run, uncompressed; texts of larger ones are shortened."""
_LENGTHS: Final = (0, 20_000, 2_000, 200)
"""Characters kept of each text, 0 for all; the next limit is tried while the run is too large."""
_HEAD: Final = 0.75
"""Share of a shortened text taken from its beginning; the rest is taken from its end."""
_MARGIN: Final = 5_000
"""Characters beyond a cut that are also redacted, so that a secret across the cut is still recognised."""
_LEVEL: Final = 3
_SHORT: Final = 200
"""Longest value, in characters, that may be a secret because of its key."""
_COPIES: Final = 16
"""Bound on the size of a trace's runs, as a multiple of its own: each repeats the shared Resource."""
_MOST_KNOWN: Final = 100_000
"""Number of hashes of texts without secrets to keep, some MiB; then all are dropped."""
_REPLACED: Final = "[redacted]"
_JSON_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSpans:
    """The spans and logs of one run, as stored."""

    traces: bytes
    """An ``ExportTraceServiceRequest``."""
    logs: bytes = b""
    """An ``ExportLogsServiceRequest``; empty without logs."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """Number of replaced secrets, by kind; a recurring text counts once."""
    cut: int = 0
    """Number of shortened texts; a recurring text counts once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanKeeper:
    """Packs the spans of runs."""

    redactor: Redactor | None
    """If ``None``, no text may be kept, and so no spans."""
    keeps_failed: bool = True
    keeps_passed: bool = True
    known: set[int] = field(default_factory=set, repr=False, compare=False)
    """Hashes of texts without secrets, shared by many runs: most of a run's texts recur in others."""

    def wants(self, *, is_failure: bool | None) -> bool:
        """Return whether such a run is kept; ``None`` if a model must still decide whether it failed."""
        if self.redactor is None:
            return False
        if is_failure is None:
            return self.keeps_failed or self.keeps_passed
        return self.keeps_failed if is_failure else self.keeps_passed

    def pack(
        self,
        bodies: Sequence[bytes],
        logs: Sequence[bytes],
        runs: Sequence[tuple[Sequence[Span], RunRedactor]],
        wanted: Sequence[bool],
    ) -> list[bytes | None]:
        """Return each wanted run, packed; ``None`` for the others and for runs that are too large.

        Args:
            bodies: export requests of the traces' spans.
            logs: export requests of their log records.
            runs: all runs of the traces: their spans, and the redactor of their steps, so that equal secrets
                get equal names.
            wanted: which of them to pack.
        """
        if not any(wanted):
            return [None] * len(runs)
        parts: Sequence[_Part] = [(bodies, logs)]
        if len(runs) > 1:
            parts = _split(bodies, logs, [_keys(spans) for spans, _ in runs], wanted)
        return [
            self._packed(*part, redact) if is_wanted and part[0] else None
            for part, (_, redact), is_wanted in zip(parts, runs, wanted, strict=True)
        ]

    def _packed(self, bodies: Sequence[bytes], logs: Sequence[bytes], redact: RunRedactor) -> bytes | None:
        assert self.redactor is not None
        own = redact if redact.redactor is self.redactor else self.redactor.for_run()
        size = sum(map(len, (*bodies, *logs)))
        for length in _LENGTHS[size > MAX_PLAIN :]:
            plain = _plain(bodies, logs, _Cleaning(own, length, self.known))
            if len(plain) <= MAX_PLAIN:
                packed = zstandard.ZstdCompressor(level=_LEVEL).compress(plain)
                if len(packed) <= MAX_PACKED:
                    return packed
        return None


def unpack_spans(packed: bytes) -> KeptSpans:
    """Read a kept run.

    Raises:
        MalformedRequestError: the bytes are of a newer version, or corrupt.
    """
    try:
        if not 0 < zstandard.frame_content_size(packed) <= MAX_PLAIN:
            raise MalformedRequestError("a kept run cannot be read: it has no size, or is too large")
        head, _, rest = zstandard.ZstdDecompressor().decompress(packed).partition(b"\n")
        header = json.loads(head)
        if header["format"] != FORMAT:
            raise MalformedRequestError(f"a kept run of format {header['format']}, expected {FORMAT}")
        return KeptSpans(
            traces=rest[: header["traces"]],
            logs=rest[header["traces"] :],
            redacted=header["redacted"],
            cut=header["cut"],
        )
    except (zstandard.ZstdError, ValueError, KeyError, TypeError) as error:
        raise MalformedRequestError(f"a kept run cannot be read: {type(error).__name__}: {error}") from error


def _plain(bodies: Sequence[bytes], logs: Sequence[bytes], cleaning: _Cleaning) -> bytes:
    """Return the redacted and shortened requests, after a header line that describes the changes."""
    before = Counter(cleaning.redact.counts)
    traces = b"".join(cleaning.clean(parse_traces(body), visit_spans) for body in bodies)
    records = b"".join(cleaning.clean(parse_logs(body), visit_records) for body in logs)
    header = {
        "format": FORMAT,
        "traces": len(traces),
        "redacted": cleaning.redact.counts - before,
        "cut": cleaning.cut,
    }
    return b"".join((json.dumps(header, separators=(",", ":")).encode(), b"\n", traces, records))


class _Cleaning:
    """Redacts and shortens the texts of one run."""

    def __init__(self, redact: RunRedactor, length: int, known: set[int]) -> None:
        self.redact: Final = redact
        self._length: Final = length
        self._known: Final = known
        self._memo: Final[dict[Place, str | None]] = {}
        self.cut = 0

    def clean(self, request: Any, visit_all: VisitAll) -> bytes:
        """Return the bytes of a request without secrets and unknown fields."""
        request.DiscardUnknownFields()
        found: set[Place] = set()
        visit_all(request, found.add)
        known = self._known
        new = [place for place in found if hash(place) not in known]
        is_short = not self._length or max((len(text) for _, text in found), default=0) <= self._length
        is_clean = self.redact.find_clean(map(_in_context, new))
        if is_clean:
            if len(known) > _MOST_KNOWN:
                known.clear()
            known.update(map(hash, new))
        if not (is_clean and is_short):
            visit_all(request, self._cleaned_once)
        data: bytes = request.SerializeToString()
        return data

    def _cleaned_once(self, place: Place) -> str | None:
        if place not in self._memo:  # most texts recur in each later model call
            self._memo[place] = self._cleaned(place)
        return self._memo[place]

    def _cleaned(self, place: Place) -> str | None:
        key, text = place
        if self._length and len(text) > self._length:
            return self.redact(self._shortened(text))
        read = _in_context(place)
        cleaned = self.redact(read)
        if cleaned == read:
            return None
        if read is text:
            return cleaned
        before, after = _around(key)
        is_whole = len(cleaned) >= len(before + after) and cleaned.startswith(before)
        is_whole = is_whole and cleaned.endswith(after)
        return cleaned[len(before) : len(cleaned) - len(after)] if is_whole else _REPLACED

    def _shortened(self, text: str) -> str:
        """Shorten a text; in JSON, shorten each string."""
        if not text.lstrip().startswith(("[", "{")):
            return self._ends(text)
        shorter = _JSON_STRING.sub(self._json_string, text)
        return shorter if self._length > _LENGTHS[-1] else self._ends(shorter)

    def _json_string(self, found: re.Match[str]) -> str:
        if len(found[0]) <= self._length:
            return found[0]
        try:
            text = json.loads(found[0], strict=False)
        except ValueError:
            return json.dumps(self._ends(found[0]))
        return json.dumps(self._ends(text), ensure_ascii=False)

    def _ends(self, text: str) -> str:
        if len(text) <= self._length:
            return text
        self.cut += 1
        return both_ends(text, self._length, self.redact)


def both_ends(text: str, length: int, clean: Callable[[str], str]) -> str:
    """Return the cleaned beginning and end of a long text, with the number of characters left out."""
    head = int(length * _HEAD)
    tail = length - head
    first, last = clean(text[: head + _MARGIN])[:head], clean(text[-(tail + _MARGIN) :])[-tail:]
    return f"{first}\n[{len(text) - length} characters left out]\n{last}"


def _in_context(place: Place) -> str:
    """Return a text in the form that is searched for secrets: a short one after its key."""
    key, text = place
    if not key or len(text) > _SHORT:
        return text
    before, after = _around(key)
    return f"{before}{text}{after}"


def _around(key: str) -> tuple[str, str]:
    return f'"{key}": "', '"'


SpanKey = tuple[bytes, bytes]
_Part = tuple[Sequence[bytes], Sequence[bytes]]


def _keys(spans: Iterable[Span]) -> Iterator[SpanKey]:
    return ((bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)) for span in spans)


def _split(
    bodies: Sequence[bytes], logs: Sequence[bytes], runs: Sequence[Iterable[SpanKey]], wanted: Sequence[bool]
) -> list[_Part]:
    """Return the requests of each run of the traces; empty for runs beyond the bound on copies."""
    owners = {key: at for at, keys in enumerate(runs) if wanted[at] for key in keys}
    room = _Room(_COPIES * sum(map(len, (*bodies, *logs))))
    spans = _split_requests(
        map(parse_traces, bodies), ("resource_spans", "scope_spans", "spans"), owners, room
    )
    records = _split_requests(
        map(parse_logs, logs), ("resource_logs", "scope_logs", "log_records"), owners, room
    )
    return [
        ((), ()) if at in room.refused else (spans.get(at, ()), records.get(at, ()))
        for at in range(len(runs))
    ]


@dataclass(slots=True)
class _Room:
    """Budget in bytes for copies of Resources."""

    left: int
    refused: set[int] = field(default_factory=set)
    """Number of runs beyond the budget."""


def _split_requests(
    requests: Iterable[Any], names: tuple[str, str, str], owners: Mapping[SpanKey, int], room: _Room
) -> dict[int, list[bytes]]:
    groups, scopes, members = names
    found: dict[int, list[bytes]] = {}
    for request in requests:
        own: dict[int, Any] = {}
        for group in getattr(request, groups):
            size = group.resource.ByteSize()
            of_group: dict[int, Any] = {}
            for scope in getattr(group, scopes):
                of_scope: dict[int, Any] = {}
                for item in getattr(scope, members):
                    at = owners.get((item.trace_id, item.span_id))
                    if at is None or at in room.refused:
                        continue
                    if at not in of_group:
                        room.left -= size
                        if room.left < 0:
                            room.refused.add(at)
                            continue
                        of_group[at] = getattr(own.setdefault(at, type(request)()), groups).add()
                        of_group[at].resource.CopyFrom(group.resource)
                        of_group[at].schema_url = group.schema_url
                    if at not in of_scope:
                        of_scope[at] = getattr(of_group[at], scopes).add()
                        of_scope[at].scope.CopyFrom(scope.scope)
                        of_scope[at].schema_url = scope.schema_url
                    getattr(of_scope[at], members).add().CopyFrom(item)
        for at, one in own.items():
            found.setdefault(at, []).append(one.SerializeToString())
    return found


LARGE_NUMBER: Final = 10**11
"""Smallest number visited as a text, because it may be a card number."""

Place: TypeAlias = tuple[str, str]
"""Receives a text's key (empty if it has none) and the text."""
Visit: TypeAlias = Callable[[Place], str | None]
"""Returns the replacement for a text; ``None`` to keep it."""
VisitAll: TypeAlias = Callable[[Any, Visit], None]

# ``raw`` below are protobuf messages; their generated types would not make this safer to read.


def visit_spans(raw: Any, visit: Visit) -> None:
    """Visit the texts of an ``ExportTraceServiceRequest``."""
    for group in raw.resource_spans:
        _visit_group(group, visit)
        for members in group.scope_spans:
            _visit_scope(members, visit)
            for span in members.spans:
                _visit_span(span, visit)


def visit_records(raw: Any, visit: Visit) -> None:
    """Visit the texts of an ``ExportLogsServiceRequest``."""
    for group in raw.resource_logs:
        _visit_group(group, visit)
        for members in group.scope_logs:
            _visit_scope(members, visit)
            for record in members.log_records:
                _visit_texts(record, ("severity_text", "event_name"), visit)
                _visit_value("", record.body, visit)
                _visit_pairs(record.attributes, visit)


def _visit_group(group: Any, visit: Visit) -> None:
    _visit_texts(group, ("schema_url",), visit)
    _visit_pairs(group.resource.attributes, visit)
    if group.resource.entity_refs:  # only names of attributes, which no reader of ours uses
        group.resource.ClearField("entity_refs")


def _visit_scope(members: Any, visit: Visit) -> None:
    _visit_texts(members, ("schema_url",), visit)
    _visit_texts(members.scope, ("name", "version"), visit)
    _visit_pairs(members.scope.attributes, visit)


def _visit_span(span: Any, visit: Visit) -> None:
    _visit_texts(span, ("name", "trace_state"), visit)
    _visit_pairs(span.attributes, visit)
    if span.HasField("status"):
        _visit_texts(span.status, ("message",), visit)
    for event in span.events:
        _visit_texts(event, ("name",), visit)
        _visit_pairs(event.attributes, visit)
    for link in span.links:
        _visit_texts(link, ("trace_state",), visit)
        _visit_pairs(link.attributes, visit)


def _visit_texts(raw: Any, names: Iterable[str], visit: Visit) -> None:
    for name in names:
        text = getattr(raw, name)
        if text and (kept := visit(("", text))) is not None:
            setattr(raw, name, kept)


def _visit_pairs(pairs: Iterable[Any], visit: Visit) -> None:
    for pair in pairs:
        key, value = pair.key, pair.value
        text = value.string_value  # most values are texts; querying the kind costs as much as reading
        if text:
            if (kept := visit((key, text))) is not None:
                value.string_value = kept
        else:
            _visit_value(key, value, visit)
        if (kept := visit(("", key))) is not None:
            pair.key = kept


def _visit_value(key: str, value: Any, visit: Visit) -> None:
    """Visit an ``AnyValue``; recursion is bounded by protobuf's limit on nesting (a hundred messages)."""
    match value.WhichOneof("value"):
        case "string_value":
            if (kept := visit((key, value.string_value))) is not None:
                value.string_value = kept
        case "bytes_value":
            _visit_bytes(key, value, visit)
        case "array_value":
            for each in value.array_value.values:
                _visit_value(key, each, visit)
        case "kvlist_value":
            _visit_pairs(value.kvlist_value.values, visit)
        case "int_value" if abs(value.int_value) >= LARGE_NUMBER:
            _visit_number(key, value, str(value.int_value), visit)
        case "double_value" if LARGE_NUMBER <= abs(value.double_value) < 1e20:
            _visit_number(key, value, f"{value.double_value:.0f}", visit)
        case _:
            pass


def _visit_number(key: str, value: Any, text: str, visit: Visit) -> None:
    if (kept := visit((key, text))) is not None:
        value.string_value = kept


def _visit_bytes(key: str, value: Any, visit: Visit) -> None:
    """Visit bytes as UTF-8, or one character for each byte if they are not UTF-8."""
    data: bytes = value.bytes_value
    try:
        encoding, text = "utf-8", data.decode()
    except UnicodeDecodeError:
        encoding, text = "latin-1", data.decode("latin-1")
    if (kept := visit((key, text))) is not None:
        value.bytes_value = kept.encode(encoding, "replace")
