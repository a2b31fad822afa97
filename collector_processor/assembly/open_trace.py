"""State of one open trace: what its spans say about its end. Pure.

Children end before their parents and are sent before them, so a running trace has spans whose
parents have not arrived. The trace's *top* is its root or, if the root never arrives, a workflow
or agent span below the missing parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from collector_processor.notes import SpanNote
from semconv.model import TraceId

_MAX_KINDS: Final = 8
"""Most kinds of children kept for one missing parent."""
_MAX_SOURCES: Final = 64
"""Most processes kept for one trace; it does not wait for further ones."""
_MAX_TARGETS: Final = 256
"""Most linked traces kept for one trace."""
_HEAVY: Final = 6
"""Weight of a missing parent or link: about 450 bytes, where a span id takes 70."""


@dataclass(slots=True)
class Absence:
    """A missing parent, as described by its children."""

    kinds: set[int]
    """``SpanNote.kind`` of its children."""
    is_remote: bool
    """Whether the children say that it is in another process."""
    is_candidate: bool
    """Whether a whole agent or workflow ended directly below it."""


@dataclass(slots=True)
class OpenTrace:
    """A trace that is open, or was released recently."""

    opened: float
    last: float
    """When spans or log records last arrived."""
    analyses: int = 0
    spans: int = 0
    bytes: int = 0
    root_ended: bool = False
    workflow_ended: bool = False
    is_partial: bool = False
    """Its earlier spans have been dropped here, so missing parents cannot be determined."""
    top_kind: int = 0
    """``SpanNote.kind`` of its root, or of its topmost workflow."""
    top_source: int = 0
    """The process that sent the top span."""
    tail_s: float = 0.0
    """Longest silence in seconds, after the top ended, that was followed by more spans."""
    sources: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    """Ids of its spans."""
    missing: dict[int, Absence] = field(default_factory=dict)
    """Missing parents, by span id."""
    targets: dict[TraceId, int] = field(default_factory=dict)
    """Linked traces, each with the kind of a span that links to it."""
    is_glanced: bool = False
    """A provisional verdict was given, and no span has arrived since."""
    is_ready: bool = False
    """Its own wait is over; it waits for the traces of its group."""
    timer: float | None = None
    """Time of its next check: the only valid entry in the heap."""

    @property
    def size(self) -> int:
        """Memory that it takes, in spans; a missing parent or a linked trace counts as six."""
        return len(self.seen) + _HEAVY * (len(self.missing) + len(self.targets))

    @property
    def top_ended(self) -> bool:
        """Whether a span that encloses the whole run has ended."""
        return self.root_ended or self.workflow_ended

    def note(self, spans: Sequence[SpanNote]) -> list[Absence]:
        """Add ended spans; return the absences resolved by them."""
        self.spans += len(spans)
        inherited: set[int] = set()
        ended: list[Absence] = []
        for span in spans:
            number = int(span.span_id, 16)
            self.seen.add(number)
            absence = self.missing.pop(number, None)
            if absence is not None:
                ended.append(absence)
                if absence.is_candidate and not span.is_marked:
                    inherited.add(number)
        for span in spans:
            self._note_one(span, inherits=int(span.span_id, 16) in inherited)
        return ended

    def _note_one(self, span: SpanNote, *, inherits: bool) -> None:
        if len(self.sources) < _MAX_SOURCES:
            self.sources.add(span.source)
        if len(self.targets) < _MAX_TARGETS:
            self.targets.update(dict.fromkeys(span.links, span.kind))
        if span.parent_id is None:
            self.root_ended = True
        elif span.is_top_kind:
            self.workflow_ended = True
        if span.parent_id is None or (span.is_top_kind and not self.root_ended):
            self.top_kind, self.top_source = span.kind, span.source
        if span.parent_id is not None and (parent := int(span.parent_id, 16)) not in self.seen:
            is_candidate = span.is_agent_kind or span.is_top_kind or inherits
            self._miss(parent, span, is_candidate=is_candidate)

    def _miss(self, parent: int, span: SpanNote, *, is_candidate: bool) -> None:
        absence = self.missing.get(parent)
        if absence is None:
            self.missing[parent] = Absence({span.kind}, span.parent_is_remote, is_candidate)
            return
        absence.is_remote = absence.is_remote or span.parent_is_remote
        absence.is_candidate = absence.is_candidate or is_candidate
        if len(absence.kinds) < _MAX_KINDS:
            absence.kinds.add(span.kind)

    def absences(self) -> Iterable[Absence]:
        """Return the parents that are known to be missing."""
        return () if self.is_partial else self.missing.values()
