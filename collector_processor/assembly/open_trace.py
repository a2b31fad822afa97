"""What the spans of one open trace say of its end. Pure.

Children end before their parents and are sent before them, so a trace that still runs has
spans whose parents are not there yet. The trace's *top* is its root, or, where the root never comes,
a workflow or agent span below what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from collector_processor.notes import SpanNote
from semconv.model import TraceId

_MAX_KINDS: Final = 8
"""Kinds of children that are remembered of one missing parent."""
_MAX_SOURCES: Final = 64
"""Processes that are remembered of one trace; further ones are not waited for."""
_MAX_TARGETS: Final = 256
"""Linked traces that are remembered of one trace."""
_HEAVY: Final = 6
"""Some 450 bytes, where the id of a span takes 70."""


@dataclass(slots=True)
class Absence:
    """A parent that is not there, as its children tell of it."""

    kinds: set[int]
    """``SpanNote.kind`` of its children."""
    is_remote: bool
    """They say that it is in another process."""
    is_candidate: bool
    """A whole agent or workflow ended right below it."""


@dataclass(slots=True)
class OpenTrace:
    """One trace that is not complete yet, or was not long ago."""

    opened: float
    last: float
    """When spans or log records last came."""
    analyses: int = 0
    spans: int = 0
    bytes: int = 0
    root_ended: bool = False
    workflow_ended: bool = False
    is_partial: bool = False
    """Its earlier spans are forgotten here: which parents are missing cannot be told."""
    top_kind: int = 0
    """``SpanNote.kind`` of its root, or of its topmost workflow."""
    top_source: int = 0
    """The process that sent it."""
    tail_s: float = 0.0
    """The longest silence after its top had ended that something broke."""
    sources: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    """Ids of its spans."""
    missing: dict[int, Absence] = field(default_factory=dict)
    """Parents that are not there, by id."""
    targets: dict[TraceId, int] = field(default_factory=dict)
    """Traces that its spans link to, and the kind of a span that does."""
    is_glanced: bool = False
    """Its provisional verdict is given; nothing came since."""
    is_ready: bool = False
    """It has waited long enough by itself, and waits for traces that it is linked with."""
    timer: float | None = None
    """When it is looked at next: the one entry in the heap that counts."""

    @property
    def size(self) -> int:
        """What it takes in memory, in spans: a missing parent or a linked trace takes as much as six."""
        return len(self.seen) + _HEAVY * (len(self.missing) + len(self.targets))

    @property
    def top_ended(self) -> bool:
        """Whether something ended that encloses a whole run."""
        return self.root_ended or self.workflow_ended

    def note(self, spans: Sequence[SpanNote]) -> list[Absence]:
        """Learn from spans that ended; return the absences that they end."""
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
