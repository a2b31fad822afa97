"""Counts of what Jaeger has of the runs, held against what was sent and what Kafka keeps. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from collector_processor.kafka.progress import Mark
from semconv.attributes import CARRIER, FAILURE_FALLBACK, FAILURE_ID, FAILURE_METHOD, FAILURE_VERSION

_NOWHERE: Final = Mark(offset=0)


class SpanName(NamedTuple):
    """A span, in hexadecimal digits."""

    trace_id: str
    span_id: str


class Where(NamedTuple):
    """A record of the topic of spans."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InKafka:
    """What Kafka keeps."""

    places: Mapping[SpanName, Sequence[Where]]
    """The records that each span is in."""
    cuts: Sequence[Cut]
    """The topic after each kill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The topic of spans at the moment after a kill."""

    marks: Mapping[int, Mark]
    """The last commit of each partition."""
    behind: Mapping[int, int]
    """The offset behind the last record of each partition."""

    def leaves_open(self, where: Where) -> bool:
        """Return whether a record was there and not committed as forwarded: the next owner sends it again."""
        mark = self.marks.get(where.partition, _NOWHERE)
        return where.offset < self.behind.get(where.partition, 0) and not mark.is_forwarded(where.offset)


@dataclass(slots=True, kw_only=True)
class Counts:
    """Counts over all runs."""

    spans: int = 0
    """Spans that were sent and acknowledged."""
    missing: int = 0
    written_twice: int = 0
    """Copies that Kafka has too: a producer repeated a request that was not answered."""
    in_flight: int = 0
    """Copies of spans that were sent on, and not committed as such, at a kill."""
    unexplained: int = 0
    """Copies for any other reason."""
    unjudged: int = 0
    """Runs without a carrier."""
    carriers: int = 0
    """Different carriers; copies of one are not counted."""
    carrier_copies: int = 0
    odd_verdicts: int = 0
    """Versions of a verdict with more than one id, or more than two carriers."""
    later_versions: int = 0
    """Verdicts after a run's first."""
    methods: Counter[str] = field(default_factory=Counter)
    """Verdicts by method, and by the reason for another than was asked for."""

    def faults(self) -> list[str]:
        """Return the broken promises; empty if all were kept."""
        checks = {
            f"{self.missing} spans are missing": self.missing,
            f"{self.unexplained} copies of spans have no explanation": self.unexplained,
            f"{self.unjudged} runs were not judged": self.unjudged,
            f"{self.odd_verdicts} versions of verdicts have several ids": self.odd_verdicts,
        }
        return [what for what, is_so in checks.items() if is_so]


@dataclass(frozen=True, slots=True)
class Found:
    """A trace as Jaeger stores it."""

    copies: Counter[str]
    """How often each of the run's spans is there, by id."""
    carriers: Sequence[Mapping[str, Any]]
    """The attributes of each carrier, with its id as ``""``."""


def read_trace(document: Mapping[str, Any] | None) -> Found:
    """Return what is in a trace as OTLP/JSON; nothing if Jaeger does not have it."""
    copies: Counter[str] = Counter()
    carriers = []
    for span in _spans(document or {}):
        attributes = {one["key"]: _value(one["value"]) for one in span.get("attributes", ())}
        if attributes.get(CARRIER):
            carriers.append(attributes | {"": span["spanId"]})
        else:
            copies[span["spanId"]] += 1
    return Found(copies, carriers)


def _spans(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for group in document.get("resourceSpans", ()):
        for scope in group.get("scopeSpans", ()):
            yield from scope.get("spans", ())


def _value(given: Mapping[str, Any]) -> Any:
    return next(iter(given.values()), None)


def add_trace(counts: Counts, trace_id: str, sent: Sequence[str], found: Found, kept: InKafka) -> None:
    """Add one run to the counts.

    Args:
        counts: are changed.
        trace_id: the run.
        sent: ids of its spans, all acknowledged.
        found: what Jaeger has.
        kept: what Kafka keeps.
    """
    counts.spans += len(sent)
    for span_id in sent:
        places = kept.places.get(SpanName(trace_id, span_id), ())
        copies = found.copies[span_id] - 1
        counts.missing += copies < 0
        again = min(max(copies, 0), max(len(places) - 1, 0))
        open_ = sum(cut.leaves_open(where) for cut in kept.cuts for where in places)
        in_flight = min(max(copies, 0) - again, open_)
        counts.written_twice += again
        counts.in_flight += in_flight
        counts.unexplained += max(copies, 0) - again - in_flight
    _add_verdicts(counts, found)


def _add_verdicts(counts: Counts, found: Found) -> None:
    counts.unjudged += not found.carriers
    versions: dict[str, set[str]] = {}
    ids: dict[str, set[str]] = {}
    for one in found.carriers:
        version = str(one[FAILURE_VERSION])
        versions.setdefault(version, set()).add(str(one[FAILURE_ID]))
        ids.setdefault(version, set()).add(str(one[""]))
    different = sum(map(len, ids.values()))
    counts.carriers += different
    counts.carrier_copies += len(found.carriers) - different
    counts.odd_verdicts += sum(len(versions[one]) > 1 or len(ids[one]) > 2 for one in versions)
    counts.later_versions += max(0, len(versions) - 1)
    said = {(one.get(FAILURE_METHOD), one.get(FAILURE_FALLBACK)) for one in found.carriers}
    for method, fallback in said:
        counts.methods[f"{method}{'' if fallback in {None, 'none'} else f' ({fallback})'}"] += 1
