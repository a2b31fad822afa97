"""A span's place in its trace: parent, ancestors, children.

Built once for a trace and handed to dialects with each span; holds no opinion
on what spans mean. Spans are known by trace and span id together, because a
run may consist of several traces. Nothing here recurses: traces get deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from semconv.model import Span, SpanId, TraceId

Key: TypeAlias = tuple[TraceId, SpanId]
T = TypeVar("T")


def key_of(span: Span) -> Key:
    """Return what a span is known by within a run."""
    return span.trace_id, span.span_id


def moment(span: Span) -> tuple[int, int, str, str]:
    """Return a sort key: start, then end, then ids, so that ties never depend on arrival."""
    return span.start_ns, span.end_ns, span.trace_id, span.span_id


class Surroundings:
    """The spans of one run as a forest.

    Expects what ``collector_processor.repair`` leaves: ids are unique and
    parents form no cycle. A parent that is missing makes its child a root.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = {key_of(span): span for span in spans}
        self._children: dict[Key, list[Span]] = {}
        self._roots: list[Span] = []
        self._linking: dict[Key, list[Span]] = {}
        self._read: dict[tuple[Callable[[Span], Any], Key], Any] = {}
        for span in sorted(self._spans.values(), key=moment):
            for link in span.links:
                self._linking.setdefault((link.trace_id, link.span_id), []).append(span)
            parent = self.parent(span)
            if parent is None:
                self._roots.append(span)
            else:
                self._children.setdefault(key_of(parent), []).append(span)

    @property
    def roots(self) -> Sequence[Span]:
        """The spans without a parent here, earliest first."""
        return self._roots

    def __len__(self) -> int:
        return len(self._spans)

    def parent(self, span: Span) -> Span | None:
        """Return the parent, or ``None`` of a root."""
        if span.parent_id is None:
            return None
        return self._spans.get((span.trace_id, span.parent_id))

    def ancestors(self, span: Span) -> Iterator[Span]:
        """Yield parent, grandparent and so on up to the root."""
        above = self.parent(span)
        while above is not None:
            yield above
            above = self.parent(above)

    def once(self, read: Callable[[Span], T], span: Span) -> T:
        """Return what ``read`` makes of a span of the run, however many spans below it ask for that."""
        key = (read, key_of(span))
        if key not in self._read:
            self._read[key] = read(span)
        found: T = self._read[key]
        return found

    def children(self, span: Span) -> Sequence[Span]:
        """Return the children, earliest first."""
        return self._children.get(key_of(span), ())

    def linking(self, span: Span) -> Sequence[Span]:
        """Return the spans that link to ``span``, earliest first."""
        return self._linking.get(key_of(span), ())

    def walk(self) -> Iterator[Span]:
        """Yield every span once, parents before children, earlier siblings first."""
        stack = list(reversed(self._roots))
        while stack:
            span = stack.pop()
            yield span
            stack.extend(reversed(self.children(span)))
